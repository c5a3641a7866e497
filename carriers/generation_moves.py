"""What it does to the facts when the current generation changes: eviction, re-admission, overrides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from carriers.generation_records import PromotionReceipt
from carriers.ledger_schema import chunks, events, states
from carriers.supersession import is_contradicted_by_weights, last_fact
from sharpwave.records import IN_WEIGHTS, EventKind, FactStatus, Generation, RouteAction

if TYPE_CHECKING:
    from carriers.ledger_batch import FactState, LedgerBatch

_NON_WRITE = RouteAction.NON_WRITE.value
_LIVE = (FactStatus.HOT, *IN_WEIGHTS)
_STATUS_AFTER = {
    EventKind.STORED: FactStatus.HOT,
    EventKind.READMITTED: FactStatus.HOT,
    EventKind.EVICTED: FactStatus.INTERNALISED,
    EventKind.SUPERSEDED: FactStatus.SUPERSEDED,
    EventKind.FORGOTTEN: FactStatus.FORGOTTEN,
}
# Stored by a generation is what it was found not to answer, although it counted on the weights.
_TELLS_OF_PROOF = [EventKind.PROVEN, EventKind.DAMAGED, EventKind.STORED]


def apply_promotion(
    batch: LedgerBatch,
    shadow: Generation,
    *,
    evict: Sequence[str],
    proven: Sequence[str],
    trained: Sequence[str],
    kept: Collection[str],
    damaged: Sequence[str],
    readmit: Sequence[str],
) -> PromotionReceipt:
    """Do to the facts what promoting this generation means; it must be the current one already."""
    number = shadow.number
    batch.load([*trained, *proven, *damaged])
    for fact_id in trained:
        batch.record(fact_id, EventKind.TRAINED, generation=number)
        batch.state(fact_id).trained_generation = number
    for fact_id in proven:
        reason = {"reason": "kept"} if fact_id in kept else None
        batch.record(fact_id, EventKind.PROVEN, reason, generation=number)
    note_proof(batch, proven, number)
    evicted, unevicted = evict_proven(batch, evict, number, "proven")
    damaged_count = note_damage(batch, damaged, number)
    readmitted, unadmitted = readmit_damaged(batch, readmit, number)
    overridden = override_older_values(batch, proven)
    batch.flush()
    return PromotionReceipt(
        number=number,
        parent=shadow.parent or 0,
        trained=len(trained),
        proven=len(proven),
        evicted=evicted,
        damaged=damaged_count,
        readmitted=readmitted,
        overridden=overridden,
        kept=sum(batch.state(fact_id).status is FactStatus.HOT for fact_id in kept),
        skipped=tuple(unevicted + unadmitted),
    )


def note_proof(batch: LedgerBatch, ids: Iterable[str], number: int) -> None:
    """Remember that the weights hold these facts, also those that were superseded or forgotten meanwhile.

    What the weights have held since an earlier generation of the lineage keeps that generation's number.
    """
    for fact_id in ids:
        state = batch.state(fact_id)
        if state.status is FactStatus.KNOWN:
            continue
        if state.status is FactStatus.HOT or state.proven_generation not in batch.lineage:
            state.proven_generation = number


def evict_proven(batch: LedgerBatch, ids: Iterable[str], number: int, reason: str) -> tuple[int, list[str]]:
    """Move hot facts into the weights; return how many, and the ids that are not to be moved any more."""
    count, skipped = 0, []
    for fact_id in ids:
        state = batch.state(fact_id)
        if state.status is FactStatus.HOT:
            state.status, state.proven_generation = FactStatus.INTERNALISED, number
            batch.record(fact_id, EventKind.EVICTED, {"reason": reason}, generation=number)
            count += 1
        elif state.status is not FactStatus.INTERNALISED:
            skipped.append(fact_id)
    return count, skipped


def note_damage(batch: LedgerBatch, ids: Iterable[str], number: int) -> int:
    """Record the facts that a generation does not answer any more, as far as they count as known."""
    count = 0
    for fact_id in ids:
        if batch.state(fact_id).status in IN_WEIGHTS:
            batch.record(fact_id, EventKind.DAMAGED, generation=number)
            count += 1
    return count


def readmit_damaged(batch: LedgerBatch, ids: Iterable[str], number: int) -> tuple[int, list[str]]:
    """Bring facts back into the store that a generation damaged; return how many, and the ids left out."""
    count, skipped = 0, []
    for fact_id in ids:
        state = batch.state(fact_id)
        if state.status in IN_WEIGHTS:
            batch.record(fact_id, EventKind.READMITTED, {"reason": "damaged"}, generation=number)
            _make_hot(state)
            count += 1
        elif state.status is not FactStatus.HOT:
            skipped.append(fact_id)
    return count, skipped


def override_older_values(batch: LedgerBatch, ids: Iterable[str]) -> int:
    """Store the current value of a slot whose older value the weights turn out to hold; return how many."""
    batch.flush()
    outdated = [state for state in map(batch.state, ids) if not state.is_live]
    numbers = {state.slot_number for state in outdated if state.slot_number is not None}
    current = [last_fact(batch.connection, number) for number in sorted(numbers)]
    count = 0
    for fact_id in filter(None, current):
        state = batch.state(fact_id)
        is_in_weights_only = state.status in IN_WEIGHTS
        if is_in_weights_only and is_contradicted_by_weights(batch, state):
            _make_hot(state)
            batch.record(fact_id, EventKind.STORED, {"reason": "override"})
            count += 1
    return count


def move(batch: LedgerBatch, left: Sequence[int], entered: Sequence[int]) -> tuple[int, int, int]:
    """Do to the facts what going from one generation to another means; the pointer must have moved already.

    Returns:
        The counts of facts that came back into the store, left it, and came back to override an older value.
    """
    readmitted, evicted = leave(batch, left), 0
    for number in entered:
        moves = enter(batch, number)
        readmitted, evicted = readmitted + moves[0], evicted + moves[1]
    overridden = override_older_values(batch, _restore_proofs(batch, [*left, *entered]))
    batch.flush()
    return readmitted, evicted, overridden


def leave(batch: LedgerBatch, left: Sequence[int]) -> int:
    """Bring back into the store what only these generations knew; return how many facts."""
    proven = select(states.c.fact_id).where(
        states.c.proven_generation.in_(left), states.c.status == FactStatus.INTERNALISED.value
    )
    # Judged as known by a model that is not current any more: nobody has said that the present one knows it.
    judged = select(states.c.fact_id).where(
        states.c.known_generation.in_(left), states.c.status == FactStatus.KNOWN.value
    )
    return _readmit(batch, [*batch.connection.scalars(proven), *batch.connection.scalars(judged)], "rollback")


def enter(batch: LedgerBatch, number: int) -> tuple[int, int]:
    """Do again what the promotion of a generation did; return the counts of facts re-admitted and evicted."""
    unprobed = _readmit(batch, _not_probed_by(batch, number), "forward")
    evicted, _ = evict_proven(batch, _not_stored_since_eviction(batch, number), number, "forward")
    readmitted, _ = readmit_damaged(batch, _recorded(batch, EventKind.READMITTED, number), number)
    batch.flush()
    return unprobed + readmitted, evicted


def _not_probed_by(batch: LedgerBatch, number: int) -> list[str]:
    """Return the facts that count on the weights now and did not when this generation was promoted.

    Its night has not probed them for damage: they arrived while it was rolled back, or were in the store then.
    """
    query = select(states.c.fact_id).where(states.c.status.in_([status.value for status in IN_WEIGHTS]))
    ids = list(batch.connection.scalars(query))
    first = select(func.coalesce(func.min(events.c.seq), 0)).where(events.c.generation == number)
    probed = _in_weights_before(batch, ids, batch.connection.execute(first).scalar_one())
    return [fact_id for fact_id in ids if fact_id not in probed]


def _in_weights_before(batch: LedgerBatch, ids: Sequence[str], seq: int) -> set[str]:
    """Return those of the facts that counted on the weights before an event, as the journal tells."""
    found: dict[str, FactStatus] = {}
    for part in chunks(ids):
        query = select(events.c.fact_id, events.c.kind, events.c.payload)
        query = query.where(events.c.fact_id.in_(part), events.c.seq < seq).order_by(events.c.seq)
        for fact_id, kind, payload in batch.connection.execute(query):
            if kind in _STATUS_AFTER:
                found[fact_id] = _STATUS_AFTER[EventKind(kind)]
            elif kind == EventKind.ROUTED.value and found.get(fact_id) not in _LIVE:
                # a decision to store is followed by an event that says so
                found[fact_id] = FactStatus.KNOWN if payload["action"] == _NON_WRITE else FactStatus.OBSERVED
    return {fact_id for fact_id, status in found.items() if status in IN_WEIGHTS}


def _not_stored_since_eviction(batch: LedgerBatch, number: int) -> list[str]:
    """Return what this generation evicted, without what a router has stored since: that was found unknown."""
    evicted = _last_events(batch, _recorded(batch, EventKind.EVICTED, number), EventKind.EVICTED, number)
    stored = _last_events(batch, list(evicted), EventKind.STORED)
    return [fact_id for fact_id, seq in evicted.items() if stored.get(fact_id, 0) < seq]


def _last_events(
    batch: LedgerBatch, ids: Sequence[str], kind: EventKind, number: int | None = None
) -> dict[str, int]:
    """Return the number of the last event of a kind, and of a generation if one is given, by fact."""
    found: dict[str, int] = {}
    for part in chunks(ids):
        query = select(events.c.fact_id, func.max(events.c.seq)).group_by(events.c.fact_id)
        query = query.where(events.c.fact_id.in_(part), events.c.kind == kind.value)
        if number is not None:
            query = query.where(events.c.generation == number)
        found.update((row[0], row[1]) for row in batch.connection.execute(query))
    return found


def _restore_proofs(batch: LedgerBatch, moved: Sequence[int]) -> list[str]:
    """Note, for the facts that these generations proved or damaged, what the lineage is proven to hold now.

    The journal tells. What is internalised is left out, for it counts from its first proof. Returns the facts.
    """
    changed = select(events.c.fact_id).where(
        events.c.generation.in_(moved), events.c.kind.in_(_TELLS_OF_PROOF)
    )
    ids = sorted(batch.connection.scalars(changed.distinct()))
    batch.load(ids)
    proven: dict[str, int | None] = {}
    for part in chunks(ids):
        query = select(events.c.fact_id, events.c.kind, events.c.generation).where(
            events.c.fact_id.in_(part),
            events.c.kind.in_(_TELLS_OF_PROOF),
            events.c.generation.in_(batch.lineage),
        )
        for fact_id, kind, generation in batch.connection.execute(query.order_by(events.c.seq)):
            proven[fact_id] = generation if kind == EventKind.PROVEN else None
    for fact_id in ids:
        state = batch.state(fact_id)
        if state.status is not FactStatus.INTERNALISED:
            state.proven_generation = proven.get(fact_id)
    return ids


def _readmit(batch: LedgerBatch, ids: Sequence[str], reason: str) -> int:
    batch.load(ids)
    for fact_id in ids:
        state = batch.state(fact_id)
        state.status, state.known_generation = FactStatus.HOT, None
        batch.record(fact_id, EventKind.READMITTED, {"reason": reason})
    batch.flush()
    return len(ids)


def _recorded(batch: LedgerBatch, kind: EventKind, number: int) -> list[str]:
    query = select(events.c.fact_id).where(events.c.generation == number, events.c.kind == kind.value)
    ids = list(dict.fromkeys(batch.connection.scalars(query.order_by(events.c.seq))))
    batch.load(ids)
    return ids


def _make_hot(state: FactState) -> None:
    state.status, state.known_generation, state.proven_generation = FactStatus.HOT, None, None
