"""The records every layer shares: facts, decisions, probes, generations, answers.

All are frozen pydantic models that refuse unknown fields, so a typo in a file is an error and not a
silently dropped value. Identity lives here too: `fact_id` is the only place that makes ids.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

Scalar = str | int | float | bool


class Record(BaseModel):
    """Base of all records: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def parse_moment(value: Any) -> Any:
    """Read a year, date or date-time as an aware UTC date-time; pydantic judges other types.

    >>> parse_moment("1999")
    datetime.datetime(1999, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)
    """
    if isinstance(value, bool):
        raise ValueError("expected a year, an ISO date or an ISO date-time, not a truth value")
    if isinstance(value, int):
        value = f"{value:04d}"
    if isinstance(value, str):
        text = value.strip()
        if text.isdigit() and len(text) == 4:
            text = f"{text}-01-01"
        try:
            value = datetime.fromisoformat(text)
        except ValueError as error:
            raise ValueError(f"expected a year, an ISO date or an ISO date-time, not {value!r}") from error
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, datetime):
        try:
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        except OverflowError as error:
            raise ValueError(f"{value} lies outside the years 1 to 9999 in UTC") from error
    return value


Moment = Annotated[datetime, BeforeValidator(parse_moment)]


def utc_now() -> datetime:
    """Return the present moment in UTC."""
    return datetime.now(UTC)


class Slot(Record):
    """What a fact is about: only facts with the same slot in one namespace may supersede each other."""

    subject: str = Field(min_length=1)
    relation: str = Field(min_length=1)


class Fact(Record):
    """One statement, word for word as it came, with whatever is known about it.

    Only `text` is required. `questions` are wordings that `answers` satisfy; `answers[0]` is canonical,
    the rest are aliases. The id is derived from namespace, text, slot and validity.
    """

    text: str = Field(min_length=1)
    namespace: str = Field(default="default", min_length=1)
    slot: Slot | None = None
    questions: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    valid_from: Moment | None = None
    valid_to: Moment | None = None
    observed_at: Moment = Field(default_factory=utc_now)
    source: str | None = None
    metadata: dict[str, Scalar] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.text.strip():
            raise ValueError("text: a fact needs at least one visible character")
        if self.questions and not self.answers:
            raise ValueError("answers: a fact with questions needs at least one answer")
        if self.valid_from and self.valid_to and self.valid_to < self.valid_from:
            raise ValueError("valid_to: lies before valid_from")
        return self

    @property
    def id(self) -> str:
        """Content hash: the same fact twice has the same id."""
        return fact_id(self)

    @property
    def starts_at(self) -> datetime:
        """When the fact began to hold: `valid_from` where given, else the moment it was observed."""
        return self.valid_from or self.observed_at


def fact_id(fact: Fact) -> str:
    """Return the 32-hex-digit content hash of namespace, text, slot and validity."""
    identity = [
        fact.namespace,
        fact.text,
        [fact.slot.subject, fact.slot.relation] if fact.slot else None,
        fact.valid_from.isoformat() if fact.valid_from else None,
        fact.valid_to.isoformat() if fact.valid_to else None,
    ]
    canonical = json.dumps(identity, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()[:32]


class FactStatus(StrEnum):
    """Where a fact stands now; derived from its events."""

    OBSERVED = "observed"  # recorded, not routed yet
    KNOWN = "known"  # routed as non-write: the model answers it by itself
    HOT = "hot"  # in the index
    INTERNALISED = "internalised"  # proven in the weights, out of the index
    SUPERSEDED = "superseded"  # a newer value holds the slot; out of the index
    FORGOTTEN = "forgotten"  # tombstone without text


class EventKind(StrEnum):
    """What can happen to a fact. Payloads never carry words of the fact."""

    OBSERVED = "observed"
    ROUTED = "routed"
    STORED = "stored"
    SUPERSEDED = "superseded"
    TRAINED = "trained"
    PROVEN = "proven"
    EVICTED = "evicted"
    DAMAGED = "damaged"
    READMITTED = "readmitted"
    FORGOTTEN = "forgotten"


class RouteAction(StrEnum):
    """The router's three classes."""

    NON_WRITE = "non_write"
    WRITE_NEW = "write_new"
    WRITE_UPDATE = "write_update"

    @property
    def is_write(self) -> bool:
        """Whether the fact goes to the external store."""
        return self is not RouteAction.NON_WRITE


class RouteStage(StrEnum):
    """Who decided: an exact repeat of a known id, the small or large model, or a policy without a model."""

    REPEAT = "repeat"
    SMALL = "small"
    LARGE = "large"
    POLICY = "policy"


class RouteDecision(Record):
    """What was decided about one fact, and everything needed to say why.

    `evidence` names what the fact offered to judge by, as `routers.features.Evidence`; empty where no model judged.
    """

    fact_id: str
    action: RouteAction
    stage: RouteStage
    p_non_write: float
    p_write_new: float
    p_write_update: float
    expected_gain: float
    gate_value: float | None = None
    storage_price: float
    escalation_price: float
    update_price: float = 1.0
    evidence: str = ""
    router_version: str
    generation: int
    flops: float = 0.0
    reason: str


class ProbeResult(Record):
    """Whether one model answered one prompt form of one fact right."""

    fact_id: str
    generation: int
    prompt_form: str
    matched: bool
    lowest_answer_prob: float
    margin: float
    answer: str | None = None


IN_WEIGHTS = (FactStatus.KNOWN, FactStatus.INTERNALISED)
"""What is not stored, since the weights are to answer it."""


class GenerationStatus(StrEnum):
    """The life of an adapter version."""

    SHADOW = "shadow"
    PROMOTED = "promoted"
    DISCARDED = "discarded"
    ROLLED_BACK = "rolled_back"


class Generation(Record):
    """One version of the parametric memory: the base model plus an adapter. Number 0 is the base alone.

    A generation is retired when its adapter was deleted to save space: it then has no `adapter_path` any more.
    """

    number: int = Field(ge=0)
    parent: int | None
    base_fingerprint: str
    adapter_path: str | None = None
    adapter_digest: str | None = None
    trained_fact_ids: tuple[str, ...] = ()
    gate: dict[str, float] = Field(default_factory=dict)
    status: GenerationStatus
    reason: str = ""
    created_at: Moment = Field(default_factory=utc_now)

    @property
    def is_retired(self) -> bool:
        """Whether its adapter was deleted on purpose."""
        return self.number != 0 and self.adapter_path is None

    @property
    def is_reachable(self) -> bool:
        """Whether the store can go to it: it was promoted once, and is not retired."""
        was_promoted = self.status in (GenerationStatus.PROMOTED, GenerationStatus.ROLLED_BACK)
        return was_promoted and not self.is_retired


class AnswerOrigin(StrEnum):
    """Which carrier gave the answer."""

    STORE = "store"
    WEIGHTS = "weights"


class RecallAnswer(Record):
    """An answer with its provenance: the carrier used and the ids of the facts that were read.

    `tokens_read` counts the tokens of all prompts that were put for it, the shared worked examples left out.
    """

    question: str
    text: str
    origin: AnswerOrigin
    fact_ids: tuple[str, ...] = ()
    similarity: float | None = None
    lowest_token_prob: float
    generation: int
    tokens_read: int = 0
