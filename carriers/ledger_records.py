"""What the ledger hands out: stored facts, events, observations and index intents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import Field

from sharpwave.errors import StoreError
from sharpwave.records import EventKind, Fact, FactStatus, Moment, Record, RouteAction, RouteDecision

IndexOperation = Literal["upsert", "delete"]


class StoredFact(Record):
    """A fact with its present state.

    `words` is None for a forgotten fact; read `fact` where a tombstone cannot occur. `valid_to` is the
    effective end: the earlier of the fact's own end and the start of its successor on the slot.
    `slot_number` is the ledger's opaque number of the slot. `known_generation` is the generation that
    was judged to know the fact, `proven_generation` the one since which the weights have held it.
    """

    id: str
    namespace: str
    seq: int
    words: Fact | None
    status: FactStatus
    valid_from: Moment | None = None
    valid_to: Moment | None = None
    slot_number: int | None = None
    superseded_by: str | None = None
    observed_count: int = 1
    last_decision: RouteDecision | None = None
    known_generation: int | None = None
    proven_generation: int | None = None
    trained_generation: int | None = None

    @property
    def fact(self) -> Fact:
        """The fact word for word. Raises StoreError for a forgotten fact."""
        if self.words is None:
            raise StoreError(f"fact {self.id} was forgotten; only its tombstone is left")
        return self.words

    @property
    def last_action(self) -> RouteAction | None:
        """The router's last class for this fact; None before it was routed."""
        return self.last_decision.action if self.last_decision else None

    @property
    def is_live(self) -> bool:
        """Whether the fact counts as what is believed now: known, hot or internalised."""
        return self.status in (FactStatus.KNOWN, FactStatus.HOT, FactStatus.INTERNALISED)


class Event(Record):
    """One line of the append-only journal. The payload carries no words of the fact."""

    seq: int
    fact_id: str
    kind: EventKind
    at: Moment
    run_id: str
    payload: dict[str, Any] = Field(default_factory=dict)


class FactLife(NamedTuple):
    """One fact's whole life as export yields it and restore takes it."""

    stored: StoredFact
    events: list[Event]


@dataclass(frozen=True)
class Observation:
    """What became of one observed fact.

    `needs_routing` is also true for a fact that is not new: one whose routing was interrupted, or a
    superseded value that came back.
    """

    fact_id: str
    is_new: bool
    status: FactStatus

    @property
    def needs_routing(self) -> bool:
        """Whether the fact waits for a route decision."""
        return self.status is FactStatus.OBSERVED


@dataclass(frozen=True)
class OutboxRow:
    """One intent for the index. Apply rows in order; then hand them to `Ledger.clear_outbox`."""

    row_id: int
    fact_id: str
    op: IndexOperation
