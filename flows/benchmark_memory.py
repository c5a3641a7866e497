"""Flow: the benchmark. One stream per seed through the memory and every arm it is compared with."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from eval.benchmark_figures import write_benchmark
from eval.run_records import ALL_ARMS, read_run
from flows.run_stream import run_stream


@flow(name="benchmark-memory")
def benchmark_memory(
    out: str,
    seeds: int = 1,
    size: str = "small",
    profile: str = "embedded",
    overrides: list[str] | None = None,
    config: str | None = None,
    facts: str | None = None,
) -> list[str]:
    """Run a stream for each of the seeds 0, 1, ... in `out/seed-N`, and return these folders.

    `out/metrics.json` holds the figures of all seeds together, `out/differences.json` ours less each other arm's.

    Calling again with the same folder goes on where a killed run stopped: at the seed, the step and the arm.

    Args:
        out: Folder of the benchmark.
        seeds: How many.
        size: A key of `STREAM_SIZES`.
        profile: Name of the settings.
        overrides: Settings as `key=value`.
        config: Settings file.
        facts: A file of facts to make the streams of, in place of the embedded corpora.
    """
    folders = [str(Path(out) / f"seed-{seed}") for seed in range(seeds)]
    for seed, folder in enumerate(folders):
        run_stream(folder, seed, size, profile, overrides, config, list(ALL_ARMS), facts, True)
    write_benchmark(Path(out), [read_run(Path(folder)) for folder in folders])
    return folders
