"""Flow: the benchmark. One stream per seed through the memory and every arm it is compared with."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from eval.benchmark_folder import seed_folder
from eval.run_records import ALL_ARMS
from flows.run_stream import run_stream
from tasks.benchmark_tasks import finish_benchmark_task
from tasks.run_settings import begin_run
from tasks.tracking import parent_run


@flow(name="benchmark-memory")
def benchmark_memory(
    out: str,
    seeds: int = 1,
    size: str = "small",
    profile: str = "embedded",
    overrides: list[str] | None = None,
    config: str | None = None,
    facts: str | None = None,
    first_seed: int = 0,
) -> list[str]:
    """Run a stream for each of `seeds` seeds in `out/seed-N`, and return these folders.

    `out/metrics.json` holds the figures of all seeds together, `out/differences.json` ours less each other arm's,
    `out/report.html` both as tables and plots; of all seeds that the folder holds finished.

    Calling again with the same folder goes on where a killed run stopped: at the seed, the step and the arm.

    Args:
        out: Folder of the benchmark.
        seeds: How many.
        size: A key of `STREAM_SIZES`.
        profile: Name of the settings.
        overrides: Settings as `key=value`.
        config: Settings file.
        facts: A file of facts to make the streams of, in place of the embedded corpora.
        first_seed: The lowest seed; the others follow it.
    """
    folder = Path(out)
    folders = {seed: str(seed_folder(folder, seed)) for seed in range(first_seed, first_seed + seeds)}
    for seed, run in folders.items():
        run_stream(run, seed, size, profile, overrides, config, list(ALL_ARMS), facts, True)
    own = [*(overrides or []), f"runs_dir={folder / 'flows'}"]
    settings, settings_path = begin_run(folder.name, profile, own, config)
    with parent_run(f"{size}-benchmark", settings, folder.name, resume=True) as tracker:
        finish_benchmark_task(settings_path, out, tracker.run_id)
    return list(folders.values())
