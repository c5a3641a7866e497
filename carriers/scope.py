"""The scope of an adapter: which texts a generation answers with its adapter, and which as the base model does.

An update changes what the model says everywhere, yet it is wanted only where a trained fact is asked for. So an adapter
keeps, beside its weights, a direction for the questions of each trained fact and one for its statement, and hashes of
the words these say. A text is in scope if it lies near one of the directions and names nothing that fact does not name;
everywhere else the base model answers, which no training can damage (a scope classifier as in SERAC, Mitchell et al.,
2022, here over the embedder of the index). A scope holds no text, so it cannot answer anything itself.

An adapter is a stack of updates, one a night. The scope tells which of them answers a text: the one that taught the
fact asked for, alone, on the base model. So no later night can change what a fact was proven with. What a later night
teaches anew, a newer value of a slot or the same fact, is out of the scope of the earlier update.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carriers.prompts import question_of
from carriers.question_names import names_in, stems_in
from sharpwave.errors import WeightsError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from carriers.embedder import SentenceEmbedder

SCOPE_FILE = "scope.safetensors"
_EMBEDDER, _SIMILARITY = "embedder", "similarity"
_TENSORS = ("vectors", "words", "ends", "keys", "updates", "ranks")
_FULL_SCALE = 127  # a direction is kept in 8 bits a number


class ScopedFact(NamedTuple):
    """What a scope is made from: the questions that train one fact, and its statement.

    Of facts with the same key, such as two values of a slot, only the one taught last is in scope.
    """

    questions: tuple[str, ...]
    text: str
    key: str


class Scope:
    """Tells which texts an adapter answers, and with which of its updates.

    Args (of the constructor):
        vectors: Two directions per fact, of its questions and of its statement, [2 n, dimension], int8; each is
            proportional to a unit vector.
        words: For each fact the hashes of all word stems that it says.
        keys: For each fact the hash of its key, [n], uint64.
        updates: For each fact the place of the update that taught it, from 0, [n].
        ranks: The rank of each update, in the order in which they were stacked.
        similarity: Smallest cosine similarity of a text to a direction.
        embedder: Turns texts into unit vectors.
    """

    def __init__(
        self,
        vectors: NDArray[np.int8],
        words: Sequence[NDArray[np.uint32]],
        keys: NDArray[np.uint64],
        updates: NDArray[np.int32],
        ranks: Sequence[int],
        similarity: float,
        embedder: SentenceEmbedder,
    ) -> None:
        self._stored, self._words, self._keys, self._updates = vectors, list(words), keys, updates
        self.ranks = tuple(ranks)
        self.similarity = similarity
        self._embedder = embedder
        self._directions = _unit(vectors.astype(np.float32)).reshape(-1, 2, embedder.dimension)
        self._saying: dict[int, set[int]] = defaultdict(set)
        for fact, hashes in enumerate(words):
            for number in hashes.tolist():
                self._saying[number].add(fact)

    @classmethod
    def of(
        cls, facts: Sequence[ScopedFact], rank: int, similarity: float, embedder: SentenceEmbedder
    ) -> Scope:
        """Make the scope of one update of some rank from what it is trained on."""
        texts = [(*fact.questions, fact.text) for fact in facts]
        embedded = iter(embedder.embed([text for own in texts for text in own]))
        vectors, words = [], []
        for own in texts:
            *questions, statement = (next(embedded) for _ in own)
            vectors += [np.mean(questions, axis=0), statement]
            words.append(_hashes(stem for text in own for stem in stems_in(text)))
        packed = _packed(np.array(vectors).reshape(-1, embedder.dimension))
        keys = np.array([_hash(fact.key, 8) for fact in facts], dtype=np.uint64)
        return cls(packed, words, keys, np.zeros(len(facts), dtype=np.int32), [rank], similarity, embedder)

    @classmethod
    def read(cls, adapter: Path, embedder: SentenceEmbedder) -> Scope | None:
        """Read the scope in an adapter folder; None if it has none, so that the adapter answers everything.

        Raises:
            WeightsError: The file is damaged, or was made with another embedder.
        """
        from safetensors import SafetensorError, safe_open

        file = adapter / SCOPE_FILE
        if not file.is_file():
            return None
        try:
            with safe_open(str(file), framework="np") as stored:
                told = stored.metadata()
                vectors, words, ends, keys, updates, ranks = (stored.get_tensor(name) for name in _TENSORS)
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"{file}: damaged; run `sharpwave doctor`") from error
        if told[_EMBEDDER] != embedder.fingerprint:
            raise WeightsError(
                f"{file}: made with another embedder ({told[_EMBEDDER]}); run `sharpwave doctor --reembed`"
            )
        said = np.split(words, ends)[:-1]
        return cls(vectors, said, keys, updates, ranks.tolist(), float(told[_SIMILARITY]), embedder)

    def write(self, adapter: Path) -> None:
        """Write the scope into an adapter folder, which is made if need be."""
        from safetensors.numpy import save_file

        adapter.mkdir(parents=True, exist_ok=True)
        save_file(
            {
                "vectors": self._stored,
                "words": np.concatenate([np.zeros(0, dtype=np.uint32), *self._words]),
                "ends": np.cumsum([len(hashes) for hashes in self._words], dtype=np.int64),
                "keys": self._keys,
                "updates": self._updates,
                "ranks": np.array(self.ranks, dtype=np.int64),
            },
            str(adapter / SCOPE_FILE),
            {_EMBEDDER: self._embedder.fingerprint, _SIMILARITY: repr(self.similarity)},
        )

    def joined(self, later: Scope) -> Scope:
        """Return the scope of two adapters stacked; the later one's similarity holds for both."""
        kept = np.flatnonzero(~np.isin(self._keys, later._keys))
        pairs = self._stored.reshape(-1, 2, self._embedder.dimension)
        return Scope(
            np.concatenate([pairs[kept].reshape(-1, self._embedder.dimension), later._stored]),
            [*(self._words[fact] for fact in kept), *later._words],
            np.concatenate([self._keys[kept], later._keys]),
            np.concatenate([self._updates[kept], later._updates + np.int32(len(self.ranks))]),
            [*self.ranks, *later.ranks],
            later.similarity,
            self._embedder,
        )

    def covers(self, texts: Sequence[str]) -> list[bool]:
        """Tell for each text, a question, a prompt that asks one, or a statement, whether the adapter answers it."""
        return [update is not None for update in self.updates_for(texts)]

    def updates_for(self, texts: Sequence[str]) -> list[int | None]:
        """Return for each text the place of the update that answers it, from 0; None where the base model does."""
        if not texts:
            return []
        asked = [question_of(text) for text in texts]
        vectors = self._embedder.embed(asked)
        return [self._update_for(text, vector) for text, vector in zip(asked, vectors, strict=True)]

    def _update_for(self, text: str, vector: NDArray[np.float32]) -> int | None:
        names = _hashes(names_in(text)).tolist()
        facts = np.arange(len(self._directions))
        if names:
            saying = set.intersection(*(self._saying.get(name, set()) for name in names))
            facts = np.array(sorted(saying), dtype=np.intp)
        if not len(facts):
            return None
        similarities = (self._directions[facts] @ vector).max(axis=1)
        nearest = facts[similarities == similarities.max()]
        return int(self._updates[nearest].max()) if similarities.max() >= self.similarity else None


def stack_scopes(parent: Path | None, update: Path, target: Path, embedder: SentenceEmbedder) -> None:
    """Write the scope of an adapter stacked from two to its folder; none if one of the two answers everything.

    Args:
        parent: Adapter folder of the parent; None for the base model.
        update: Folder of the update.
        target: Folder of the stacked adapter.
        embedder: That both scopes were made with.
    """
    own = Scope.read(update, embedder)
    former = Scope.read(parent, embedder) if parent is not None else None
    (target / SCOPE_FILE).unlink(missing_ok=True)
    if own is not None and parent is None:
        own.write(target)
    elif own is not None and former is not None:
        former.joined(own).write(target)


def stored_ranks(adapter: Path) -> tuple[int, ...]:
    """Return the ranks of the updates in an adapter folder with a scope, whichever embedder that was made with."""
    from safetensors.numpy import load_file

    return tuple(load_file(str(adapter / SCOPE_FILE))["ranks"].tolist())


def _hashes(stems: Iterable[str]) -> NDArray[np.uint32]:
    return np.array(sorted({_hash(stem, 4) for stem in stems}), dtype=np.uint32)


def _hash(text: str, size: int) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest(), "little")


def _packed(vectors: NDArray[np.float32]) -> NDArray[np.int8]:
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    packed: NDArray[np.int8] = np.round(vectors * (_FULL_SCALE / largest)).astype(np.int8)
    return packed


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit
