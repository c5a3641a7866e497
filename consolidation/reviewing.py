"""Carrying out a review: ask for one, mark facts, decide. What follows from a decision is planned in `review`.

A decision is on disk before anything is done, so a killed one is finished by the same command or the next night.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from consolidation import night_folder as files
from consolidation.night import apply_verdict
from consolidation.night_folder import NightFolder
from consolidation.records import (
    NightPlan,
    NightReport,
    NightVerdict,
    Review,
    ReviewDecision,
    TrainingReceipt,
)
from consolidation.review import mark_facts, obstacle
from sharpwave.errors import StoreError

if TYPE_CHECKING:
    from carriers.external_memory import ExternalMemory

NOTHING_WAITS = "no consolidation waits for review; `sharpwave consolidate --review` makes one that does"


def request_review(memory: ExternalMemory, run_id: str) -> None:
    """Make a night wait for a person before it is promoted; call it before the night is planned.

    A night that is promoted or reported already, or under review, stays as it is.
    """
    folder = NightFolder(memory.directory, run_id)
    if folder.read(files.REVIEW, Review) or folder.read(files.REPORT, NightReport):
        return
    training = folder.read(files.TRAINING, TrainingReceipt)
    if training is not None and memory.generations.current().number == training.generation:
        return
    folder.write(files.REVIEW, Review())


def mark_in_review(store: Path, ids: Sequence[str], *, keep: bool) -> Review:
    """Keep facts of the waiting night in the store, or take that back; return the review as it is then.

    Raises:
        StoreError: no night waits for review.
        InputError: a fact is not to be evicted by that night; then none is marked.
    """
    waiting = files.waiting_night(store)
    if waiting is None:
        raise StoreError(NOTHING_WAITS)
    folder = NightFolder(store, waiting)
    review = mark_facts(
        folder.required(files.REVIEW, Review), folder.required(files.VERDICT, NightVerdict), ids, keep=keep
    )
    folder.write(files.REVIEW, review)
    return review


def settle_review(memory: ExternalMemory, decision: ReviewDecision) -> NightReport:
    """Accept or reject the night under review as a whole and do what follows; return its report.

    Called again after it was killed, it does the rest. Needs the night lease.

    Raises:
        StoreError: no night is under review, or the store has moved on so that this decision is not possible.
        IntegrityError: the adapter to be promoted is damaged; the night still waits.
    """
    run_id = files.reviewed_night(memory.directory)
    if run_id is None:
        raise StoreError(NOTHING_WAITS)
    folder = NightFolder(memory.directory, run_id)
    plan, verdict = folder.required(files.PLAN, NightPlan), folder.required(files.VERDICT, NightVerdict)
    shadow = memory.generations.get(verdict.generation)
    problem = obstacle(decision, plan, verdict, memory.generations.current().number, shadow)
    if problem is not None:
        raise StoreError(f"the consolidation {run_id} cannot be {decision}: {problem}")
    if decision is ReviewDecision.ACCEPTED:
        memory.generations.adapter_folder(
            verdict.generation
        )  # verified while the night can still be rejected
    review = folder.required(files.REVIEW, Review)
    folder.write(files.REVIEW, review.model_copy(update={"decision": decision}))
    return apply_verdict(memory, plan, folder.read(files.TRAINING, TrainingReceipt), verdict)


def generations_in_review(store: Path) -> set[int]:
    """Return the shadow that waits for a person, as a set; the doctor is not to take it for a killed one."""
    waiting = files.waiting_night(store)
    if waiting is None:
        return set()
    return {NightFolder(store, waiting).required(files.VERDICT, NightVerdict).generation}
