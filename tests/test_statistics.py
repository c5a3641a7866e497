"""Intervals and calibration figures against hand-computed and published values."""

import math

import numpy as np
import pytest

from eval.statistics import (
    auc,
    binomial_tail_p_value,
    binomial_upper_bound,
    bootstrap_mean_interval,
    bootstrap_ratio_interval,
    clopper_pearson,
    expected_calibration_error,
    hoeffding_p_value,
    hoeffding_upper_bound,
    paired_bootstrap_difference,
    reliability_bins,
    wilson_interval,
)


def test_wilson_interval_matches_the_textbook_value():
    assert wilson_interval(8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)


def test_clopper_pearson_matches_the_exact_test():
    assert clopper_pearson(8, 10) == pytest.approx((0.4439045, 0.9747893), abs=1e-6)
    assert clopper_pearson(0, 10) == pytest.approx((0.0, 0.3084971), abs=1e-6)


@pytest.mark.parametrize("interval", [wilson_interval, clopper_pearson])
def test_proportion_intervals_at_the_edges(interval):
    assert interval(0, 0) == (0.0, 1.0)
    assert interval(0, 7).low == 0.0
    assert interval(7, 7).high == 1.0
    assert interval(0, 7).high == pytest.approx(1 - interval(7, 7).low)


@pytest.mark.parametrize(
    ("successes", "n", "confidence"), [(5, 4, 0.95), (-1, 4, 0.95), (1, 4, 1.0), (1, 4, 0.0)]
)
def test_impossible_counts_are_refused(successes, n, confidence):
    with pytest.raises(ValueError, match="must lie in"):
        wilson_interval(successes, n, confidence)
    with pytest.raises(ValueError, match="must lie in"):
        clopper_pearson(successes, n, confidence)


def test_binomial_bound_without_errors_has_its_closed_form():
    assert binomial_upper_bound(0, 100) == pytest.approx(1 - 0.05 ** (1 / 100))
    assert binomial_upper_bound(3, 3) == 1.0


def test_binomial_tail_allows_a_promise_only_with_enough_data():
    assert binomial_tail_p_value(0, 59, 0.05) == pytest.approx(0.95**59)
    assert binomial_tail_p_value(0, 59, 0.05) <= 0.05 < binomial_tail_p_value(0, 58, 0.05)
    assert binomial_tail_p_value(1, 2, 0.5) == pytest.approx(0.75)
    assert binomial_tail_p_value(0, 0, 0.05) == 1.0


def test_hoeffding_bound_and_p_value_agree():
    bound = hoeffding_upper_bound(0.1, 200)
    assert bound == pytest.approx(0.1 + math.sqrt(math.log(20) / 400))
    assert hoeffding_p_value(0.1, 200, bound) == pytest.approx(0.05)
    assert hoeffding_p_value(0.3, 200, 0.1) == 1.0
    assert hoeffding_upper_bound(0.0, 0) == 1.0


def test_bootstrap_width_of_a_coin_is_the_normal_one():
    low, high = bootstrap_mean_interval([0.0, 1.0] * 200, seed=1)
    half = 1.96 * 0.5 / math.sqrt(400)
    assert (low, high) == pytest.approx((0.5 - half, 0.5 + half), abs=0.004)


def test_bootstrap_interval_covers_the_true_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(7)
    samples = rng.normal(3.0, 2.0, size=(300, 60))
    intervals = [bootstrap_mean_interval(list(row), seed=n, resamples=500) for n, row in enumerate(samples)]
    covered = sum(low <= 3.0 <= high for low, high in intervals)
    assert 0.90 <= covered / 300 <= 0.98


def test_questions_about_one_subject_count_once():
    values = [float(subject % 2) for subject in range(20) for _ in range(25)]
    groups = [subject for subject in range(20) for _ in range(25)]
    clustered = bootstrap_mean_interval(values, 3, groups)
    of_subjects = bootstrap_mean_interval([float(subject % 2) for subject in range(20)], 3)
    single = bootstrap_mean_interval(values, 3)
    assert clustered == pytest.approx(of_subjects)
    assert clustered.high - clustered.low > 4 * (single.high - single.low)


def test_bootstrap_is_repeatable_and_depends_on_its_seed():
    values = list(np.random.default_rng(0).normal(size=40))
    assert bootstrap_mean_interval(values, 5) == bootstrap_mean_interval(values, 5)
    assert bootstrap_mean_interval(values, 5) != bootstrap_mean_interval(values, 6)


def test_bootstrap_without_values_and_with_wrong_groups():
    assert bootstrap_mean_interval([], 0) == (0.0, 0.0)
    with pytest.raises(ValueError, match="one length"):
        bootstrap_mean_interval([1.0, 0.0], 0, groups=["a"])


def test_ratio_of_an_arm_to_itself_is_one_without_width():
    hits = [1.0, 0.0, 1.0, 1.0]
    assert bootstrap_ratio_interval(hits, hits, 0) == (1.0, 1.0)
    assert bootstrap_ratio_interval([1.0], [0.0], 0) == (0.0, 0.0)


def test_pairing_removes_what_both_arms_share():
    base = list(np.random.default_rng(1).integers(0, 2, size=300).astype(float))
    better = [1.0 if place % 30 == 0 else value for place, value in enumerate(base)]
    difference = paired_bootstrap_difference(better, base, 0)
    gained = sum(b - a for a, b in zip(base, better, strict=True))
    assert difference.mean == pytest.approx(gained / 300)
    assert difference.n == 300
    assert difference.excludes_zero
    unpaired = bootstrap_mean_interval(base, 0)
    assert difference.high - difference.low < 0.5 * (unpaired.high - unpaired.low)


def test_paired_difference_of_nothing_and_of_unequal_lengths():
    assert paired_bootstrap_difference([], [], 0) == (0.0, 0.0, 0.0, 0)
    assert not paired_bootstrap_difference([1.0, 0.0], [0.0, 1.0], 0).excludes_zero
    with pytest.raises(ValueError, match="equal lengths"):
        paired_bootstrap_difference([1.0], [], 0)


def test_reliability_bins_and_calibration_error_by_hand():
    probs, labels = [0.05, 0.15, 0.15, 0.95, 1.0], [False, True, False, True, True]
    bins = reliability_bins(probs, labels)
    assert [part.n for part in bins] == [1, 2, 2]
    assert bins[1] == pytest.approx((0.15, 0.5, 2))
    # 1/5 * 0.05 + 2/5 * |0.15 - 0.5| + 2/5 * |0.975 - 1|
    assert expected_calibration_error(probs, labels) == pytest.approx(0.16)
    assert expected_calibration_error([], []) == 0.0


def test_calibration_refuses_what_is_no_probability():
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        expected_calibration_error([1.2], [True])
    with pytest.raises(ValueError, match="labels"):
        expected_calibration_error([0.2], [])


def test_auc_by_hand():
    assert auc([0.1, 0.4, 0.35, 0.8], [False, False, True, True]) == pytest.approx(0.75)
    assert auc([0.5, 0.5], [False, True]) == pytest.approx(0.5)
    assert auc([0.2, 0.9], [True, True]) is None
    with pytest.raises(ValueError, match="labels"):
        auc([0.2], [])
