"""Events of a fact's history in words: what the journal keeps as figures, as a reason a person can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sharpwave.records import EventKind, RouteStage

if TYPE_CHECKING:
    from carriers.ledger_records import Event

_REASONS = {
    (
        EventKind.PROVEN,
        "kept",
    ): "the saved and reloaded model answered all its probes; a review kept it in the store",
    (EventKind.STORED, "routed"): "the router chose to store it",
    (EventKind.STORED, "override"): "stored although known: the weights hold an older value of its slot",
    (
        EventKind.STORED,
        "rolled_back",
    ): "stored although judged as known: that generation is not current any more",
    (EventKind.STORED, "rerouted"): "routed again, and this time to be stored",
    (
        EventKind.EVICTED,
        "forward",
    ): "proven before; the move to this generation took it out of the store again",
    (EventKind.READMITTED, "damaged"): "the new weights do not answer it any more",
    (EventKind.READMITTED, "rollback"): "only generations that are not current any more knew it",
    (
        EventKind.READMITTED,
        "forward",
    ): "judged as known while this generation was rolled back, which was never asked",
    (EventKind.READMITTED, "import"): "the weights of this store have never learnt it",
}
_STANDING = {
    EventKind.OBSERVED: "recorded word for word",
    EventKind.TRAINED: "it was in the training set",
    EventKind.PROVEN: "the saved and reloaded model answered all its probes",
    EventKind.EVICTED: "proven in the weights, so it left the store",
    EventKind.DAMAGED: "answered before the training, not after it",
    EventKind.FORGOTTEN: "its words were removed at a person's request",
}


def reasons_of(events: Sequence[Event]) -> list[str]:
    """Return a reason for each event of one fact, oldest first."""
    reasons = [_reason(event) for event in events]
    observed = [place for place, event in enumerate(events) if event.kind is EventKind.OBSERVED]
    for place in observed[1:]:
        reasons[place] = "it came again"
    return reasons


def _reason(event: Event) -> str:
    payload = event.payload
    if event.kind is EventKind.ROUTED:
        return _route(payload)
    if event.kind is EventKind.SUPERSEDED:
        newer, since = str(payload.get("by", "?")), str(payload.get("valid_to", "?"))
        moment = since[:16].replace("T", " ").removesuffix(" 00:00")
        return f"fact {newer[:12]} holds its slot from {moment} on"
    given = str(payload.get("reason", ""))
    reason = _REASONS.get((event.kind, given)) or _STANDING.get(event.kind) or given
    generation = payload.get("generation")
    return reason if generation is None else f"generation {generation}: {reason}"


def _route(payload: dict[str, Any]) -> str:
    action, stage = str(payload.get("action", "?")), str(payload.get("stage", "?"))
    if stage == RouteStage.REPEAT:
        return f"{action.replace('_', '-')}: an exact repeat"
    judge = {"small": "by the small model", "large": "by the large model"}.get(stage, f"by {stage}")
    gain, price = payload.get("expected_gain", 0.0), payload.get("storage_price", 0.0)
    told = f"{action.replace('_', '-')} {judge}: expected gain {gain:.3f}, price of storing {price:.3f}"
    prob, bar = payload.get("p_write_update", 0.0), payload.get("update_price", 1.0)
    return (
        f"{told}, stored as a possible update ({prob:.3f} > {bar:.3f})"
        if gain <= price and prob > bar
        else told
    )
