"""The two prices: the guarantee by simulation, monotone effects, and the cases without data."""

import numpy as np
import pytest

from routers.calibration import (
    STORAGE_PRICES,
    UPDATE_PRICES,
    CascadeScores,
    certify_storage_price,
    certify_update_price,
    empirical_storage_price,
    frontier,
    loss_over_resplits,
    operating_point,
    price_for_rate,
)
from routers.gate import realised_utility, utility_of_asking
from routers.gate_fitting import caught_utility, compare_gates
from routers.stage_heads import ACTIONS, Prices, StageScores
from sharpwave.records import RouteAction

TARGET = 0.02


def probabilities(known):
    return np.stack([known, (1 - known) / 2, (1 - known) / 2], axis=1)


def world(n, seed, *, sharpness=4.0):
    """Facts whose truth is known; the large model sees it more sharply than the small one."""
    rng = np.random.default_rng(seed)
    known = rng.random(n) < 0.4
    answered = rng.random(n) < 0.95
    signal = np.where(known, -1.0, 1.0) * sharpness / 2

    def gain(noise):
        return np.clip(1 / (1 + np.exp(-(signal + rng.normal(0, noise, n)))), 1e-6, 1)

    small, large = gain(2.0), gain(0.8)
    return CascadeScores(
        small=StageScores(probabilities(1 - small), small),
        large=StageScores(probabilities(1 - large), large),
        gate=0.25 - np.abs(small - 0.3) + rng.normal(0, 0.01, n),
        classes=np.where(known, 0, rng.integers(1, 3, n)),
        em_without=known.astype(float),
        em_with=answered.astype(float),
        drawn_without=known,
        drawn_with=answered,
        small_flops=np.full(n, 1.0),
        large_flops=np.full(n, 4.0),
        groups=tuple(f"subject {place // 4}" for place in range(n)),
    )


def certified(scores, escalation, **options):
    return certify_storage_price(
        scores.decided(escalation).gain,
        scores.drawn_with,
        scores.drawn_without,
        target_loss=TARGET,
        **options,
    )


def test_the_promise_is_broken_no_more_often_than_it_says():
    population = world(20_000, seed=11)
    rng = np.random.default_rng(5)
    losses = []
    for _ in range(200):
        sample = population.subset(rng.integers(len(population), size=600))
        escalation = price_for_rate(sample.gate, 0.4)
        promise = certified(sample, escalation)
        assert promise.p_value <= 0.05
        losses.append(operating_point(population, Prices(promise.storage_price, escalation)).em_loss)
    # 200 draws at 5 %: more than 18 happen by chance in fewer than 1 of 100 runs
    assert sum(loss > TARGET for loss in losses) <= 18
    assert np.mean(losses) > TARGET / 3  # a procedure that dares nothing gives storage away


def test_more_facts_or_less_confidence_allow_a_higher_price():
    large, small = world(6000, seed=2), world(400, seed=2)
    assert certified(large, 0.0).storage_price > certified(small, 0.0).storage_price
    assert (
        certified(large, 0.0, confidence=0.6).storage_price
        >= certified(large, 0.0, confidence=0.99).storage_price
    )


def test_too_few_facts_keep_the_promise_by_storing_everything():
    few = world(100, seed=3)
    promise = certified(few, 0.0)
    assert (promise.storage_price, promise.errors) == (0.0, 0)
    assert promise.n < promise.least_n == 149
    point = operating_point(few, Prices(promise.storage_price, 0.0))
    assert (point.storage_ratio, point.em_loss, point.em_retention) == (1.0, 0.0, 1.0)


def test_no_facts_at_all():
    nothing = world(100, seed=3).subset(np.zeros(0, dtype=np.intp))
    assert certified(nothing, 0.0).storage_price == 0.0
    point = operating_point(nothing, Prices(0.1, 0.0))
    assert (point.n, point.em, point.routing_cost_ratio, point.em_loss) == (0, 0.0, 0.0, 0.0)
    assert price_for_rate(nothing.gate, 0.4) == 0.0
    assert caught_utility(nothing.gate, nothing.gate, 0.4) == 0.0


def test_a_higher_storage_price_stores_less_and_loses_more():
    scores = world(3000, seed=4)
    points = [operating_point(scores, Prices(price, 0.1)) for price in STORAGE_PRICES]
    stored = [point.storage_ratio for point in points]
    lost = [point.em_loss for point in points]
    assert stored == sorted(stored, reverse=True)
    assert lost == sorted(lost)
    assert stored[0] > stored[-1]
    assert len({point.escalation_rate for point in points}) == 1


def test_a_higher_escalation_price_asks_less_and_costs_less():
    scores = world(3000, seed=4)
    points = [operating_point(scores, Prices(0.1, price)) for price in np.linspace(-1, 1, 21)]
    assert (points[0].escalation_rate, points[-1].escalation_rate) == (1.0, 0.0)
    assert points[0].routing_cost_ratio == pytest.approx(1.25)
    assert points[-1].routing_cost_ratio == pytest.approx(0.25)
    rates = [point.escalation_rate for point in points]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.4, 1.0])
def test_the_price_for_a_rate_keeps_within_it(rate):
    gate = np.random.default_rng(0).normal(1.0, 0.2, 999)
    realised = (gate > price_for_rate(gate, rate)).mean()
    assert rate - 0.002 <= realised <= rate


def test_nobody_is_asked_where_asking_is_expected_to_harm():
    gate = np.linspace(-1, 0.1, 100)
    assert price_for_rate(gate, 0.9) == 0.0
    assert price_for_rate(np.full(10, 0.3), 0.5) == 0.3  # ties are not escalated


def test_point_by_hand():
    known = np.array([True, True, False, False])
    gain = np.array([0.1, 0.9, 0.1, 0.9])
    scores = CascadeScores(
        small=StageScores(probabilities(1 - gain), gain),
        large=StageScores(probabilities(1 - gain), gain),
        gate=np.array([1.0, 0.0, 0.0, 0.0]),
        classes=np.array([0, 0, 1, 2]),
        em_without=known.astype(float),
        em_with=np.array([1.0, 0.0, 1.0, 1.0]),
        drawn_without=known,
        drawn_with=np.array([True, False, True, True]),
        small_flops=np.ones(4),
        large_flops=np.full(4, 3.0),
        groups=("a", "b", "c", "d"),
    )
    point = operating_point(scores, Prices(0.5, 0.5))
    # dropped: known with hit, unknown lost; written: known but misread, unknown with hit
    assert (point.em, point.em_full_store, point.em_no_memory) == (0.5, 0.75, 0.5)
    assert point.em_retention == pytest.approx(2 / 3)
    assert point.em_loss == pytest.approx(1 / 3)
    assert (point.storage_ratio, point.prunable_pruned, point.escalation_rate) == (0.5, 0.5, 0.25)
    assert point.routing_cost_ratio == pytest.approx(7 / 12)
    assert scores.true_gain.tolist() == [0.0, -1.0, 1.0, 1.0]


def test_frontier_spans_from_store_all_to_large_only():
    scores = world(1500, seed=6)
    rows = frontier(scores)
    assert {round(row.escalation_rate, 1) for row in rows} >= {0.0, 0.1, 0.2, 1.0}
    assert max(row.storage_ratio for row in rows) == 1.0
    assert min(row.storage_ratio for row in rows) < 0.6
    assert all(row.n == 1500 for row in rows)


def update_scores(probs, gain=0.01):
    probs = np.asarray(probs, dtype=float)
    return StageScores(np.stack([1 - probs, np.zeros(len(probs)), probs], axis=1), np.full(len(probs), gain))


UPDATE = ACTIONS.index(RouteAction.WRITE_UPDATE)


def test_a_possible_update_is_stored_whatever_its_gain():
    scores = update_scores([0.02, 0.2, 0.2], gain=0.1)
    assert Prices(0.5, 0.0).writes(scores).tolist() == [False, False, False]
    assert Prices(0.5, 0.0, update=0.1).writes(scores).tolist() == [False, True, True]
    assert Prices(0.05, 0.0).writes(scores).all()


def test_the_update_price_is_the_highest_that_can_be_certified():
    probs = np.linspace(0.05, 0.9, 200)
    promise = certify_update_price(update_scores(probs), np.full(200, UPDATE), 0.5)
    assert promise.is_certified
    # of 200, at most 4 misses prove a recall of 95 % with 95 % confidence
    assert promise.missed == (probs <= promise.update_price).sum() <= 4
    dearer = UPDATE_PRICES[UPDATE_PRICES.index(promise.update_price) + 1]
    assert (probs <= dearer).sum() > 4


def test_the_promise_about_updates_is_broken_no_more_often_than_it_says():
    rng = np.random.default_rng(5)
    population = update_scores(rng.beta(1, 3, size=50_000))
    broken = 0
    for _ in range(300):
        chosen = rng.integers(50_000, size=150).tolist()
        promise = certify_update_price(population.rows(chosen), np.full(150, UPDATE), 0.5)
        recall = Prices(0.5, 0.0, promise.update_price).writes(population).mean()
        broken += recall < 0.95
    assert broken <= 300 * 0.05 + 8


def test_too_few_updates_certify_nothing_and_change_nothing():
    promise = certify_update_price(update_scores([0.9] * 40), np.full(40, UPDATE), 0.5)
    assert not promise.is_certified
    assert promise.update_price == 1.0
    assert certify_update_price(update_scores([]), np.zeros(0, dtype=int), 0.5).n == 0


def test_updates_that_are_stored_for_their_gain_need_no_price():
    promise = certify_update_price(update_scores(np.full(100, 1e-6), gain=0.9), np.full(100, UPDATE), 0.5)
    assert promise.update_price == pytest.approx(0.9)
    assert promise.missed == 0


def test_empirical_price_is_above_the_certified_one():
    scores = world(1500, seed=7)
    gain = scores.decided(0.0).gain
    loose = empirical_storage_price(gain, scores.em_with, scores.em_without, TARGET)
    assert operating_point(scores, Prices(loose, 0.0)).em_loss <= TARGET
    assert loose > certified(scores, 0.0).storage_price


def test_resplits_break_the_promise_seldom_and_repeatably():
    scores = world(2400, seed=8)
    options = {"target_loss": TARGET, "confidence": 0.95, "max_escalation": 0.4, "resplits": 40}
    losses = loss_over_resplits(scores, **options)
    assert losses.shape == (40,)
    assert (losses > TARGET).mean() <= 0.15
    assert 0 < losses.mean() < TARGET
    assert (loss_over_resplits(scores, **options) == losses).all()


def test_utility_of_asking_by_hand():
    small = StageScores(probabilities(np.zeros(4)), np.array([0.9, 0.9, 0.1, 0.1]))
    large = StageScores(probabilities(np.zeros(4)), np.array([0.1, 0.1, 0.9, 0.1]))
    gain = np.array([0.0, 1.0, 1.0, 1.0])
    assert realised_utility(small.gain > 0.2, gain, 0.2) == pytest.approx([-0.2, 0.8, 0, 0])
    assert utility_of_asking(small, large, gain, 0.2) == pytest.approx([0.2, -0.8, 0.8, 0])


def test_gates_are_compared_at_one_rate():
    table = compare_gates(world(4000, seed=9), storage_price=0.1, rate=0.3, seed=0)
    assert table["oracle"] > table["gate"] > table["random"]
    assert table["rate"] == 0.3
