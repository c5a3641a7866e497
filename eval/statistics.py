"""Intervals, tests and calibration figures, each with its zero-data case defined.

Proportions use exact or score intervals; means over questions use a bootstrap that resamples whole subjects
when groups are given, because questions about one subject rise and fall together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sharpwave.statistics import (
    Interval,
    ReliabilityBin,
    auc,
    binomial_tail_p_value,
    binomial_upper_bound,
    clopper_pearson,
    expected_calibration_error,
    hoeffding_p_value,
    hoeffding_upper_bound,
    reliability_bins,
    wilson_interval,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

__all__ = [
    "RESAMPLES",
    "Interval",
    "PairedDifference",
    "ReliabilityBin",
    "SeedSample",
    "auc",
    "binomial_tail_p_value",
    "binomial_upper_bound",
    "bootstrap_mean_interval",
    "bootstrap_ratio_interval",
    "clopper_pearson",
    "exact_mcnemar_p_value",
    "expected_calibration_error",
    "hoeffding_p_value",
    "hoeffding_upper_bound",
    "paired_bootstrap_difference",
    "reliability_bins",
    "student_interval",
    "two_level_ratio_interval",
    "wilson_interval",
]

FloatArray = NDArray[np.float64]

RESAMPLES = 4000
_RESAMPLES_AT_ONCE = 250  # bounds the memory of the resampling counts to 250 rows of one count per group


class SeedSample(NamedTuple):
    """What one seed gave: a numerator, a denominator and a label of its group for each question."""

    numerators: Sequence[float]
    denominators: Sequence[float]
    groups: Sequence[Hashable]


class PairedDifference(NamedTuple):
    """Mean of `first - second` over n pairs, with its interval."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies wholly on one side of zero."""
        return self.low > 0 or self.high < 0


def bootstrap_mean_interval(
    values: Sequence[float],
    seed: int,
    groups: Sequence[Hashable] | None = None,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return the percentile bootstrap interval of a mean; (0, 0) without values.

    Args:
        values: One figure per question.
        seed: Seed of the resampling; the same seed gives the same interval.
        groups: One label per value; whole groups are resampled. None resamples single values.
        confidence: Coverage aimed at.
        resamples: Number of resampled means.

    Returns:
        The interval. It has no width when all values are equal: use `wilson_interval` for such proportions.

    Raises:
        ValueError: lengths differ.
    """
    ones = [1.0] * len(values)
    return bootstrap_ratio_interval(values, ones, seed, groups, confidence=confidence, resamples=resamples)


def bootstrap_ratio_interval(
    numerators: Sequence[float],
    denominators: Sequence[float],
    seed: int,
    groups: Sequence[Hashable] | None = None,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return the bootstrap interval of sum(numerators) / sum(denominators), resampled in pairs.

    With one arm's hits above and another's below, this is the interval of EM retention. Resamples whose
    denominator is 0 are left out; (0, 0) when none remains.

    Raises:
        ValueError: lengths differ.
    """
    pairs = _group_sums([numerators, denominators], groups)
    if pairs.shape[0] == 0:
        return Interval(0.0, 0.0)
    sums = _resampled_sums(pairs, seed, resamples)
    kept = sums[sums[:, 1] != 0]
    if not len(kept):
        return Interval(0.0, 0.0)
    return _percentiles(kept[:, 0] / kept[:, 1], confidence)


def paired_bootstrap_difference(
    first: Sequence[float],
    second: Sequence[float],
    seed: int,
    groups: Sequence[Hashable] | None = None,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> PairedDifference:
    """Return mean(first - second) with its interval; both sequences follow the same questions.

    Without pairs the difference and both ends are 0 and n is 0.

    Raises:
        ValueError: lengths differ.
    """
    if len(first) != len(second):
        raise ValueError(f"paired values need equal lengths, not {len(first)} and {len(second)}")
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if not differences:
        return PairedDifference(0.0, 0.0, 0.0, 0)
    low, high = bootstrap_mean_interval(differences, seed, groups, confidence=confidence, resamples=resamples)
    return PairedDifference(float(np.mean(differences)), low, high, len(differences))


def two_level_ratio_interval(
    samples: Sequence[SeedSample],
    seed: int,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return the interval of sum(numerators) / sum(denominators) over seeds, from a bootstrap in two levels.

    Each resample draws as many seeds as there are, with replacement, and whole groups within each seed drawn (Davison
    and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8). With one seed it is the bootstrap over
    groups. Resamples whose denominator is 0 are left out; (0, 0) when none remains.

    Raises:
        ValueError: lengths differ.
    """
    if not samples:
        return Interval(0.0, 0.0)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(samples), size=(resamples, len(samples)))
    sums = np.zeros((resamples, 2))
    for place in range(len(samples)):
        for number, sample in enumerate(samples):
            rows = np.flatnonzero(drawn[:, place] == number)
            pairs = _group_sums([sample.numerators, sample.denominators], sample.groups)
            if len(rows) and len(pairs):
                sums[rows] += _resampled_sums(pairs, int(rng.integers(2**32)), len(rows))
    kept = sums[sums[:, 1] != 0]
    return _percentiles(kept[:, 0] / kept[:, 1], confidence) if len(kept) else Interval(0.0, 0.0)


def student_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return Student's interval of a mean of few independent values; None for fewer than two."""
    from scipy.stats import t

    if len(values) < 2:
        return None
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / len(values) ** 0.5
    reach = float(t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return Interval(mean - reach, mean + reach)


def exact_mcnemar_p_value(pairs: Sequence[tuple[bool, bool]]) -> float:
    """Return the two-sided p-value of McNemar's exact test on paired right and wrong answers; 1 without differences."""
    gained, lost = (sum(pair == wanted for pair in pairs) for wanted in ((True, False), (False, True)))
    return min(1.0, 2 * binomial_tail_p_value(min(gained, lost), gained + lost, 0.5))


def _group_sums(columns: Sequence[Sequence[float]], groups: Sequence[Hashable] | None) -> FloatArray:
    """Sum every column within each group; shape [groups, columns]."""
    lengths = {len(column) for column in columns} | ({len(groups)} if groups is not None else set())
    if len(lengths) != 1:
        raise ValueError(f"values and groups need one length, not {sorted(lengths)}")
    table = np.asarray(columns, dtype=np.float64).T
    if groups is None:
        return table
    places: dict[Hashable, int] = {}
    rows = [places.setdefault(group, len(places)) for group in groups]
    sums = np.zeros((len(places), len(columns)))
    np.add.at(sums, rows, table)
    return sums


def _resampled_sums(sums: FloatArray, seed: int, resamples: int) -> FloatArray:
    """Draw as many groups as there are, with replacement; shape [resamples, columns]."""
    rng = np.random.default_rng(seed)
    size = sums.shape[0]
    parts = []
    for start in range(0, resamples, _RESAMPLES_AT_ONCE):
        rows = min(_RESAMPLES_AT_ONCE, resamples - start)
        counts = rng.multinomial(size, np.full(size, 1 / size), size=rows)
        parts.append(counts @ sums)
    return np.concatenate(parts)


def _percentiles(values: FloatArray, confidence: float) -> Interval:
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(low), float(high))
