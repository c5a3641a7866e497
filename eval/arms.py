"""The arms that the memory is compared with: full store, random at equal storage, no memory.

All share reader, embedder, prompts and the number of notes with the memory itself; they differ only in what they
keep. The arms index bare statements without slots, since a naive store knows nothing of updates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from carriers.memory_index import MemoryIndex
from carriers.recall import Note, Recall
from eval.run_records import FULL_STORE_ARM, NO_MEMORY_ARM, RANDOM_ARM
from sharpwave.records import AnswerOrigin, Fact, RecallAnswer

if TYPE_CHECKING:
    from carriers.embedder import SentenceEmbedder
    from carriers.language_model import LanguageModel
    from sharpwave.settings import RecallSettings


class Arm(Protocol):
    """Something that can be asked and says how many facts it holds."""

    @property
    def name(self) -> str:
        """Key of the arm in records."""

    @property
    def hot(self) -> int:
        """Facts held outside the model."""

    def answer(self, questions: Sequence[str]) -> list[RecallAnswer]:
        """Answer questions in the order given."""


class RecallArm:
    """Any recall as an arm: the memory itself, or a store with another rule of admission."""

    def __init__(self, name: str, recall: Recall, hot: int) -> None:
        self.name = name
        self.recall = recall
        self.hot = hot

    def answer(self, questions: Sequence[str]) -> list[RecallAnswer]:
        """See `Arm.answer`."""
        return self.recall.answer(questions)


class NoMemoryArm:
    """The base model alone."""

    name = NO_MEMORY_ARM
    hot = 0

    def __init__(self, recall: Recall) -> None:
        self.recall = recall

    def answer(self, questions: Sequence[str]) -> list[RecallAnswer]:
        """See `Arm.answer`."""
        return [
            RecallAnswer(
                question=question,
                text=answer.text,
                origin=AnswerOrigin.WEIGHTS,
                lowest_token_prob=answer.lowest_prob,
                generation=0,
            )
            for question, answer in zip(questions, self.recall.ask_weights(questions), strict=True)
        ]


class PlainStore:
    """Statements in an index of their own, without ledger, slots or validity: a note source for recall."""

    def __init__(self, folder: Path, embedder: SentenceEmbedder) -> None:
        self.index = MemoryIndex.open(folder, embedder)

    def close(self) -> None:
        """Close the index."""
        self.index.close()

    def hold(self, facts: Iterable[Fact]) -> int:
        """Hold exactly these facts: add those missing, take out the others; return how many are held."""
        wanted = {fact.id: fact for fact in map(bare_fact, facts)}
        held = self.index.ids()
        self.index.delete(sorted(held - wanted.keys()))
        self.index.upsert([fact for fact_id, fact in wanted.items() if fact_id not in held])
        return len(wanted)

    def find(
        self, namespace: str, questions: Sequence[str], top_k: int, as_of: datetime | None
    ) -> list[list[Note]]:
        """See `carriers.recall.NoteSource`; validity is unknown here, so `as_of` changes nothing."""
        found = self.index.query(namespace, questions, top_k, None)
        return [[Note(hit.fact_id, hit.text, hit.similarity) for hit in hits] for hits in found]

    def replaces_learnt(self, fact_id: str) -> bool:
        """See `carriers.recall.NoteSource`; nothing is known of slots."""
        return False


def bare_fact(fact: Fact) -> Fact:
    """Return the statement alone, as a naive store would keep it."""
    return Fact(text=fact.text, namespace=fact.namespace, observed_at=fact.observed_at)


def always_from_store(settings: RecallSettings) -> RecallSettings:
    """Return settings under which whatever is found in the store is believed, as naive retrieval does."""
    return settings.model_copy(update={"sure_similarity": -1.0})


def random_subset(facts: Sequence[Fact], count: int, seed: int) -> list[Fact]:
    """Return `count` facts by a seeded hash order: a fact once in stays in while the count does not shrink."""
    return sorted(facts, key=lambda fact: hashlib.sha256(f"{seed}/{fact.id}".encode()).digest())[:count]


def full_store_arm(
    folder: Path,
    embedder: SentenceEmbedder,
    reader: LanguageModel,
    settings: RecallSettings,
    facts: Sequence[Fact],
) -> RecallArm:
    """Return the arm that keeps every statement and always reads from the store."""
    store = PlainStore(folder, embedder)
    held = store.hold(facts)
    recall = Recall(store, reader=reader, weights=reader, settings=always_from_store(settings), generation=0)
    return RecallArm(FULL_STORE_ARM, recall, held)


def random_arm(
    folder: Path,
    embedder: SentenceEmbedder,
    reader: LanguageModel,
    settings: RecallSettings,
    facts: Sequence[Fact],
    *,
    count: int,
    seed: int,
) -> RecallArm:
    """Return the arm that keeps as many statements as the memory does, chosen at random."""
    store = PlainStore(folder, embedder)
    held = store.hold(random_subset(facts, count, seed))
    recall = Recall(store, reader=reader, weights=reader, settings=settings, generation=0)
    return RecallArm(RANDOM_ARM, recall, held)
