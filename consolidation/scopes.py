"""Scopes of what is trained: that of a night's update, and all of them anew for another embedder.

Directions belong to one embedder, so another one needs them made again from the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from carriers.adapter_files import adapter_digest, generation_folder
from carriers.scope import SCOPE_FILE, Scope, ScopedFact, stored_ranks
from consolidation.night_folder import generated_wordings
from consolidation.targets import known_targets

if TYPE_CHECKING:
    from carriers.external_memory import ExternalMemory
    from consolidation.records import FactTargets


def scope_of(memory: ExternalMemory, targets: Sequence[FactTargets], rank: int, similarity: float) -> Scope:
    """Return the scope of an update of some rank trained on these targets; their probe wordings have no part in it."""
    slots = {fact.id: fact.slot_number for fact in memory.ledger.facts([item.fact_id for item in targets])}
    facts = [ScopedFact(item.train_questions, item.text, _key(item.fact_id, slots)) for item in targets]
    return Scope.of(facts, rank, similarity, memory.index.embedder)


def _key(fact_id: str, slots: Mapping[str, int | None]) -> str:
    """Return what a fact shares with other values of its slot; a fact without a slot, with itself alone."""
    slot = slots[fact_id]
    return f"fact {fact_id}" if slot is None else f"slot {slot}"


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
        _scope_anew(memory, generation.number, stored_ranks(folder), similarity).write(folder)
        memory.generations.reseal(generation.number, adapter_digest(folder))
        done.append(generation.number)
    return done


def _scope_anew(memory: ExternalMemory, number: int, ranks: Sequence[int], similarity: float) -> Scope:
    """Return the scope of a generation, each of whose ancestors but the base left one update of its rank."""
    _, *taught = memory.generations.lineage(number)
    updates = [
        scope_of(memory, _trained(memory, ancestor), rank, similarity)
        for ancestor, rank in zip(taught, ranks, strict=True)
    ]
    return reduce(Scope.joined, updates)


def _trained(memory: ExternalMemory, number: int) -> list[FactTargets]:
    ids = memory.generations.get(number).trained_fact_ids
    return known_targets(memory.ledger.facts(ids), generated_wordings(memory.directory))
