"""How facts enter the ledger: first observed, then routed. Both may be repeated after a kill without harm."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from carriers.ledger_batch import FactState, LedgerBatch
from carriers.ledger_records import Observation
from carriers.ledger_schema import assertions, chunks, facts, moment_text
from carriers.supersession import (
    Assertion,
    activate,
    ensure_slots,
    facts_before,
    is_contradicted_by_weights,
    last_place,
    settle,
    slot_key,
    write_assertions,
)
from sharpwave.records import IN_WEIGHTS, EventKind, Fact, FactStatus, RouteAction, RouteDecision, RouteStage


def words_of(fact: Fact) -> dict[str, Any]:
    """Return the columns that hold a fact's words and dates."""
    return {
        "text": fact.text,
        "subject": fact.slot.subject if fact.slot else None,
        "relation": fact.slot.relation if fact.slot else None,
        "questions": list(fact.questions),
        "answers": list(fact.answers),
        "valid_from": fact.valid_from,
        "valid_to": fact.valid_to,
        "observed_at": fact.observed_at,
        "source": fact.source,
        "metadata": dict(fact.metadata),
    }


def observed_key(fact_id: str, observed_at: datetime, run_id: str) -> str:
    """Return what makes one observation of a fact the same as another."""
    return f"observed:{fact_id}:{moment_text(observed_at)}:{run_id}"


def routed_key(fact_id: str, observed_count: int, run_id: str) -> str:
    """Return what makes one route decision about a fact the same as another."""
    return f"routed:{fact_id}:{observed_count}:{run_id}"


def observe_facts(batch: LedgerBatch, arrivals: Sequence[Fact]) -> list[Observation]:
    """Record that these facts were observed; return what each is to the ledger now.

    An observation is the same as an earlier one if fact, `observed_at` and run are the same; it then
    changes nothing.
    """
    return _Intake(batch, arrivals).take()


class _Intake:
    def __init__(self, batch: LedgerBatch, arrivals: Sequence[Fact]) -> None:
        self._batch = batch
        self._arrivals = [(fact.id, fact, slot_key(fact.namespace, fact.slot)) for fact in arrivals]
        self._new_facts: list[dict[str, Any]] = []
        self._waiting: list[Assertion] = []
        self._repeats: list[Assertion] = []

    def take(self) -> list[Observation]:
        batch = self._batch
        batch.load(fact_id for fact_id, _, _ in self._arrivals)
        self._slots = ensure_slots(batch.connection, (key for _, _, key in self._arrivals))
        keys = [observed_key(fact_id, fact.observed_at, batch.run_id) for fact_id, fact, _ in self._arrivals]
        seen = batch.keys_on_record(keys)
        newcomers: list[bool] = []
        for (fact_id, fact, place), key in zip(self._arrivals, keys, strict=True):
            state = batch.find(fact_id)
            newcomers.append(state is None)
            if key in seen:
                continue
            seen.add(key)
            number = None if place is None else self._slots[place]
            if state is None:
                self._take_new(fact_id, fact, number)
            else:
                self._take_again(state, fact, number)
            figures = {"observed_at": moment_text(fact.observed_at)}
            batch.record(fact_id, EventKind.OBSERVED, figures, key=key)
        if self._new_facts:
            batch.connection.execute(insert(facts), self._new_facts)
        batch.flush()
        write_assertions(batch.connection, self._waiting)
        self._settle_repeats()
        return [
            Observation(fact_id, is_new, batch.state(fact_id).status)
            for (fact_id, _, _), is_new in zip(self._arrivals, newcomers, strict=True)
        ]

    def _take_new(self, fact_id: str, fact: Fact, number: int | None) -> None:
        batch = self._batch
        batch.add(
            FactState(fact_id, batch.next_seq(), fact.namespace, number, FactStatus.OBSERVED, fact.valid_to)
        )
        self._new_facts.append({"id": fact_id, "namespace": fact.namespace, **words_of(fact)})
        self._waiting.append(Assertion.of(fact, fact_id, number, active=False))

    def _take_again(self, state: FactState, fact: Fact, number: int | None) -> None:
        state.observed_count += 1
        if state.status is FactStatus.FORGOTTEN:
            self._revive(state, fact, number)
        if state.slot_number is None or fact.valid_from is not None:
            return
        assertion = Assertion.of(fact, state.fact_id, state.slot_number, active=False)
        if state.status is FactStatus.SUPERSEDED:
            last = last_place(self._batch.connection, state.slot_number)
            if last is None or assertion.order_key > last:
                # The value came back: a new assertion, to be routed like a new fact.
                self._reopen(state, fact)
        if state.status is FactStatus.OBSERVED:
            self._waiting.append(assertion)
        else:
            self._repeats.append(Assertion.of(fact, state.fact_id, state.slot_number, active=True))

    def _reopen(self, state: FactState, fact: Fact) -> None:
        state.status, state.superseded_by, state.valid_to = FactStatus.OBSERVED, None, fact.valid_to

    def _revive(self, state: FactState, fact: Fact, number: int | None) -> None:
        connection = self._batch.connection
        connection.execute(update(facts).where(facts.c.id == state.fact_id).values(words_of(fact)))
        if number != state.slot_number:
            own = assertions.c.fact_id == state.fact_id
            connection.execute(update(assertions).where(own).values(slot_number=number))
            state.slot_number = number
        self._reopen(state, fact)

    def _settle_repeats(self) -> None:
        batch = self._batch
        if not self._repeats:
            return
        write_assertions(batch.connection, self._repeats)
        places = [
            (item.slot_number, item.order_key) for item in self._repeats if item.slot_number is not None
        ]
        repeated = {item.fact_id for item in self._repeats}
        arrived = {fact_id: fact for fact_id, fact, _ in self._arrivals}
        affected = sorted(repeated | facts_before(batch.connection, places))
        batch.load(affected)
        for fact_id in affected:
            settle(batch, batch.state(fact_id), arrived[fact_id] if fact_id in repeated else None)
        batch.flush()


def route_facts(batch: LedgerBatch, decisions: Sequence[RouteDecision]) -> None:
    """Apply route decisions: waiting facts find their place on the slot and in the carriers.

    A decision about a fact that does not wait is recorded; it changes the state only where it asks to
    store what is not stored. Nothing is taken out of the store here but superseded values.

    Raises:
        StoreError: an id is not in the ledger.
        ValueError: a waiting fact was decided as a mere repeat, which would leave it unjudged for ever.
    """
    batch.load(decision.fact_id for decision in decisions)
    keys = {
        decision.fact_id: routed_key(
            decision.fact_id, batch.state(decision.fact_id).observed_count, batch.run_id
        )
        for decision in decisions
    }
    seen = batch.keys_on_record(keys.values())
    waiting: dict[str, RouteDecision] = {}
    for decision in decisions:
        state, key = batch.state(decision.fact_id), keys[decision.fact_id]
        if state.status is FactStatus.FORGOTTEN or key in seen:
            continue
        seen.add(key)
        if state.status is FactStatus.OBSERVED and decision.stage is RouteStage.REPEAT:
            raise ValueError(
                f"fact {decision.fact_id} still waits for its first route; it cannot pass as a repeat"
            )
        figures = decision.model_dump(mode="json", exclude={"fact_id", "reason"})
        batch.record(decision.fact_id, EventKind.ROUTED, figures, key=key)
        if state.status is FactStatus.OBSERVED:
            waiting[decision.fact_id] = decision
        elif decision.stage is not RouteStage.REPEAT:
            _reconsider(batch, state, decision)
    _place(batch, waiting)
    batch.flush()


def _reconsider(batch: LedgerBatch, state: FactState, decision: RouteDecision) -> None:
    if decision.action.is_write and state.status in IN_WEIGHTS:
        state.last_decision = decision.model_dump(mode="json")
        state.status, state.known_generation, state.proven_generation = FactStatus.HOT, None, None
        batch.record(state.fact_id, EventKind.STORED, {"reason": "rerouted"}, generation=decision.generation)


def _place(batch: LedgerBatch, waiting: dict[str, RouteDecision]) -> None:
    places = activate(batch.connection, waiting)
    neighbours = facts_before(batch.connection, places) - waiting.keys()
    batch.load(neighbours)
    for fact_id in sorted(neighbours):
        settle(batch, batch.state(fact_id))
    own_ends = _own_ends(batch.connection, list(waiting))
    for fact_id, decision in waiting.items():
        state = batch.state(fact_id)
        state.superseded_by, state.valid_to = None, own_ends[fact_id]
        state.last_decision = decision.model_dump(mode="json")
        is_known = decision.action is RouteAction.NON_WRITE
        state.status = FactStatus.KNOWN if is_known else FactStatus.HOT
        state.known_generation = decision.generation if is_known else None
        if not settle(batch, state):
            continue
        reason = _why_stored(batch, state)
        if reason is not None:
            state.status, state.known_generation = FactStatus.HOT, None
            batch.record(fact_id, EventKind.STORED, {"reason": reason})


def _why_stored(batch: LedgerBatch, state: FactState) -> str | None:
    """Return why a fact that has just been placed belongs into the store; None if the weights are enough."""
    if state.status is FactStatus.HOT:
        return "routed"
    if state.known_generation not in batch.lineage:
        return "rolled_back"  # the decision is older than a rollback: its judge does not answer any more
    return "override" if is_contradicted_by_weights(batch, state) else None


def _own_ends(connection: Connection, ids: Sequence[str]) -> dict[str, datetime | None]:
    ends: dict[str, datetime | None] = {}
    for part in chunks(ids):
        rows = connection.execute(select(facts.c.id, facts.c.valid_to).where(facts.c.id.in_(part)))
        ends.update({row.id: row.valid_to for row in rows})
    return ends
