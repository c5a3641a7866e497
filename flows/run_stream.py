"""Flow: one stream, with one seed, through the memory and the arms it is compared with."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from eval.run_records import HEADLINE_ARMS, WITHOUT_READMISSION_ARM, RunMetrics
from flows.consolidate_memory import consolidate_memory
from flows.ingest_stream import ingest_stream
from sharpwave.progress import current_progress
from tasks.run_settings import begin_run
from tasks.stream_arms import step_run_id
from tasks.stream_files import StreamFiles, minutes_left, timed
from tasks.stream_report_tasks import finish_run_task, night_run_id
from tasks.stream_sizes import STREAM_SIZES, StreamSize
from tasks.stream_tasks import (
    ask_arm_task,
    ask_around_night_task,
    ask_put_back_task,
    close_step_task,
    lay_out_stream_task,
)
from tasks.tracking import parent_run


@flow(name="run-stream")
def run_stream(
    out: str,
    seed: int = 0,
    size: str = "small",
    profile: str = "embedded",
    overrides: list[str] | None = None,
    config: str | None = None,
    arms: list[str] | None = None,
    facts: str | None = None,
    oracle: bool = False,
) -> RunMetrics:
    """Run a stream in steps and report it in the folder `out`, which also holds the store.

    After the facts of a step have arrived every arm is asked, and only then the memory may sleep: what is asked is
    never what was just learnt from. Calling again with the same folder goes on where a killed run stopped, at the arm.

    Args:
        out: Folder of the run.
        seed: Seed of the stream and of everything random.
        size: A key of `STREAM_SIZES`.
        profile: Name of the settings.
        overrides: Settings as `key=value`.
        config: Settings file.
        arms: Which arms are asked, the four of the headline table among them; these alone by default.
        facts: A file of facts to make the stream of, in place of the embedded corpora.
        oracle: Whether each arm is also handed the right facts that it holds.
    """
    run, plan = Path(out), STREAM_SIZES[size]
    asked = list(arms or HEADLINE_ARMS)
    # What a night proves leaves the store at once, for its figures are taken at once.
    own = [
        f"seed={seed}",
        f"store.path={run / 'store'}",
        f"runs_dir={run / 'flows'}",
        "consolidation.evict_now=true",
    ]
    chosen = profile, [*plan.overrides, *(overrides or []), *own], config
    settings, settings_path = begin_run(run.name, *chosen)
    with parent_run(f"{size}-stream", settings, run.name, resume=True) as tracker:
        files = StreamFiles(run)
        with timed(files, "layout"):
            steps = lay_out_stream_task(settings_path, out, size, seed, facts)
        for step in range(steps):
            with timed(files, "steps"):
                arrived, run_id = str(files.facts_file(step)), step_run_id(run, step)
                ingest_stream(arrived, run_id, *chosen, tracker.run_id)
            for name in asked:
                with timed(files, "steps"):
                    ask_arm_task(settings_path, out, step, name, oracle)
            close_step_task(settings_path, out, step, asked, tracker.run_id)
            if step in plan.nights_after:
                with timed(files, "nights"):
                    ask_around_night_task(settings_path, out, step, "before")
                    consolidate_memory(night_run_id(run, step), *chosen, tracker.run_id)
                    ask_around_night_task(settings_path, out, step, "after")
            _tell_time_left(files, seed, (step + 1, steps), plan)
        if WITHOUT_READMISSION_ARM in asked:
            ask_put_back_task(settings_path, out)
        return finish_run_task(settings_path, out, size, seed, asked, tracker.run_id)


def _tell_time_left(files: StreamFiles, seed: int, steps: tuple[int, int], plan: StreamSize) -> None:
    slept = sum(night < steps[0] for night in plan.nights_after)
    left = minutes_left(files.spent(), steps, (slept, len(plan.nights_after)))
    if steps[0] < steps[1] and left is not None:
        current_progress().stage(
            f"seed {seed}: {steps[0]} of {steps[1]} steps done, about {left:.0f} min left"
        )
