"""What it does to the facts when the current generation changes: eviction, re-admission, overrides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import select

from carriers.generation_records import PromotionReceipt
from carriers.ledger_schema import events, states
from carriers.supersession import is_contradicted_by_weights, last_fact
from sharpwave.records import EventKind, FactStatus, Generation

if TYPE_CHECKING:
    from carriers.ledger_batch import FactState, LedgerBatch


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
        if batch.state(fact_id).status in (FactStatus.KNOWN, FactStatus.INTERNALISED):
            batch.record(fact_id, EventKind.DAMAGED, generation=number)
            count += 1
    return count


def readmit_damaged(batch: LedgerBatch, ids: Iterable[str], number: int) -> tuple[int, list[str]]:
    """Bring facts back into the store that a generation damaged; return how many, and the ids left out."""
    count, skipped = 0, []
    for fact_id in ids:
        state = batch.state(fact_id)
        if state.status in (FactStatus.KNOWN, FactStatus.INTERNALISED):
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
        is_in_weights_only = state.status in (FactStatus.KNOWN, FactStatus.INTERNALISED)
        if is_in_weights_only and is_contradicted_by_weights(batch, state):
            _make_hot(state)
            batch.record(fact_id, EventKind.STORED, {"reason": "override"})
            count += 1
    return count


def leave(batch: LedgerBatch, left: Sequence[int]) -> int:
    """Bring back into the store what only these generations knew; return how many facts."""
    proven = select(states.c.fact_id).where(
        states.c.proven_generation.in_(left), states.c.status == FactStatus.INTERNALISED.value
    )
    # Judged as known by a model that is not current any more: nobody has said that the present one knows it.
    judged = select(states.c.fact_id).where(
        states.c.known_generation.in_(left), states.c.status == FactStatus.KNOWN.value
    )
    ids = [*batch.connection.scalars(proven), *batch.connection.scalars(judged)]
    batch.load(ids)
    for fact_id in ids:
        _make_hot(batch.state(fact_id))
        batch.record(fact_id, EventKind.READMITTED, {"reason": "rollback"})
    batch.flush()
    return len(ids)


def enter(batch: LedgerBatch, number: int) -> tuple[int, int, int]:
    """Do again what the promotion of a generation did; return the counts evicted, re-admitted, overridden."""
    proven = _recorded(batch, EventKind.PROVEN, number)
    note_proof(batch, proven, number)
    evicted, _ = evict_proven(batch, _recorded(batch, EventKind.EVICTED, number), number, "forward")
    readmitted, _ = readmit_damaged(batch, _recorded(batch, EventKind.READMITTED, number), number)
    overridden = override_older_values(batch, proven)
    batch.flush()
    return evicted, readmitted, overridden


def _recorded(batch: LedgerBatch, kind: EventKind, number: int) -> list[str]:
    query = select(events.c.fact_id).where(events.c.generation == number, events.c.kind == kind.value)
    ids = list(dict.fromkeys(batch.connection.scalars(query.order_by(events.c.seq))))
    batch.load(ids)
    return ids


def _make_hot(state: FactState) -> None:
    state.status, state.known_generation, state.proven_generation = FactStatus.HOT, None, None
