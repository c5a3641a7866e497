"""The figures of a run as small pure functions, and their assembly into the records of a run.

A share of nothing is 0; EM retention against a full store that answers nothing is 1 (nothing could be lost).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eval.run_records import (
    ABSENT,
    FULL_STORE_ARM,
    HEADLINE_ARMS,
    READMITTED,
    SHARPWAVE_ARM,
    SUPERSEDED,
    AnswerRow,
    ArmFigures,
    ConsolidationSummary,
    NetBytes,
    RunMetrics,
)
from eval.statistics import (
    Interval,
    bootstrap_mean_interval,
    bootstrap_ratio_interval,
    wilson_interval,
)
from sharpwave.errors import InputError
from sharpwave.matching import token_f1
from sharpwave.records import RouteStage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

QuestionKey = tuple[int, str, str, int]


def storage_ratio(hot: int, n_distinct: int) -> float:
    """Return facts in the store / distinct facts observed; 0 before any was observed."""
    return _share(hot, n_distinct)


def mean_em(correct: Sequence[bool]) -> float:
    """Return the share of questions answered right; 0 without questions."""
    return _share(sum(correct), len(correct))


def em_retention(em: float, em_full_store: float) -> float:
    """Return EM / EM of the full store; may exceed 1; 1 where the full store answers nothing right.

    >>> em_retention(0.45, 0.5)
    0.9
    """
    return em / em_full_store if em_full_store > 0 else 1.0


def damage_rate(damaged: int, stable_probed: int) -> float:
    """Return formerly known facts lost / formerly known facts probed; 0 when none was probed."""
    return _share(damaged, stable_probed)


def internalised_rate(internalised: int, selected: int) -> float:
    """Return facts proven in the weights / facts selected for write-back; 0 when none was selected."""
    return _share(internalised, selected)


def escalation_rate(stages: Iterable[RouteStage]) -> float:
    """Return the share of router decisions that the large model took; 0 without decisions.

    Exact repeats and decisions made by a fixed policy never reach a router and do not count: leaving them
    in would make the rate look smaller.
    """
    routed = [stage for stage in stages if stage in (RouteStage.SMALL, RouteStage.LARGE)]
    return _share(sum(stage is RouteStage.LARGE for stage in routed), len(routed))


def routing_cost_ratio(router_flops: float, large_only_flops: float) -> float:
    """Return the router's FLOPs / FLOPs of the large router judging the same facts alone; 0 if both are 0.

    Raises:
        ValueError: a negative cost, or a cost measured against nothing.
    """
    if router_flops < 0 or large_only_flops < 0 or (router_flops > 0 and large_only_flops == 0):
        raise ValueError(f"cannot relate {router_flops} to {large_only_flops} FLOPs")
    return router_flops / large_only_flops if large_only_flops else 0.0


def mean_f1(rows: Sequence[AnswerRow]) -> float:
    """Return the mean token F1; 0 without rows."""
    scores = [token_f1(row.given, [row.answer]) if row.f1 is None else row.f1 for row in rows]
    return sum(scores) / len(scores) if scores else 0.0


def em_by_kind(rows: Iterable[AnswerRow]) -> dict[str, tuple[float, int]]:
    """Return (EM, n) for every kind of fact, kinds sorted; rows without a kind are left out."""
    hits: dict[str, list[bool]] = {}
    for row in rows:
        if row.kind is not None:
            hits.setdefault(row.kind, []).append(row.correct)
    return {kind: (mean_em(values), len(values)) for kind, values in sorted(hits.items())}


def weights_share(rows: Sequence[AnswerRow]) -> float:
    """Return the share of right answers that came from the weights; 0 without right answers."""
    right = [row for row in rows if row.correct]
    return _share(sum(row.origin == "weights" for row in right), len(right))


def headline_rows(rows: Iterable[AnswerRow], arm: str) -> list[AnswerRow]:
    """Return an arm's rows with real retrieval about what holds now: no dated questions, no absent facts.

    Nor what is asked at the end about re-admitted facts, which only two arms are asked.
    """
    apart = (SUPERSEDED, ABSENT, READMITTED)
    return [row for row in rows if row.arm == arm and row.read == "real" and row.kind not in apart]


def rows_by_question(rows: Iterable[AnswerRow], arm: str) -> dict[QuestionKey, AnswerRow]:
    """Index an arm's headline rows by step, fact and question; the n-th asking of one question has its own key."""
    asked: dict[tuple[int, str, str], int] = {}
    index: dict[QuestionKey, AnswerRow] = {}
    for row in headline_rows(rows, arm):
        key = (row.step, row.fact_id, row.question)
        asked[key] = asked.get(key, 0) + 1
        index[(*key, asked[key])] = row
    return index


def subjects(rows: Sequence[AnswerRow]) -> list[str]:
    """Return the resampling unit of each row: its subject where known, else its fact."""
    return [row.group or row.fact_id for row in rows]


def em_interval(rows: Sequence[AnswerRow], seed: int, confidence: float = 0.95) -> Interval:
    """Return the interval of EM from a bootstrap over subjects; (0, 1) without rows.

    Where every answer is right or every one wrong a bootstrap has no width; then Wilson's interval with the
    number of subjects as n is given.
    """
    hits = [float(row.correct) for row in rows]
    groups = subjects(rows)
    if len(set(hits)) < 2:
        n = len(set(groups))
        return wilson_interval(n if hits and hits[0] else 0, n, confidence)
    return bootstrap_mean_interval(hits, seed, groups, confidence=confidence)


def retention_interval(rows: Sequence[AnswerRow], seed: int, confidence: float = 0.95) -> Interval:
    """Return the interval of EM retention from questions that both arms answered, resampled by subject."""
    ours, full = (rows_by_question(rows, arm) for arm in (SHARPWAVE_ARM, FULL_STORE_ARM))
    shared = [key for key in ours if key in full]
    if not shared:
        return Interval(1.0, 1.0)
    return bootstrap_ratio_interval(
        [float(ours[key].correct) for key in shared],
        [float(full[key].correct) for key in shared],
        seed,
        subjects([ours[key] for key in shared]),
        confidence=confidence,
    )


def arm_figures(name: str, rows: Iterable[AnswerRow], storage: float, seed: int) -> ArmFigures:
    """Return the figures of one arm from its rows among all rows; `storage` is its storage ratio."""
    own = headline_rows(rows, name)
    low, high = em_interval(own, seed)
    return ArmFigures(
        name=name,
        storage_ratio=storage,
        em=mean_em([row.correct for row in own]),
        em_low=low,
        em_high=high,
        f1=mean_f1(own),
        n_questions=len(own),
    )


def reading_figures(name: str, rows: Iterable[AnswerRow]) -> dict[str, float | None]:
    """Return an arm's EM with oracle retrieval, recall@k and tokens per question; None where nothing tells."""
    own = [row for row in rows if row.arm == name]
    oracle = [row.correct for row in own if row.read == "oracle"]
    real = headline_rows(own, name)
    found = [row.found for row in real if row.found is not None]
    tokens = [row.tokens for row in real if row.tokens is not None]
    return {
        "em_oracle": mean_em(oracle) if oracle else None,
        "recall_at_k": mean_em(found) if found else None,
        "tokens_per_question": sum(tokens) / len(tokens) if tokens else None,
    }


def run_metrics(
    answers: Sequence[AnswerRow],
    arms: Sequence[ArmFigures],
    consolidations: Sequence[ConsolidationSummary],
    *,
    n_facts: int,
    storage_ratio_before_consolidation: float,
    escalation: float,
    routing_cost: float,
    net_bytes: NetBytes,
    wall_seconds: float,
    seed: int,
    profile: str,
) -> RunMetrics:
    """Assemble the headline figures.

    Counts are summed over consolidations; EM before and after are means over those that measured both, and
    the run's EM where none did.

    Raises:
        InputError: one of the four arms of the headline table is missing.
    """
    return RunMetrics(
        n_facts=n_facts,
        storage_ratio_before_consolidation=storage_ratio_before_consolidation,
        escalation_rate=escalation,
        routing_cost_ratio=routing_cost,
        net_bytes=net_bytes,
        wall_seconds=wall_seconds,
        seed=seed,
        profile=profile,
        **_arm_keys(answers, arms, seed),
        **_night_keys(consolidations, _headline_arms(arms)[0].em),
    )


def _share(part: int, whole: int) -> float:
    if not 0 <= part <= whole:
        raise ValueError(f"a share needs 0 <= part <= whole, not {part} of {whole}")
    return part / whole if whole else 0.0


def _arm_keys(answers: Sequence[AnswerRow], arms: Sequence[ArmFigures], seed: int) -> dict[str, Any]:
    ours, full, none, random = _headline_arms(arms)
    retention = retention_interval(answers, seed)
    return {
        "n_questions": ours.n_questions,
        "storage_ratio": ours.storage_ratio,
        **_em_keys("em", ours),
        **_em_keys("em_full_store", full),
        **_em_keys("em_no_memory", none),
        **_em_keys("em_random", random),
        "em_random_storage_ratio": random.storage_ratio,
        "em_retention": em_retention(ours.em, full.em),
        "em_retention_low": retention.low,
        "em_retention_high": retention.high,
    }


def _night_keys(consolidations: Sequence[ConsolidationSummary], em: float) -> dict[str, Any]:
    counts = {
        name: sum(getattr(night, name) for night in consolidations)
        for name in ("selected", "internalised", "evicted", "damaged", "readmitted", "stable_probed")
    }
    before, after = _em_around(consolidations, em)
    return {
        **counts,
        "damage_rate": damage_rate(counts["damaged"], counts["stable_probed"]),
        "gate_damage_rate": _gate_damage_rate(consolidations),
        "em_before_consolidation": before,
        "em_after_consolidation": after,
    }


def _gate_damage_rate(consolidations: Sequence[ConsolidationSummary]) -> float:
    gates = [night.gate for night in consolidations if night.status == "promoted"]
    probed = sum(gate.get("gate_probed", 0.0) for gate in gates)
    damaged = sum(gate.get("gate_damage_rate", 0.0) * gate.get("gate_probed", 0.0) for gate in gates)
    return damage_rate(round(damaged), round(probed))


def _headline_arms(arms: Sequence[ArmFigures]) -> list[ArmFigures]:
    by_name: Mapping[str, ArmFigures] = {arm.name: arm for arm in arms}
    missing = [name for name in HEADLINE_ARMS if name not in by_name]
    if missing:
        raise InputError(f"the headline table needs the arms {', '.join(missing)}")
    return [by_name[name] for name in HEADLINE_ARMS]


def _em_keys(prefix: str, arm: ArmFigures) -> dict[str, float]:
    return {prefix: arm.em, f"{prefix}_low": arm.em_low, f"{prefix}_high": arm.em_high}


def _em_around(consolidations: Sequence[ConsolidationSummary], em: float) -> tuple[float, float]:
    pairs = [
        (night.em_before, night.em_after)
        for night in consolidations
        if night.em_before is not None and night.em_after is not None
    ]
    if not pairs:
        return em, em
    return sum(pair[0] for pair in pairs) / len(pairs), sum(pair[1] for pair in pairs) / len(pairs)
