"""The command line in tests: inside the process, on a store whose embedder needs no weights, or as a process."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from sharpwave.cli.main import app

runner = CliRunner()

SHARPWAVE = (sys.executable, "-c", "from sharpwave.cli.main import main; main()")
"""The command line as a process of its own."""


def environment(place: Path, embedded_models: dict[str, Path]) -> dict[str, str]:
    """Return the environment of such a process: models at hand, nothing fetched, everything it writes in one place."""
    own = {
        "SHARPWAVE_HOME": str(embedded_models["large"].parents[1]),
        "SHARPWAVE_OFFLINE": "1",
        "PREFECT_HOME": str(place / "prefect"),
    }
    return {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"} | own


def run(store: Path, *arguments: str, **options: Any) -> Result:
    return runner.invoke(
        app, [*arguments, "--store", str(store), "--set", "models.embedder=hashing"], **options
    )


def data(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
