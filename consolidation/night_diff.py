"""What one night changes: which facts enter the weights or the store, which leave them, which do neither and why.

Words come from the ledger, so a fact that was forgotten since has none here, whatever the night's files still hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from consolidation import night_folder as files
from consolidation.night_folder import NightFolder
from consolidation.probes import failed_probes, why_not_proven
from consolidation.records import (
    WAITING,
    FactTargets,
    NightPlan,
    NightReport,
    NightVerdict,
    Review,
    ReviewDecision,
    ScaleTrial,
)
from consolidation.review import DECIDES, reviewed
from sharpwave.errors import StoreError
from sharpwave.records import ProbeResult, Record

if TYPE_CHECKING:
    from carriers.generations import GenerationStore
    from carriers.ledger import Ledger
    from carriers.ledger_records import StoredFact

UNFINISHED = "interrupted"


class DiffLine(Record):
    """One fact of a diff. Without words it was forgotten.

    `lowest_prob` is its lowest answer-token probability over all probes, `failed` the probes that it did not pass.
    """

    fact_id: str
    text: str | None = None
    question: str | None = None
    answer: str | None = None
    reason: str = ""
    lowest_prob: float | None = None
    failed: tuple[ProbeResult, ...] = ()


class NightDiff(Record):
    """What a night changes if it is promoted, and what it leaves as it is.

    `entered` the weights, for they are proven; `evicted` left the store, at once if `evict_now`, else they do once they
    are proven a second time; `kept` are proven and stay in the store
    because a review said so. `damaged` left the weights; `readmitted` came back into the store, the damaged among
    them. `not_proven` were trained and stay in the store; `left_out` were not trained.
    """

    run_id: str
    status: str
    reason: str
    generation: int | None
    parent: int
    scale: float | None = None
    trials: tuple[ScaleTrial, ...] = ()
    evict_now: bool = False
    entered: tuple[DiffLine, ...] = ()
    evicted: tuple[DiffLine, ...] = ()
    kept: tuple[DiffLine, ...] = ()
    damaged: tuple[DiffLine, ...] = ()
    readmitted: tuple[DiffLine, ...] = ()
    not_proven: tuple[DiffLine, ...] = ()
    left_out: tuple[DiffLine, ...] = ()


class NightRecords(NamedTuple):
    """The files of one night, as far as it has come."""

    plan: NightPlan
    verdict: NightVerdict | None = None
    review: Review | None = None
    report: NightReport | None = None


def find_night(store: Path, generations: GenerationStore, chosen: str | None) -> str:
    """Return the run id that a person means: a run id, a generation's number, or by default what is of interest.

    Args:
        store: The store.
        generations: Its generations.
        chosen: None for the night that waits for review, or else the one that made the current generation.

    Raises:
        StoreError: no night fits.
    """
    if chosen is None and (waiting := files.waiting_night(store)) is not None:
        return waiting
    if chosen is not None and not chosen.isdecimal():
        if NightFolder(store, chosen).read(files.PLAN, NightPlan) is None:
            raise StoreError(f"there is no consolidation {chosen}; `sharpwave status` lists the last ones")
        return chosen
    number = generations.current().number if chosen is None else generations.get(int(chosen)).number
    if number == 0:
        raise StoreError(
            "generation 0 is the base model, which no consolidation has made, and none waits for review; "
            "`sharpwave consolidate --review` makes one that does"
        )
    found = files.night_of_generation(store, number)
    if found is None:
        raise StoreError(f"no record of the consolidation that made generation {number} is left in {store}")
    return found


def read_diff(store: Path, ledger: Ledger, run_id: str, min_token_prob: float) -> NightDiff:
    """Read what a night changes; loads no model and changes nothing.

    Args:
        store: The store.
        ledger: Its ledger, for the words.
        run_id: A night with a plan.
        min_token_prob: Probability that a probe's answer tokens must exceed.
    """
    folder = NightFolder(store, run_id)
    night = NightRecords(
        folder.required(files.PLAN, NightPlan),
        folder.read(files.VERDICT, NightVerdict),
        folder.read(files.REVIEW, Review),
        folder.read(files.REPORT, NightReport),
    )
    facts = {fact.id: fact for fact in ledger.facts(sorted(_mentioned(night)))}
    return diff_of(night, facts, min_token_prob)


def diff_of(night: NightRecords, facts: Mapping[str, StoredFact], min_token_prob: float) -> NightDiff:
    """Return what a night changes. Pure.

    What a promotion meant to move and found superseded or forgotten is not listed as moved.
    """
    plan, verdict, report = night.plan, reviewed(night.verdict, night.review), night.report
    status, reason = _standing(night, verdict)
    line = _LineMaker(night, facts, min_token_prob)
    if verdict is None:
        return NightDiff(
            run_id=plan.run_id,
            status=status,
            reason=reason,
            generation=None,
            parent=plan.parent,
            left_out=line.left_out(),
        )
    unmoved = set(report.skipped) if report else set()
    return NightDiff(
        run_id=plan.run_id,
        status=status,
        reason=reason,
        generation=verdict.generation,
        parent=plan.parent,
        scale=verdict.scale,
        trials=verdict.trials,
        evict_now=plan.evict_now,
        entered=line.each(verdict.proven),
        evicted=line.each(fact_id for fact_id in verdict.evict if fact_id not in unmoved),
        kept=line.each(verdict.kept),
        damaged=line.each(verdict.damaged),
        readmitted=line.each(
            fact_id for fact_id in (*verdict.damaged, *verdict.never_known) if fact_id not in unmoved
        ),
        not_proven=line.not_proven(verdict),
        left_out=line.left_out(),
    )


def _mentioned(night: NightRecords) -> set[str]:
    ids = {item.fact_id for item in night.plan.targets} | {item.fact_id for item in night.plan.rejected}
    if night.verdict is not None:
        ids.update(night.verdict.proven, night.verdict.damaged, night.verdict.never_known)
        ids.update(probe.fact_id for probe in night.verdict.target_probes)
    return ids


def _standing(night: NightRecords, verdict: NightVerdict | None) -> tuple[str, str]:
    """Return status and reason of a night, also of one that has no report yet."""
    if night.report is not None:
        return night.report.status, night.report.reason
    is_waiting = night.review is not None and night.review.decision is ReviewDecision.WAITING
    if verdict is not None and verdict.promoted and is_waiting:
        return WAITING, f"{verdict.reason}; {DECIDES}"
    return UNFINISHED, "`sharpwave consolidate` goes on with it"


class _LineMaker:
    """Makes the lines of one night's facts."""

    def __init__(self, night: NightRecords, facts: Mapping[str, StoredFact], min_token_prob: float) -> None:
        self._targets = {item.fact_id: item for item in night.plan.targets}
        self._rejected = night.plan.rejected
        self._facts = facts
        probes = night.verdict.target_probes if night.verdict else ()
        self._failed = failed_probes(probes, min_token_prob)
        self._lowest: dict[str, float] = {}
        for probe in probes:
            lowest = self._lowest.get(probe.fact_id, 1.0)
            self._lowest[probe.fact_id] = min(lowest, probe.lowest_answer_prob)

    def each(self, ids: Iterable[str]) -> tuple[DiffLine, ...]:
        """Return a line per fact."""
        return tuple(self._line(fact_id) for fact_id in ids)

    def not_proven(self, verdict: NightVerdict) -> tuple[DiffLine, ...]:
        """Return the trained facts that stay in the store; none where the gate refused all scales alike."""
        probed = dict.fromkeys(probe.fact_id for probe in verdict.target_probes)
        return tuple(
            self._line(fact_id, why_not_proven(self._failed.get(fact_id, ())))
            for fact_id in probed
            if fact_id not in verdict.proven
        )

    def left_out(self) -> tuple[DiffLine, ...]:
        """Return the stored facts that the plan left out."""
        return tuple(self._line(item.fact_id, item.reason) for item in self._rejected)

    def _line(self, fact_id: str, reason: str = "") -> DiffLine:
        fact = self._facts.get(fact_id)
        figures = {
            "fact_id": fact_id,
            "reason": reason,
            "lowest_prob": self._lowest.get(fact_id),
            "failed": tuple(self._failed.get(fact_id, ())),
        }
        if fact is None or fact.words is None:
            return DiffLine(**figures)
        question, answer = _asked(fact, self._targets.get(fact_id))
        return DiffLine(text=fact.words.text, question=question, answer=answer, **figures)


def _asked(fact: StoredFact, target: FactTargets | None) -> tuple[str | None, str | None]:
    """Return the first question of a fact and its answer: the night's own where it has some."""
    if target is not None:
        return target.train_questions[0], target.answers[0]
    return next(iter(fact.fact.questions), None), next(iter(fact.fact.answers), None)
