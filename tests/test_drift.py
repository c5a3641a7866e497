"""Drift between a stream's decisions and the calibration facts: told when large and beyond chance, else not."""

import numpy as np
import pytest

from routers.drift import LEAST_FACTS, DriftMonitor, DriftReference
from routers.features import Evidence
from sharpwave.records import RouteAction, RouteDecision, RouteStage

RNG = np.random.default_rng(0)
CALIBRATION = RNG.normal(size=2000)
PRICE = float(np.quantile(CALIBRATION, 0.7))
REFERENCE = DriftReference.of(CALIBRATION, CALIBRATION > PRICE)


def decision(gate, stage=None, evidence=Evidence.PROBE):
    asked = gate > PRICE
    return RouteDecision(
        fact_id="f" * 32,
        action=RouteAction.WRITE_NEW,
        stage=stage or (RouteStage.LARGE if asked else RouteStage.SMALL),
        p_non_write=0.0,
        p_write_new=1.0,
        p_write_update=0.0,
        expected_gain=1.0,
        gate_value=float(gate),
        storage_price=0.0,
        escalation_price=0.0,
        evidence=evidence,
        router_version="v",
        generation=0,
        reason="",
    )


def measured(gates, **options):
    monitor = DriftMonitor({Evidence.PROBE: REFERENCE})
    monitor.add(decision(gate, **options) for gate in gates)
    return monitor.measure()


def test_the_reference_tells_tenths_and_rate():
    assert len(REFERENCE.gate_edges) == 9
    assert REFERENCE.gate_edges[4] == pytest.approx(np.median(CALIBRATION))
    assert REFERENCE.escalation_rate == pytest.approx(0.3, abs=0.001)
    assert REFERENCE.n == 2000


def test_facts_like_the_calibration_facts_raise_no_warning():
    warned = [measured(np.random.default_rng(seed).normal(size=300)).warnings for seed in range(20)]
    assert not any(warned)


def test_facts_of_another_kind_raise_both_warnings():
    drift = measured(RNG.normal(1.5, size=300))
    assert drift.stability_index > 1
    assert len(drift.warnings) == 2
    assert "unlike the calibration facts" in drift.warnings[0]
    assert "train-router" in drift.warnings[0]
    assert "escalated where calibration had 30%" in drift.warnings[1]
    assert drift.to_json()["kinds"]["probe"]["n"] == 300


def test_a_trifle_beyond_chance_is_not_told():
    drift = measured(RNG.normal(0.12, size=20000))
    [kind] = drift.by_kind.values()
    assert kind.stability_p < 1e-4
    assert not drift.warnings


def test_few_facts_are_not_judged():
    assert not measured(RNG.normal(5, size=LEAST_FACTS - 1)).warnings
    assert measured(RNG.normal(5, size=LEAST_FACTS)).warnings


def test_the_index_is_that_of_its_definition():
    gates = np.repeat([-10.0, 10.0], 50)
    shares = np.full(10, 0.5) / 105
    shares[[0, 9]] = 50.5 / 105
    expected = ((shares - 0.1) * np.log(shares / 0.1)).sum()
    assert measured(gates).stability_index == pytest.approx(expected)


def test_repeats_policies_and_unknown_kinds_are_passed_over():
    for options in ({"stage": RouteStage.REPEAT}, {"stage": RouteStage.POLICY}, {"evidence": Evidence.TEXT}):
        drift = measured([0.0] * 60, **options)
        assert not drift.by_kind
        assert drift.stability_index is None
        assert not drift.warnings
