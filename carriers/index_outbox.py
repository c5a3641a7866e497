"""Carries out what the ledger wants of the index. Safe to repeat after a kill at any point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sharpwave.records import FactStatus

if TYPE_CHECKING:
    from carriers.ledger import Ledger, OutboxRow
    from carriers.memory_index import MemoryIndex


def drain_outbox(ledger: Ledger, index: MemoryIndex) -> int:
    """Bring the index up to the ledger for every fact in the outbox; return how many rows were struck off.

    For the one writer, and one thread of it at a time.
    """
    drained = 0
    while rows := ledger.outbox():
        _carry_out(rows, ledger, index)
        ledger.clear_outbox(rows)
        drained += len(rows)
    return drained


def _carry_out(rows: Sequence[OutboxRow], ledger: Ledger, index: MemoryIndex) -> None:
    """Make the index hold of these facts what is hot now: the present state decides, not the rows."""
    ids = list(dict.fromkeys(row.fact_id for row in rows))
    stored = ledger.facts(ids)
    hot = [fact for fact in stored if fact.status is FactStatus.HOT]
    index.upsert(hot)
    index.delete(sorted(set(ids) - {fact.id for fact in hot}))
    if any(fact.status is FactStatus.FORGOTTEN for fact in stored):
        index.compact()
