"""The figures of a run against hand-computed cases."""

import pytest

from eval.metrics import (
    arm_figures,
    damage_rate,
    em_by_kind,
    em_interval,
    em_retention,
    escalation_rate,
    internalised_rate,
    mean_em,
    mean_f1,
    retention_interval,
    routing_cost_ratio,
    rows_by_question,
    run_metrics,
    storage_ratio,
    weights_share,
)
from eval.run_records import AnswerRow, ArmFigures, ConsolidationSummary, NetBytes
from eval.statistics import wilson_interval
from sharpwave.errors import InputError
from sharpwave.records import RouteStage


def row(arm="sharpwave", question="q", correct=True, **changes):
    given = {
        "arm": arm,
        "step": 1,
        "fact_id": "f",
        "question": question,
        "answer": "Peso",
        "given": "peso" if correct else "euro",
        "correct": correct,
        "origin": "store",
    }
    return AnswerRow(**(given | changes))


def arm(name, em=0.5, storage=1.0):
    return ArmFigures(
        name=name, storage_ratio=storage, em=em, em_low=em - 0.1, em_high=em + 0.1, f1=em, n_questions=9
    )


def night(**changes):
    return ConsolidationSummary(
        **({"run_id": "n", "generation": 1, "parent": 0, "status": "promoted"} | changes)
    )


def headline(consolidations=(), arms=None, answers=()):
    return run_metrics(
        answers,
        arms
        or [
            arm("sharpwave", 0.8, 0.4),
            arm("full_store", 0.84),
            arm("no_memory", 0.3, 0),
            arm("random", 0.6, 0.4),
        ],
        consolidations,
        n_facts=10,
        storage_ratio_before_consolidation=0.6,
        escalation=0.3,
        routing_cost=0.5,
        net_bytes=NetBytes(vectors=1, text=2, ledger=3, adapters=4),
        wall_seconds=1.5,
        seed=0,
        profile="smoke",
    )


@pytest.mark.parametrize("share", [storage_ratio, damage_rate, internalised_rate])
def test_shares_and_their_zero_denominator(share):
    assert share(3, 12) == 0.25
    assert share(0, 0) == 0.0
    with pytest.raises(ValueError, match="13 of 12"):
        share(13, 12)


def test_em_and_retention():
    assert mean_em([True, False, True, True]) == 0.75
    assert mean_em([]) == 0.0
    assert em_retention(0.45, 0.5) == pytest.approx(0.9)
    assert em_retention(0.6, 0.5) == pytest.approx(1.2)
    assert em_retention(0.0, 0.0) == 1.0


def test_escalation_counts_only_what_a_router_judged():
    stages = [RouteStage.SMALL] * 3 + [RouteStage.LARGE] + [RouteStage.REPEAT] * 6 + [RouteStage.POLICY]
    assert escalation_rate(stages) == 0.25
    assert escalation_rate([RouteStage.REPEAT]) == 0.0


def test_routing_cost():
    assert routing_cost_ratio(3.0, 4.0) == 0.75
    assert routing_cost_ratio(0.0, 0.0) == 0.0
    with pytest.raises(ValueError, match="FLOPs"):
        routing_cost_ratio(1.0, 0.0)


def test_f1_uses_the_given_score_or_the_canonical_answer():
    rows = [row(f1=0.5), row(answer="Chilean peso", given="peso", correct=False)]
    assert mean_f1(rows) == pytest.approx((0.5 + 2 / 3) / 2)
    assert mean_f1([]) == 0.0


def test_em_by_kind_and_share_from_weights():
    rows = [
        row(kind="new", origin="weights"),
        row(kind="new", correct=False, origin="weights"),
        row(kind="known"),
        row(correct=False),
    ]
    assert em_by_kind(rows) == {"known": (1.0, 1), "new": (0.5, 2)}
    assert weights_share(rows) == 0.5


def test_a_question_asked_twice_keeps_two_rows():
    index = rows_by_question([row(), row(correct=False), row(arm="random")], "sharpwave")
    assert [answer.correct for answer in index.values()] == [True, False]


def test_em_interval_falls_back_to_subjects_when_all_are_right():
    rows = [row(question=str(n), group=f"s{n % 4}") for n in range(20)]
    assert em_interval(rows, 0) == wilson_interval(4, 4)
    assert em_interval([], 0) == (0.0, 1.0)


def test_retention_interval_compares_shared_questions_only():
    ours = [row(question=str(n), correct=n % 2 == 0, fact_id=str(n)) for n in range(40)]
    full = [row("full_store", str(n), correct=True, fact_id=str(n)) for n in range(40)]
    stray = [row("full_store", "other", correct=False)]
    low, high = retention_interval(ours + full + stray, 0)
    assert 0.3 < low < 0.5 < high < 0.7
    assert retention_interval([], 0) == (1.0, 1.0)


def test_arm_figures_take_their_own_rows():
    rows = [row(), row(question="p", correct=False), row("random", correct=False)]
    figures = arm_figures("sharpwave", rows, 0.4, seed=0)
    assert (figures.em, figures.f1, figures.n_questions, figures.storage_ratio) == (0.5, 0.5, 2, 0.4)
    assert figures.em_low <= 0.5 <= figures.em_high


def test_headline_sums_the_nights():
    nights = [
        night(
            selected=80,
            internalised=70,
            evicted=69,
            damaged=4,
            readmitted=4,
            stable_probed=100,
            em_before=0.8,
            em_after=0.82,
            gate={"gate_probed": 100.0, "gate_damage_rate": 0.1},
        ),
        night(
            selected=20,
            internalised=18,
            evicted=18,
            damaged=2,
            readmitted=2,
            stable_probed=50,
            em_before=0.7,
            em_after=0.72,
            gate={"gate_probed": 50.0, "gate_damage_rate": 0.04},
        ),
        night(status="discarded", gate={"gate_probed": 50.0, "gate_damage_rate": 1.0}),
    ]
    metrics = headline(nights)
    assert (metrics.selected, metrics.internalised, metrics.evicted) == (100, 88, 87)
    assert (metrics.damaged, metrics.readmitted, metrics.stable_probed) == (6, 6, 150)
    assert metrics.damage_rate == pytest.approx(0.04)
    assert metrics.gate_damage_rate == pytest.approx(12 / 150)
    assert metrics.em_before_consolidation == pytest.approx(0.75)
    assert metrics.em_after_consolidation == pytest.approx(0.77)
    assert metrics.em_retention == pytest.approx(0.8 / 0.84)
    assert metrics.em_random_storage_ratio == 0.4
    assert metrics.net_bytes.total == 10


def test_headline_without_consolidation_keeps_em():
    metrics = headline()
    assert metrics.em_before_consolidation == metrics.em_after_consolidation == metrics.em == 0.8
    assert metrics.damage_rate == metrics.gate_damage_rate == 0.0


def test_headline_names_the_missing_arm():
    with pytest.raises(InputError, match="no_memory, random"):
        headline(arms=[arm("sharpwave"), arm("full_store")])
