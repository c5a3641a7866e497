"""What a reader gathers from a set: facts, changes, and the records it could not use.

Readers add histories (the values of one slot, oldest first) and reject; what several records say about one slot is
settled at the end.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from eval.corpora.corpus import OBSERVED_AT
from eval.corpora.updates import Origin, UpdatePair
from eval.public_sets.records import BrokenRecord, Records, SourceRecord
from sharpwave.errors import InputError
from sharpwave.fact_parsing import clean_text
from sharpwave.matching import normalise_answer

if TYPE_CHECKING:
    from eval.corpora.corpus import CorpusFact
    from sharpwave.records import Slot


@dataclass(frozen=True)
class RejectedRecord:
    """A record, or a part of one, that gave no fact: its number, the field at fault, and what to do."""

    number: int
    field: str | None
    reason: str
    original: str

    def to_json(self) -> dict[str, Any]:
        """Return plain data; keys as in a rejects file of facts, with the number of the record for the line."""
        return {
            "record": self.number,
            "error": clean_text(self.reason)[0],
            "field": self.field,
            "original": clean_text(self.original)[0],
        }


@dataclass(frozen=True)
class PublicSet:
    """A set as it was read.

    `facts` holds every value, each older one before the newer; `updates` pairs the values of one slot that follow each
    other; `repeats` counts records that said what an earlier one had said.
    """

    name: str
    facts: tuple[CorpusFact, ...]
    updates: tuple[UpdatePair, ...]
    rejects: tuple[RejectedRecord, ...]
    repeats: int


@dataclass(frozen=True)
class _History:
    number: int
    original: str
    values: tuple[CorpusFact, ...]
    origin: Origin

    @property
    def slot(self) -> Slot:
        return self.values[0].slot

    @property
    def said(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (normalise_answer(item.fact.answers[0]), str(item.fact.valid_from)) for item in self.values
        )


class Harvest:
    """Collects what the reader of one set finds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._histories: list[_History] = []
        self._rejects: list[RejectedRecord] = []

    def usable(self, records: Records) -> Iterator[SourceRecord]:
        """Yield the records that are objects; reject the others."""
        for record in records:
            if isinstance(record, BrokenRecord):
                self._rejects.append(RejectedRecord(record.number, None, record.reason, record.original))
            else:
                yield record

    @contextmanager
    def rejecting(self, record: SourceRecord, part: Any = None) -> Iterator[None]:
        """Turn an `InputError` of the block into a reject of the record, or of the given part of it."""
        try:
            yield
        except InputError as error:
            self.reject(record, error, part)

    def reject(self, record: SourceRecord, error: InputError, part: Any = None) -> None:
        """Note that the record, or a part of it, gave no fact."""
        place = str(InputError("", file=error.file, line=error.line, field=error.field))
        reason = str(error).removeprefix(place)
        self._rejects.append(RejectedRecord(record.number, error.field, reason, _as_text(record, part)))

    def add(
        self,
        record: SourceRecord,
        values: Sequence[CorpusFact],
        *,
        origin: Origin = "real",
        part: Any = None,
    ) -> None:
        """Take the values of one slot, oldest first; several are a history of changes of the given origin.

        Raises:
            InputError: A value is the same as the one before it.
        """
        for old, new in pairwise(values):
            if normalise_answer(old.fact.answers[0]) == normalise_answer(new.fact.answers[0]):
                raise InputError(f"the newer value {new.fact.answers[0]!r} is the same as the older")
        self._histories.append(
            _History(record.number, _as_text(record, part), _in_order(values), origin),
        )

    def result(self) -> PublicSet:
        """Return the set; a slot for which records give different values is rejected whole."""
        by_slot: defaultdict[tuple[str, str], list[_History]] = defaultdict(list)
        for history in self._histories:
            by_slot[history.slot.subject, history.slot.relation].append(history)
        kept, repeats, rejects = [], 0, list(self._rejects)
        for histories in by_slot.values():
            if len({history.said for history in histories}) > 1:
                rejects += map(_ambiguous, histories)
                continue
            kept.append(histories[0])
            repeats += len(histories) - 1
        return PublicSet(
            self.name,
            tuple(item for history in kept for item in history.values),
            tuple(
                UpdatePair(old, new, history.origin)
                for history in kept
                for old, new in pairwise(history.values)
            ),
            tuple(sorted(rejects, key=lambda reject: reject.number)),
            repeats,
        )


def _in_order(values: Iterable[CorpusFact]) -> tuple[CorpusFact, ...]:
    """Stamp each value a day after the one before it, so that the newest is the present one without dates, too."""
    return tuple(
        replace(item, fact=item.fact.model_copy(update={"observed_at": OBSERVED_AT + timedelta(days=place)}))
        for place, item in enumerate(values)
    )


def _as_text(record: SourceRecord, part: Any) -> str:
    if isinstance(part, str):
        return part
    return json.dumps(record.content if part is None else part, ensure_ascii=False, default=str)


def _ambiguous(history: _History) -> RejectedRecord:
    reason = (
        f"several records give {history.slot.subject!r} different values of {history.slot.relation!r}; "
        "leave one of them in the file"
    )
    return RejectedRecord(history.number, None, reason, history.original)
