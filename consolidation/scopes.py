"""Scopes of what is trained: that of a night's update, and all of them anew for another embedder.

Directions belong to one embedder, so another one needs them made again from the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from carriers.adapter_files import adapter_digest, generation_folder
from carriers.scope import SCOPE_FILE, Scope, ScopedFact
from consolidation.night_folder import generated_wordings
from consolidation.targets import known_targets

if TYPE_CHECKING:
    from carriers.embedder import SentenceEmbedder
    from carriers.external_memory import ExternalMemory
    from consolidation.records import FactTargets


def scope_of(targets: Sequence[FactTargets], similarity: float, embedder: SentenceEmbedder) -> Scope:
    """Return the scope of an adapter trained on these targets; their probe wordings have no part in it."""
    return Scope.of([ScopedFact(item.train_questions, item.text) for item in targets], similarity, embedder)


def rescope_generations(memory: ExternalMemory, similarity: float) -> list[int]:
    """Make the scope of every kept adapter that has one anew, with the store's embedder; return the generations.

    Facts forgotten since are left out. Each adapter is verified first, for one that is damaged must not be sealed anew.

    Args:
        memory: The store, open for writing, no night under way.
        similarity: Smallest cosine similarity of a text in scope.

    Raises:
        IntegrityError: An adapter is damaged; it and those after it are left as they are.
    """
    done = []
    for generation in memory.generations.all():
        folder = generation_folder(memory.generations.directory, generation.number) / "adapter"
        if generation.adapter_digest is None or not (folder / SCOPE_FILE).is_file():
            continue
        memory.generations.adapter_folder(generation.number)
        scope_of(_trained(memory, generation.number), similarity, memory.index.embedder).write(folder)
        memory.generations.reseal(generation.number, adapter_digest(folder))
        done.append(generation.number)
    return done


def _trained(memory: ExternalMemory, number: int) -> list[FactTargets]:
    lineage = set(memory.generations.lineage(number))
    ids = [
        fact_id
        for generation in memory.generations.all()
        if generation.number in lineage
        for fact_id in generation.trained_fact_ids
    ]
    return known_targets(memory.ledger.facts(list(dict.fromkeys(ids))), generated_wordings(memory.directory))
