"""The vector index over what is hot: a Chroma collection that can be rebuilt from the ledger at any moment.

Holds for each fact its vector, text, namespace and validity. It decides nothing: `external_memory` says
what enters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self

from carriers.chroma_connection import DATABASE_NAME, ChromaConnection, lock_file
from carriers.index_entry import Hit, IndexEntry
from carriers.index_search import search_collection
from sharpwave.errors import IntegrityError, StoreError
from sharpwave.records import utc_now

__all__ = ["Hit", "IndexEntry", "MemoryIndex"]

if TYPE_CHECKING:
    import numpy as np
    from chromadb.api.models.Collection import Collection
    from numpy.typing import NDArray

    from carriers.embedder import SentenceEmbedder
    from carriers.ledger_records import StoredFact
    from sharpwave.records import Fact

UPSERT_BATCH = 500
PAGE_SIZE = 1_000
QUESTION_BATCH = 64
FLOAT_BYTES = 4


class MemoryIndex:
    """A handle on the index folder; open as many as you like, in any process, and close each.

    Every call holds a lock for its own duration only, so readers and one writer may work side by side. That
    there is only one writer is the business of `write_lock`.
    """

    def __init__(self, path: Path, embedder: SentenceEmbedder, connection: ChromaConnection) -> None:
        self.path = path
        self.embedder = embedder
        self._connection = connection
        self._is_closed = False

    @classmethod
    def open(cls, path: Path, embedder: SentenceEmbedder) -> Self:
        """Open the index at `path`, creating an empty one if there is none.

        Raises:
            StoreError: the index was built with another embedder; the message names the command that
                re-embeds.
            IntegrityError: Chroma cannot read its files; the message names the command that rebuilds.
        """
        return cls._attach(path, embedder, wipe=False)

    @classmethod
    def create(cls, path: Path, embedder: SentenceEmbedder) -> Self:
        """Open a new, empty index at `path`, removing whatever is there, readable or not."""
        return cls._attach(path, embedder, wipe=True)

    @classmethod
    def _attach(cls, path: Path, embedder: SentenceEmbedder, *, wipe: bool) -> Self:
        connection = ChromaConnection.attach(Path(path))
        index = cls(Path(path), embedder, connection)
        try:
            connection.create(embedder.fingerprint, wipe=wipe)
            with index._session():  # checks the fingerprint
                pass
        except BaseException:
            connection.detach()
            raise
        return index

    def close(self) -> None:
        """Give the files back; harmless twice."""
        if not self._is_closed:
            self._is_closed = True
            self._connection.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def upsert(self, facts: Sequence[Fact | StoredFact]) -> None:
        """Embed the facts and put them in, replacing those with the same id; 1 ms each beside the embedding.

        Raises:
            IntegrityError: afterwards the index does not hold every one of them.
        """
        entries = list({entry.fact_id: entry for entry in map(IndexEntry.of, facts)}.values())
        size = self._batch_size()
        for start in range(0, len(entries), size):
            batch = entries[start : start + size]
            vectors = self.embedder.embed([entry.text for entry in batch])  # before the lock is taken
            with self._session(write=True) as collection:
                _upsert_batch(collection, batch, vectors)

    def delete(self, ids: Sequence[str]) -> None:
        """Take facts out; ids that are not there are ignored."""
        size = self._batch_size()
        distinct = list(dict.fromkeys(ids))
        for start in range(0, len(distinct), size):
            batch = distinct[start : start + size]
            with self._session(write=True) as collection:
                collection.delete(ids=batch)
                left = collection.get(ids=batch, include=[])["ids"]
            if left:
                raise IntegrityError(f"{self.path}: {len(left)} facts could not be deleted, first {left[0]}")

    def query(
        self, namespace: str, questions: Sequence[str], top_k: int, as_of: datetime | None = None
    ) -> list[list[Hit]]:
        """Find for each question the nearest facts of the namespace that hold at `as_of` (None: now).

        Chroma's own filters cost time in proportion to the facts that pass them (150 ms at 20,000). So the
        first look is unfiltered and a little wider than `top_k`, and what is foreign or not valid is
        dropped here; only questions left with fewer than `top_k` are put again with a filter. No hit leaves
        without the check of namespace and time.
        """
        if top_k < 1 or not questions:
            return [[] for _ in questions]
        moment = (as_of or utc_now()).timestamp()
        vectors = self.embedder.embed(questions)
        hits: list[list[Hit]] = []
        for start in range(0, len(questions), QUESTION_BATCH):
            with self._session() as collection:
                hits += search_collection(
                    collection, vectors[start : start + QUESTION_BATCH], namespace, top_k, moment
                )
        return hits

    def ids(self) -> set[str]:
        """Return the ids of all facts in the index, of every namespace."""
        return {fact_id for page in self._id_pages() for fact_id in page}

    def entries(self, ids: Sequence[str]) -> dict[str, IndexEntry]:
        """Return what the index holds of these facts; ids that are not there are left out."""
        found: dict[str, IndexEntry] = {}
        distinct = list(dict.fromkeys(ids))
        for start in range(0, len(distinct), PAGE_SIZE):
            wanted = distinct[start : start + PAGE_SIZE]
            with self._session() as collection:
                page = collection.get(ids=wanted, include=["documents", "metadatas"])
            rows = zip(page["ids"], page["documents"] or (), page["metadatas"] or (), strict=True)
            found.update(
                (fact_id, IndexEntry.decode(fact_id, text, metadata)) for fact_id, text, metadata in rows
            )
        return found

    def count(self) -> int:
        """Return how many facts the index holds, over all namespaces."""
        with self._session() as collection:
            return collection.count()

    def vector_bytes(self) -> int:
        """Return the size of the vectors alone: facts times dimensions times four bytes."""
        return self.count() * self.embedder.dimension * FLOAT_BYTES

    def reset(self) -> None:
        """Remove all files of the index and begin an empty one with this embedder."""
        self._connection.create(self.embedder.fingerprint, wipe=True)

    def compact(self) -> None:
        """Copy all entries into fresh files and remove the old ones: deleted words leave the disk, too.

        Chroma itself keeps deleted texts and vectors in its log and files. About 1 ms per fact; nothing is
        embedded. For the one writer only.
        """
        with self._connection.replacement() as folder:
            with _temporary_index(folder, self.embedder) as fresh:
                for ids in self._id_pages():
                    with self._session() as source:
                        page = source.get(ids=ids, include=["documents", "metadatas", "embeddings"])
                    with fresh._session(write=True) as target:
                        target.upsert(
                            ids=page["ids"],
                            documents=page["documents"],
                            metadatas=page["metadatas"],
                            embeddings=page["embeddings"],
                        )
                copied, expected = fresh.count(), self.count()
            if copied != expected:
                raise IntegrityError(
                    f"{self.path}: {copied} of {expected} facts were copied; the old files stay"
                )

    @staticmethod
    def exists(path: Path) -> bool:
        """Whether there is an index at `path`, in whatever condition."""
        return (Path(path) / DATABASE_NAME).is_file()

    @staticmethod
    def find_damage(path: Path) -> str | None:
        """Say why the index at `path` cannot be read in full, or None; takes a second or more."""
        connection = ChromaConnection.attach(Path(path))
        try:
            return connection.find_damage()
        finally:
            connection.detach()

    @staticmethod
    def rebuild(path: Path, embedder: SentenceEmbedder, facts: Iterable[Fact | StoredFact]) -> int:
        """Build the index anew from `facts` in place of whatever is at `path`; return how many it holds.

        The old files stay in use until the new ones are complete. For the one writer only.
        """
        connection = ChromaConnection.attach(Path(path))
        try:
            with connection.replacement() as folder, _temporary_index(folder, embedder) as fresh:
                remaining = iter(facts)
                while page := list(islice(remaining, PAGE_SIZE)):
                    fresh.upsert(page)
                count = fresh.count()
        finally:
            connection.detach()
        return count

    def _batch_size(self) -> int:
        with self._session():
            return min(UPSERT_BATCH, self._connection.batch_limit())

    def _id_pages(self) -> Iterator[list[str]]:
        offset = 0
        while True:
            with self._session() as collection:
                page = collection.get(limit=PAGE_SIZE, offset=offset, include=[])["ids"]
            if not page:
                return
            yield page
            offset += len(page)

    @contextmanager
    def _session(self, *, write: bool = False) -> Iterator[Collection]:
        if self._is_closed:
            raise StoreError(f"{self.path}: this handle on the index was closed")
        with self._connection.session(write=write) as collection:
            found = (collection.metadata or {}).get("fingerprint")
            if found != self.embedder.fingerprint:
                raise StoreError(
                    f"{self.path}: the index was built with the embedder {found!r}, "
                    f"not {self.embedder.fingerprint!r}; "
                    "set the former again, or run `sharpwave doctor --reembed`"
                )
            yield collection


@contextmanager
def _temporary_index(folder: Path, embedder: SentenceEmbedder) -> Iterator[MemoryIndex]:
    """Yield an empty index that is going to be renamed; closed, it leaves nothing beside its folder."""
    with MemoryIndex.create(folder, embedder) as index:
        yield index
    lock_file(folder).unlink(missing_ok=True)


def _upsert_batch(collection: Collection, batch: Sequence[IndexEntry], vectors: NDArray[np.float32]) -> None:
    """Upsert at most one Chroma batch and make sure that it arrived."""
    ids = [entry.fact_id for entry in batch]
    collection.upsert(
        ids=ids,
        embeddings=vectors,
        documents=[entry.text for entry in batch],
        metadatas=[entry.metadata() for entry in batch],
    )
    # not the collection's own count: it takes longer the more facts there are
    count = len(collection.get(ids=ids, include=[])["ids"])
    if count != len(ids):
        raise IntegrityError(
            f"the index holds {count} of {len(ids)} facts after their upsert; run `sharpwave doctor --repair`"
        )
