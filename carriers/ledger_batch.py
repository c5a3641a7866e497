"""One batch of ledger changes: states are read once, changed in memory and written with their events.

What the index has to do follows from how each state changed, so no writer can forget to tell the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, bindparam, func, insert, select, update

from carriers.ledger_schema import chunks, events, index_outbox, states
from carriers.lineage import current_number, lineage_of
from sharpwave.errors import StoreError
from sharpwave.records import EventKind, FactStatus, utc_now

if TYPE_CHECKING:
    from carriers.ledger_records import IndexOperation


@dataclass
class FactState:
    """One row of the present state, open to change."""

    fact_id: str
    seq: int
    namespace: str
    slot_number: int | None
    status: FactStatus
    valid_to: datetime | None
    superseded_by: str | None = None
    observed_count: int = 1
    last_decision: dict[str, Any] | None = None
    known_generation: int | None = None
    proven_generation: int | None = None
    trained_generation: int | None = None

    @property
    def is_live(self) -> bool:
        """Whether the fact counts as what is believed now."""
        return self.status in (FactStatus.KNOWN, FactStatus.HOT, FactStatus.INTERNALISED)


_COLUMNS = [field.name for field in fields(FactState)]
_UPDATE_STATE = (
    update(states)
    .where(states.c.fact_id == bindparam("key"))
    .values({name: bindparam(name) for name in _COLUMNS if name != "fact_id"})
)


class LedgerBatch:
    """Collects the changes of one call inside one transaction; `flush` writes them."""

    def __init__(self, connection: Connection, run_id: str) -> None:
        self.connection = connection
        self.run_id = run_id
        self._at = utc_now()
        self._states: dict[str, FactState] = {}
        self._as_read: dict[str, FactState] = {}
        self._events: list[dict[str, Any]] = []
        self._intents: list[dict[str, str]] = []

    @cached_property
    def lineage(self) -> list[int]:
        """The current generation and all it was built on, ascending."""
        return lineage_of(self.connection, current_number(self.connection))

    def load(self, ids: Iterable[str]) -> None:
        """Read the states of these facts, as far as they exist and were not read before."""
        missing = [fact_id for fact_id in dict.fromkeys(ids) if fact_id not in self._states]
        for part in chunks(missing):
            for row in self.connection.execute(select(states).where(states.c.fact_id.in_(part))):
                state = FactState(**{**row._mapping, "status": FactStatus(row.status)})
                self._states[state.fact_id] = state
                self._as_read[state.fact_id] = replace(state)

    def find(self, fact_id: str) -> FactState | None:
        """Return the state of a fact read or added before, or None."""
        return self._states.get(fact_id)

    def state(self, fact_id: str) -> FactState:
        """Return the state of a fact. Raises StoreError for an id the ledger does not have."""
        if fact_id not in self._states:
            self.load([fact_id])
        state = self._states.get(fact_id)
        if state is None:
            raise StoreError(f"the ledger has no fact {fact_id}")
        return state

    def add(self, state: FactState) -> FactState:
        """Take in the state of a fact that is new to the ledger."""
        self._states[state.fact_id] = state
        return state

    @cached_property
    def _first_free_seq(self) -> int:
        return int(self.connection.execute(select(func.coalesce(func.max(states.c.seq), 0))).scalar_one()) + 1

    def next_seq(self) -> int:
        """Return the place in the order of arrival for one more new fact."""
        return self._first_free_seq + len(self._states) - len(self._as_read)

    def record(
        self,
        fact_id: str,
        kind: EventKind,
        payload: Mapping[str, Any] | None = None,
        *,
        generation: int | None = None,
        key: str | None = None,
    ) -> None:
        """Append an event; `generation` is also put into the payload."""
        figures = dict(payload or {}) if generation is None else {"generation": generation, **(payload or {})}
        self._events.append({
            "fact_id": fact_id,
            "kind": kind.value,
            "at": self._at,
            "run_id": self.run_id,
            "payload": figures,
            "generation": generation,
            "event_key": key,
        })

    def tell_index(self, fact_id: str, op: IndexOperation) -> None:
        """Leave an intent for the index beyond those that follow from the states."""
        self._intents.append({"fact_id": fact_id, "op": op})

    def keys_on_record(self, keys: Iterable[str]) -> set[str]:
        """Return those of the event keys that an earlier call has written."""
        found: set[str] = set()
        for part in chunks(list(dict.fromkeys(keys))):
            found.update(
                self.connection.scalars(select(events.c.event_key).where(events.c.event_key.in_(part)))
            )
        return found

    def flush(self) -> None:
        """Write everything collected. The facts of new states must be in the database already."""
        added = [state for fact_id, state in self._states.items() if fact_id not in self._as_read]
        changed = [
            state for fact_id, state in self._states.items() if self._as_read.get(fact_id, state) != state
        ]
        for state in added + changed:
            before = self._as_read.get(state.fact_id)
            was_hot = before is not None and before.status is FactStatus.HOT
            is_hot = state.status is FactStatus.HOT
            if is_hot and not (was_hot and before is not None and before.valid_to == state.valid_to):
                self.tell_index(state.fact_id, "upsert")
            elif was_hot and not is_hot:
                self.tell_index(state.fact_id, "delete")
        if added:
            self.connection.execute(insert(states), [dict(vars(state)) for state in added])
        if changed:
            rows = [
                {("key" if name == "fact_id" else name): value for name, value in vars(state).items()}
                for state in changed
            ]
            self.connection.execute(_UPDATE_STATE, rows)
        if self._events:
            self.connection.execute(insert(events), self._events)
        if self._intents:
            self.connection.execute(insert(index_outbox), self._intents)
        self._events, self._intents = [], []
        self._as_read = {fact_id: replace(state) for fact_id, state in self._states.items()}
        self.__dict__.pop("_first_free_seq", None)
