"""Prefect tasks of a stream run: lay out the stream, ask every arm after a step, ask around a night, finish."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from consolidation.anchors import read_anchors
from eval.arms import Arm, NoMemoryArm, PlainStore, RecallArm, full_store_arm, random_arm
from eval.metrics import storage_ratio
from eval.run_records import FULL_STORE_ARM, RANDOM_ARM, SHARPWAVE_ARM, AnswerRow, StepRecord
from eval.streams import build_stream
from serving.agent_memory import AgentMemory
from serving.loaded_models import shared_models
from sharpwave.matching import exact_match, token_f1
from sharpwave.progress import current_progress
from sharpwave.records import FactStatus, RouteDecision, RouteStage
from sharpwave.settings import Settings
from tasks.policies import side_effect_task
from tasks.run_settings import read_settings
from tasks.stream_files import AskedQuestion, StreamFiles
from tasks.stream_sizes import STREAM_SIZES
from tasks.tracking import joined_run

_KNOWN_PER_FACT = 0.5  # a third of the stream is known, and changes need known facts to change


def lay_out_stream(settings_path: str, run_folder: str, size: str, seed: int) -> int:
    """Write the stream's facts and questions; return the number of steps. Done once per run folder.

    Which facts are known is found by asking the answering model, so the mix holds for any model.
    """
    files = StreamFiles(Path(run_folder))
    plan = STREAM_SIZES[size]
    if files.step_count == plan.steps:
        return plan.steps
    settings = read_settings(settings_path)
    stream = build_stream(
        seed,
        plan.n_facts,
        plan.steps,
        known_ids=_known_ids(settings, plan.n_facts, seed),
        questions_per_step=plan.questions_per_step,
    )
    files.lay_out(stream)
    return plan.steps


def _known_ids(settings: Settings, n_facts: int, seed: int) -> set[str]:
    from eval.known_facts import known_world_facts

    wanted = round(n_facts * _KNOWN_PER_FACT)
    progress = current_progress()
    progress.stage("asking the model what it knows", wanted)
    reader = shared_models(settings.models).reader
    bank = {anchor.question for anchor in read_anchors(settings.consolidation.anchors_file)}
    found = known_world_facts(reader, "report", wanted, seed, progress.advance, known_elsewhere=bank)
    return {known.item.id for known in found}


def ask_step(settings_path: str, run_folder: str, step: int, mlflow_run_id: str | None) -> StepRecord:
    """Ask the questions of a step in every arm and keep the answers; a finished step is not asked again."""
    files = StreamFiles(Path(run_folder))
    former = files.record(step)
    if former is not None:
        return former
    settings = read_settings(settings_path)
    questions = files.questions(step)
    facts = files.facts(step + 1)
    current_progress().stage(f"asking after step {step + 1}", len(questions) * 4)
    with AgentMemory.open(settings) as memory, joined_run(settings, mlflow_run_id) as tracker:
        hot = memory.memory.ledger.counts()[FactStatus.HOT]
        rows: dict[str, list[AnswerRow]] = {}
        for arm in _arms(memory, Path(run_folder), settings, hot, step, files):
            rows[arm.name] = answer_rows(arm, step, questions)
            current_progress().advance(len(questions))
            close_arm(arm)
        record = _step_record(
            step, files, facts_count=len(facts), hot=hot, rows=rows, memory=memory, settings=settings
        )
        tracker.log_metrics(_curves(record), record.n_observed)
    files.finish_step(record, [row for group in rows.values() for row in group])
    return record


def ask_around_night(settings_path: str, run_folder: str, step: int, when: str) -> float:
    """Ask the memory alone all questions so far, `before` or `after` a night; return the exact match.

    Questions about facts that have been superseded are left out: their answers do not hold any more.
    """
    files = StreamFiles(Path(run_folder))
    rows = files.answers(step, f"-{when}-night")
    if not rows:
        with AgentMemory.open(read_settings(settings_path)) as memory:
            counts = memory.memory.ledger.counts()
            asked = {item.question: item for number in range(step + 1) for item in files.questions(number)}
            facts = memory.memory.ledger.facts([item.fact_id for item in asked.values()])
            old = {fact.id for fact in facts if fact.status is FactStatus.SUPERSEDED}
            current = [item for item in asked.values() if item.fact_id not in old]
            current_progress().stage(f"asking {when} the night", len(current))
            arm = RecallArm(SHARPWAVE_ARM, memory.recall, counts[FactStatus.HOT])
            rows = answer_rows(arm, step, current)
        files.write_answers(step, rows, f"-{when}-night")
    return sum(row.correct for row in rows) / len(rows)


def answer_rows(arm: Arm, step: int, questions: Sequence[AskedQuestion]) -> list[AnswerRow]:
    """Put questions to an arm and judge its answers. The arm sees the questions only, never the answers."""
    answers = arm.answer([asked.question for asked in questions])
    return [
        AnswerRow(
            arm=arm.name,
            step=step,
            fact_id=asked.fact_id,
            question=asked.question,
            answer=asked.answers[0],
            given=answer.text,
            correct=exact_match(answer.text, asked.answers),
            origin=answer.origin,
            f1=token_f1(answer.text, asked.answers),
            group=asked.group,
            kind=asked.kind,
            confidence=min(1.0, answer.lowest_token_prob),
        )
        for asked, answer in zip(questions, answers, strict=True)
    ]


def close_arm(arm: Arm) -> None:
    """Close the store of an arm that has one of its own."""
    if isinstance(arm, RecallArm) and isinstance(arm.recall.source, PlainStore):
        arm.recall.source.close()


def _arms(
    memory: AgentMemory, run: Path, settings: Settings, hot: int, step: int, files: StreamFiles
) -> list[Arm]:
    reader, embedder = memory.models.reader, memory.models.embedder
    facts = files.facts(step + 1)
    full = full_store_arm(run / "arms" / FULL_STORE_ARM, embedder, reader, settings.recall, facts)
    random = random_arm(
        run / "arms" / RANDOM_ARM, embedder, reader, settings.recall, facts, count=hot, seed=settings.seed
    )
    return [RecallArm(SHARPWAVE_ARM, memory.recall, hot), full, NoMemoryArm(full.recall), random]


def _step_record(
    step: int,
    files: StreamFiles,
    *,
    facts_count: int,
    hot: int,
    rows: dict[str, list[AnswerRow]],
    memory: AgentMemory,
    settings: Settings,
) -> StepRecord:
    em = {
        name: sum(row.correct for row in group) / len(group) if group else None
        for name, group in rows.items()
    }
    return StepRecord(
        step=step,
        n_observed=files.arrivals(step + 1),
        n_distinct=facts_count,
        hot=hot,
        storage_ratio=storage_ratio(hot, facts_count),
        em=em,
        escalation_rate=escalation_share(stream_decisions(settings, files.run, step + 1)),
        generation=memory.memory.generations.current().number,
        n_questions=len(rows[SHARPWAVE_ARM]),
    )


def step_run_id(run: Path, step: int) -> str:
    """Return the run id under which a step's facts are ingested."""
    return f"{run.name}-step-{step + 1:02d}"


def stream_decisions(settings: Settings, run: Path, steps: int) -> list[RouteDecision]:
    """Return the decisions of the first steps, each fact once per run: the last one counts after a resume."""
    found: dict[tuple[int, str], RouteDecision] = {}
    for step in range(steps):
        path = settings.runs_dir / step_run_id(run, step) / "decisions.jsonl"
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                decision = RouteDecision.model_validate_json(line)
                found[step, decision.fact_id] = decision
    return list(found.values())


def escalation_share(decisions: Sequence[RouteDecision]) -> float:
    """Return the share of routed facts that the large model was asked about; 0 where none was routed."""
    routed = [decision for decision in decisions if decision.stage in (RouteStage.SMALL, RouteStage.LARGE)]
    return sum(decision.stage is RouteStage.LARGE for decision in routed) / len(routed) if routed else 0.0


def _curves(record: StepRecord) -> dict[str, float]:
    """Return a step's points, under names of their own: a tracker shows the last point as a run's figure."""
    values: dict[str, float | None] = {
        "storage_ratio": record.storage_ratio,
        "hot": record.hot,
        "em_weights": record.em_weights,
        "escalation_rate": record.escalation_rate,
        "generation": record.generation,
    }
    values |= {"em" if arm == SHARPWAVE_ARM else f"em_{arm}": em for arm, em in record.em.items()}
    return {f"step_{name}": float(value) for name, value in values.items() if value is not None}


lay_out_stream_task = side_effect_task(lay_out_stream)
ask_step_task = side_effect_task(ask_step)
ask_around_night_task = side_effect_task(ask_around_night)
