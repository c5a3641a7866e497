"""Figures of several seeds: hand-computed cases, intervals against known distributions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest, ttest_1samp

from eval.statistics import (
    SeedSample,
    bootstrap_mean_interval,
    exact_mcnemar_p_value,
    student_interval,
    two_level_ratio_interval,
)


def hits(rng: np.random.Generator, rate: float, n: int) -> SeedSample:
    return SeedSample(list((rng.random(n) < rate).astype(float)), [1.0] * n, list(range(n)))


def test_with_one_seed_it_is_as_wide_as_the_bootstrap_over_groups():
    sample = hits(np.random.default_rng(0), 0.6, 300)
    two_level = two_level_ratio_interval([sample], 1)
    one_level = bootstrap_mean_interval(sample.numerators, 2, sample.groups)
    assert two_level == pytest.approx(one_level, abs=0.01)


def test_equal_seeds_narrow_it_and_unlike_seeds_widen_it():
    rng = np.random.default_rng(0)
    alike = two_level_ratio_interval([hits(rng, 0.5, 200) for _ in range(4)], 0)
    unlike = two_level_ratio_interval([hits(rng, rate, 200) for rate in (0.2, 0.4, 0.6, 0.8)], 0)
    assert alike.high - alike.low < 0.13
    assert unlike.high - unlike.low > 0.3


def test_it_covers_the_true_rate_where_seeds_are_alike():
    rng = np.random.default_rng(5)
    covered = 0
    for number in range(100):
        low, high = two_level_ratio_interval([hits(rng, 0.7, 100) for _ in range(5)], number, resamples=400)
        covered += low <= 0.7 <= high
    assert covered >= 88


def test_questions_of_one_subject_count_as_one():
    values = [1.0] * 50 + [0.0] * 50
    subjects = ["a"] * 50 + ["b"] * 50
    low, high = two_level_ratio_interval([SeedSample(values, [1.0] * 100, subjects)], 0)
    assert (low, high) == (0.0, 1.0)


def test_retention_is_a_ratio_of_sums_and_nothing_to_divide_by_gives_no_interval():
    sample = SeedSample([1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], ["a"] * 4)
    assert two_level_ratio_interval([sample, sample], 0) == (0.75, 0.75)
    assert two_level_ratio_interval([SeedSample([1.0], [0.0], ["a"])], 0) == (0.0, 0.0)
    assert two_level_ratio_interval([], 0) == (0.0, 0.0)


def test_students_interval_is_the_one_of_the_t_test():
    interval = student_interval([0.3, 0.5, 0.4])
    expected = ttest_1samp([0.3, 0.5, 0.4], 0).confidence_interval(0.95)
    assert interval == pytest.approx((expected.low, expected.high))
    assert student_interval([0.3]) is None


def test_mcnemar_looks_at_the_pairs_that_differ():
    pairs = [(True, False)] * 9 + [(False, True)] * 2 + [(True, True)] * 50
    assert exact_mcnemar_p_value(pairs) == pytest.approx(binomtest(2, 11).pvalue)
    assert exact_mcnemar_p_value([(True, True)] * 5) == 1.0
    assert exact_mcnemar_p_value([(True, False), (False, True)]) == 1.0
