"""The review of a night: what a person's decision makes of a verdict, and which decisions are possible. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from consolidation.records import NightVerdict, Review, ReviewDecision
from sharpwave.errors import InputError
from sharpwave.records import GenerationStatus

if TYPE_CHECKING:
    from consolidation.records import NightPlan
    from sharpwave.records import Generation

DECIDES = "`sharpwave diff` shows it, `sharpwave accept` or `sharpwave reject` decides"
REJECTED_REASON = "rejected in review"


@overload
def reviewed(verdict: NightVerdict, review: Review | None) -> NightVerdict: ...
@overload
def reviewed(verdict: None, review: Review | None) -> None: ...
@overload
def reviewed(verdict: NightVerdict | None, review: Review | None) -> NightVerdict | None: ...
def reviewed(verdict: NightVerdict | None, review: Review | None) -> NightVerdict | None:
    """Return the verdict with what the review changes: kept facts are not evicted, a rejected night is discarded."""
    if verdict is None or review is None or not verdict.promoted:
        return verdict
    if review.decision is ReviewDecision.REJECTED:
        return NightVerdict(
            generation=verdict.generation,
            promoted=False,
            reason=REJECTED_REASON,
            scale=None,
            trials=verdict.trials,
        )
    evict = tuple(fact_id for fact_id in verdict.evict if fact_id not in review.kept)
    kept = tuple(fact_id for fact_id in verdict.evict if fact_id in review.kept)
    return verdict.model_copy(update={"evict": evict, "kept": kept})


def mark_facts(review: Review, verdict: NightVerdict, ids: Sequence[str], *, keep: bool) -> Review:
    """Return the review with facts kept in the store, or with that taken back; marking again changes nothing.

    Args:
        review: What was decided so far.
        verdict: Of the night; only a fact that is to leave the store can be marked.
        ids: Facts, by their whole ids.
        keep: Whether they are to stay in the store.

    Raises:
        InputError: a fact would not leave the store anyway; the message says why, and nothing is marked.
    """
    for fact_id in ids:
        if fact_id not in verdict.evict:
            raise InputError(
                f"fact {fact_id[:12]} {_standing(fact_id, verdict)}; only facts that are to leave the store can be "
                "marked, `sharpwave diff` lists them"
            )
    marked = {*review.kept, *ids} if keep else set(review.kept) - set(ids)
    return review.model_copy(update={"kept": tuple(item for item in verdict.evict if item in marked)})


def _standing(fact_id: str, verdict: NightVerdict) -> str:
    """Say what the night means to do with a fact that it does not evict."""
    if fact_id in verdict.proven:
        return "is proven but stays in the store anyway"
    if fact_id in verdict.damaged or fact_id in verdict.never_known:
        return "is not answered by the new weights and has to go back into the store"
    if any(probe.fact_id == fact_id for probe in verdict.target_probes):
        return "is not proven and stays in the store anyway"
    return "has no part in this consolidation"


def obstacle(
    decision: ReviewDecision, plan: NightPlan, verdict: NightVerdict, current: int, shadow: Generation
) -> str | None:
    """Return why a decision about a night cannot be carried out any more, and what to do; None if it can.

    Args:
        decision: Accepted or rejected.
        plan: Of the night.
        verdict: Of the night.
        current: The generation that is current now.
        shadow: The generation that the night trained, as it is now.
    """
    if decision is ReviewDecision.REJECTED:
        if shadow.status in (GenerationStatus.SHADOW, GenerationStatus.DISCARDED):
            return None
        return f"generation {shadow.number} is {shadow.status} already; `sharpwave rollback` leaves it"
    if current == verdict.generation:
        return None
    again = "`sharpwave reject` gives it up, then run `sharpwave consolidate --review` again"
    if current != plan.parent:
        return f"it was trained on generation {plan.parent} and {current} is current now; {again}"
    if shadow.status is not GenerationStatus.SHADOW:
        return f"its generation {shadow.number} is {shadow.status}; {again}"
    return None
