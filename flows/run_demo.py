"""Flow: the demonstration. A fresh stream of 300 real and invented facts through the whole loop."""

from __future__ import annotations

import shutil
from pathlib import Path

from prefect import flow

from eval.run_records import RunMetrics
from flows.run_stream import run_stream
from sharpwave.errors import InputError

_MARK = "flows"


@flow(name="demo")
def run_demo(
    out: str = "runs/demo",
    seed: int = 0,
    profile: str = "embedded",
    overrides: list[str] | None = None,
    config: str | None = None,
    size: str = "demo",
) -> RunMetrics:
    """Run the demonstration from nothing: what an earlier one left in `out` is removed.

    Raises:
        InputError: `out` holds something that is not a former run.
    """
    run = Path(out)
    if run.exists() and any(run.iterdir()):
        if not (run / _MARK).is_dir():
            raise InputError("is not empty and is no former run; give another --out", file=out)
        shutil.rmtree(run)
    return run_stream(out, seed, size, profile, overrides, config)
