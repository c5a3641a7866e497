"""Figures of a router on facts it never saw, each with its number of facts and an interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from routers.calibration import CascadeScores, lost_answers
from routers.stage_heads import ACTIONS
from sharpwave.records import RouteAction
from sharpwave.statistics import auc, expected_calibration_error, wilson_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from routers.stage_heads import Prices

RESAMPLES = 200
_KNOWN = ACTIONS.index(RouteAction.NON_WRITE)
_UPDATE = ACTIONS.index(RouteAction.WRITE_UPDATE)


@dataclass(frozen=True)
class Figure:
    """A value with its 95 % interval over n facts; None where the facts do not define it."""

    value: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Scorecard:
    """All figures by name, and who was taken for what: rows are true classes, columns the likeliest ones."""

    figures: dict[str, Figure]
    confusion: dict[str, dict[str, int]]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {"figures": {name: asdict(figure) for name, figure in self.figures.items()}} | {
            "confusion": self.confusion
        }


def score_router(scores: CascadeScores, prices: Prices, seed: int, resamples: int = RESAMPLES) -> Scorecard:
    """Measure a router at its prices.

    Args:
        scores: Scores and truth of facts that neither training nor calibration saw.
        prices: The operating point.
        seed: Seed of the resampling.
        resamples: Resamplings of whole subjects behind the intervals of AUC, ECE and macro F1.

    Returns:
        `auc_small`, `auc_large`, `auc_cascade` (known to the answering model or not), `macro_f1`, `ece`
        (probability of being known), `update_recall` (write-updates that were written, as either class),
        `loss` (of the full store's answers), `prunable_pruned`, `storage_ratio`, `escalation_rate`.
    """
    decided = scores.decided(prices.escalation)
    writes = prices.writes(decided)
    likeliest = decided.class_probs.argmax(axis=1)
    known = scores.known
    resampler = _Resampler(scores.groups, seed, resamples)
    lost = lost_answers(writes, scores.em_with, scores.em_without)
    updates = scores.classes == _UPDATE
    figures = {
        "auc_small": resampler.figure(_auc_of(scores.small.class_probs[:, _KNOWN], known)),
        "auc_large": resampler.figure(_auc_of(scores.large.class_probs[:, _KNOWN], known)),
        "auc_cascade": resampler.figure(_auc_of(decided.class_probs[:, _KNOWN], known)),
        "macro_f1": resampler.figure(lambda rows: macro_f1(scores.classes[rows], likeliest[rows])),
        "ece": resampler.figure(_ece_of(decided.class_probs[:, _KNOWN], known)),
        "update_recall": _proportion(writes[updates]),
        "loss": resampler.figure(_ratio_of(lost, scores.em_with)),
        "prunable_pruned": _proportion(~writes[known]),
        "storage_ratio": _proportion(writes),
        "escalation_rate": _proportion(scores.escalated(prices.escalation)),
    }
    return Scorecard(figures, confusion_counts(scores.classes, likeliest))


def macro_f1(truth: NDArray[np.intp], guess: NDArray[np.intp]) -> float | None:
    """Return the mean F1 over the classes that occur in the truth; None without facts."""
    present = np.unique(truth)
    if not len(present):
        return None
    hits = [int(((truth == kind) & (guess == kind)).sum()) for kind in present]
    sizes = [int((truth == kind).sum() + (guess == kind).sum()) for kind in present]
    return float(np.mean([2 * hit / size for hit, size in zip(hits, sizes, strict=True)]))


def confusion_counts(truth: NDArray[np.intp], guess: NDArray[np.intp]) -> dict[str, dict[str, int]]:
    """Count facts by true class (outer key) and likeliest class (inner key)."""
    return {
        true.value: {
            guessed.value: int(((truth == row) & (guess == column)).sum())
            for column, guessed in enumerate(ACTIONS)
        }
        for row, true in enumerate(ACTIONS)
    }


class _Resampler:
    """Intervals of any figure by drawing whole subjects with replacement."""

    def __init__(self, groups: tuple[str, ...], seed: int, resamples: int) -> None:
        names, numbers = np.unique(np.asarray(groups, dtype=object), return_inverse=True)
        order = np.argsort(numbers, kind="stable")
        edges = np.searchsorted(numbers[order], np.arange(len(names) + 1))
        self._members = [order[edges[group] : edges[group + 1]] for group in range(len(names))]
        self._count = len(groups)
        self._seed = seed
        self._resamples = resamples

    def figure(self, measure: Callable[[NDArray[np.intp]], float | None]) -> Figure:
        value = measure(np.arange(self._count))
        rng = np.random.default_rng(self._seed)
        drawn = []
        for _ in range(self._resamples if value is not None else 0):
            chosen = rng.integers(len(self._members), size=len(self._members))
            drawn.append(measure(np.concatenate([self._members[group] for group in chosen])))
        defined = [item for item in drawn if item is not None]
        if not defined:
            return Figure(value, None, None, self._count)
        low, high = np.quantile(defined, [0.025, 0.975])
        return Figure(value, float(low), float(high), self._count)


def _auc_of(
    probs: NDArray[np.float64], known: NDArray[np.bool_]
) -> Callable[[NDArray[np.intp]], float | None]:
    return lambda rows: auc(probs[rows], known[rows])


def _ece_of(
    probs: NDArray[np.float64], known: NDArray[np.bool_]
) -> Callable[[NDArray[np.intp]], float | None]:
    inside = np.clip(probs, 0.0, 1.0)
    return lambda rows: expected_calibration_error(inside[rows], known[rows])


def _ratio_of(
    part: NDArray[np.float64], whole: NDArray[np.float64]
) -> Callable[[NDArray[np.intp]], float | None]:
    return lambda rows: float(part[rows].sum() / whole[rows].sum()) if whole[rows].sum() else None


def _proportion(flags: NDArray[np.bool_]) -> Figure:
    n, hits = len(flags), int(flags.sum())
    low, high = wilson_interval(hits, n)
    return Figure(hits / n if n else None, low, high, n)
