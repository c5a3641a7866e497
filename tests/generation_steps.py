"""Generations of a bare ledger, for tests: facts told, shadows sealed, nights in which facts are learnt."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from carriers.generations import adapter_digest
from sharpwave.records import Fact, RouteAction, RouteDecision, RouteStage, Slot

START = datetime(2020, 1, 1, tzinfo=UTC)
CITY = Slot(subject="Ana", relation="city")


def fact(text, day=0, slot=None) -> Fact:
    return Fact(text=text, slot=slot, observed_at=START + timedelta(days=day))


def decision(item, action, generation=0) -> RouteDecision:
    return RouteDecision(
        fact_id=item.id,
        action=action,
        stage=RouteStage.LARGE,
        p_non_write=0.2,
        p_write_new=0.5,
        p_write_update=0.3,
        expected_gain=0.4,
        storage_price=0.1,
        escalation_price=0.1,
        router_version="test",
        generation=generation,
        reason="test",
    )


def tell(ledger, *items, action=RouteAction.WRITE_NEW, generation=0):
    ledger.observe(items, "ingest")
    ledger.apply_routes([decision(item, action, generation) for item in items], "ingest")
    return [item.id for item in items]


def shadow(store, trained=()):
    """A sealed shadow on top of the current generation."""
    number, folder = store.create_shadow(store.current().number, "base-1", trained)
    (folder / "adapter_model.safetensors").write_bytes(f"weights {number}".encode())
    store.seal(number, adapter_digest(folder), {"em_gain": 0.5})
    return number


def learn(store, ids, *, damaged=(), run_id=None):
    """Train, prove and evict these facts in one new generation."""
    number = shadow(store, ids)
    store.promote(
        number,
        evict=ids,
        proven=ids,
        trained=ids,
        damaged=damaged,
        readmit=damaged,
        run_id=run_id or f"sleep{number}",
    )
    return number


def statuses(ledger, ids):
    return [stored.status for stored in ledger.facts(ids)]
