"""The arms that the memory is compared with: each is some facts held outside the model, and a way to recall.

All share reader, embedder, prompts and the number of notes with the memory itself; they differ only in what they
keep. The plain arms index bare statements without slots, since a naive store knows nothing of updates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from carriers.memory_index import MemoryIndex
from carriers.recall import Note, NoteSource, Recall
from eval.run_records import NetBytes
from sharpwave.records import Fact

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from carriers.embedder import SentenceEmbedder
    from carriers.language_model import LanguageModel
    from sharpwave.settings import RecallSettings


@dataclass(frozen=True)
class Arm:
    """Something that can be asked.

    Attributes:
        name: Key of the arm in records.
        recall: Answers the questions.
        held: The texts of the facts that it holds outside the model.
        net_bytes: What it takes on disk; None where it is only a view of another arm's store.
    """

    name: str
    recall: Recall
    held: frozenset[str]
    net_bytes: NetBytes | None


class NoNotes:
    """A note source that finds nothing: whoever recalls from it is left with the weights."""

    def find(
        self, namespace: str, questions: Sequence[str], top_k: int, as_of: datetime | None
    ) -> list[list[Note]]:
        """See `carriers.recall.NoteSource`."""
        return [[] for _ in questions]

    def replaces_learnt(self, fact_id: str) -> bool:
        """See `carriers.recall.NoteSource`."""
        return False


class NotesWithout:
    """The notes of another source, less those of some facts: what it would find had these not been stored."""

    def __init__(self, source: NoteSource, hidden: Collection[str]) -> None:
        self._source = source
        self._hidden = frozenset(hidden)

    def find(
        self, namespace: str, questions: Sequence[str], top_k: int, as_of: datetime | None
    ) -> list[list[Note]]:
        """See `carriers.recall.NoteSource`."""
        found = self._source.find(namespace, questions, top_k + len(self._hidden), as_of)
        return [[note for note in notes if note.fact_id not in self._hidden][:top_k] for notes in found]

    def replaces_learnt(self, fact_id: str) -> bool:
        """See `carriers.recall.NoteSource`."""
        return self._source.replaces_learnt(fact_id)


class PlainStore:
    """Statements in an index of their own, without ledger, slots or validity: a note source for recall."""

    def __init__(self, folder: Path, embedder: SentenceEmbedder) -> None:
        self.index = MemoryIndex.open(folder, embedder)

    def close(self) -> None:
        """Close the index."""
        self.index.close()

    def hold(self, facts: Iterable[Fact]) -> None:
        """Hold exactly these facts: add those missing, take out the others."""
        wanted = {fact.id: fact for fact in map(bare_fact, facts)}
        held = self.index.ids()
        self.index.delete(sorted(held - wanted.keys()))
        self.index.upsert([fact for fact_id, fact in wanted.items() if fact_id not in held])

    def find(
        self, namespace: str, questions: Sequence[str], top_k: int, as_of: datetime | None
    ) -> list[list[Note]]:
        """See `carriers.recall.NoteSource`; validity is unknown here, so `as_of` changes nothing."""
        found = self.index.query(namespace, questions, top_k, None)
        return [[Note(hit.fact_id, hit.text, hit.similarity) for hit in hits] for hits in found]

    def replaces_learnt(self, fact_id: str) -> bool:
        """See `carriers.recall.NoteSource`; nothing is known of slots."""
        return False


@contextmanager
def plain_arm(
    name: str,
    folder: Path,
    facts: Sequence[Fact],
    *,
    embedder: SentenceEmbedder,
    reader: LanguageModel,
    settings: RecallSettings,
) -> Iterator[Arm]:
    """Open the arm that holds exactly these statements in an index of its own."""
    store = PlainStore(folder, embedder)
    try:
        store.hold(facts)
        held = frozenset(fact.text for fact in facts)
        text_bytes = sum(len(text.encode("utf-8")) for text in held)
        sizes = NetBytes(vectors=store.index.vector_bytes(), text=text_bytes, ledger=0, adapters=0)
        yield Arm(name, base_recall(store, reader, settings), held, sizes)
    finally:
        store.close()


def no_memory_arm(name: str, reader: LanguageModel, settings: RecallSettings) -> Arm:
    """Return the arm that is the base model alone."""
    nothing = NetBytes(vectors=0, text=0, ledger=0, adapters=0)
    return Arm(name, base_recall(NoNotes(), reader, settings), frozenset(), nothing)


def base_recall(source: NoteSource, reader: LanguageModel, settings: RecallSettings) -> Recall:
    """Return a recall whose weights are the base model's."""
    return Recall(source, reader=reader, weights=reader, settings=settings, generation=0)


def bare_fact(fact: Fact) -> Fact:
    """Return the statement alone, as a naive store would keep it."""
    return Fact(text=fact.text, namespace=fact.namespace, observed_at=fact.observed_at)


def always_from_store(settings: RecallSettings) -> RecallSettings:
    """Return settings under which whatever is found in the store is believed, as naive retrieval does."""
    return settings.model_copy(update={"sure_similarity": -1.0})


def random_facts(facts: Sequence[Fact], count: int, seed: int) -> list[Fact]:
    """Return `count` facts by a seeded hash order: a fact once in stays in while the count does not shrink."""
    return sorted(facts, key=lambda fact: hashlib.sha256(f"{seed}/{fact.id}".encode()).digest())[:count]


def latest_facts(arrivals: Sequence[Fact], count: int) -> list[Fact]:
    """Return the `count` different facts that arrived last; one that arrives again counts as new."""
    last = {fact.id: fact for fact in reversed(arrivals)}
    return list(last.values())[:count]


def most_novel_facts(facts: Sequence[Fact], count: int, novelty: Sequence[float]) -> list[Fact]:
    """Return the `count` facts of highest novelty; of equally novel ones the earlier."""
    order = sorted(range(len(facts)), key=lambda place: -novelty[place])
    return [facts[place] for place in order[:count]]


class NoveltyFile:
    """How unlike each fact was to all before it, kept with the vectors so that no fact is embedded twice."""

    def __init__(self, file: Path, embedder: SentenceEmbedder) -> None:
        self._file = file
        self._embedder = embedder

    def of(self, facts: Sequence[Fact]) -> list[float]:
        """Return 1 - the highest cosine to any earlier fact, for facts in order of arrival; 1 for the first.

        A later call must bring the facts of the former one, in the same order, before new ones.
        """
        vectors, novelty = self._kept()
        fresh = self._embedder.embed([fact.text for fact in facts[len(novelty) :]])
        for vector in fresh:
            novelty.append(float(1 - (vectors @ vector).max()) if len(vectors) else 1.0)
            vectors = np.concatenate([vectors, vector[None]])
        self._file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._file.with_suffix(".new.npz")
        np.savez(temporary, vectors=vectors, novelty=np.array(novelty))
        temporary.replace(self._file)
        return novelty

    def _kept(self) -> tuple[NDArray[np.float32], list[float]]:
        if not self._file.exists():
            return np.zeros((0, self._embedder.dimension), dtype=np.float32), []
        with np.load(self._file) as kept:
            return kept["vectors"], kept["novelty"].tolist()
