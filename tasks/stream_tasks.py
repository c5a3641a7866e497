"""Prefect tasks of a stream run: lay out the stream, ask every arm after a step, ask around a night, finish."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from carriers.store_layout import open_generations, open_ledger
from carriers.wheel_download import file_sha256
from consolidation.anchors import read_anchors
from eval.corpora.stable_draw import StableDraw
from eval.metrics import headline_rows, mean_em, storage_ratio
from eval.public_sets.reading import read_public_set
from eval.reading import AskedQuestion, present_questions, read_oracle, read_real, read_weights
from eval.run_records import READMITTED, SHARPWAVE_ARM, WITHOUT_READMISSION_ARM, AnswerRow, StepRecord
from eval.stream_pools import Arrival
from eval.streams import build_stream, summary
from serving.loaded_models import shared_models
from sharpwave.errors import InputError
from sharpwave.progress import current_progress
from sharpwave.records import EventKind, FactStatus, RouteDecision, RouteStage
from sharpwave.settings import Settings
from tasks.policies import side_effect_task
from tasks.run_settings import read_settings
from tasks.stream_arms import ALL_EVENTS, ArmPlace, open_arm, step_run_id
from tasks.stream_files import ArmStep, StreamFiles, StreamLayout
from tasks.stream_sizes import STREAM_SIZES
from tasks.tracking import joined_run

if TYPE_CHECKING:
    from eval.public_sets.harvest import PublicSet
    from tasks.stream_sizes import StreamSize

PUT_BACK = "-put-back"
_ASKED_AROUND_NIGHT = 200


def lay_out_stream(
    settings_path: str, run_folder: str, size: str, seed: int, facts: str | None = None
) -> int:
    """Write the stream's facts and questions; return the number of steps. Done once per run folder.

    Which facts are known is found by asking the answering model, so the mix holds for any model.

    Raises:
        InputError: The folder holds another stream, or the facts do not suffice for one.
    """
    files, plan = StreamFiles(Path(run_folder)), STREAM_SIZES[size]
    digest = file_sha256(Path(facts)) if facts else None
    layout = files.layout()
    if layout is not None:
        if (layout.size, layout.seed, layout.facts) != (size, seed, digest):
            source = "given facts" if layout.facts else "the embedded corpora"
            raise InputError(
                f"holds a stream of {source}, size {layout.size}, seed {layout.seed}, not the one wanted; "
                "give another folder",
                file=run_folder,
            )
        return files.step_count
    settings = read_settings(settings_path)
    given = read_public_set("own", facts) if facts else None
    stream = build_stream(
        seed,
        plan.n_facts,
        plan.steps,
        known_ids=_known_ids(settings, plan, seed, given),
        shares=plan.shares,
        questions_per_step=plan.questions_per_step,
        opening_steps=plan.opening_steps,
        repeats_from=plan.repeats_from,
        dated_share=plan.dated_share,
        absent_per_step=plan.absent_per_step,
        facts=given,
    )
    found = summary(stream)
    missing = {
        kind.value: wanted - found.get(f"arrival_{kind.value}", 0)
        for kind, wanted in plan.shares.counts(plan.n_facts).items()
        if found.get(f"arrival_{kind.value}", 0) < wanted
    }
    if missing:
        listed = ", ".join(f"{number} {kind}" for kind, number in missing.items())
        logging.getLogger(__name__).warning("%s: the stream is short of facts: %s", facts, listed)
    files.lay_out(stream, StreamLayout(size=size, seed=seed, facts=digest, missing=missing))
    return plan.steps


def _known_ids(settings: Settings, plan: StreamSize, seed: int, given: PublicSet | None) -> set[str]:
    from eval.known_facts import known_among, known_world_facts

    counts = plan.shares.counts(plan.n_facts)
    wanted = counts[Arrival.KNOWN] + counts[Arrival.UPDATE]  # changes need known facts to change
    progress = current_progress()
    progress.stage("asking the model what it knows", wanted)
    reader = shared_models(settings.models).reader
    if given is not None:
        found = known_among(reader, given.facts, progress.advance)
    else:
        bank = {anchor.question for anchor in read_anchors(settings.consolidation.anchors_file)}
        found = known_world_facts(reader, "report", wanted, seed, progress.advance, known_elsewhere=bank)
    return {known.item.id for known in found}


def ask_arm(settings_path: str, run_folder: str, step: int, name: str, oracle: bool) -> None:
    """Ask one arm the questions of a step and keep the answers; an arm that was asked is not asked again.

    Every arm reads what it finds, and the memory's weights are also asked alone. With `oracle` each arm is asked a
    second time and handed the right fact where it holds it.

    Raises:
        InputError: The step was finished without this arm, which can no longer be asked as it stood then.
    """
    files = StreamFiles(Path(run_folder))
    if files.arm_step(name, step) is not None:
        return
    if files.record(step) is not None:
        raise InputError(
            f"step {step + 1} was finished without the arm {name!r}; give another folder", file=run_folder
        )
    place = ArmPlace(read_settings(settings_path), files, step)
    questions = files.questions(step)
    texts = {fact.id: fact.text for fact in place.facts}
    current_progress().stage(
        f"step {step + 1} of {files.step_count}: {name.replace('_', ' ')}", len(questions)
    )
    with open_arm(name, place) as opened:
        rows = read_real(opened.arm, step, questions, texts)
        if oracle:
            rows += read_oracle(opened.arm, step, questions, texts)
        if name == SHARPWAVE_ARM:
            rows += read_weights(opened.arm, step, questions)
        current_progress().advance(len(questions))
        stood = ArmStep(held=len(opened.arm.held), net_bytes=opened.arm.net_bytes, cost=opened.cost)
    files.finish_arm(name, step, stood, rows)


def close_step(
    settings_path: str, run_folder: str, step: int, arms: list[str], mlflow_run_id: str | None
) -> StepRecord:
    """Gather what the arms answered after a step, keep it and log the points of the curves."""
    files = StreamFiles(Path(run_folder))
    former = files.record(step)
    if former is not None:
        return former
    settings = read_settings(settings_path)
    rows = {name: files.arm_answers(name, step) for name in arms}
    stood = {name: _stood(files, name, step) for name in rows}
    facts_count = len(files.facts(step + 1))
    hot = stood[SHARPWAVE_ARM].held
    weights = [row.correct for row in rows[SHARPWAVE_ARM] if row.read == "weights"]
    with open_ledger(settings.store.path) as ledger:
        generation = open_generations(settings.store.path, ledger).current().number
    record = StepRecord(
        step=step,
        n_observed=len(files.arrivals(step + 1)),
        n_distinct=facts_count,
        hot=hot,
        storage_ratio=storage_ratio(hot, facts_count),
        em={name: _em(headline_rows(own, name)) for name, own in rows.items()},
        em_weights=mean_em(weights) if weights else None,
        held={name: item.held for name, item in stood.items()},
        escalation_rate=escalation_share(stream_decisions(settings, files.run, step + 1)),
        generation=generation,
        n_questions=len(headline_rows(rows[SHARPWAVE_ARM], SHARPWAVE_ARM)),
    )
    with joined_run(settings, mlflow_run_id) as tracker:
        tracker.log_metrics(_curves(record), record.n_observed)
    files.finish_step(record, [row for group in rows.values() for row in group])
    return record


def _stood(files: StreamFiles, name: str, step: int) -> ArmStep:
    stood = files.arm_step(name, step)
    if stood is None:
        raise AssertionError(f"the arm {name} was not asked after step {step + 1}")
    return stood


def _em(rows: Sequence[AnswerRow]) -> float | None:
    return mean_em([row.correct for row in rows]) if rows else None


def ask_around_night(settings_path: str, run_folder: str, step: int, when: str) -> float:
    """Ask the memory alone questions asked so far, `before` or `after` a night; return the exact match.

    Questions about facts that have been superseded are left out: their answers do not hold any more. Of more than 200
    the same 200 are asked before and after, drawn with the seed of the run.
    """
    files = StreamFiles(Path(run_folder))
    rows = files.answers(step, f"-{when}-night")
    if not rows:
        settings = read_settings(settings_path)
        place = ArmPlace(settings, files, step)
        with open_arm(SHARPWAVE_ARM, place) as opened, open_ledger(settings.store.path) as ledger:
            asked = {
                item.question: item
                for number in range(step + 1)
                for item in present_questions(files.questions(number))
            }
            facts = ledger.facts([item.fact_id for item in asked.values()])
            old = {fact.id for fact in facts if fact.status is FactStatus.SUPERSEDED}
            current = [item for item in asked.values() if item.fact_id not in old]
            chosen = StableDraw(settings.seed, "around-night").shuffled(current, step)[:_ASKED_AROUND_NIGHT]
            current_progress().stage(f"asking {when} the night", len(chosen))
            rows = read_real(opened.arm, step, chosen, {fact.id: fact.text for fact in place.facts})
        files.write_answers(step, rows, f"-{when}-night")
    return mean_em([row.correct for row in rows])


def ask_put_back(settings_path: str, run_folder: str) -> None:
    """Ask, after the last step, about the facts that nights put back: the memory, and the arm without them.

    A stream asks about few of them, so the arms' overall figures hardly tell the two apart. A fact is asked about with
    its own first question, and only while it is in the store.
    """
    files = StreamFiles(Path(run_folder))
    last = files.step_count - 1
    if files.answers_file(last, PUT_BACK).exists():
        return
    place = ArmPlace(read_settings(settings_path), files, last)
    with open_ledger(place.settings.store.path) as ledger:
        put_back = {event.fact_id for event in ledger.last_events(EventKind.READMITTED, ALL_EVENTS)}
        held = [fact.fact for fact in ledger.facts(sorted(put_back)) if fact.status is FactStatus.HOT]
    questions = [
        AskedQuestion(
            fact_id=fact.id,
            question=fact.questions[0],
            answers=fact.answers,
            kind=READMITTED,
            group=fact.slot.subject if fact.slot else fact.id,
        )
        for fact in held
        if fact.questions and fact.answers
    ]
    texts = {fact.id: fact.text for fact in held}
    rows = []
    for name in (SHARPWAVE_ARM, WITHOUT_READMISSION_ARM):
        with open_arm(name, place) as opened:
            rows += read_real(opened.arm, last, questions, texts)
    files.write_answers(last, rows, PUT_BACK)


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
ask_arm_task = side_effect_task(ask_arm)
ask_put_back_task = side_effect_task(ask_put_back)
close_step_task = side_effect_task(close_step)
ask_around_night_task = side_effect_task(ask_around_night)
