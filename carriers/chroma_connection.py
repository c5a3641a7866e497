"""One Chroma client per folder and process, kept fresh and quiet: the only module that opens Chroma.

Chroma's files stand neither a second process nor a stale client: a client that was open before another
process wrote finds no newer vectors, and what it later writes can undo them. So every access takes a lock
beside the folder, and a revision mark inside it tells whether someone else wrote since; if so, the client
is opened anew.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from carriers.index_probe import find_index_damage
from carriers.vector_files import blank_unused_room
from carriers.write_lock import open_file_lock, take_file_lock
from sharpwave.errors import IntegrityError, SharpwaveError, StoreBusyError, StoreError

if TYPE_CHECKING:
    from chromadb.api.client import Client
    from chromadb.api.collection_configuration import CreateHNSWConfiguration
    from chromadb.api.models.Collection import Collection

COLLECTION_NAME = "facts"
DATABASE_NAME = "chroma.sqlite3"
REVISION_NAME = "revision"
UNFINISHED = "writing "  # begins the mark of a revision while it is being written
LOCK_TIMEOUT_SECONDS = 60.0
REPAIR_HINT = "run `sharpwave doctor --repair` to build it anew from the ledger"

# Finer than Chroma's defaults (100, 100, 16): an index built in another order then gives the same hits.
HNSW: CreateHNSWConfiguration = {
    "space": "cosine",
    "ef_construction": 200,
    "ef_search": 200,
    "max_neighbors": 24,
}


class ChromaConnection:
    """The process's one client for a folder, shared by its handles; safe between threads and processes."""

    _open: ClassVar[dict[tuple[int, Path], ChromaConnection]] = {}
    _registry_guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file_lock = open_file_lock(lock_file(folder))
        self._guard = threading.RLock()
        self._holders = 0
        self._client: Client | None = None
        self._collection: Collection | None = None
        self._revision = ""
        self._blanked: dict[Path, int] = {}

    @classmethod
    def attach(cls, folder: Path) -> ChromaConnection:
        """Return the connection for `folder`; give it back with `detach`."""
        # the process id, since a forked child must not use its parent's client
        key = (os.getpid(), folder.resolve())
        with cls._registry_guard:
            connection = cls._open.setdefault(key, ChromaConnection(key[1]))
            connection._holders += 1
        return connection

    def detach(self) -> None:
        """Give the connection back; the last one to do so closes the client."""
        with self._registry_guard, self._guard:
            self._holders -= 1
            if self._holders == 0:
                self._open.pop((os.getpid(), self.folder), None)
                self._close()

    @contextmanager
    def session(self, *, write: bool = False) -> Iterator[Collection]:
        """Hold the index for one short piece of work and yield its collection.

        Raises:
            StoreBusyError: other processes kept the index busy for a minute.
            StoreError: the index folder is gone or holds no index.
            IntegrityError: Chroma cannot read its files.
        """
        with self._exclusive(), self._translated():
            collection = self._fresh_collection()
            if write:
                # before the work, so that a kill half-way makes the others reopen, and look closely
                self._mark_revision(f"{UNFINISHED}{uuid.uuid4().hex}")
            yield collection
            blank_unused_room(self.folder, self._blanked)
            if write:
                self._mark_revision(self._revision.removeprefix(UNFINISHED))

    def create(self, fingerprint: str, *, wipe: bool = False) -> None:
        """Make folder and empty collection if there are none; with `wipe`, remove what is there first."""
        from chromadb.api.collection_configuration import CreateCollectionConfiguration

        with self._exclusive(), self._translated():
            self._finish_replacement()
            if wipe:
                self._close()
                shutil.rmtree(self.folder, ignore_errors=True)
            if self._holds_index():
                return
            self._close()
            self.folder.mkdir(parents=True, exist_ok=True)
            self._client = open_client(self.folder)
            self._collection = self._client.get_or_create_collection(
                COLLECTION_NAME,
                metadata={"fingerprint": fingerprint},
                configuration=CreateCollectionConfiguration(hnsw=HNSW),
                embedding_function=None,
            )
            self._mark_revision(uuid.uuid4().hex)

    @contextmanager
    def replacement(self) -> Iterator[Path]:
        """Yield a place for a folder that on success takes this one's place; the old files are removed.

        Others may read this folder until then. Only one process may replace at a time.
        """
        fresh, old = self._neighbour("new"), self._neighbour("old")
        shutil.rmtree(fresh, ignore_errors=True)
        yield fresh
        with self._exclusive():
            self._finish_replacement()
            self._close()
            if self.folder.exists():
                self.folder.rename(old)
            fresh.rename(self.folder)
            shutil.rmtree(old, ignore_errors=True)

    def find_damage(self) -> str | None:
        """Say what makes the files unreadable, or None; reads everything in a child process."""
        with self._exclusive():
            self._close()
            return find_index_damage(self.folder)

    def _finish_replacement(self) -> None:
        """Put right what a replacement left that was killed while swapping the folders."""
        old = self._neighbour("old")
        if old.exists() and not self.folder.exists():
            old.rename(self.folder)
        shutil.rmtree(old, ignore_errors=True)

    def _neighbour(self, suffix: str) -> Path:
        return self.folder.with_name(f"{self.folder.name}.{suffix}")

    def batch_limit(self) -> int:
        """Return how many rows Chroma takes in one call."""
        with self.session():
            assert self._client is not None
            return self._client.get_max_batch_size()

    def _holds_index(self) -> bool:
        return (self.folder / DATABASE_NAME).is_file() and (self.folder / REVISION_NAME).is_file()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        with self._guard:
            take_file_lock(self._file_lock, LOCK_TIMEOUT_SECONDS, f"the index {self.folder} is in use")
            try:
                yield
            finally:
                self._file_lock.release()

    def _fresh_collection(self) -> Collection:
        if not self._holds_index():
            self._close()
            raise StoreError(f"{self.folder}: the index is missing or was never finished; {REPAIR_HINT}")
        revision = (self.folder / REVISION_NAME).read_text(encoding="utf-8")
        if revision.startswith(UNFINISHED) and revision != self._revision:
            self._close()
            if damage := find_index_damage(self.folder):
                raise self._damaged(damage)
            revision = self._mark_revision(uuid.uuid4().hex)
        elif self._client is None or revision != self._revision:
            self._close()
        if self._client is None or self._collection is None:
            self._client = open_client(self.folder)
            self._collection = self._client.get_collection(COLLECTION_NAME, embedding_function=None)
            self._revision = revision
        return self._collection

    def _mark_revision(self, revision: str) -> str:
        temporary = self.folder / f"{REVISION_NAME}.tmp"
        temporary.write_text(revision, encoding="utf-8")
        temporary.replace(self.folder / REVISION_NAME)
        self._revision = revision
        return revision

    def _close(self) -> None:
        client, self._client, self._collection, self._revision = self._client, None, None, ""
        if client is not None:
            client.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn Chroma's errors into ours."""
        from chromadb.errors import ChromaError

        try:
            yield
        except SharpwaveError:
            raise
        except ChromaError as error:
            self._close()
            if "database is locked" in str(error):
                raise StoreBusyError(f"{self.folder}: the index is busy ({error})") from error
            raise self._damaged(error) from error
        except BaseException as error:
            # a panic in Chroma's compiled part is no Exception, and its class cannot be imported
            if type(error).__name__ != "PanicException":
                raise
            self._close()
            raise self._damaged(error) from error

    def _damaged(self, error: BaseException | str) -> IntegrityError:
        return IntegrityError(f"{self.folder}: Chroma cannot use the index ({error}); {REPAIR_HINT}")


def lock_file(folder: Path) -> Path:
    """Return the file whose lock guards the index in `folder`."""
    return folder.with_name(f"{folder.name}.lock")


def open_client(folder: Path) -> Client:
    """Open Chroma without telemetry, log noise or reading a stray `.env` of the working directory."""
    os.environ["ANONYMIZED_TELEMETRY"] = "False"
    for name in ("chromadb", "chromadb.telemetry", "chromadb.telemetry.product.posthog"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    import chromadb
    from chromadb.api.shared_system_client import SharedSystemClient
    from chromadb.config import Settings

    settings = Settings(_env_file=None, anonymized_telemetry=False, is_persistent=True)
    try:
        # declared as the abstract ClientAPI, which lacks `close`
        return cast("Client", chromadb.PersistentClient(path=str(folder), settings=settings))
    except BaseException:
        # Chroma caches a client by folder before it has started, and would hand the broken one out again
        SharedSystemClient._identifier_to_system.pop(str(folder), None)
        SharedSystemClient._identifier_to_refcount.pop(str(folder), None)
        raise
