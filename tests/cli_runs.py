"""The command line run inside the test process, on a store whose embedder needs no weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from sharpwave.cli.main import app

runner = CliRunner()


def run(store: Path, *arguments: str, **options: Any) -> Result:
    return runner.invoke(
        app, [*arguments, "--store", str(store), "--set", "models.embedder=hashing"], **options
    )


def data(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
