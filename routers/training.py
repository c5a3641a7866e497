"""Makes a router: heads and gates from training facts, prices from calibration facts, figures from report facts.

How a caller uses it: `collect_examples` per set of facts, `train_router` on the three sets, `TrainedRouter.save`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from routers.calibration import (
    CascadeScores,
    OperatingPoint,
    certify_storage_price,
    certify_update_price,
    frontier,
    loss_over_resplits,
    operating_point,
    price_for_rate,
)
from routers.drift import DriftReference
from routers.examples import RoutingExample, cascade_scores, check_disjoint, scores_of
from routers.features import Evidence
from routers.gate import gate_inputs
from routers.gate_fitting import FittedGate, compare_gates, fit_gate
from routers.head_fitting import FittedStage, StageTargets, fit_stage
from routers.heads import RouterHeads
from routers.scorecard import score_router
from routers.stage_heads import ACTIONS, Prices
from sharpwave.records import RouteAction
from sharpwave.statistics import auc

if TYPE_CHECKING:
    from pathlib import Path

    from routers.observation import FactObservation


@dataclass(frozen=True)
class RouterTraining:
    """How a router is made; says nothing about from which facts.

    Attributes:
        seed: Seed of everything random.
        folds: Folds of every cross-validation.
        hidden_components: Principal components kept of each model's hidden states.
        small_limit: Most evidence the small model makes use of; its self-probe about doubles its cost.
        large_limit: Most evidence the large model makes use of.
        target_em_loss: Share of the full store's right answers that may be lost.
        target_update_recall: Least share of updates that are stored.
        confidence: Confidence of both promises.
        max_escalation: Largest share of facts sent on to the large model.
        resplits: Random halvings that check the promise.
    """

    seed: int = 0
    folds: int = 5
    hidden_components: int = 32
    small_limit: Evidence = Evidence.SPAN
    large_limit: Evidence = Evidence.PROBE
    target_em_loss: float = 0.02
    target_update_recall: float = 0.95
    confidence: float = 0.95
    max_escalation: float = 0.3
    resplits: int = 100


@dataclass(frozen=True)
class TrainedRouter:
    """Heads with their card, and the frontier on the report facts per kind of evidence."""

    heads: RouterHeads
    card: dict[str, Any]
    frontier: dict[str, list[OperatingPoint]]

    def save(self, folder: Path) -> str:
        """Write heads, card and frontier into a folder and return the heads' version."""
        rows = {kind: [asdict(point) for point in points] for kind, points in self.frontier.items()}
        return self.heads.save(folder, self.card, rows)

    def metrics(self) -> dict[str, float]:
        """Return the figures worth tracking, flat: those of the richest evidence, then `text_...` ones."""
        by_kind = self.card["evidence"]
        richest = list(by_kind)[-1]
        flat: dict[str, float] = {}
        for kind, prefix in ((Evidence.TEXT.value, "text_"), (richest, "")):
            report = by_kind[kind]["report"]
            values = {name: figure["value"] for name, figure in report["figures"].items()}
            values |= report["operating_point"] | {
                name: report[name] for name in ("realised_loss_mean", "realised_loss_violations")
            }
            flat |= {f"{prefix}{name}": float(value) for name, value in values.items() if value is not None}
        return flat


def train_router(
    train: Sequence[RoutingExample],
    calibration: Sequence[RoutingExample],
    report: Sequence[RoutingExample],
    settings: RouterTraining,
    *,
    small_fingerprint: str,
    large_fingerprint: str,
) -> TrainedRouter:
    """Make a router from three sets of facts that share no subject.

    Args:
        train: Heads and gates are fitted on these.
        calibration: Prices are chosen on these.
        report: Figures are measured on these.
        settings: How.
        small_fingerprint: Of the model that made the `small` observations.
        large_fingerprint: Of the model that made the `large` observations.

    Raises:
        InputError: A set is empty, or a subject is in two sets.
    """
    from threadpoolctl import threadpool_limits

    # Sums on many threads depend on their number; on one thread a seed gives the same bytes on every machine.
    with threadpool_limits(1):
        return _train(
            {"train": train, "calibration": calibration, "report": report},
            settings,
            small_fingerprint,
            large_fingerprint,
        )


def _train(
    sets: Mapping[str, Sequence[RoutingExample]],
    settings: RouterTraining,
    small_fingerprint: str,
    large_fingerprint: str,
) -> TrainedRouter:
    check_disjoint(sets)
    train, calibration, report = (sets[name] for name in ("train", "calibration", "report"))
    stages = {
        "small": _fit_stage([item.small for item in train], train, settings),
        "large": _fit_stage([item.large for item in train], train, settings),
    }
    gates = {
        kind: _fit_gate(train, stages, kind, settings)
        for kind in Evidence
        if all(kind in stage.heads.by_evidence for stage in stages.values())
    }
    heads = RouterHeads(
        small=stages["small"].heads,
        large=stages["large"].heads,
        gates={kind: fitted.gate for kind, fitted in gates.items()},
        prices={},
        small_limit=settings.small_limit,
        large_limit=settings.large_limit,
        small_fingerprint=small_fingerprint,
        large_fingerprint=large_fingerprint,
        references={},
        seed=settings.seed,
    )
    calibrating, reporting = (
        {kind: cascade_scores(heads, items, kind) for kind in gates} for items in (calibration, report)
    )
    heads, promises = _calibrated(heads, calibrating, settings)
    card = _card(sets, settings, heads)
    card["choices"] = {name: dict(stage.choices) for name, stage in stages.items()}
    card["evidence"] = {
        kind.value: {
            "promise": promises[kind],
            "gate_storage_price": gates[kind].storage_price,
            "report": _report(scores, calibrating[kind], heads.prices[kind], settings)
            | {"gate_utility": _gate_utility(scores, gates[kind], settings)},
        }
        for kind, scores in reporting.items()
    }
    points = {kind.value: frontier(scores, heads.prices[kind].update) for kind, scores in reporting.items()}
    return TrainedRouter(heads, card, points)


def _fit_stage(
    observations: Sequence[FactObservation], examples: Sequence[RoutingExample], settings: RouterTraining
) -> FittedStage:
    targets = StageTargets(
        classes=np.array([ACTIONS.index(item.label.action) for item in examples], dtype=np.intp),
        gains=np.array([item.label.gain for item in examples], dtype=np.float64),
    )
    return fit_stage(
        [item.groups for item in observations],
        targets,
        [item.group for item in examples],
        components=settings.hidden_components,
        folds=settings.folds,
        seed=settings.seed,
    )


def _fit_gate(
    train: Sequence[RoutingExample],
    stages: Mapping[str, FittedStage],
    kind: Evidence,
    settings: RouterTraining,
) -> FittedGate:
    places = [place for place, item in enumerate(train) if item.small.evidence(kind) is kind]
    chosen = [train[place] for place in places]
    limits = settings.small_limit.at_most(kind), settings.large_limit.at_most(kind)
    small = stages["small"].scores_up_to(limits[0]).rows(places)
    large = stages["large"].scores_up_to(limits[1]).rows(places)
    return fit_gate(
        gate_inputs([item.small.groups for item in chosen], small),
        scores_of(chosen, small, large, np.zeros(len(chosen)), limits),
        target_loss=settings.target_em_loss,
        max_escalation=settings.max_escalation,
        folds=settings.folds,
        seed=settings.seed,
    )


def _calibrated(
    heads: RouterHeads, scores: Mapping[Evidence, CascadeScores], settings: RouterTraining
) -> tuple[RouterHeads, dict[Evidence, dict[str, Any]]]:
    """Return the heads with prices and with what calibration facts look like, and what is promised."""
    chosen = {kind: _calibrate(part, settings) for kind, part in scores.items()}
    prices = {kind: pair[0] for kind, pair in chosen.items()}
    references = {
        kind: DriftReference.of(part.gate, part.escalated(prices[kind].escalation))
        for kind, part in scores.items()
    }
    promises = {kind: pair[1] for kind, pair in chosen.items()}
    return replace(heads, prices=prices, references=references).versioned(), promises


def _calibrate(scores: CascadeScores, settings: RouterTraining) -> tuple[Prices, dict[str, Any]]:
    escalation = price_for_rate(scores.gate, settings.max_escalation)
    promise = certify_storage_price(
        scores.decided(escalation).gain,
        scores.drawn_with,
        scores.drawn_without,
        target_loss=settings.target_em_loss,
        confidence=settings.confidence,
    )
    updates = certify_update_price(
        scores.decided(escalation),
        scores.classes,
        promise.storage_price,
        target_recall=settings.target_update_recall,
        confidence=settings.confidence,
    )
    prices = Prices(promise.storage_price, escalation, updates.update_price)
    point = operating_point(scores, prices)
    return prices, {
        **promise.to_json(),
        "updates": asdict(updates),
        "calibration_point": asdict(point),
    }


def _report(
    report: CascadeScores, calibration: CascadeScores, prices: Prices, settings: RouterTraining
) -> dict[str, Any]:
    losses = loss_over_resplits(
        calibration.joined(report),
        target_loss=settings.target_em_loss,
        confidence=settings.confidence,
        max_escalation=settings.max_escalation,
        resplits=settings.resplits,
        seed=settings.seed,
    )
    return {
        **score_router(report, prices, settings.seed).to_json(),
        "operating_point": asdict(operating_point(report, prices)),
        "realised_loss_mean": float(losses.mean()),
        "realised_loss_violations": float((losses > settings.target_em_loss).mean()),
        "resplits": settings.resplits,
    }


def _gate_utility(report: CascadeScores, fitted: FittedGate, settings: RouterTraining) -> dict[str, float]:
    return compare_gates(report, fitted.storage_price, settings.max_escalation, settings.seed)


def _card(
    sets: Mapping[str, Sequence[RoutingExample]], settings: RouterTraining, heads: RouterHeads
) -> dict[str, Any]:
    return {
        "made_with": asdict(settings),
        "models": {"small": heads.small_fingerprint, "large": heads.large_fingerprint},
        "sets": {
            name: {
                "facts": len(items),
                "subjects": len({item.group for item in items}),
                "classes": dict(Counter(item.label.action.value for item in items)),
                "em_with_fact": float(np.mean([item.label.em_with for item in items])),
                "em_without_fact": float(np.mean([item.label.em_without for item in items])),
            }
            for name, items in sets.items()
        },
        "auc_by_evidence": _auc_by_evidence(heads, sets["report"]),
    }


def _auc_by_evidence(heads: RouterHeads, report: Sequence[RoutingExample]) -> dict[str, dict[str, Any]]:
    """Tell how well each model alone separates known from unknown facts with each kind of evidence."""
    table: dict[str, dict[str, Any]] = {"small": {}, "large": {}}
    known_column = ACTIONS.index(RouteAction.NON_WRITE)
    for kind in Evidence:
        chosen = [item for item in report if item.small.evidence(kind) is kind]
        known = [item.label.is_known for item in chosen]
        for name, stage in (("small", heads.small), ("large", heads.large)):
            rows = [item.small.groups if name == "small" else item.large.groups for item in chosen]
            probs = stage.score(rows, kind).class_probs[:, known_column]
            table[name][kind.value] = {"auc": auc(probs.tolist(), known), "n": len(chosen)}
    return table
