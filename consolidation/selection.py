"""Which stored facts a night takes on. Pure: reads states, returns a choice with reasons, changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from consolidation.records import Rejection
from sharpwave.records import FactStatus

if TYPE_CHECKING:
    from carriers.ledger_records import StoredFact
    from sharpwave.settings import SelectionSettings

MAX_ANSWER_CHARS = 80


def select_facts(
    stored: Iterable[StoredFact],
    settings: SelectionSettings,
    now: datetime,
    *,
    failed_nights: Mapping[str, int] | None = None,
) -> tuple[list[StoredFact], list[Rejection]]:
    """Choose the facts worth writing back: seen most often first, then the longest stored.

    Facts that a former night trained without proof, or that were part of a discarded night, come after those never
    tried, so that a fact the model cannot learn does not block the others night after night.

    Args:
        stored: The facts of the store.
        settings: Limits.
        now: Facts not valid at this time are left out.
        failed_nights: In how many discarded nights each fact was trained; none by default.

    Returns:
        The chosen facts, at most `max_facts`, and the others with the reason why not.
    """
    eligible: list[StoredFact] = []
    rejected: list[Rejection] = []
    for fact in stored:
        reason = _why_not(fact, now)
        if reason:
            rejected.append(Rejection(fact_id=fact.id, reason=reason))
        else:
            eligible.append(fact)
    failed = failed_nights or {}
    eligible.sort(
        key=lambda fact: (
            failed.get(fact.id, 0),
            fact.trained_generation or 0,
            -fact.observed_count,
            fact.seq,
        )
    )
    chosen = eligible[: settings.max_facts]
    rejected += [
        Rejection(fact_id=fact.id, reason="left for a later night") for fact in eligible[len(chosen) :]
    ]
    return chosen, rejected


def _why_not(fact: StoredFact, now: datetime) -> str | None:
    if fact.status is not FactStatus.HOT or fact.words is None:
        return "not in the store"
    if fact.valid_to is not None and fact.valid_to <= now:
        return "no longer valid"
    if fact.valid_from is not None and fact.valid_from > now:
        return "not yet valid"
    if any(len(answer) > MAX_ANSWER_CHARS for answer in fact.words.answers[:1]):
        return f"its answer is longer than {MAX_ANSWER_CHARS} characters"
    return None
