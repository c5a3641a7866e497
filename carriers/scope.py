"""The scope of an adapter: which texts a generation answers with its adapter, and which as the base model does.

An update changes what the model says everywhere, yet it is wanted only where a trained fact is asked for. So an adapter
keeps, beside its weights, a direction for the questions of each trained fact and one for its statement, and hashes of
the words these say. A text is in scope if it lies near one of the directions and names nothing that fact does not name;
everywhere else the base model answers, which no training can damage (a scope classifier as in SERAC, Mitchell et al.,
2022, here over the embedder of the index). A scope holds no text, so it cannot answer anything itself.
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
_FULL_SCALE = 127  # a direction is kept in 8 bits a number


class ScopedFact(NamedTuple):
    """What a scope is made from: the questions that train one fact, and its statement."""

    questions: tuple[str, ...]
    text: str


class Scope:
    """Tells which texts an adapter answers.

    Args (of the constructor):
        vectors: One direction per row, [n, dimension], int8; a row is proportional to a unit vector.
        words: For each row the hashes of all word stems that its fact says.
        similarity: Smallest cosine similarity of a text to a direction.
        embedder: Turns texts into unit vectors.
    """

    def __init__(
        self,
        vectors: NDArray[np.int8],
        words: Sequence[NDArray[np.uint32]],
        similarity: float,
        embedder: SentenceEmbedder,
    ) -> None:
        self._stored, self._words = vectors, list(words)
        self.similarity = similarity
        self._embedder = embedder
        self._directions = _unit(vectors.astype(np.float32))
        self._rows: dict[int, set[int]] = defaultdict(set)
        for row, hashes in enumerate(words):
            for number in hashes.tolist():
                self._rows[number].add(row)

    @classmethod
    def of(cls, facts: Sequence[ScopedFact], similarity: float, embedder: SentenceEmbedder) -> Scope:
        """Make the scope of an update from what it is trained on."""
        texts = [(*fact.questions, fact.text) for fact in facts]
        embedded = iter(embedder.embed([text for own in texts for text in own]))
        vectors, words = [], []
        for own in texts:
            *questions, statement = (next(embedded) for _ in own)
            vectors += [np.mean(questions, axis=0), statement]
            words += [_hashes(stem for text in own for stem in stems_in(text))] * 2
        return cls(_packed(np.array(vectors).reshape(-1, embedder.dimension)), words, similarity, embedder)

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
                vectors, words, ends = (stored.get_tensor(name) for name in ("vectors", "words", "ends"))
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"{file}: damaged; run `sharpwave doctor`") from error
        if told[_EMBEDDER] != embedder.fingerprint:
            raise WeightsError(
                f"{file}: made with another embedder ({told[_EMBEDDER]}); run `sharpwave doctor --reembed`"
            )
        return cls(vectors, np.split(words, ends)[:-1], float(told[_SIMILARITY]), embedder)

    def write(self, adapter: Path) -> None:
        """Write the scope into an adapter folder, which is made if need be."""
        from safetensors.numpy import save_file

        adapter.mkdir(parents=True, exist_ok=True)
        save_file(
            {
                "vectors": self._stored,
                "words": np.concatenate([np.zeros(0, dtype=np.uint32), *self._words]),
                "ends": np.cumsum([len(hashes) for hashes in self._words], dtype=np.int64),
            },
            str(adapter / SCOPE_FILE),
            {_EMBEDDER: self._embedder.fingerprint, _SIMILARITY: repr(self.similarity)},
        )

    def joined(self, later: Scope) -> Scope:
        """Return the scope of two adapters stacked; the later one's similarity holds for both."""
        vectors = np.concatenate([self._stored, later._stored])
        return Scope(vectors, [*self._words, *later._words], later.similarity, self._embedder)

    def covers(self, texts: Sequence[str]) -> list[bool]:
        """Tell for each text, a question, a prompt that asks one, or a statement, whether the adapter answers it."""
        if not texts:
            return []
        asked = [question_of(text) for text in texts]
        vectors = self._embedder.embed(asked)
        return [self._covers(text, vector) for text, vector in zip(asked, vectors, strict=True)]

    def _covers(self, text: str, vector: NDArray[np.float32]) -> bool:
        names = _hashes(names_in(text)).tolist()
        directions = self._directions
        if names:
            rows = set.intersection(*(self._rows.get(name, set()) for name in names))
            directions = directions[sorted(rows)]
        return bool(len(directions)) and bool((directions @ vector).max() >= self.similarity)


def stacked_scope(parent: Path | None, own: Scope | None, embedder: SentenceEmbedder) -> Scope | None:
    """Return the scope of an update stacked on a parent; None if one of the two answers everything.

    Args:
        parent: Adapter folder of the parent; None for the base model.
        own: Scope of the update.
        embedder: That both were made with.
    """
    if parent is None or own is None:
        return own
    former = Scope.read(parent, embedder)
    return None if former is None else former.joined(own)


def stack_scopes(parent: Path | None, update: Path, target: Path, embedder: SentenceEmbedder) -> None:
    """Write the scope of an adapter stacked from two to its folder; none if one of the two answers everything."""
    stacked = stacked_scope(parent, Scope.read(update, embedder), embedder)
    (target / SCOPE_FILE).unlink(missing_ok=True)
    if stacked is not None:
        stacked.write(target)


def _hashes(stems: Iterable[str]) -> NDArray[np.uint32]:
    digests = {hashlib.blake2b(stem.encode(), digest_size=4).digest() for stem in stems}
    return np.array(sorted(int.from_bytes(digest, "little") for digest in digests), dtype=np.uint32)


def _packed(vectors: NDArray[np.float32]) -> NDArray[np.int8]:
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    packed: NDArray[np.int8] = np.round(vectors * (_FULL_SCALE / largest)).astype(np.int8)
    return packed


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit
