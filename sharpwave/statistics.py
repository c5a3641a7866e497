"""Intervals of proportions, Learn-then-Test p-values and calibration figures; no data is a defined case.

What routers and evaluation share; bootstraps over questions are in `eval/statistics.py`.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    BoolArray = NDArray[np.bool_]


class Interval(NamedTuple):
    """A confidence interval, both ends included."""

    low: float
    high: float


class ReliabilityBin(NamedTuple):
    """One bin of a reliability diagram."""

    mean_prob: float
    observed_rate: float
    n: int


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Return the Wilson score interval of a proportion; (0, 1) when n is 0.

    Raises:
        ValueError: successes outside [0, n], or confidence outside (0, 1).
    """
    _check_counts(successes, n, confidence)
    if n == 0:
        return Interval(0.0, 1.0)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return Interval(low, high)


def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Return the exact (conservative) interval of a proportion; (0, 1) when n is 0.

    Raises:
        ValueError: successes outside [0, n], or confidence outside (0, 1).
    """
    _check_counts(successes, n, confidence)
    tail = (1 - confidence) / 2
    return Interval(
        1.0 - binomial_upper_bound(n - successes, n, 1 - tail),
        binomial_upper_bound(successes, n, 1 - tail),
    )


def binomial_upper_bound(successes: int, n: int, confidence: float = 0.95) -> float:
    """Return the exact one-sided upper bound of a proportion; 1 when n is 0.

    Raises:
        ValueError: successes outside [0, n], or confidence outside (0, 1).
    """
    from scipy.stats import beta

    _check_counts(successes, n, confidence)
    if successes == n:
        return 1.0
    return float(beta.ppf(confidence, successes + 1, n - successes))


def binomial_tail_p_value(errors: int, n: int, risk: float) -> float:
    """Return P(Binomial(n, risk) <= errors): the Learn-then-Test p-value of "the true risk exceeds `risk`".

    A small value lets one reject that hypothesis and so promise a risk of at most `risk`. 1 when n is 0.

    Raises:
        ValueError: errors outside [0, n], or risk outside (0, 1).
    """
    from scipy.stats import binom

    _check_counts(errors, n, risk)
    return float(binom.cdf(errors, n, risk))


def hoeffding_upper_bound(mean: float, n: int, confidence: float = 0.95) -> float:
    """Return Hoeffding's one-sided upper bound of the mean of values in [0, 1], cut at 1; 1 when n is 0.

    Raises:
        ValueError: mean outside [0, 1], n negative, or confidence outside (0, 1).
    """
    _check_mean(mean, n, confidence)
    if n == 0:
        return 1.0
    return min(1.0, mean + math.sqrt(math.log(1 / (1 - confidence)) / (2 * n)))


def hoeffding_p_value(mean: float, n: int, risk: float) -> float:
    """Return Hoeffding's p-value of "the true mean loss exceeds `risk`" for losses in [0, 1]; 1 when n is 0.

    Raises:
        ValueError: mean outside [0, 1], n negative, or risk outside (0, 1).
    """
    _check_mean(mean, n, risk)
    return math.exp(-2 * n * max(0.0, risk - mean) ** 2)


def reliability_bins(
    probs: Sequence[float] | FloatArray, labels: Sequence[bool] | BoolArray, bins: int = 10
) -> list[ReliabilityBin]:
    """Group predictions into equally wide bins of [0, 1]; empty bins are left out.

    Raises:
        ValueError: lengths differ, or a probability lies outside [0, 1].
    """
    if len(probs) != len(labels):
        raise ValueError(f"{len(probs)} probabilities for {len(labels)} labels")
    values = np.asarray(probs, dtype=np.float64)
    if values.size and not ((values >= 0) & (values <= 1)).all():
        raise ValueError("probabilities must lie in [0, 1]")
    hits = np.asarray(labels, dtype=np.float64)
    places = np.minimum((values * bins).astype(int), bins - 1)
    return [
        ReliabilityBin(
            float(values[places == place].mean()),
            float(hits[places == place].mean()),
            int((places == place).sum()),
        )
        for place in range(bins)
        if (places == place).any()
    ]


def expected_calibration_error(
    probs: Sequence[float] | FloatArray, labels: Sequence[bool] | BoolArray, bins: int = 10
) -> float:
    """Return the mean gap between stated and observed rate, weighted by bin size; 0 without predictions.

    >>> expected_calibration_error([0.9, 0.9], [True, False])
    0.4

    Raises:
        ValueError: lengths differ, or a probability lies outside [0, 1].
    """
    if not len(probs) and not len(labels):
        return 0.0
    parts = reliability_bins(probs, labels, bins)
    gaps = sum(part.n * abs(part.mean_prob - part.observed_rate) for part in parts)
    return float(gaps / len(probs))


def auc(scores: Sequence[float] | FloatArray, labels: Sequence[bool] | BoolArray) -> float | None:
    """Return the area under the ROC curve; None where it is undefined, with one class only.

    Raises:
        ValueError: lengths differ.
    """
    if len(scores) != len(labels):
        raise ValueError(f"{len(scores)} scores for {len(labels)} labels")
    truth = np.asarray(labels, dtype=bool)
    positive = int(truth.sum())
    negative = len(truth) - positive
    if not positive or not negative:
        return None
    _, places, counts = np.unique(np.asarray(scores, dtype=float), return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # equal scores share their mean rank
    return float((ranks[places][truth].sum() - positive * (positive + 1) / 2) / (positive * negative))


def _check_counts(successes: int, n: int, prob: float) -> None:
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie in [0, n], not {successes} of {n}")
    if not 0 < prob < 1:
        raise ValueError(f"confidence or risk must lie in (0, 1), not {prob}")


def _check_mean(mean: float, n: int, prob: float) -> None:
    if not 0 <= mean <= 1 or n < 0:
        raise ValueError(f"expected a mean in [0, 1] over n >= 0 values, not {mean} over {n}")
    if not 0 < prob < 1:
        raise ValueError(f"confidence or risk must lie in (0, 1), not {prob}")
