"""Warns when facts on the stream no longer look like those that the prices were calibrated on.

The promise about losses holds for facts exchangeable with the calibration facts. Two figures are watched per kind of
evidence: the gate's values, a projection of all that the small model sees, by the population stability index over
the calibration facts' tenths; and the share of facts escalated. Both must be large and beyond chance to be told, since
with many facts any trifle is beyond chance. Source of the index and of its usual bound 0.25: Siddiqi, Credit Risk
Scorecards, 2006.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from routers.features import Evidence
from sharpwave.records import RouteStage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sharpwave.records import RouteDecision

LEAST_FACTS = 50
STRONG_INDEX = 0.25
STRONG_RATE_CHANGE = 0.1
CHANCE = 0.001
_TENTHS = 10
_BY_MODELS = (RouteStage.SMALL, RouteStage.LARGE)


@dataclass(frozen=True)
class DriftReference:
    """What calibration facts of one kind of evidence looked like: edges of the gate values' tenths, share escalated."""

    gate_edges: tuple[float, ...]
    escalation_rate: float
    n: int

    @classmethod
    def of(cls, gate: NDArray[Any], escalated: NDArray[Any]) -> DriftReference:
        """Describe calibration facts by gate values [n] and whether they were escalated [n]."""
        edges = np.quantile(gate, np.arange(1, _TENTHS) / _TENTHS)
        return cls(tuple(float(edge) for edge in edges), float(np.mean(escalated)), len(gate))


@dataclass(frozen=True)
class KindDrift:
    """How n facts of one kind of evidence differ from the calibration facts."""

    n: int
    stability_index: float
    stability_p: float
    escalation_rate: float
    calibrated_rate: float
    escalation_p: float

    @property
    def warnings(self) -> tuple[str, ...]:
        """Say in words what is both large and beyond chance."""
        told = []
        if self.n >= LEAST_FACTS and self.stability_index > STRONG_INDEX and self.stability_p < CHANCE:
            told.append(
                f"the small model sees facts unlike the calibration facts (stability index "
                f"{self.stability_index:.2f}, n = {self.n})"
            )
        change = abs(self.escalation_rate - self.calibrated_rate)
        if self.n >= LEAST_FACTS and change > STRONG_RATE_CHANGE and self.escalation_p < CHANCE:
            told.append(
                f"{self.escalation_rate:.0%} of facts are escalated where calibration had "
                f"{self.calibrated_rate:.0%} (n = {self.n})"
            )
        return tuple(told)


@dataclass(frozen=True)
class Drift:
    """Drift per kind of evidence; kinds without facts are left out."""

    by_kind: Mapping[Evidence, KindDrift]

    @property
    def stability_index(self) -> float | None:
        """The index of the kind with the most facts; None without facts."""
        if not self.by_kind:
            return None
        return max(self.by_kind.values(), key=lambda item: item.n).stability_index

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return one sentence per thing to warn of."""
        return tuple(
            f"facts judged by {kind.value}: {told}; the promise about lost answers may not hold: make heads "
            "from facts like these with `sharpwave train-router`"
            for kind, item in self.by_kind.items()
            for told in item.warnings
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "warnings": list(self.warnings),
            "kinds": {kind.value: vars(item) for kind, item in self.by_kind.items()},
        }


class DriftMonitor:
    """Counts decisions as they come and compares them with the calibration facts at any time."""

    def __init__(self, references: Mapping[Evidence, DriftReference]) -> None:
        self._references = references
        self._tenths = {kind: np.zeros(_TENTHS, dtype=np.int64) for kind in references}
        self._asked = dict.fromkeys(references, 0)

    def add(self, decisions: Iterable[RouteDecision]) -> None:
        """Count decisions that models took; repeats and policies are passed over."""
        for decision in decisions:
            if decision.stage not in _BY_MODELS or decision.gate_value is None or not decision.evidence:
                continue
            kind = Evidence(decision.evidence)
            if kind in self._references:
                edges = self._references[kind].gate_edges
                self._tenths[kind][np.searchsorted(edges, decision.gate_value)] += 1
                self._asked[kind] += decision.stage is RouteStage.LARGE

    def measure(self) -> Drift:
        """Compare what was counted so far; kinds without facts are left out."""
        return Drift({
            kind: _compare(counts, self._asked[kind], self._references[kind])
            for kind, counts in self._tenths.items()
            if counts.any()
        })


def _compare(counts: NDArray[np.int64], asked: int, reference: DriftReference) -> KindDrift:
    from scipy.stats import binomtest, chi2_contingency

    n = int(counts.sum())
    expected = np.full(_TENTHS, reference.n / _TENTHS)
    # Half a fact in each tenth keeps the index finite where one is empty.
    shares = (counts + 0.5) / (n + 0.5 * _TENTHS)
    usual = np.full(_TENTHS, 1 / _TENTHS)
    return KindDrift(
        n=n,
        stability_index=float(((shares - usual) * np.log(shares / usual)).sum()),
        stability_p=float(chi2_contingency(np.stack([counts, expected])).pvalue),
        escalation_rate=asked / n,
        calibrated_rate=reference.escalation_rate,
        escalation_p=float(binomtest(asked, n, reference.escalation_rate).pvalue),
    )
