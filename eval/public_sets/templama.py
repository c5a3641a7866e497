"""TempLAMA (Dhingra et al., 2022) and files like it: who held what in which year.

Format: JSON Lines (also under the name .json), one line per slot and year. Read: `query` (a cloze with `_X_`), `answer`
(an object with `name`, or a list of them: all are right in that year), `date` (the year), `relation`. Lines that follow
each other with the same answers are one value, which begins with its first year; the last year of a file ends nothing.
Not used: `id`, `most_recent_answer`, `most_frequent_answer`, Wikidata ids.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from eval.public_sets.wording import as_history, related_fact, wording_of
from sharpwave.errors import InputError
from sharpwave.records import parse_moment

if TYPE_CHECKING:
    from eval.corpora.corpus import CorpusFact
    from eval.public_sets.harvest import Harvest
    from eval.public_sets.records import Records, SourceRecord

_CLOZES = {
    "P6": "_X_ is the head of the government of {s}.",
    "P39": "{s} holds the position of _X_.",
    "P54": "{s} plays for _X_.",
    "P69": "{s} attended _X_.",
    "P102": "{s} is a member of the _X_.",
    "P108": "{s} works for _X_.",
    "P127": "{s} is owned by _X_.",
    "P286": "_X_ is the head coach of {s}.",
    "P488": "_X_ is the chair of {s}.",
}


@dataclass(frozen=True)
class _Year:
    record: SourceRecord
    subject: str
    relation: str
    year: int
    answers: tuple[str, ...]


def read_templama(records: Records, harvest: Harvest) -> None:
    """Read the lines of each subject and relation as one history."""
    slots: defaultdict[tuple[str, str], list[_Year]] = defaultdict(list)
    for record in harvest.usable(records):
        with harvest.rejecting(record):
            line = _year(record)
            slots[line.subject, line.relation].append(line)
    last_year = max((line.year for lines in slots.values() for line in lines), default=0)
    for lines in slots.values():
        with harvest.rejecting(lines[0].record):
            lines.sort(key=lambda line: line.year)
            if len({line.year for line in lines}) < len(lines):
                raise InputError("two lines give the values of one year; leave one of them", field="date")
            runs = [list(run) for _, run in groupby(lines, key=lambda line: line.answers)]
            harvest.add(
                lines[0].record, as_history([_run_fact(run, last_year, harvest.name) for run in runs])
            )


def _year(record: SourceRecord) -> _Year:
    relation, query, date = (record.text(key) for key in ("relation", "query", "date"))
    if relation not in _CLOZES:
        raise InputError(f"is {relation!r}; known are {', '.join(_CLOZES)}", field="relation")
    before, _, after = _CLOZES[relation].partition("{s}")
    if not (query.startswith(before) and query.endswith(after) and len(query) > len(before + after)):
        raise InputError(f"does not have the form {_CLOZES[relation]!r}", field="query")
    if not re.fullmatch(r"\d{4}", date):
        raise InputError("expected a year of four digits", field="date")
    subject = query[len(before) : len(query) - len(after)]
    return _Year(record, subject, relation, int(date), _names(record))


def _names(record: SourceRecord) -> tuple[str, ...]:
    if isinstance(record.value("answer"), dict):
        return (record.text("answer", "name"),)
    return tuple(record.text("answer", place, "name") for place in range(len(record.filled("answer"))))


def _run_fact(run: Sequence[_Year], last_year: int, source: str) -> CorpusFact:
    first, last = run[0], run[-1]
    return related_fact(
        wording_of(first.relation, "relation"),
        first.subject,
        first.answers[0],
        first.answers[1:],
        source=source,
        opening=f"As of {first.year}, ",
        valid_from=parse_moment(first.year),
        valid_to=parse_moment(f"{last.year}-12-31") if last.year < last_year else None,
    )
