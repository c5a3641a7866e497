"""Which of a slot's facts is current: pure order of time within one slot of one namespace, and nothing else.

Every assertion of a fact has a place (starts_at, observed_at, id). The latest place on the slot is current;
each other fact ends where its successor starts. Only neighbours are looked up, so the cost of one arrival
does not grow with the slot. Forgotten facts keep their places: forgetting never brings an old value back.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection, bindparam, func, insert, select, update

from carriers.ledger_schema import assertions, chunks, moment_text, slots, states
from sharpwave.records import EventKind, Fact, FactStatus, Slot

if TYPE_CHECKING:
    from carriers.ledger_batch import FactState, LedgerBatch


def normalise_key(words: str) -> str:
    r"""Return the form in which subjects and relations are compared: NFKC, casefold, white space collapsed.

    >>> normalise_key("  \uff23apital\tOF ")
    'capital of'
    """
    folded = unicodedata.normalize("NFKC", words).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def slot_key(namespace: str, slot: Slot | None) -> str | None:
    """Return the key under which a slot is found; None where no slot, or only a blank one, is given."""
    if slot is None:
        return None
    subject, relation = normalise_key(slot.subject), normalise_key(slot.relation)
    if not subject or not relation:
        return None
    return json.dumps([namespace, subject, relation], ensure_ascii=False, separators=(",", ":"))


def slot_numbers(connection: Connection, keys: Iterable[str | None]) -> dict[str, int]:
    """Return the numbers of the slots that exist under these keys."""
    wanted = [key for key in dict.fromkeys(keys) if key is not None]
    found: dict[str, int] = {}
    for part in chunks(wanted):
        rows = connection.execute(select(slots.c.slot_key, slots.c.number).where(slots.c.slot_key.in_(part)))
        found.update({row.slot_key: row.number for row in rows})
    return found


def ensure_slots(connection: Connection, keys: Iterable[str | None]) -> dict[str, int]:
    """Return the numbers of the slots under these keys, creating those that are missing."""
    wanted = [key for key in dict.fromkeys(keys) if key is not None]
    found = slot_numbers(connection, wanted)
    missing = [{"slot_key": key} for key in wanted if key not in found]
    if missing:
        connection.execute(insert(slots), missing)
        found.update(slot_numbers(connection, [row["slot_key"] for row in missing]))
    return found


@dataclass(frozen=True)
class Assertion:
    """One moment at which a fact was asserted, and its place in the order of its slot."""

    fact_id: str
    namespace: str
    slot_number: int | None
    starts_at: datetime
    observed_at: datetime
    active: bool

    @classmethod
    def of(cls, fact: Fact, fact_id: str, slot_number: int | None, *, active: bool) -> Assertion:
        """Return the assertion that observing this fact makes."""
        return cls(fact_id, fact.namespace, slot_number, fact.starts_at, fact.observed_at, active)

    @property
    def order_key(self) -> str:
        """Text that sorts as (starts_at, observed_at, fact id)."""
        return moment_text(self.starts_at) + moment_text(self.observed_at) + self.fact_id


def write_assertions(connection: Connection, items: Iterable[Assertion]) -> None:
    """Write assertions; one that is on record already stays as it is."""
    rows = {item.order_key: {"order_key": item.order_key, **vars(item)} for item in items}
    for part in chunks(list(rows)):
        present = connection.scalars(select(assertions.c.order_key).where(assertions.c.order_key.in_(part)))
        for order_key in present:
            del rows[order_key]
    if rows:
        connection.execute(insert(assertions), list(rows.values()))


def activate(connection: Connection, ids: Iterable[str]) -> list[tuple[int, str]]:
    """Make the waiting assertions of these facts count; return their slot numbers and places."""
    activated: list[tuple[int, str]] = []
    for part in chunks(list(ids)):
        waiting = (assertions.c.fact_id.in_(part), assertions.c.active.is_(False))
        rows = connection.execute(
            select(assertions.c.slot_number, assertions.c.order_key).where(*waiting)
        ).all()
        activated.extend((row.slot_number, row.order_key) for row in rows if row.slot_number is not None)
        connection.execute(update(assertions).where(*waiting).values(active=True))
    return activated


# Built once: they run for every arrival, and building a statement costs more than running it.
_FACT_BEFORE = (
    select(assertions.c.fact_id)
    .where(
        assertions.c.slot_number == bindparam("slot"),
        assertions.c.active.is_(True),
        assertions.c.order_key < bindparam("place"),
    )
    .order_by(assertions.c.order_key.desc())
    .limit(1)
)
_own = assertions.alias("own")
_FACT_AFTER = (
    select(assertions.c.fact_id, assertions.c.starts_at)
    .where(
        assertions.c.slot_number == bindparam("slot"),
        assertions.c.active.is_(True),
        assertions.c.order_key
        > select(func.max(_own.c.order_key))
        .where(_own.c.fact_id == bindparam("fact"), _own.c.active.is_(True))
        .scalar_subquery(),
    )
    .order_by(assertions.c.order_key)
    .limit(1)
)


def last_place(connection: Connection, slot_number: int) -> str | None:
    """Return the latest active place on a slot."""
    latest = select(func.max(assertions.c.order_key)).where(
        assertions.c.slot_number == slot_number, assertions.c.active.is_(True)
    )
    last: str | None = connection.scalar(latest)
    return last


def last_fact(connection: Connection, slot_number: int) -> str | None:
    """Return the fact at the latest active place on a slot, whatever its status."""
    latest = (
        select(assertions.c.fact_id)
        .where(assertions.c.slot_number == slot_number, assertions.c.active.is_(True))
        .order_by(assertions.c.order_key.desc())
        .limit(1)
    )
    fact_id: str | None = connection.scalar(latest)
    return fact_id


def facts_before(connection: Connection, places: Iterable[tuple[int, str]]) -> set[str]:
    """Return the facts that directly precede these places on their slots."""
    found: set[str] = set()
    for slot_number, order_key in places:
        fact_id = connection.scalar(_FACT_BEFORE, {"slot": slot_number, "place": order_key})
        if fact_id is not None:
            found.add(fact_id)
    return found


def settle(batch: LedgerBatch, state: FactState, repeat: Fact | None = None) -> bool:
    """Give a fact the end and the successor that the order of its slot says; tell whether it is current.

    A live fact with a successor becomes superseded. A fact without a slot is always current. With
    `repeat`, the observation that may have become the fact's latest, its end may also move later.
    """
    successor = _successor(batch.connection, state)
    if successor is None or state.status is FactStatus.OBSERVED:
        return successor is None
    fact_id, starts_at = successor
    own_end = repeat.valid_to if repeat is not None else state.valid_to
    end = starts_at if own_end is None else min(own_end, starts_at)
    has_moved = (state.superseded_by, state.valid_to) != (fact_id, end)
    state.superseded_by, state.valid_to = fact_id, end
    if state.is_live or (state.status is FactStatus.SUPERSEDED and has_moved):
        batch.record(state.fact_id, EventKind.SUPERSEDED, {"by": fact_id, "valid_to": moment_text(end)})
        state.status = FactStatus.SUPERSEDED
    return False


def _successor(connection: Connection, state: FactState) -> tuple[str, datetime] | None:
    if state.slot_number is None:
        return None
    row = connection.execute(_FACT_AFTER, {"slot": state.slot_number, "fact": state.fact_id}).first()
    return None if row is None else (row.fact_id, row.starts_at)


def is_contradicted_by_weights(batch: LedgerBatch, state: FactState) -> bool:
    """Tell whether the current weights were proven to hold another value of the fact's slot.

    Values proven before the fact's own proof do not count: the later write-back has replaced them.
    """
    if state.slot_number is None:
        return False
    newest = batch.connection.scalar(
        select(func.max(states.c.proven_generation)).where(
            states.c.slot_number == state.slot_number,
            states.c.fact_id != state.fact_id,
            states.c.proven_generation.in_(batch.lineage),
        )
    )
    own = state.proven_generation if state.proven_generation in batch.lineage else None
    return newest is not None and (own is None or newest >= own)
