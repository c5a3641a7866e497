"""Runs made up for tests of reports: every record filled, no model asked."""

from eval.metrics import arm_figures, escalation_rate, run_metrics
from eval.run_records import (
    AnswerRow,
    ConsolidationSummary,
    FactLine,
    NetBytes,
    Run,
    RunConfig,
    StepRecord,
)
from sharpwave.records import RouteDecision

ARMS = {"sharpwave": 0.4, "full_store": 1.0, "no_memory": 0.0, "random": 0.4}


def answer_rows(wrong_every):
    return tuple(
        AnswerRow(
            arm=arm,
            step=1 + n % 3,
            fact_id=f"{n:032x}",
            question=f"question {n}?",
            answer="Peso",
            given="peso" if n % wrong_every[arm] else "euro",
            correct=n % wrong_every[arm] != 0,
            origin="weights" if n % 3 == 0 else "store",
            group=f"subject {n % 11}",
            kind="new" if n % 2 else "known",
            confidence=0.9 if n % 4 else 0.3,
        )
        for arm in ARMS
        for n in range(60)
    )


def step_record(step):
    return StepRecord(
        step=step,
        n_observed=10 * step,
        n_distinct=9 * step,
        hot=4 * step,
        storage_ratio=4 / 9,
        em={"sharpwave": None if step == 2 else 0.8, "full_store": 0.85, "no_memory": 0.3, "random": 0.5},
        escalation_rate=0.3,
        generation=int(step > 2),
        n_questions=20,
    )


def summary(text, n_lines):
    lines = tuple(
        FactLine(
            fact_id=f"{n:032x}", text=text, question=text, answer=text, model_answer_before=text, reason=text
        )
        for n in range(n_lines)
    )
    return ConsolidationSummary(
        run_id=text,
        step=2,
        generation=1,
        parent=0,
        status="promoted",
        reason=text,
        selected=8,
        internalised=n_lines,
        evicted=n_lines,
        damaged=2,
        readmitted=2,
        stable_probed=40,
        internalised_facts=lines,
        evicted_facts=lines,
        damaged_facts=lines[:2],
        readmitted_facts=lines[:2],
        rejected=lines[:1],
        scale=0.75,
        train_seconds=3.0,
        supervised_tokens=1200,
        em_before=0.8,
        em_after=0.82,
        gate={text: 0.9},
    )


def make_run(text="The currency of Chile is the peso.", n_lines=8, wrong_every=None, seed=3):
    answers = answer_rows(wrong_every or {"sharpwave": 6, "full_store": 7, "no_memory": 2, "random": 3})
    arms = [arm_figures(name, answers, storage, seed=3) for name, storage in ARMS.items()]
    nights = (summary(text, n_lines),)
    decisions = tuple(
        RouteDecision(
            fact_id=f"{n:032x}",
            action="write_new" if n % 2 else "non_write",
            stage="large" if n % 5 == 0 else "small",
            p_non_write=0.2,
            p_write_new=0.5,
            p_write_update=0.3,
            expected_gain=0.4,
            storage_price=0.05,
            escalation_price=0.02,
            router_version="1",
            generation=0,
            reason=text,
        )
        for n in range(20)
    )
    metrics = run_metrics(
        answers,
        arms,
        nights,
        n_facts=27,
        storage_ratio_before_consolidation=0.6,
        escalation=escalation_rate(decision.stage for decision in decisions),
        routing_cost=0.5,
        net_bytes=NetBytes(vectors=1536, text=200, ledger=4096, adapters=0),
        wall_seconds=12.0,
        seed=seed,
        profile="smoke",
    )
    config = RunConfig(
        run_id=text[:30],
        digest="ab" * 32,
        seeds=(seed,),
        models={"large": text},
        origins={"seed": "override"},
        resolved={"note": text, "tracking": {"uri": "postgresql://me:hunter2@db/runs"}},
    )
    return Run(
        config=config,
        metrics=metrics,
        arms=tuple(arms),
        steps=tuple(step_record(n) for n in (1, 2, 3)),
        consolidations=nights,
        decisions=decisions,
        answers=answers,
    )
