"""Takes exported lives back into a ledger: words, states, events and the places of facts on their slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, insert, select, text

from carriers.arrival import observed_key, routed_key, words_of
from carriers.ledger_batch import FactState, LedgerBatch
from carriers.ledger_schema import assertions, events, facts, slots, states
from carriers.supersession import (
    Assertion,
    facts_before,
    is_contradicted_by_weights,
    settle,
    slot_key,
    slot_numbers,
    write_assertions,
)
from sharpwave.errors import InputError
from sharpwave.records import EventKind, FactStatus

if TYPE_CHECKING:
    from carriers.ledger_records import Event, FactLife, StoredFact

_PAGE = 500
_RUN = "import"


def restore_lives(connection: Connection, lives: Iterable[FactLife], *, same_weights: bool) -> int:
    """Take in exported lives inside one transaction; return how many facts were new here.

    Order numbers of facts and events are kept where the ledger was empty, and shifted where it was not.
    Raises InputError if the words of a fact do not belong to its id or its history is empty.
    """
    restoration = _Restoration(connection, same_weights)
    stream = iter(lives)
    while page := list(islice(stream, _PAGE)):
        restoration.take(page)
    return restoration.finish()


class _Restoration:
    def __init__(self, connection: Connection, same_weights: bool) -> None:
        self._connection = connection
        self._same_weights = same_weights
        self._facts_before = _highest(connection, states.c.seq)
        self._events_before = _highest(connection, events.c.seq)
        self._slot_map: dict[int, int] = {}
        self._own_slots: set[int] = set()
        self._shared: list[str] = []
        self._held_back: list[FactLife] = []
        self._count = 0

    def take(self, page: Sequence[FactLife]) -> None:
        batch = LedgerBatch(self._connection, _RUN)
        batch.load(stored.id for stored, _ in page)
        fresh = {life.stored.id: life for life in page if batch.find(life.stored.id) is None}
        ready: list[tuple[FactLife, int | None]] = []
        numbers = self._place_slots([life.stored for life in fresh.values()])
        for life in fresh.values():
            _check(life)
            number = life.stored.slot_number
            if life.stored.words is not None:
                ready.append((life, numbers.get(life.stored.id)))
            elif number is None or number in self._slot_map:
                ready.append((life, None if number is None else self._slot_map[number]))
            else:
                # A tombstone does not know what its slot was called: wait for a fact that does.
                self._held_back.append(life)
        self._write(batch, ready)

    def finish(self) -> int:
        late: list[tuple[FactLife, int | None]] = []
        for life in self._held_back:
            number = life.stored.slot_number
            if number is not None and number not in self._slot_map:
                self._slot_map[number] = self._new_slot(None, number)
            late.append((life, None if number is None else self._slot_map[number]))
        self._write(LedgerBatch(self._connection, _RUN), late)
        self._settle_shared()
        _advance_sequences(self._connection)
        return self._count

    def _place_slots(self, page: Sequence[StoredFact]) -> dict[str, int]:
        keys = {item.id: slot_key(item.namespace, item.words.slot) for item in page if item.words is not None}
        present = slot_numbers(self._connection, keys.values())
        placed: dict[str, int] = {}
        for item in page:
            key = keys.get(item.id)
            if key is None:
                continue
            if key not in present:
                present[key] = self._new_slot(key, item.slot_number)
            number = placed[item.id] = present[key]
            if item.slot_number is not None:
                self._slot_map[item.slot_number] = number
            if number not in self._own_slots:
                self._shared.append(item.id)
        return placed

    def _new_slot(self, key: str | None, wanted: int | None) -> int:
        row: dict[str, Any] = {"slot_key": key}
        if wanted is not None:
            taken = select(slots.c.number).where(slots.c.number == wanted)
            if self._connection.scalar(taken) is None:
                row["number"] = wanted
        number: int = self._connection.execute(
            insert(slots).values(row).returning(slots.c.number)
        ).scalar_one()
        self._own_slots.add(number)
        return number

    def _write(self, batch: LedgerBatch, lives: Sequence[tuple[FactLife, int | None]]) -> None:
        if not lives:
            return
        rows = [_fact_row(life) for life, _ in lives]
        self._connection.execute(insert(facts), rows)
        journal = [row for life, _ in lives for row in self._event_rows(life)]
        self._connection.execute(insert(events), journal)
        for life, number in lives:
            state = batch.add(self._state(life.stored, number))
            if state.status is not life.stored.status:
                batch.record(state.fact_id, EventKind.READMITTED, {"reason": "import"})
        batch.flush()
        write_assertions(
            self._connection, (item for life, number in lives for item in _assertions(life, number))
        )
        self._count += len(lives)

    def _state(self, stored: StoredFact, number: int | None) -> FactState:
        decision = stored.last_decision
        state = FactState(
            fact_id=stored.id,
            seq=self._facts_before + stored.seq,
            namespace=stored.namespace,
            slot_number=number,
            status=stored.status,
            valid_to=stored.valid_to,
            superseded_by=stored.superseded_by,
            observed_count=stored.observed_count,
            last_decision=None if decision is None else decision.model_dump(mode="json"),
            known_generation=stored.known_generation,
            proven_generation=stored.proven_generation,
            trained_generation=stored.trained_generation,
        )
        if not self._same_weights:
            was_known_later = state.status is FactStatus.KNOWN and state.known_generation != 0
            if state.status is FactStatus.INTERNALISED or was_known_later:
                state.status, state.known_generation = FactStatus.HOT, None
            state.proven_generation = state.trained_generation = None
        return state

    def _event_rows(self, life: FactLife) -> Iterator[dict[str, Any]]:
        observed = 0
        for item in life.events:
            observed += item.kind is EventKind.OBSERVED
            of_generation = self._same_weights and item.kind is not EventKind.ROUTED
            yield {
                "seq": self._events_before + item.seq,
                "fact_id": item.fact_id,
                "kind": item.kind.value,
                "at": item.at,
                "run_id": item.run_id,
                "payload": item.payload,
                "generation": item.payload.get("generation") if of_generation else None,
                "event_key": _event_key(item, observed),
            }

    def _settle_shared(self) -> None:
        batch = LedgerBatch(self._connection, _RUN)
        places: list[tuple[int, str]] = []
        for fact_id in self._shared:
            query = select(assertions.c.slot_number, assertions.c.order_key).where(
                assertions.c.fact_id == fact_id, assertions.c.active.is_(True)
            )
            places.extend((row.slot_number, row.order_key) for row in self._connection.execute(query))
        affected = sorted({*self._shared, *facts_before(self._connection, places)})
        batch.load(affected)
        for fact_id in affected:
            state = batch.state(fact_id)
            is_current = settle(batch, state)
            if is_current and state.status is FactStatus.KNOWN and is_contradicted_by_weights(batch, state):
                state.status, state.known_generation = FactStatus.HOT, None
                batch.record(fact_id, EventKind.STORED, {"reason": "override"})
        batch.flush()


def _check(life: FactLife) -> None:
    stored = life.stored
    if stored.words is not None and stored.words.id != stored.id:
        raise InputError(f"the words of fact {stored.id} do not belong to its id", field="words")
    if not any(item.kind is EventKind.OBSERVED and "observed_at" in item.payload for item in life.events):
        raise InputError(f"fact {stored.id} has no event that says when it was observed", field="events")


def _fact_row(life: FactLife) -> dict[str, Any]:
    stored = life.stored
    row: dict[str, Any] = {"id": stored.id, "namespace": stored.namespace}
    if stored.words is not None:
        return row | words_of(stored.words)
    empty = dict.fromkeys(("text", "subject", "relation", "questions", "answers", "source", "metadata"))
    first = _observed_moments(life)[0]
    return row | empty | {"valid_from": stored.valid_from, "valid_to": stored.valid_to, "observed_at": first}


def _observed_moments(life: FactLife) -> list[datetime]:
    observed = [item for item in life.events if item.kind is EventKind.OBSERVED]
    return [datetime.fromisoformat(item.payload["observed_at"]) for item in observed]


def _assertions(life: FactLife, number: int | None) -> Iterator[Assertion]:
    stored = life.stored
    routed = [place for place, item in enumerate(life.events) if item.kind is EventKind.ROUTED]
    last_routed = routed[-1] if routed else -1
    waits = stored.status is FactStatus.OBSERVED
    for place, item in enumerate(life.events):
        if item.kind is not EventKind.OBSERVED:
            continue
        moment = datetime.fromisoformat(item.payload["observed_at"])
        active = bool(routed) and not (waits and place > last_routed)
        starts_at = stored.valid_from or moment
        yield Assertion(stored.id, stored.namespace, number, starts_at, moment, active)
        if number is None or stored.valid_from is not None:
            return


def _event_key(item: Event, observed: int) -> str | None:
    if item.kind is EventKind.OBSERVED:
        moment = datetime.fromisoformat(item.payload["observed_at"])
        return observed_key(item.fact_id, moment, item.run_id)
    if item.kind is EventKind.ROUTED:
        return routed_key(item.fact_id, observed, item.run_id)
    return None


def _highest(connection: Connection, column: Any) -> int:
    return int(connection.execute(select(func.coalesce(func.max(column), 0))).scalar_one())


def _advance_sequences(connection: Connection) -> None:
    # Postgres does not move a sequence past numbers that were written by hand; SQLite does.
    if connection.dialect.name == "postgresql":
        for table, column in (("events", "seq"), ("slots", "number")):
            connection.execute(
                text(
                    f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), max({column})) "
                    f"FROM {table}"
                )
            )
