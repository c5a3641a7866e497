"""The ledger: the truth about every fact, in SQL. The index is rebuilt from it, never the other way round.

Every change appends events, derives the present state and leaves an intent for the index in one transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import Connection, Engine, delete, func, select

from carriers.arrival import observe_facts, route_facts
from carriers.fact_reading import read_events, read_facts, read_last_events, read_page, read_slot, read_valid
from carriers.forgetting import forget_facts
from carriers.ledger_batch import LedgerBatch
from carriers.ledger_database import open_database, translated_errors, writing
from carriers.ledger_records import Event, FactLife, IndexOperation, Observation, OutboxRow, StoredFact
from carriers.ledger_schema import chunks, events, index_outbox, states
from carriers.ledger_transfer import restore_lives
from carriers.supersession import slot_key, slot_numbers
from sharpwave.records import EventKind, Fact, FactStatus, RouteDecision, Slot

__all__ = ["Event", "FactLife", "IndexOperation", "Ledger", "Observation", "OutboxRow", "StoredFact"]

_PAGE = 500


class Ledger:
    """Facts, events, states and index intents of one store. Safe to use from several threads.

    One process should write at a time; others may read meanwhile and see the last committed state.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = writing(engine)
        self._local = threading.local()

    @classmethod
    def open(cls, target: str | Path, *, lock_timeout_seconds: float = 10.0, create: bool = True) -> Self:
        """Open the ledger at a path or a database URL, creating it if it is missing and `create` is true.

        Raises:
            StoreError: there is no ledger, or it has another schema version.
            StoreBusyError: the database stays locked for longer than the timeout.
            IntegrityError: the file is damaged or is no database.
        """
        return cls(open_database(target, lock_timeout_seconds=lock_timeout_seconds, create=create))

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _active(self) -> Connection | None:
        connection: Connection | None = getattr(self._local, "connection", None)
        return connection

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Hold one write transaction; everything called inside by the same thread joins it.

        Raises StoreBusyError if the write lock cannot be had in time.
        """
        if self._active is not None:
            yield self._active
            return
        with translated_errors(self.engine.url), self._writer.begin() as connection:
            self._local.connection = connection
            try:
                yield connection
            finally:
                self._local.connection = None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Hold one consistent view for reading; inside a transaction, the transaction's own view."""
        if self._active is not None:
            yield self._active
            return
        with translated_errors(self.engine.url), self.engine.connect() as connection:
            yield connection

    def observe(self, facts: Sequence[Fact], run_id: str) -> list[Observation]:
        """Record facts word for word; return for each, in order, what it is to the ledger now.

        An exact repeat adds an event and nothing else. A superseded fact without `valid_from` that is
        repeated as the latest of its slot waits for routing again. Repeating a call with the same run and
        the same `observed_at` changes nothing.
        """
        with self.transaction() as connection:
            return observe_facts(LedgerBatch(connection, run_id), facts)

    def apply_routes(self, decisions: Sequence[RouteDecision], run_id: str) -> None:
        """Apply route decisions, retiring superseded values. Repeating a call changes nothing.

        Raises:
            StoreError: an id is not in the ledger.
            ValueError: a fact that waits for its route was decided at stage `repeat`.
        """
        with self.transaction() as connection:
            route_facts(LedgerBatch(connection, run_id), decisions)

    def forget(self, ids: Sequence[str], run_id: str = "forget") -> int:
        """Remove the words of facts for good; return how many were not forgotten before.

        Inside a `transaction` the words stay in the database's journal file until `scrub` is called.
        Raises StoreError if one of the ids is unknown; then none is forgotten.
        """
        with self.transaction() as connection:
            count = forget_facts(LedgerBatch(connection, run_id), ids)
        if self._active is None:
            self.scrub()
        return count

    def scrub(self) -> None:
        """Empty SQLite's write-ahead log, so that overwritten words are in no file any more.

        Does nothing while others read, since the log is in use then; the next call catches up.
        """
        if self.engine.dialect.name != "sqlite":
            return
        raw = self.engine.raw_connection()
        try:
            cursor = raw.cursor()
            before = cursor.execute("PRAGMA busy_timeout").fetchone()[0]
            cursor.execute("PRAGMA busy_timeout=0")
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            cursor.execute(f"PRAGMA busy_timeout={before}")
            cursor.close()
        finally:
            raw.close()

    def fact(self, fact_id: str) -> StoredFact | None:
        """Return a fact, possibly a tombstone, or None for an unknown id."""
        with self.reading() as connection:
            return read_facts(connection, [fact_id]).get(fact_id)

    def facts(self, ids: Sequence[str]) -> list[StoredFact]:
        """Return facts in the order asked; unknown ids are left out."""
        with self.reading() as connection:
            found = read_facts(connection, list(dict.fromkeys(ids)))
        return [found[fact_id] for fact_id in ids if fact_id in found]

    def iter_facts(
        self, namespace: str | None = None, status: FactStatus | None = None, *, page_size: int = _PAGE
    ) -> Iterator[StoredFact]:
        """Yield facts in order of arrival, a page at a time; tombstones only if FORGOTTEN is asked for.

        Each page is read on its own, so the ledger may be changed meanwhile.
        """
        condition = states.c.status != FactStatus.FORGOTTEN.value
        conditions = [condition if status is None else states.c.status == status.value]
        if namespace is not None:
            conditions.append(states.c.namespace == namespace)
        last = 0
        while True:
            with self.reading() as connection:
                page = read_page(connection, [*conditions, states.c.seq > last], page_size)
            yield from page
            if len(page) < page_size:
                return
            last = page[-1].seq

    def history(self, fact_id: str) -> list[Event]:
        """Return everything that happened to a fact, oldest first; empty for an unknown id."""
        with self.reading() as connection:
            return read_events(connection, [fact_id])[fact_id]

    def last_event(self) -> int:
        """Return the number of the latest event; 0 before the first."""
        with self.reading() as connection:
            return connection.scalar(select(func.max(events.c.seq))) or 0

    def last_events(self, kind: EventKind, limit: int) -> list[Event]:
        """Return the latest events of a kind, oldest first."""
        with self.reading() as connection:
            return read_last_events(connection, kind, limit)

    def count_events(self, kind: EventKind, *, after: int) -> int:
        """Return how many events of a kind came after the event of that number."""
        query = select(func.count()).where(events.c.seq > after, events.c.kind == kind.value)
        with self.reading() as connection:
            return connection.scalar(query) or 0

    def counts(self, namespace: str | None = None) -> dict[FactStatus, int]:
        """Return the number of facts in every status, zeros included."""
        query = select(states.c.status, func.count()).group_by(states.c.status)
        if namespace is not None:
            query = query.where(states.c.namespace == namespace)
        with self.reading() as connection:
            found = {FactStatus(status): count for status, count in connection.execute(query)}
        return {status: found.get(status, 0) for status in FactStatus}

    def unfinished(self, namespace: str | None = None) -> list[str]:
        """Return the ids of facts that were observed and still wait to be routed, in order of arrival."""
        query = select(states.c.fact_id).where(states.c.status == FactStatus.OBSERVED.value)
        if namespace is not None:
            query = query.where(states.c.namespace == namespace)
        with self.reading() as connection:
            return list(connection.scalars(query.order_by(states.c.seq)))

    def on_slot(self, namespace: str, slot: Slot) -> list[StoredFact]:
        """Return all facts of a slot in order of arrival; spelling of the slot is normalised."""
        with self.reading() as connection:
            number = _slot_number(connection, namespace, slot)
            return [] if number is None else read_slot(connection, number)

    def as_of(
        self, namespace: str, slot: Slot, moment: datetime, known_at: datetime | None = None
    ) -> StoredFact | None:
        """Return the fact that held on a slot at a moment, by what had been observed until `known_at`.

        The status returned is today's. None if nothing held, or what held is forgotten.
        """
        with self.reading() as connection:
            number = _slot_number(connection, namespace, slot)
            if number is None:
                return None
            found = read_valid(connection, namespace, moment, known_at, number)
        return found[0] if found else None

    def valid_at(
        self, namespace: str, moment: datetime, known_at: datetime | None = None
    ) -> list[StoredFact]:
        """Return all facts of a namespace that held at a moment, with and without slots; see `as_of`."""
        with self.reading() as connection:
            return read_valid(connection, namespace, moment, known_at, None)

    def outbox(self, limit: int = _PAGE) -> list[OutboxRow]:
        """Return the oldest open intents for the index.

        An `upsert` means "bring this fact's entry up to its present state": skip it if the fact is not hot
        by now, since its `delete` follows.
        """
        query = select(index_outbox).order_by(index_outbox.c.row_id).limit(limit)
        with self.reading() as connection:
            return [OutboxRow(row.row_id, row.fact_id, row.op) for row in connection.execute(query)]

    def clear_outbox(self, rows: Sequence[OutboxRow]) -> None:
        """Strike off intents that the index has carried out."""
        with self.transaction() as connection:
            for part in chunks([row.row_id for row in rows]):
                connection.execute(delete(index_outbox).where(index_outbox.c.row_id.in_(part)))

    def export(self) -> Iterator[FactLife]:
        """Yield every fact, tombstones included, with its events, in order of arrival, as of one moment."""
        last = 0
        with self.reading() as connection:
            while page := read_page(connection, [states.c.seq > last], _PAGE):
                histories = read_events(connection, [stored.id for stored in page])
                for stored in page:
                    yield FactLife(stored, histories[stored.id])
                last = page[-1].seq

    def restore(self, lives: Iterable[FactLife], *, same_weights: bool) -> int:
        """Take in exported lives; return how many facts were new here. Known ids are left untouched.

        `same_weights` says that this ledger's generations are those of the export. If not, what was
        internalised there is stored as hot here, for these weights have never learnt it. On slots that this
        ledger has already, the order of time decides anew which value is current.
        """
        with self.transaction() as connection:
            return restore_lives(connection, lives, same_weights=same_weights)


def _slot_number(connection: Connection, namespace: str, slot: Slot) -> int | None:
    key = slot_key(namespace, slot)
    return None if key is None else slot_numbers(connection, [key]).get(key)
