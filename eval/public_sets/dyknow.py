"""DyKnow (Mousavi et al., 2024): who holds an office, plays for a team or leads a company, with dates.

Format: one JSON object, category > subject > property > `questions` and `answers`; some categories have no property.
`questions` are clozes that the answer completes; an answer is `name |S: +date |E: +date`, with 00 for an unknown month
or day, which is read as the first. Not used: other qualifiers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import TYPE_CHECKING, Any

from eval.corpora.agent_names import MONTHS
from eval.public_sets.records import SourceRecord, field_name
from eval.public_sets.wording import after_opening, as_history, worded_fact
from sharpwave.errors import InputError
from sharpwave.records import parse_moment

if TYPE_CHECKING:
    from eval.public_sets.harvest import Harvest
    from eval.public_sets.records import Records

_QUALIFIED = re.compile(r"(?P<name>[^|]*?)\s*(?P<qualifiers>(\|\w+:[^|]*)*)")
_DAY = re.compile(r"\+(\d{4})-(\d{2})-(\d{2})T.*")


@dataclass(frozen=True)
class _Spell:
    """One value with the days between which it held."""

    place: int
    name: str
    start: str
    end: str | None
    since: str

    def overlaps(self, other: _Spell) -> bool:
        # In a year of change the one may end after the other began.
        first, second = sorted((self, other), key=lambda spell: spell.start)
        return first.end is None or int(first.end[:4]) > int(second.start[:4])


def read_dyknow(records: Records, harvest: Harvest) -> None:
    """Read each property of each subject as one history; record numbers count the properties."""
    number = 0
    for whole in harvest.usable(records):
        for names, content in _properties(whole.content, ()):
            number += 1
            parts = content if isinstance(content, dict) else {"content": content}
            record = SourceRecord(number, {"names": list(names), **parts})
            with harvest.rejecting(record):
                _read_history(record, harvest)


def _properties(content: Any, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the objects with questions and answers, and whatever stands where one should."""
    if not isinstance(content, dict) or {"questions", "answers"} & content.keys() or len(names) == 3:
        yield names, content
        return
    for key, below in content.items():
        yield from _properties(below, (*names, key))


def _read_history(record: SourceRecord, harvest: Harvest) -> None:
    category, subject = record.text("names", 0), record.text("names", 1)
    is_team = category.startswith("athletes")
    unnamed = "sports_team" if is_team else "chief_executive_officer"
    relation = record.text("names", 2) if len(record.items("names")) > 2 else unnamed
    clozes = {form: record.text("questions", form) for form in record.keys("questions")}
    statement = clozes.get("contextualized") or next(iter(clozes.values()))
    spells = []
    for place, said in enumerate(record.filled("answers")):
        with harvest.rejecting(record, said):
            spells.append(_spell(record.text("answers", place), place))
    values = []
    for spell in _one_at_a_time(record, spells, harvest):
        with harvest.rejecting(record, record.value("answers", spell.place)):
            values.append(
                worded_fact(
                    after_opening(f"As of {spell.since}, ", f"{statement} {spell.name}."),
                    [question_from_cloze(cloze, "What" if is_team else "Who") for cloze in clozes.values()],
                    spell.name,
                    subject=subject,
                    relation=relation,
                    source=harvest.name,
                    valid_from=parse_moment(spell.start),
                    valid_to=parse_moment(spell.end),
                )
            )
    if values:
        harvest.add(record, as_history(values))


def _spell(said: str, place: int) -> _Spell:
    field = field_name(["answers", place])
    parts = _QUALIFIED.fullmatch(said)
    if parts is None or not parts["name"]:
        raise InputError("expected 'name |S: +date |E: +date'", field=field)
    given = dict(part.split(": ", 1) for part in parts["qualifiers"].split("|") if ": " in part)
    if "S" not in given:
        raise InputError("has no start (S), so it cannot be put in order", field=field)
    start, since = _day(given["S"], field)
    end = _day(given["E"], field)[0] if "E" in given else None
    if end is not None and end < start:
        raise InputError("ends before it starts", field=field)
    return _Spell(place, parts["name"], start, end, since)


def _day(text: str, field: str) -> tuple[str, str]:
    """Return the day as an ISO date and in words; an unknown month or day is the first."""
    parts = _DAY.fullmatch(text.strip())
    try:
        year, month, day = map(int, parts.groups()) if parts else (0, 0, 0)
        known = date(year, month or 1, day or 1)
    except ValueError as error:
        raise InputError(
            f"there is no date {text.strip()!r}; expected +2010-05-31T00:00:00Z", field=field
        ) from error
    words = [str(day) if month and day else "", MONTHS["en"][month - 1] if month else "", str(year)]
    return known.isoformat(), " ".join(filter(None, words))


def _one_at_a_time(record: SourceRecord, spells: list[_Spell], harvest: Harvest) -> list[_Spell]:
    """Return spells that follow each other, equal neighbours joined; those with most overlaps go until none overlap."""
    kept = sorted(spells, key=lambda spell: (spell.start, spell.end or "9999"))
    while True:
        overlaps = [sum(spell.overlaps(other) for other in kept if other is not spell) for spell in kept]
        most = max(overlaps, default=0)
        if most == 0:
            break
        for spell, count in zip(kept, overlaps, strict=True):
            if count == most:
                error = InputError(
                    f"{spell.name!r} held while another value did, and a slot holds one at a time",
                    field=field_name(["answers", spell.place]),
                )
                harvest.reject(record, error, record.value("answers", spell.place))
        kept = [spell for spell, count in zip(kept, overlaps, strict=True) if count < most]
    runs = [list(run) for _, run in groupby(kept, key=lambda spell: spell.name)]
    return [_Spell(run[0].place, run[0].name, run[0].start, run[-1].end, run[0].since) for run in runs]


def question_from_cloze(cloze: str, asks: str) -> str:
    """Turn a sentence without its end into a question.

    >>> question_from_cloze("The mayor of Ulm is", "Who")
    'Who is the mayor of Ulm?'
    >>> question_from_cloze("Ada is currently playing for", "What")
    'Which team is Ada currently playing for?'
    """
    start = cloze[0].lower() + cloze[1:] if cloze.startswith("The ") else cloze
    if cloze.startswith("The name of ") and cloze.endswith(" is"):
        return f"What is {start.removesuffix(' is')}?"
    if cloze.endswith(" is currently held by"):
        return f"By whom is {start.removesuffix(' is currently held by')} currently held?"
    if cloze.endswith(" is currently playing for"):
        return f"Which team is {start.removesuffix(' is currently playing for')} currently playing for?"
    if cloze.endswith(" is"):
        return f"{asks} is {start.removesuffix(' is')}?"
    return f"How does this sentence end? {cloze} ..."
