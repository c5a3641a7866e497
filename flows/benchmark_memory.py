"""Flow: a stream through the memory and the arms it is compared with; the demo is one of its sizes."""

from __future__ import annotations

import time
from pathlib import Path

from prefect import flow

from eval.run_records import RunMetrics
from flows.consolidate_memory import consolidate_memory
from flows.ingest_stream import ingest_stream
from tasks.run_settings import begin_run
from tasks.stream_files import StreamFiles
from tasks.stream_report_tasks import finish_run_task, night_run_id
from tasks.stream_sizes import STREAM_SIZES
from tasks.stream_tasks import ask_around_night_task, ask_step_task, lay_out_stream_task, step_run_id
from tasks.tracking import parent_run


@flow(name="benchmark-memory")
def benchmark_memory(
    out: str,
    seed: int = 0,
    size: str = "small",
    profile: str = "embedded",
    overrides: list[str] | None = None,
    config: str | None = None,
) -> RunMetrics:
    """Run a stream in steps and report it in the folder `out`, which also holds the store.

    Calling again with the same folder goes on where a killed run stopped.
    """
    started, run = time.monotonic(), Path(out)
    # What a night proves leaves the store at once, for its figures are taken at once.
    own = [
        f"seed={seed}",
        f"store.path={run / 'store'}",
        f"runs_dir={run / 'flows'}",
        "consolidation.evict_now=true",
    ]
    chosen = profile, [*(overrides or []), *own], config
    settings, settings_path = begin_run(run.name, *chosen)
    with parent_run(f"{size}-stream", settings, run.name, resume=True) as tracker:
        steps = lay_out_stream_task(settings_path, out, size, seed)
        for step in range(steps):
            ingest_stream(
                str(StreamFiles(run).facts_file(step)), step_run_id(run, step), *chosen, tracker.run_id
            )
            ask_step_task(settings_path, out, step, tracker.run_id)
            if step in STREAM_SIZES[size].nights_after:
                ask_around_night_task(settings_path, out, step, "before")
                consolidate_memory(night_run_id(run, step), *chosen, tracker.run_id)
                ask_around_night_task(settings_path, out, step, "after")
        return finish_run_task(settings_path, out, size, seed, time.monotonic() - started, tracker.run_id)
