"""The folder of one night, `consolidations/<run_id>/`: one file per finished stage, written at once.

A stage whose file exists is not run again, so a night that was killed goes on where it stopped.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from sharpwave.errors import IntegrityError
from sharpwave.records import Record

PLAN, TRAINING, VERDICT, REPORT = "plan.json", "training.json", "verdict.json", "report.json"

_R = TypeVar("_R", bound=Record)


class NightFolder:
    """Reads and writes the stage records of one night."""

    def __init__(self, store: Path, run_id: str) -> None:
        self.run_id = run_id
        self.path = store / "consolidations" / run_id

    @property
    def update(self) -> Path:
        """Folder of the trained, unscaled adapter update."""
        return self.path / "update"

    def read(self, name: str, kind: type[_R]) -> _R | None:
        """Return a stage's record, None if the stage has not finished.

        Raises IntegrityError if the file is damaged.
        """
        file = self.path / name
        if not file.exists():
            return None
        try:
            return kind.model_validate_json(file.read_bytes())
        except ValidationError as error:
            raise IntegrityError(f"{file}: damaged; delete the folder to start this night anew") from error

    def write(self, name: str, record: Record) -> None:
        """Write a stage's record so that it is there whole or not at all."""
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / f".{name}.new"
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(record.model_dump_json(indent=2))
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(self.path / name)

    def drop_update(self) -> None:
        """Delete the raw update, which the generation's own adapter has replaced."""
        shutil.rmtree(self.update, ignore_errors=True)


def unfinished_nights(store: Path) -> list[str]:
    """Return the run ids of nights that have a plan but no report, oldest first."""
    root = store / "consolidations"
    if not root.is_dir():
        return []
    nights = [path for path in sorted(root.iterdir()) if (path / PLAN).exists() and not (path / REPORT).exists()]
    return [path.name for path in nights]
