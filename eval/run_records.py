"""What a run leaves on disk, and how it is written and read.

One schema for demo, benchmark, report, plots and command line. A folder holds `config.json`, `arms.json`,
`consolidations.json`, `steps.jsonl`, `decisions.jsonl`, `answers.jsonl` and, written last, `metrics.json`:
a folder without it is an unfinished run. Lines may be kept gzipped, as `answers.jsonl.gz`.
"""

from __future__ import annotations

import gzip
import os
import re
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from sharpwave.errors import InputError
from sharpwave.records import AnswerOrigin, Moment, RouteDecision, utc_now

if TYPE_CHECKING:
    from collections.abc import Iterable

METRICS_FILE = "metrics.json"
CONFIG_FILE = "config.json"
ARMS_FILE = "arms.json"
CONSOLIDATIONS_FILE = "consolidations.json"
STEPS_FILE = "steps.jsonl"
DECISIONS_FILE = "decisions.jsonl"
ANSWERS_FILE = "answers.jsonl"

SHARPWAVE_ARM = "sharpwave"
FULL_STORE_ARM = "full_store"
FULL_STORE_ARBITER_ARM = "full_store_arbiter"
NO_MEMORY_ARM = "no_memory"
RANDOM_ARM = "random"
NOVELTY_ARM = "novelty"
RECENCY_ARM = "recency"
LLM_JUDGE_ARM = "llm_judge"
SMALL_ROUTER_ARM = "small_router"
LARGE_ROUTER_ARM = "large_router"
CASCADE_ARM = "cascade"
WITHOUT_READMISSION_ARM = "sharpwave_without_readmission"
ORACLE_ADMISSION_ARM = "oracle_admission"
HEADLINE_ARMS = (SHARPWAVE_ARM, FULL_STORE_ARM, NO_MEMORY_ARM, RANDOM_ARM)
ALL_ARMS = (
    *HEADLINE_ARMS,
    FULL_STORE_ARBITER_ARM,
    NOVELTY_ARM,
    RECENCY_ARM,
    LLM_JUDGE_ARM,
    SMALL_ROUTER_ARM,
    LARGE_ROUTER_ARM,
    CASCADE_ARM,
    WITHOUT_READMISSION_ARM,
    ORACLE_ADMISSION_ARM,
)
WEIGHTS_LINE = "sharpwave_weights"
"""Name of a curve, not of an arm: Sharpwave's weights asked without its store."""
ROUTER_ARMS = (SHARPWAVE_ARM, SMALL_ROUTER_ARM, LARGE_ROUTER_ARM, CASCADE_ARM)
"""Arms whose decisions a router takes: for others there is no small model that could escalate."""
SUPERSEDED = "superseded"
"""Kind of the questions that ask, with a date, for a value that a later fact has replaced."""
ABSENT = "absent"
"""Kind of the questions about facts that never arrive: what an arm knows of them it has not from the stream."""

READMITTED = "readmitted"
"""Kind of the questions, at the end of a run, about the facts that nights have put back into the store."""

ReadMode = Literal["real", "oracle", "weights"]
"""Real: what the embedder finds. Oracle: the right fact is handed over if held. Weights: nothing is handed over."""

_CREDENTIALS = re.compile(r"(://[^/:@\s]*):[^/@\s]+@")


class RunRecord(BaseModel):
    """Base of the records of a run: immutable, unknown keys and non-finite numbers refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class StepRecord(RunRecord):
    """Where everything stood after one step of the stream. EM is None where no question was asked."""

    step: int = Field(ge=0)
    n_observed: int = Field(ge=0, description="Facts that have arrived so far, repeats counted.")
    n_distinct: int = Field(ge=0, description="Different facts among them.")
    hot: int = Field(ge=0, description="Facts in the external store.")
    storage_ratio: float
    em: dict[str, float | None] = Field(description="Arm -> EM on this step's questions.")
    em_weights: float | None = Field(
        default=None, description="EM of Sharpwave's weights alone, without its store; None = not asked."
    )
    held: dict[str, int] = Field(default_factory=dict, description="Arm -> facts that it holds.")
    escalation_rate: float
    generation: int = Field(ge=0)
    n_questions: int = Field(ge=0)


class NetBytes(RunRecord):
    """What the memory takes on disk, in bytes."""

    vectors: int = Field(ge=0)
    text: int = Field(ge=0)
    ledger: int = Field(ge=0)
    adapters: int = Field(ge=0)

    @property
    def total(self) -> int:
        """Sum of the parts."""
        return self.vectors + self.text + self.ledger + self.adapters


class ArmFigures(RunRecord):
    """The figures of one arm over the whole stream, with the 95 % interval of its EM; None = means nothing here."""

    name: str
    storage_ratio: float = Field(description="Facts held at the end / distinct facts observed.")
    em: float = Field(description="EM with real retrieval on what holds now.")
    em_low: float
    em_high: float
    f1: float
    n_questions: int = Field(ge=0)
    em_oracle: float | None = Field(
        default=None,
        description="EM where the right fact is handed over if it is held, else the weights answer.",
    )
    recall_at_k: float | None = Field(
        default=None,
        description="Share of the questions about held facts whose notes contain the right fact.",
    )
    tokens_per_question: float | None = Field(
        default=None, description="Tokens read for an answer, shared worked examples left out."
    )
    escalation_rate: float | None = None
    routing_cost_ratio: float | None = None
    routing_seconds: float | None = Field(
        default=None, description="Seconds of model passes per routed fact."
    )
    net_bytes: NetBytes | None = None
    internalised: int | None = None
    damaged: int | None = None
    readmitted: int | None = None


class AnswerRow(RunRecord):
    """One question put to one arm; `group` is the subject, the unit that intervals resample."""

    arm: str
    step: int = Field(ge=0)
    fact_id: str
    question: str
    answer: str = Field(description="The canonical right answer.")
    given: str
    correct: bool
    origin: AnswerOrigin
    f1: float | None = Field(
        default=None, description="Best token F1 over all aliases; None = by `answer` alone."
    )
    group: str | None = None
    kind: str | None = Field(
        default=None, description="Sort of question: known, new, update, superseded, absent, readmitted."
    )
    read: ReadMode = Field(default="real", description="How the arm came by what it answered from.")
    as_of: Moment | None = Field(default=None, description="The day asked about; None = now.")
    found: bool | None = Field(
        default=None,
        description="Whether the notes held the fact asked about; None where the arm holds none.",
    )
    tokens: int | None = Field(
        default=None, ge=0, description="Tokens read, shared worked examples left out."
    )
    confidence: float | None = Field(default=None, ge=0, le=1, description="Lowest answer-token probability.")


class FactLine(RunRecord):
    """One fact as a line of the report, with what the model answered before and after."""

    fact_id: str
    text: str
    question: str | None = None
    answer: str | None = None
    model_answer_before: str | None = None
    model_answer_after: str | None = None
    reason: str = ""


class ConsolidationSummary(RunRecord):
    """What one consolidation did. The counts are of everything, the lists may be shortened by the writer."""

    run_id: str
    step: int | None = Field(default=None, ge=0, description="The step after which it ran.")
    generation: int | None = Field(description="Number of the trained generation; None if none was.")
    parent: int
    status: str = Field(description="promoted, discarded, skipped ...")
    reason: str = ""
    selected: int = Field(default=0, ge=0)
    internalised: int = Field(default=0, ge=0)
    evicted: int = Field(default=0, ge=0)
    damaged: int = Field(default=0, ge=0)
    readmitted: int = Field(default=0, ge=0)
    stable_probed: int = Field(default=0, ge=0)
    internalised_facts: tuple[FactLine, ...] = ()
    evicted_facts: tuple[FactLine, ...] = ()
    damaged_facts: tuple[FactLine, ...] = ()
    readmitted_facts: tuple[FactLine, ...] = ()
    rejected: tuple[FactLine, ...] = Field(
        default=(), description="Selected facts that were not internalised, each with the reason."
    )
    scale: float | None = Field(default=None, description="Scale at which the adapter was kept.")
    train_seconds: float = 0.0
    supervised_tokens: int = Field(default=0, ge=0)
    em_before: float | None = None
    em_after: float | None = None
    gate: dict[str, float] = Field(default_factory=dict)


class RunMetrics(RunRecord):
    """The headline figures of a run: the content of `metrics.json`."""

    n_facts: int = Field(ge=0, description="Distinct facts observed.")
    n_questions: int = Field(ge=0)
    storage_ratio: float
    storage_ratio_before_consolidation: float
    em: float
    em_low: float
    em_high: float
    em_full_store: float
    em_full_store_low: float
    em_full_store_high: float
    em_no_memory: float
    em_no_memory_low: float
    em_no_memory_high: float
    em_random: float
    em_random_low: float
    em_random_high: float
    em_random_storage_ratio: float
    em_retention: float
    em_retention_low: float
    em_retention_high: float
    escalation_rate: float
    routing_cost_ratio: float
    selected: int = Field(ge=0)
    internalised: int = Field(ge=0)
    evicted: int = Field(ge=0)
    damaged: int = Field(ge=0)
    readmitted: int = Field(ge=0)
    stable_probed: int = Field(ge=0)
    damage_rate: float
    gate_damage_rate: float = Field(
        description="Damaged share of the gate questions, which no training sees, over the promoted nights."
    )
    em_before_consolidation: float
    em_after_consolidation: float
    net_bytes: NetBytes
    wall_seconds: float
    seed: int
    profile: str


class RunConfig(RunRecord):
    """What the run was made with. Passwords inside URLs are masked on construction."""

    run_id: str
    digest: str = Field(description="SHA-256 of the resolved settings.")
    resolved: dict[str, Any]
    origins: dict[str, str] = Field(default_factory=dict, description="Setting -> file, override or default.")
    seeds: tuple[int, ...]
    models: dict[str, str] = Field(default_factory=dict, description="Role -> model fingerprint.")
    created_at: Moment = Field(default_factory=utc_now)

    @model_validator(mode="before")
    @classmethod
    def _mask(cls, data: Any) -> Any:
        if isinstance(data, dict) and "resolved" in data:
            return data | {"resolved": _masked(data["resolved"])}
        return data


class Run(RunRecord):
    """A whole run in memory."""

    config: RunConfig
    metrics: RunMetrics
    arms: tuple[ArmFigures, ...]
    steps: tuple[StepRecord, ...]
    consolidations: tuple[ConsolidationSummary, ...] = ()
    decisions: tuple[RouteDecision, ...] = ()
    answers: tuple[AnswerRow, ...] = ()

    @model_validator(mode="after")
    def _one_figure_per_arm(self) -> Self:
        names = [arm.name for arm in self.arms]
        if len(names) != len(set(names)):
            raise ValueError("arms: an arm is listed twice")
        return self


_Row = TypeVar("_Row", bound=BaseModel)
_ARMS = TypeAdapter(tuple[ArmFigures, ...])
_CONSOLIDATIONS = TypeAdapter(tuple[ConsolidationSummary, ...])


def write_run(folder: Path, run: Run) -> Path:
    """Write the run into the folder, made if missing, and return the folder.

    Every file is replaced as a whole. The old `metrics.json` goes first and the new one comes last, so a
    process killed in between leaves an unfinished run that `read_run` refuses, never a mixed one. Other
    files in the folder are left alone. Not safe against two writers of one folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / METRICS_FILE).unlink(missing_ok=True)
    write_atomically(folder / CONFIG_FILE, _json(run.config))
    write_atomically(folder / ARMS_FILE, _ARMS.dump_json(run.arms, indent=2) + b"\n")
    write_atomically(
        folder / CONSOLIDATIONS_FILE, _CONSOLIDATIONS.dump_json(run.consolidations, indent=2) + b"\n"
    )
    write_atomically(folder / STEPS_FILE, _json_lines(run.steps))
    write_atomically(folder / DECISIONS_FILE, _json_lines(run.decisions))
    write_atomically(folder / ANSWERS_FILE, _json_lines(run.answers))
    write_atomically(folder / METRICS_FILE, _json(run.metrics))
    return folder


def read_run(folder: Path) -> Run:
    """Read a run back.

    Raises:
        InputError: the folder is no run or an unfinished one, or a file is damaged; names file and line.
    """
    if not (folder / METRICS_FILE).is_file():
        why = "an unfinished run" if (folder / CONFIG_FILE).is_file() else "not the folder of a run"
        raise InputError(f"{why}: {METRICS_FILE} is missing", file=str(folder))
    try:
        return Run(
            config=_read(folder / CONFIG_FILE, TypeAdapter(RunConfig)),
            metrics=_read(folder / METRICS_FILE, TypeAdapter(RunMetrics)),
            arms=_read(folder / ARMS_FILE, _ARMS),
            steps=_read_lines(folder / STEPS_FILE, StepRecord),
            consolidations=_read(folder / CONSOLIDATIONS_FILE, _CONSOLIDATIONS),
            decisions=_read_lines(folder / DECISIONS_FILE, RouteDecision),
            answers=_read_lines(folder / ANSWERS_FILE, AnswerRow),
        )
    except ValidationError as error:
        raise InputError(error.errors()[0]["msg"], file=str(folder)) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file as a whole: readers see the old content or the new, also after a crash."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _json(record: BaseModel) -> bytes:
    return record.model_dump_json(indent=2).encode("utf-8") + b"\n"


def _json_lines(records: Iterable[BaseModel]) -> bytes:
    return b"".join(record.model_dump_json().encode("utf-8") + b"\n" for record in records)


_Content = TypeVar("_Content")


def _read(path: Path, adapter: TypeAdapter[_Content]) -> _Content:
    return _parsed(path, _bytes(path), adapter, line=None)


def _read_lines(path: Path, kind: type[_Row]) -> tuple[_Row, ...]:
    """Split at line feeds only: U+2028 and its like may stand inside a fact."""
    adapter = TypeAdapter(kind)
    lines = _bytes(path).split(b"\n")
    return tuple(
        _parsed(path, line, adapter, line=number)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    )


def _bytes(path: Path) -> bytes:
    """Read a file, or the gzipped one beside its place if that alone is there."""
    packed = path.with_name(f"{path.name}.gz")
    try:
        if packed.is_file() and not path.exists():
            return gzip.decompress(packed.read_bytes())
        return path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"cannot be read: {getattr(error, 'strerror', None) or error}", file=str(path)
        ) from error


def _parsed(path: Path, content: bytes, adapter: TypeAdapter[_Content], line: int | None) -> _Content:
    try:
        return adapter.validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or None
        raise InputError(first["msg"], file=str(path), line=line, field=field) from error


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _masked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item) for item in value]
    if isinstance(value, str):
        return _CREDENTIALS.sub(r"\1:***@", value)
    return value
