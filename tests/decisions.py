"""Decisions made beforehand, for tests that need facts in a store and no router."""

from __future__ import annotations

from sharpwave.records import RouteAction, RouteDecision, RouteStage


def given_decision(
    fact_id: str,
    action: RouteAction = RouteAction.WRITE_NEW,
    *,
    stage: RouteStage = RouteStage.POLICY,
    generation: int = 0,
) -> RouteDecision:
    """Return a decision that no model has made; its figures say nothing."""
    return RouteDecision(
        fact_id=fact_id,
        action=action,
        stage=stage,
        p_non_write=0.0,
        p_write_new=1.0,
        p_write_update=0.0,
        expected_gain=1.0,
        storage_price=0.0,
        escalation_price=0.0,
        router_version="test",
        generation=generation,
        reason="test",
    )
