"""Which stored facts a night takes on. Pure: reads states, returns a choice with reasons, changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from consolidation.records import Rejection
from sharpwave.records import FactStatus

if TYPE_CHECKING:
    from carriers.ledger_records import StoredFact
    from sharpwave.settings import SelectionSettings

MAX_ANSWER_CHARS = 80
_CANDIDATES_PER_PLACE = (
    4  # the longest stored this many times over are compared, so that no fact waits for ever
)

RiskOf = Callable[[Sequence["StoredFact"]], Mapping[str, float]]


def select_facts(
    stored: Iterable[StoredFact],
    settings: SelectionSettings,
    now: datetime,
    *,
    failed_nights: Mapping[str, int] | None = None,
    urgent: Collection[str] = (),
    risk_of: RiskOf | None = None,
) -> tuple[list[StoredFact], list[Rejection]]:
    """Choose the facts worth writing back: updates first, then those seen most often, then what endangers least.

    Facts that a former night trained without proof, or that were part of a discarded night, come after those never
    tried, so that a fact the model cannot learn does not block the others night after night.

    Args:
        stored: The facts of the store.
        settings: Limits.
        now: Facts not valid at this time are left out.
        failed_nights: In how many discarded nights each fact was trained; none by default.
        urgent: Facts that replace a value the weights still give; until these learn the new one, only the store
            corrects them.
        risk_of: Tells of candidates, by id, how near each is to what the weights know: a fact about the capital of one
            country, once trained, damages the capitals of others. Without it the longest stored come first.

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

    def worth(fact: StoredFact) -> tuple[int, ...]:
        tries = failed.get(fact.id, 0), fact.trained_generation or 0
        return *tries, int(fact.id not in urgent), -fact.observed_count

    eligible.sort(key=lambda fact: (worth(fact), fact.seq))
    room = settings.max_facts
    candidates = eligible[: _CANDIDATES_PER_PLACE * room]
    if risk_of is not None and len(candidates) > room:
        risk = risk_of(candidates)
        candidates.sort(key=lambda fact: (worth(fact), risk[fact.id], fact.seq))
    later = candidates[room:] + eligible[len(candidates) :]
    rejected += [Rejection(fact_id=fact.id, reason="left for a later night") for fact in later]
    return candidates[:room], rejected


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
