"""The external carrier: ledger and index behind one write path.

Every change is first a transaction of the ledger, which also notes what the index has to do (the outbox);
then the outbox is carried out and struck off. A process killed in between leaves rows that the next writer
carries out.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from carriers.doctor import DoctorReport, examine_and_repair
from carriers.index_outbox import drain_outbox
from carriers.memory_index import Hit, MemoryIndex
from carriers.store_layout import INDEX_NAME, open_generations, open_ledger
from carriers.write_lock import WriteLock
from sharpwave.errors import StoreError
from sharpwave.records import Fact, FactStatus, RouteDecision

if TYPE_CHECKING:
    from carriers.embedder import SentenceEmbedder
    from carriers.generations import GenerationStore, PromotionReceipt, RollbackReceipt
    from carriers.ledger import FactLife, Ledger, Observation


class ExternalMemory:
    """One store directory, opened for reading or, by one process at a time, for writing.

    Readers see what the ledger has committed and never a fact that has left the store. `ledger` and
    `generations` may be read directly; changes go through the methods here, or the index falls behind until
    the next one.
    """

    def __init__(
        self,
        directory: Path,
        ledger: Ledger,
        index: MemoryIndex,
        generations: GenerationStore,
        lock: WriteLock | None,
    ) -> None:
        self.directory = directory
        self.ledger = ledger
        self.index = index
        self.generations = generations
        self._lock = lock
        self._drain_guard = threading.RLock()

    @classmethod
    def open(
        cls,
        directory: Path,
        embedder: SentenceEmbedder,
        *,
        writer: bool = False,
        lock_timeout_seconds: float = 10.0,
    ) -> Self:
        """Open a store; a writer creates what is missing, takes the write lock and drains the outbox.

        Raises:
            StoreBusyError: another process writes the store; the message says which.
            StoreError: there is no store (readers), the index was built with another embedder, or it is
                missing or empty although the ledger has hot facts; the message names the command that mends
                it.
            IntegrityError: ledger or index are damaged.
        """
        directory = Path(directory)
        lock = WriteLock(directory, lock_timeout_seconds).acquire() if writer else None
        ledger = index = None
        try:
            ledger = open_ledger(directory, lock_timeout_seconds=lock_timeout_seconds, create=writer)
            index_folder = directory / INDEX_NAME
            if not MemoryIndex.exists(index_folder) and ledger.counts()[FactStatus.HOT]:
                raise _hollow(index_folder, "missing")
            index = MemoryIndex.open(index_folder, embedder)
            memory = cls(directory, ledger, index, open_generations(directory, ledger), lock)
            if writer:
                memory.drain_outbox()
            memory.require_filled_index()
        except BaseException:
            for opened in (index, ledger):
                if opened is not None:
                    opened.close()
            if lock is not None:
                lock.release()
            raise
        return memory

    def close(self) -> None:
        """Close the files and give the write lock back; harmless twice."""
        self.index.close()
        self.ledger.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_writer(self) -> bool:
        """Whether this handle holds the write lock."""
        return self._lock is not None and self._lock.is_held

    def observe(self, facts: Sequence[Fact], run_id: str) -> list[Observation]:
        """Record facts; see `Ledger.observe`."""
        self._require_writer()
        observations = self.ledger.observe(facts, run_id)
        self.drain_outbox()
        return observations

    def route(self, decisions: Sequence[RouteDecision], run_id: str) -> None:
        """Apply route decisions, so that the index holds what they admit; see `Ledger.apply_routes`."""
        self._require_writer()
        self.ledger.apply_routes(decisions, run_id)
        self.drain_outbox()

    def forget(self, ids: Sequence[str], run_id: str = "forget") -> int:
        """Remove the words of facts from ledger, index and their files; return how many still had words.

        Rewrites the index, about 1 ms per fact in it: better one call with many ids than many calls.

        Raises:
            StoreError: an id is unknown; then none is forgotten.
        """
        self._require_writer()
        count = self.ledger.forget(ids, run_id)
        self.drain_outbox()
        return count

    def promote(
        self,
        number: int,
        *,
        evict: Sequence[str],
        proven: Sequence[str],
        trained: Sequence[str],
        kept: Sequence[str] = (),
        damaged: Sequence[str] = (),
        readmit: Sequence[str] = (),
        run_id: str,
    ) -> PromotionReceipt:
        """Make a sealed shadow current, take evicted facts out of the index and put damaged ones back.

        See `GenerationStore.promote`.
        """
        self._require_writer()
        receipt = self.generations.promote(
            number,
            evict=evict,
            proven=proven,
            trained=trained,
            kept=kept,
            damaged=damaged,
            readmit=readmit,
            run_id=run_id,
        )
        self.drain_outbox()
        return receipt

    def confirm(self, evict: Sequence[str], run_id: str) -> int:
        """Take out of the index what the current generation answered again; see `GenerationStore.confirm`."""
        self._require_writer()
        count = self.generations.confirm(evict, run_id)
        self.drain_outbox()
        return count

    def rollback(self, number: int, run_id: str) -> RollbackReceipt:
        """Make another generation current and bring the index in line; see `GenerationStore.rollback`."""
        self._require_writer()
        receipt = self.generations.rollback(number, run_id)
        self.drain_outbox()
        return receipt

    def restore(self, lives: Iterable[FactLife], *, same_weights: bool) -> int:
        """Take in exported facts; see `Ledger.restore`."""
        self._require_writer()
        count = self.ledger.restore(lives, same_weights=same_weights)
        self.drain_outbox()
        return count

    def drain_outbox(self) -> int:
        """Bring the index up to the ledger; return how many intents were carried out."""
        self._require_writer()
        with self._drain_guard:
            return drain_outbox(self.ledger, self.index)

    def query(
        self, namespace: str, questions: Sequence[str], top_k: int, as_of: datetime | None = None
    ) -> list[list[Hit]]:
        """Find the nearest hot facts for each question, best first; see `MemoryIndex.query`.

        Every hit is checked against the ledger, so a fact that has just been evicted, superseded or
        forgotten is not returned even if the index still has it; the search is then widened to keep
        `top_k`.

        Raises:
            StoreError: the index is missing or empty although the ledger has hot facts.
        """
        hits: list[list[Hit]] = [[] for _ in questions]
        open_rows = list(range(len(questions)))
        wanted = top_k
        while open_rows:
            found = self.index.query(namespace, [questions[row] for row in open_rows], wanted, as_of)
            hot = self._hot_ids(namespace, {hit.fact_id for answer in found for hit in answer})
            for row, answer in zip(open_rows, found, strict=True):
                hits[row] = [hit for hit in answer if hit.fact_id in hot][:top_k]
            # fewer than asked for: the index has no more; otherwise stale hits may hide good ones
            open_rows = [
                row
                for row, answer in zip(open_rows, found, strict=True)
                if len(hits[row]) < top_k and len(answer) == wanted
            ]
            wanted *= 2
        if questions and not any(hits):
            self.require_filled_index()
        return hits

    def require_filled_index(self) -> None:
        """Refuse an index that is empty although the ledger has hot facts and nothing waits in the outbox.

        Raises:
            StoreError: it is; the message names the command that rebuilds it.
        """
        # the index is counted last: by then whatever left the outbox has arrived
        if (
            self.ledger.counts()[FactStatus.HOT]
            and not self.ledger.outbox(limit=1)
            and not self.index.count()
        ):
            raise _hollow(self.index.path, "empty")

    def doctor(self, *, repair: bool = False, in_review: Collection[int] = ()) -> DoctorReport:
        """Compare the stores and, with `repair`, mend what can be mended; shadows in review are left alone.

        For a store that does not open, or to change the embedder, use `carriers.doctor.run_doctor`.
        """
        if repair:
            self._require_writer()
        return examine_and_repair(
            self.directory,
            self.ledger,
            self.generations,
            self.index.embedder,
            repair=repair,
            in_review=in_review,
        )

    def _hot_ids(self, namespace: str, ids: set[str]) -> set[str]:
        return {
            fact.id
            for fact in self.ledger.facts(sorted(ids))
            if fact.status is FactStatus.HOT and fact.namespace == namespace
        }

    def _require_writer(self) -> None:
        if not self.is_writer:
            raise StoreError(
                f"{self.directory}: this handle was opened for reading and cannot change the store"
            )


def _hollow(folder: Path, condition: str) -> StoreError:
    return StoreError(
        f"{folder}: the index is {condition} although the ledger has facts for it; "
        "run `sharpwave doctor --repair` to build it anew"
    )
