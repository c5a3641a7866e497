"""Reads stored facts and events back, also by slot and by moment (valid time and time of knowledge)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, exists, or_, select

from carriers.ledger_records import Event, StoredFact
from carriers.ledger_schema import assertions, chunks, events, facts, states
from sharpwave.records import EventKind, Fact, FactStatus, RouteDecision, Slot

_STORED = select(facts, states).join(states, states.c.fact_id == facts.c.id)


def read_facts(connection: Connection, ids: Sequence[str]) -> dict[str, StoredFact]:
    """Return the facts with these ids, as far as the ledger has them."""
    found: dict[str, StoredFact] = {}
    for part in chunks(ids):
        for row in connection.execute(_STORED.where(facts.c.id.in_(part))):
            found[row.id] = stored_fact(row)
    return found


def read_page(
    connection: Connection, conditions: Sequence[ColumnElement[bool]], size: int
) -> list[StoredFact]:
    """Return the first facts, in order of arrival, that meet conditions on `states`."""
    rows = connection.execute(_STORED.where(*conditions).order_by(states.c.seq).limit(size))
    return [stored_fact(row) for row in rows]


def read_slot(connection: Connection, slot_number: int) -> list[StoredFact]:
    """Return every fact of a slot, forgotten ones left out, in order of arrival."""
    on_slot = (states.c.slot_number == slot_number, states.c.status != FactStatus.FORGOTTEN.value)
    return [stored_fact(row) for row in connection.execute(_STORED.where(*on_slot).order_by(states.c.seq))]


def read_valid(
    connection: Connection,
    namespace: str,
    moment: datetime,
    known_at: datetime | None,
    slot_number: int | None,
) -> list[StoredFact]:
    """Return the facts that were valid at a moment, by what had been observed until `known_at`.

    Of each slot at most one is valid: the last one that had started, unless it had ended or is forgotten.
    """
    later = assertions.alias("later")
    begun = [assertions.c.starts_at <= moment, assertions.c.active.is_(True)]
    overtaken = [later.c.starts_at <= moment, later.c.active.is_(True)]
    if known_at is not None:
        begun.append(assertions.c.observed_at <= known_at)
        overtaken.append(later.c.observed_at <= known_at)
    if slot_number is not None:
        begun.append(assertions.c.slot_number == slot_number)
    is_overtaken = exists().where(
        later.c.slot_number == assertions.c.slot_number,
        later.c.order_key > assertions.c.order_key,
        *overtaken,
    )
    query = (
        _STORED
        .join(assertions, assertions.c.fact_id == facts.c.id)
        .where(
            assertions.c.namespace == namespace,
            *begun,
            ~is_overtaken,
            or_(facts.c.valid_to.is_(None), facts.c.valid_to > moment),
            states.c.status != FactStatus.FORGOTTEN.value,
        )
        .order_by(states.c.seq)
    )
    return [stored_fact(row) for row in connection.execute(query)]


def read_events(connection: Connection, ids: Sequence[str]) -> dict[str, list[Event]]:
    """Return the events of each of these facts, oldest first."""
    found: dict[str, list[Event]] = {fact_id: [] for fact_id in ids}
    for part in chunks(ids):
        for row in connection.execute(
            select(events).where(events.c.fact_id.in_(part)).order_by(events.c.seq)
        ):
            found[row.fact_id].append(_event(row))
    return found


def read_last_events(connection: Connection, kind: EventKind, limit: int) -> list[Event]:
    """Return the latest events of a kind, oldest first."""
    query = select(events).where(events.c.kind == kind.value).order_by(events.c.seq.desc()).limit(limit)
    return [_event(row) for row in connection.execute(query)][::-1]


def _event(row: Row[Any]) -> Event:
    return Event(
        seq=row.seq,
        fact_id=row.fact_id,
        kind=EventKind(row.kind),
        at=row.at,
        run_id=row.run_id,
        payload=row.payload,
    )


def stored_fact(row: Row[Any]) -> StoredFact:
    """Return the stored fact of a row of `facts` joined with `states`."""
    columns = row._mapping
    decision = columns[states.c.last_decision]
    return StoredFact(
        id=row.id,
        namespace=columns[facts.c.namespace],
        seq=row.seq,
        words=None if row.text is None else _fact(row),
        status=FactStatus(row.status),
        valid_from=row.valid_from,
        valid_to=columns[states.c.valid_to],
        slot_number=row.slot_number,
        superseded_by=row.superseded_by,
        observed_count=row.observed_count,
        last_decision=None if decision is None else RouteDecision.model_validate(decision),
        known_generation=row.known_generation,
        proven_generation=row.proven_generation,
        trained_generation=row.trained_generation,
    )


def _fact(row: Row[Any]) -> Fact:
    columns = row._mapping
    has_slot = row.subject is not None and row.relation is not None
    return Fact(
        text=row.text,
        namespace=columns[facts.c.namespace],
        slot=Slot(subject=row.subject, relation=row.relation) if has_slot else None,
        questions=tuple(row.questions),
        answers=tuple(row.answers),
        valid_from=row.valid_from,
        valid_to=columns[facts.c.valid_to],
        observed_at=row.observed_at,
        source=row.source,
        metadata=columns[facts.c.metadata],
    )
