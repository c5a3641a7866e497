"""Forgetting: the words of a fact go, its tombstone stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import exists, select, update

from carriers.ledger_schema import chunks, facts, slots, states
from sharpwave.records import EventKind, FactStatus

if TYPE_CHECKING:
    from carriers.ledger_batch import LedgerBatch

_WORDS = ("text", "subject", "relation", "questions", "answers", "source", "metadata")


def forget_facts(batch: LedgerBatch, ids: Sequence[str]) -> int:
    """Turn facts into tombstones; return how many were not forgotten before.

    The tombstone keeps dates, namespace, events and its place on the slot. The words of the slot go with
    the last of its facts. Raises StoreError for an unknown id, before anything is changed.
    """
    batch.load(ids)
    chosen = [
        state for state in map(batch.state, dict.fromkeys(ids)) if state.status is not FactStatus.FORGOTTEN
    ]
    for state in chosen:
        if state.status is not FactStatus.HOT:
            # It should not be in the index, but privacy must not hang on that.
            batch.tell_index(state.fact_id, "delete")
        state.status, state.last_decision = FactStatus.FORGOTTEN, None
        batch.record(state.fact_id, EventKind.FORGOTTEN)
    for part in chunks([state.fact_id for state in chosen]):
        batch.connection.execute(update(facts).where(facts.c.id.in_(part)).values(dict.fromkeys(_WORDS)))
    batch.flush()
    numbers = {state.slot_number for state in chosen if state.slot_number is not None}
    for chunk in chunks(sorted(numbers)):
        someone_left = exists(
            select(states.c.fact_id).where(
                states.c.slot_number == slots.c.number, states.c.status != FactStatus.FORGOTTEN.value
            )
        )
        batch.connection.execute(
            update(slots).where(slots.c.number.in_(chunk), ~someone_left).values(slot_key=None)
        )
    return len(chosen)
