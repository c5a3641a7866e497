"""The files of a stream run, so that a killed run goes on at the step it was in.

<run>/stream/layout.json         of which size and seed the stream is, and which facts it lacks
<run>/stream/facts-01.jsonl      what arrives in step 1, in the format that `sharpwave ingest` reads
<run>/stream/questions-01.jsonl  what is asked after it
<run>/stream/answers-01.jsonl    what every arm answered; -before-night, -after-night: the memory alone;
                                 -put-back: two arms, about what nights put back into the store
<run>/stream/step-01.json        where everything stood
<run>/stream/seconds.json        what the run has taken so far, over all the times that it was taken up
<run>/arms/NAME/answers-01.jsonl what one arm answered, and step-01.json how it stood, until the step is finished
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, Field, TypeAdapter

from eval.reading import AskedQuestion, present_questions
from eval.run_records import AnswerRow, NetBytes, StepRecord, write_atomically
from eval.streams import StreamStep
from sharpwave.records import Fact, Record

RunPart = Literal["layout", "steps", "nights"]
_SECONDS = TypeAdapter(dict[RunPart, float])
_M = TypeVar("_M", bound=BaseModel)


class RoutingCost(Record):
    """What deciding about the facts of one step cost one arm.

    `large_only_flops` is what the large router alone would have cost for the same facts; `seconds` went by for `timed`
    of the `routed` facts.
    """

    routed: int
    escalated: int
    flops: float
    large_only_flops: float
    seconds: float
    timed: int


class StreamLayout(Record):
    """What a stream was laid out as: `facts` is the SHA-256 of the file it was made of, `missing` what it lacked."""

    size: str
    seed: int
    facts: str | None = None
    missing: dict[str, int] = Field(default_factory=dict)


class ArmStep(Record):
    """How an arm stood when it was asked after a step; `cost` is None where nothing decides."""

    held: int
    net_bytes: NetBytes | None = None
    cost: RoutingCost | None = None


class StreamFiles:
    """Paths, readers and writers of one stream run."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.folder = run / "stream"

    def facts_file(self, step: int) -> Path:
        """What arrives in a step."""
        return self.folder / f"facts-{step + 1:02d}.jsonl"

    @property
    def step_count(self) -> int:
        """Steps that have been laid out; 0 before."""
        return len(list(self.folder.glob("questions-*.jsonl")))

    def layout(self) -> StreamLayout | None:
        """Return what the stream was laid out as, None before."""
        path = self.folder / "layout.json"
        return StreamLayout.model_validate_json(path.read_bytes()) if path.exists() else None

    def lay_out(self, stream: Sequence[StreamStep], layout: StreamLayout) -> None:
        """Write the facts and questions of every step and then the layout, so a stream is whole or missing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for step in stream:
            _write_lines(self.facts_file(step.index), step.facts)
            asked = [
                AskedQuestion(
                    fact_id=question.fact_id,
                    question=question.question,
                    answers=question.answers,
                    kind=question.sort,
                    group=question.group,
                    as_of=question.as_of,
                )
                for question in step.questions
            ]
            _write_lines(self._questions(step.index), asked)
        write_atomically(self.folder / "layout.json", layout.model_dump_json(indent=2).encode())

    def arrived(self, step: int) -> list[Fact]:
        """Return what arrives in a step, in order."""
        return _read_lines(self.facts_file(step), Fact)

    def arrivals(self, steps: int) -> list[Fact]:
        """Return what arrives in the first `steps` steps, in order, repeats included."""
        return [fact for step in range(steps) for fact in self.arrived(step)]

    def facts(self, steps: int) -> list[Fact]:
        """Return the distinct facts of the first `steps` steps, in order of first arrival."""
        found: dict[str, Fact] = {}
        for fact in self.arrivals(steps):
            found.setdefault(fact.id, fact)
        return list(found.values())

    def questions(self, step: int) -> list[AskedQuestion]:
        """Return what is asked after a step."""
        return _read_lines(self._questions(step), AskedQuestion)

    def questions_by_fact(self) -> dict[str, list[AskedQuestion]]:
        """Return all questions of the stream about what holds when they are asked, by the fact they ask about."""
        found: dict[str, list[AskedQuestion]] = {}
        for step in range(self.step_count):
            for asked in present_questions(self.questions(step)):
                found.setdefault(asked.fact_id, []).append(asked)
        return found

    def arm_step(self, arm: str, step: int) -> ArmStep | None:
        """Return how an arm stood at a step, None if it has not been asked yet."""
        path = self._arm_folder(arm) / f"step-{step + 1:02d}.json"
        return ArmStep.model_validate_json(path.read_bytes()) if path.exists() else None

    def arm_answers(self, arm: str, step: int) -> list[AnswerRow]:
        """Return what an arm answered at a step."""
        return _read_lines(self._arm_folder(arm) / f"answers-{step + 1:02d}.jsonl", AnswerRow)

    def finish_arm(self, arm: str, step: int, stood: ArmStep, rows: Sequence[AnswerRow]) -> None:
        """Keep an arm's answers at a step and then how it stood."""
        folder = self._arm_folder(arm)
        folder.mkdir(parents=True, exist_ok=True)
        _write_lines(folder / f"answers-{step + 1:02d}.jsonl", rows)
        write_atomically(folder / f"step-{step + 1:02d}.json", stood.model_dump_json(indent=2).encode())

    def record(self, step: int) -> StepRecord | None:
        """Return the record of a step, None if it has not been finished."""
        path = self.folder / f"step-{step + 1:02d}.json"
        return StepRecord.model_validate_json(path.read_bytes()) if path.exists() else None

    def finish_step(self, record: StepRecord, rows: Sequence[AnswerRow]) -> None:
        """Keep the answers and then the record of a step."""
        _write_lines(self.answers_file(record.step), rows)
        path = self.folder / f"step-{record.step + 1:02d}.json"
        write_atomically(path, record.model_dump_json(indent=2).encode())

    def answers_file(self, step: int, suffix: str = "") -> Path:
        """What the arms answered after a step; with the suffix `-before-night`, the memory alone, on all so far."""
        return self.folder / f"answers-{step + 1:02d}{suffix}.jsonl"

    def answers(self, step: int, suffix: str = "") -> list[AnswerRow]:
        """Return the answers of a step; none if they were not asked."""
        path = self.answers_file(step, suffix)
        return _read_lines(path, AnswerRow) if path.exists() else []

    def write_answers(self, step: int, rows: Sequence[AnswerRow], suffix: str) -> None:
        """Keep answers outside a step's own."""
        _write_lines(self.answers_file(step, suffix), rows)

    def spent(self) -> dict[RunPart, float]:
        """Return the seconds that each part of the run has taken so far; what a kill cut short is not counted."""
        path = self._seconds()
        return _SECONDS.validate_json(path.read_bytes()) if path.exists() else {}

    def spend(self, part: RunPart, seconds: float) -> None:
        """Add to what a part of the run has taken."""
        self.folder.mkdir(parents=True, exist_ok=True)
        spent = self.spent()
        spent[part] = spent.get(part, 0.0) + seconds
        write_atomically(self._seconds(), _SECONDS.dump_json(spent))

    def _seconds(self) -> Path:
        return self.folder / "seconds.json"

    def _arm_folder(self, arm: str) -> Path:
        return self.run / "arms" / arm

    def _questions(self, step: int) -> Path:
        return self.folder / f"questions-{step + 1:02d}.jsonl"


@contextmanager
def timed(files: StreamFiles, part: RunPart) -> Iterator[None]:
    """Add what this block takes to what the part has taken, also where it fails."""
    started = time.monotonic()
    try:
        yield
    finally:
        files.spend(part, time.monotonic() - started)


def minutes_left(
    spent: Mapping[RunPart, float], steps: tuple[int, int], nights: tuple[int, int]
) -> float | None:
    """Return how long the rest of a run takes if it goes on as before; None while nothing tells how long a night is.

    Args:
        spent: Seconds so far, of each part.
        steps: Steps that are done, and all of them.
        nights: Nights that are done, and all of them.
    """
    left = 0.0
    parts: dict[RunPart, tuple[int, int]] = {"steps": steps, "nights": nights}
    for part, (done, planned) in parts.items():
        if planned > done:
            if not done:
                return None
            left += spent.get(part, 0.0) / done * (planned - done)
    return left / 60


def _write_lines(path: Path, records: Iterable[BaseModel]) -> None:
    text = "".join(record.model_dump_json(exclude_none=True) + "\n" for record in records)
    write_atomically(path, text.encode("utf-8"))


def _read_lines(path: Path, kind: type[_M]) -> list[_M]:
    adapter = TypeAdapter(kind)
    return [adapter.validate_json(line) for line in path.read_bytes().split(b"\n") if line.strip()]
