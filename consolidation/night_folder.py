"""The folder of one night, `consolidations/<run_id>/`: one file per finished stage, written at once.

A stage whose file exists is not run again, so a night that was killed goes on where it stopped. A review is a file
beside them: while its decision waits for a person, a judged night is left alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from consolidation.records import (
    FactTargets,
    NightPlan,
    NightReport,
    NightVerdict,
    Review,
    ReviewDecision,
    TrainingReceipt,
)
from sharpwave.errors import IntegrityError, StoreError
from sharpwave.records import Record

PLAN, TRAINING, VERDICT, REPORT = "plan.json", "training.json", "verdict.json", "report.json"
REVIEW = "review.json"

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

    @property
    def has_open_review(self) -> bool:
        """Whether the night passed its gate and is under a review that has not been carried out to the end."""
        if (self.path / REPORT).exists() or not (self.path / REVIEW).exists():
            return False
        verdict = self.read(VERDICT, NightVerdict)
        return verdict is not None and verdict.promoted

    @property
    def is_waiting(self) -> bool:
        """Whether the night waits for a person's decision."""
        review = self.read(REVIEW, Review) if self.has_open_review else None
        return review is not None and review.decision is ReviewDecision.WAITING

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

    def required(self, name: str, kind: type[_R]) -> _R:
        """Return the record of a stage that must have finished. Raises StoreError if it has not."""
        record = self.read(name, kind)
        if record is None:
            raise StoreError(
                f"the night {self.run_id} has no {name}; start it again with `sharpwave consolidate`"
            )
        return record

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

    def start_anew(self) -> None:
        """Delete what the stages after the plan have left, so that they run again; a review waits again, too."""
        if not self.path.exists():
            return
        if (self.path / REVIEW).exists():
            self.write(REVIEW, Review())
        for name in (TRAINING, VERDICT):
            (self.path / name).unlink(missing_ok=True)
        self.drop_update()


def unfinished_nights(store: Path) -> list[str]:
    """Return the run ids of nights that have a plan, no report and nobody to wait for, oldest first."""
    return [
        path.name
        for path in _nights(store)
        if not (path / REPORT).exists() and not NightFolder(store, path.name).is_waiting
    ]


def waiting_night(store: Path) -> str | None:
    """Return the run id of the night that waits for a person's decision; there is one at most."""
    return next((path.name for path in _nights(store) if NightFolder(store, path.name).is_waiting), None)


def reviewed_night(store: Path) -> str | None:
    """Return the night that waits for a decision, or else one whose decision was not carried out to the end."""
    under_review = (path.name for path in _nights(store) if NightFolder(store, path.name).has_open_review)
    return waiting_night(store) or next(under_review, None)


def night_of_generation(store: Path, number: int) -> str | None:
    """Return the run id of the night that trained a generation."""
    for path in _nights(store):
        training = NightFolder(store, path.name).read(TRAINING, TrainingReceipt)
        if training is not None and training.generation == number:
            return path.name
    return None


def generated_wordings(store: Path) -> dict[str, FactTargets]:
    """Return, by fact, the targets that models proposed for facts without questions and a night promoted.

    The ledger keeps a fact as it came, so these are the only questions that can tell whether the weights still
    hold it.
    """
    wordings: dict[str, FactTargets] = {}
    for path in _nights(store):
        folder = NightFolder(store, path.name)
        plan, report = folder.read(PLAN, NightPlan), folder.read(REPORT, NightReport)
        if plan is not None and report is not None and report.status == "promoted":
            wordings |= {item.fact_id: item for item in plan.targets if item.generated}
    return wordings


def forget_words(store: Path, ids: Collection[str]) -> int:
    """Remove facts with their words from the plans of all nights; return how many plans held any.

    Privacy: a fact that the ledger forgets must be forgotten here as well.
    """
    forgotten, count = set(ids), 0
    for path in _nights(store):
        folder = NightFolder(store, path.name)
        plan = folder.read(PLAN, NightPlan)
        if plan is None or forgotten.isdisjoint(item.fact_id for item in plan.targets):
            continue
        kept = tuple(item for item in plan.targets if item.fact_id not in forgotten)
        folder.write(PLAN, plan.model_copy(update={"targets": kept}))
        count += 1
    return count


def _nights(store: Path) -> list[Path]:
    root = store / "consolidations"
    return [path for path in sorted(root.iterdir()) if (path / PLAN).exists()] if root.is_dir() else []
