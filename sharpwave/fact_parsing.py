"""An object with a fact's keys becomes a `Fact`: one boundary for files, REST, MCP and the command line.

What can be mended without touching the meaning (NUL characters, lone surrogates) is mended and noted;
everything else is refused with the field and what to do about it.
"""

from __future__ import annotations

import difflib
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic import ValidationError

from sharpwave.errors import InputError
from sharpwave.records import Fact, Slot

DEFAULT_MAX_FACT_CHARS = 8000

FACT_KEYS = (
    "text",
    "question",
    "questions",
    "answer",
    "answers",
    "aliases",
    "subject",
    "relation",
    "slot",
    "valid_from",
    "valid_to",
    "observed_at",
    "source",
    "namespace",
    "metadata",
)
"""Every key that a fact may have; only `text` is required."""

_LARGEST_INTEGER = 2**63 - 1  # what the ledger and the index can hold


@dataclass(frozen=True)
class CleanFact:
    """A fact, and what was changed in the input so that it could be taken."""

    fact: Fact
    changes: tuple[str, ...] = ()


def clean_text(text: str) -> tuple[str, tuple[str, ...]]:
    r"""Return the text without NUL characters and lone surrogates, and a note for each kind of change.

    Neither can be stored: databases cut at NUL, and a lone surrogate has no UTF-8 form.

    >>> clean_text("a\x00b")
    ('ab', ('1 NUL character removed',))
    """
    changes = []
    if nul_count := text.count("\x00"):
        text = text.replace("\x00", "")
        changes.append(f"{nul_count} NUL character{'s' if nul_count > 1 else ''} removed")
    mended = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    if mended != text:
        lone_count = sum(old != new for old, new in zip(text, mended, strict=True))
        changes.append(f"{lone_count} lone surrogate{'s' if lone_count > 1 else ''} replaced by U+FFFD")
    return mended, tuple(changes)


def fact_from_mapping(
    content: Mapping[str, Any],
    *,
    namespace: str = "default",
    max_fact_chars: int = DEFAULT_MAX_FACT_CHARS,
    file: str | None = None,
    line: int | None = None,
) -> CleanFact:
    """Check an object with the keys of `FACT_KEYS` and make a fact of it.

    Args:
        content: parsed JSON.
        namespace: where the fact belongs unless `content` says otherwise.
        max_fact_chars: longest text, question or answer accepted, in characters.
        file: named in errors.
        line: named in errors.

    Raises:
        InputError: unknown key, wrong type, empty or over-long text, parts that contradict each other.
    """
    fields = _Fields(content, max_fact_chars, file, line)
    fields.refuse_unknown(content, FACT_KEYS)
    text = fields.string("text")
    if text is None:
        fields.fail("text", 'is missing; a fact needs at least {"text": "..."}')
    values: dict[str, Any] = {
        "text": text,
        "namespace": fields.string("namespace") or namespace,
        "slot": fields.slot(),
        "questions": fields.strings("question", "questions"),
        "answers": fields.answers(),
        "source": fields.string("source"),
        "metadata": fields.metadata(),
    }
    for key in ("valid_from", "valid_to", "observed_at"):
        moment = fields.moment(key)
        if moment is not None:
            values[key] = moment
    if values["questions"] and not values["answers"]:
        fields.fail("answer", "is missing; a question needs at least one answer")
    try:
        return CleanFact(Fact.model_validate(values), tuple(fields.changes))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        message = problem["msg"].removeprefix("Value error, ")
        field, _, rest = message.partition(": ")
        if problem["loc"]:
            field, rest = str(problem["loc"][0]), message
        fields.fail(field, rest)


class _Fields:
    """The values of one object, taken out key by key; notes every change and fails with a full address."""

    def __init__(
        self, content: Mapping[str, Any], max_chars: int, file: str | None, line: int | None
    ) -> None:
        self.content = content
        self.max_chars = max_chars
        self.file = file
        self.line = line
        self.changes: list[str] = []

    def fail(self, field: str, message: str) -> NoReturn:
        raise InputError(message, file=self.file, line=self.line, field=field)

    def refuse_unknown(self, content: Mapping[str, Any], known: Sequence[str], prefix: str = "") -> None:
        for key in content:
            if key in known:
                continue
            name = clean_text(f"{prefix}{key}"[:80])[0]
            near = difflib.get_close_matches(str(key).lower(), known, n=1, cutoff=0.6)
            hint = (
                f"did you mean '{prefix}{near[0]}'?"
                if near
                else f"known are {', '.join(known)}; put anything else under metadata"
            )
            self.fail(name, f"unknown key; {hint}")

    def string(self, key: str) -> str | None:
        value = self.content.get(key)
        return None if value is None else self._checked(key, value)

    def strings(self, singular: str, plural: str) -> tuple[str, ...]:
        one, many = self.content.get(singular), self.content.get(plural)
        if one is not None and many is not None:
            self.fail(plural, f"give either '{singular}' or '{plural}', not both")
        if one is not None:
            if isinstance(one, list):
                self.fail(singular, f"expected text, not a list; use '{plural}' for a list")
            return (self._checked(singular, one),)
        return self._list(plural)

    def answers(self) -> tuple[str, ...]:
        answers = self.strings("answer", "answers")
        aliases = self._list("aliases")
        if aliases and not answers:
            self.fail("aliases", "need an 'answer' that they are other forms of")
        return tuple(dict.fromkeys((*answers, *aliases)))

    def slot(self) -> Slot | None:
        inner = self.content.get("slot")
        loose = [key for key in ("subject", "relation") if self.content.get(key) is not None]
        if inner is None:
            return self._slot_from(self, "", loose) if loose else None
        if loose:
            self.fail(loose[0], "give either 'slot' or 'subject' and 'relation', not both")
        if not isinstance(inner, Mapping):
            self.fail("slot", f"expected an object with subject and relation, not {_kind(inner)}")
        self.refuse_unknown(inner, ("subject", "relation"), "slot.")
        below = _Fields(inner, self.max_chars, self.file, self.line)
        slot = self._slot_from(below, "slot.", [key for key in inner if inner[key] is not None])
        self.changes += below.changes
        return slot

    def moment(self, key: str) -> Any:
        value = self.content.get(key)
        if isinstance(value, str):
            return self._checked(key, value)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            self.fail(key, f"expected a year, an ISO date or an ISO date-time, not {_kind(value)}")
        return value

    def metadata(self) -> dict[str, str | int | float | bool]:
        given = self.content.get("metadata")
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            self.fail("metadata", f"expected an object, not {_kind(given)}")
        kept: dict[str, str | int | float | bool] = {}
        for raw_key, value in given.items():
            key = clean_text(str(raw_key))[0]
            if value is None:
                self.changes.append(f"metadata.{key}: null left out")
            else:
                kept[key] = self._scalar(f"metadata.{key}", value)
        return kept

    def _scalar(self, field: str, value: Any) -> str | int | float | bool:
        if isinstance(value, str):
            return self._cleaned(field, value)
        if not isinstance(value, int | float):  # truth values are integers
            self.fail(field, f"expected text, a number or a truth value, not {_kind(value)}")
        if abs(value) > _LARGEST_INTEGER if isinstance(value, int) else not math.isfinite(value):
            self.fail(field, "the number is too large or not finite; give it as text")
        return value

    def _list(self, key: str) -> tuple[str, ...]:
        value = self.content.get(key)
        if value is None:
            return ()
        if isinstance(value, str) or not isinstance(value, list | tuple):
            self.fail(key, f"expected a list of texts, not {_kind(value)}")
        items = (self._checked(f"{key}[{place}]", item) for place, item in enumerate(value))
        return tuple(dict.fromkeys(items))

    def _slot_from(self, fields: _Fields, prefix: str, given: Sequence[str]) -> Slot:
        for key in ("subject", "relation"):
            if key not in given:
                self.fail(f"{prefix}{key}", "is missing; a slot needs both subject and relation")
        subject, relation = fields.string("subject"), fields.string("relation")
        assert subject is not None
        assert relation is not None
        return Slot(subject=subject, relation=relation)

    def _checked(self, field: str, value: Any) -> str:
        """Return the cleaned text, or fail on another type, on nothing visible and on too much."""
        if not isinstance(value, str):
            hint = ": put it in quotes" if isinstance(value, int | float) else ""
            self.fail(field, f"expected text, not {_kind(value)}{hint}")
        text = self._cleaned(field, value)
        if not any(unicodedata.category(c)[0] not in "ZC" for c in text):
            self.fail(field, "is empty; give it visible text or leave the line or key out")
        return text

    def _cleaned(self, field: str, value: str) -> str:
        text, changes = clean_text(value)
        self.changes += [f"{field}: {change}" for change in changes]
        if len(text) > self.max_chars:
            advice = "split it into several facts" if field == "text" else "shorten it"
            self.fail(
                field,
                f"is {len(text)} characters long and the limit is {self.max_chars} "
                f"(setting max_fact_chars): {advice}",
            )
        return text


def _kind(value: Any) -> str:
    """Name a JSON value's type in words."""
    kinds = ((bool, "a truth value"), (int | float, "a number"), (str, "text"), (Mapping, "an object"))
    if value is None:
        return "null"
    return next((name for kind, name in kinds if isinstance(value, kind)), "a list")
