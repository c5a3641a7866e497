"""Prefect task that closes a stream run: figures, records, page and plots."""

from __future__ import annotations

from pathlib import Path

from carriers.ledger_records import StoredFact
from carriers.prompts import CLOSED_BOOK_PREFIX, closed_book
from consolidation import night_folder
from consolidation.night_folder import NightFolder
from consolidation.probes import failed_probes, why_not_proven
from consolidation.records import FactTargets, NightPlan, NightReport, NightVerdict
from eval.metrics import (
    arm_figures,
    mean_em,
    reading_figures,
    routing_cost_ratio,
    run_metrics,
    storage_ratio,
)
from eval.plots import figures, write_pngs
from eval.protocol_check import check_protocol
from eval.report import write_report
from eval.run_records import (
    ROUTER_ARMS,
    SHARPWAVE_ARM,
    AnswerRow,
    ArmFigures,
    ConsolidationSummary,
    FactLine,
    NetBytes,
    Run,
    RunConfig,
    RunMetrics,
    StepRecord,
    write_run,
)
from serving.agent_memory import AgentMemory
from serving.store_status import measure_bytes
from sharpwave.records import RouteDecision, RouteStage
from tasks.policies import side_effect_task
from tasks.run_settings import read_settings
from tasks.stream_files import RoutingCost, StreamFiles
from tasks.stream_sizes import STREAM_SIZES, StreamSize
from tasks.stream_tasks import PUT_BACK, escalation_share, stream_decisions
from tasks.tracking import joined_run


def finish_run(
    settings_path: str,
    run_folder: str,
    size: str,
    seed: int,
    arms: list[str],
    mlflow_run_id: str | None,
) -> RunMetrics:
    """Gather what the steps left, write records, page and plots, and log them.

    Raises:
        InputError: An arm knows answers that it cannot have.
    """
    settings, run = read_settings(settings_path), Path(run_folder)
    with AgentMemory.open(settings) as memory:
        whole = _whole_run(memory, run, STREAM_SIZES[size], seed, arms)
    write_run(run, whole)
    page = write_report(whole, run)
    plots = write_pngs(figures(whole), run / "plots")
    with joined_run(settings, mlflow_run_id) as tracker:
        numbers = whole.metrics.model_dump().items()
        tracker.log_metrics({name: float(value) for name, value in numbers if isinstance(value, int | float)})
        for arm in whole.arms:
            tracker.log_metrics(_tracked(arm))
        for path in (page, run / "metrics.json", run / "decisions.jsonl", run / "answers.jsonl", *plots):
            tracker.log_artifact(path)
    return whole.metrics


def _tracked(arm: ArmFigures) -> dict[str, float]:
    values = arm.model_dump(exclude={"name", "net_bytes"}, exclude_none=True)
    if arm.net_bytes is not None:
        values["net_bytes"] = arm.net_bytes.total
    return {f"arm_{arm.name}_{name}": float(value) for name, value in values.items()}


def _whole_run(memory: AgentMemory, run: Path, size: StreamSize, seed: int, names: list[str]) -> Run:
    settings, files = memory.settings, StreamFiles(run)
    records = [record for step in range(files.step_count) if (record := files.record(step)) is not None]
    answers = [row for step in range(files.step_count) for row in files.answers(step)]
    answers += files.answers(files.step_count - 1, PUT_BACK)
    check_protocol(answers)
    decisions = stream_decisions(settings, run, files.step_count)
    nights = [_night_summary(memory, files, run, step) for step in size.nights_after]
    told = tuple(night for night in nights if night is not None)
    arms = tuple(_arm(name, files, answers, records[-1], told, seed) for name in names)
    metrics = run_metrics(
        answers,
        arms,
        told,
        n_facts=records[-1].n_distinct,
        storage_ratio_before_consolidation=records[size.nights_after[0]].storage_ratio,
        escalation=escalation_share(decisions),
        routing_cost=routing_cost_ratio(
            sum(decision.flops for decision in decisions), _large_only_flops(memory, decisions)
        ),
        net_bytes=NetBytes(**measure_bytes(memory.memory)),
        wall_seconds=sum(files.spent().values()),
        seed=seed,
        profile=settings.profile,
    )
    return Run(
        config=_config(memory, run, seed),
        metrics=metrics,
        arms=arms,
        steps=tuple(records),
        consolidations=told,
        decisions=tuple(decisions),
        answers=tuple(answers),
    )


def _config(memory: AgentMemory, run: Path, seed: int) -> RunConfig:
    return RunConfig(
        run_id=run.name,
        digest=memory.settings.digest(),
        resolved=memory.settings.model_dump(mode="json"),
        seeds=(seed,),
        models={"small": memory.models.small.fingerprint, "large": memory.models.reader.fingerprint},
    )


def _arm(
    name: str,
    files: StreamFiles,
    answers: list[AnswerRow],
    last: StepRecord,
    nights: tuple[ConsolidationSummary, ...],
    seed: int,
) -> ArmFigures:
    """Return the figures of one arm; only the memory itself has nights."""
    stood = [item for step in range(files.step_count) if (item := files.arm_step(name, step)) is not None]
    costs = [item.cost for item in stood if item.cost is not None]
    figures = arm_figures(name, answers, storage_ratio(stood[-1].held, last.n_distinct), seed)
    counted = nights if name == SHARPWAVE_ARM else ()
    return figures.model_copy(
        update={
            **reading_figures(name, answers),
            **(routing_figures(name, costs) if costs else {}),
            **{key: sum(getattr(night, key) for night in counted) for key in _NIGHT_COUNTS if counted},
            "net_bytes": stood[-1].net_bytes,
        }
    )


def routing_figures(name: str, costs: list[RoutingCost]) -> dict[str, float]:
    """Return what deciding cost an arm; nothing for one whose decisions are not counted, as the oracle's."""
    flops, large_only, routed, escalated, timed = (
        sum(getattr(cost, key) for cost in costs)
        for key in ("flops", "large_only_flops", "routed", "escalated", "timed")
    )
    if not flops:
        return {}
    escalation = {"escalation_rate": escalated / routed if routed else 0.0} if name in ROUTER_ARMS else {}
    return {
        **escalation,
        "routing_cost_ratio": routing_cost_ratio(flops, large_only),
        "routing_seconds": sum(cost.seconds for cost in costs) / timed if timed else 0.0,
    }


def _large_only_flops(memory: AgentMemory, decisions: list[RouteDecision]) -> float:
    """Return what asking the large model about every routed fact would have cost."""
    routed = [
        decision.fact_id for decision in decisions if decision.stage in (RouteStage.SMALL, RouteStage.LARGE)
    ]
    facts = {fact.id: fact.words for fact in memory.memory.ledger.facts(routed)}
    words = [fact for fact_id in routed if (fact := facts[fact_id]) is not None]
    return sum(memory.router.large_only_flops(words))


def _night_summary(
    memory: AgentMemory, files: StreamFiles, run: Path, step: int
) -> ConsolidationSummary | None:
    folder = NightFolder(memory.memory.directory, night_run_id(run, step))
    report = folder.read(night_folder.REPORT, NightReport)
    plan = folder.read(night_folder.PLAN, NightPlan)
    verdict = folder.read(night_folder.VERDICT, NightVerdict)
    if report is None or plan is None:
        return None
    lines = _FactLines(memory, plan, verdict)
    before, after = (files.answers(step, f"-{when}-night") for when in ("before", "after"))
    proven = set(verdict.proven) if verdict else set()
    return ConsolidationSummary(
        run_id=report.run_id,
        step=step,
        generation=report.generation if report.training else None,
        parent=report.parent,
        status=report.status,
        reason=report.reason,
        selected=report.selected,
        internalised=report.internalised,
        evicted=report.evicted,
        damaged=report.damaged,
        readmitted=report.readmitted,
        stable_probed=report.stable_probed,
        internalised_facts=lines.of(verdict.proven if verdict else ()),
        evicted_facts=lines.of(verdict.evict if verdict else ()),
        damaged_facts=lines.of(verdict.damaged if verdict else ()),
        readmitted_facts=lines.of([*verdict.damaged, *verdict.never_known] if verdict else ()),
        rejected=lines.not_proven([item for item in plan.targets if item.fact_id not in proven]),
        scale=report.scale,
        train_seconds=report.training.seconds if report.training else 0.0,
        supervised_tokens=report.training.supervised_tokens if report.training else 0,
        em_before=mean_em([row.correct for row in before]) if before else None,
        em_after=mean_em([row.correct for row in after]) if after else None,
        gate={key: float(value) for trial in report.trials[-1:] for key, value in trial.model_dump().items()},
    )


class _FactLines:
    """Words and model answers for the lists of a night."""

    def __init__(self, memory: AgentMemory, plan: NightPlan, verdict: NightVerdict | None) -> None:
        self._memory = memory
        self._verdict = verdict
        self._targets = {item.fact_id: item for item in plan.targets}

    def of(self, ids: tuple[str, ...] | list[str]) -> tuple[FactLine, ...]:
        """Return a line per fact with what the model said before and says after."""
        facts = [fact for fact in self._memory.memory.ledger.facts(ids) if fact.words is not None]
        questions = [self._question(fact) for fact in facts]
        prompts = [closed_book(question) for question in questions]
        before = self._memory.models.reader.answer(prompts, CLOSED_BOOK_PREFIX)
        after = self._memory.recall.weights.answer(prompts, CLOSED_BOOK_PREFIX)
        return tuple(
            FactLine(
                fact_id=fact.id,
                text=fact.fact.text,
                question=question,
                answer=self._answer(fact),
                model_answer_before=said.text,
                model_answer_after=says.text,
                reason=fact.status.value,
            )
            for fact, question, said, says in zip(facts, questions, before, after, strict=True)
        )

    def not_proven(self, targets: list[FactTargets]) -> tuple[FactLine, ...]:
        """Return the trained facts that stay in the store, each with the probe it failed."""
        probes = self._verdict.target_probes if self._verdict else ()
        failed = failed_probes(probes, self._memory.settings.consolidation.probe.min_token_prob)
        return tuple(
            FactLine(
                fact_id=item.fact_id,
                text=item.text,
                question=item.train_questions[0],
                answer=item.answers[0],
                reason=why_not_proven(failed.get(item.fact_id, [])),
            )
            for item in targets
        )

    def _question(self, fact: StoredFact) -> str:
        if fact.id in self._targets:
            return self._targets[fact.id].train_questions[0]
        return fact.fact.questions[0] if fact.fact.questions else fact.fact.text

    def _answer(self, fact: StoredFact) -> str | None:
        if fact.id in self._targets:
            return self._targets[fact.id].answers[0]
        return fact.fact.answers[0] if fact.fact.answers else None


def night_run_id(run: Path, step: int) -> str:
    """Return the run id of the consolidation after a step."""
    return f"{run.name}-night-{step + 1:02d}"


_NIGHT_COUNTS = ("internalised", "damaged", "readmitted")

finish_run_task = side_effect_task(finish_run)
