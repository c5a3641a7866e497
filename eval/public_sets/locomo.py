"""LoCoMo (Maharana et al., 2024): what two people told each other, and questions about it.

Format: a JSON array of conversations (or one of them). Read: `sample_id`; in `conversation` the turns (`speaker`,
`dia_id`, `text`) of `session_1` and so on, and `session_1_date_time`; in `qa` each `question`, `answer`, `category` and
`evidence`. A question becomes a fact of the turns that its evidence names, word for word, if the answer stands in them.
So questions that need reckoning or guessing give none, and those of category 5, which have no answer, neither.
Not used: observations, summaries, events, pictures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from eval.public_sets.records import field_name
from eval.public_sets.wording import worded_fact
from sharpwave.errors import InputError

if TYPE_CHECKING:
    from eval.corpora.corpus import CorpusFact
    from eval.public_sets.harvest import Harvest
    from eval.public_sets.records import Records, SourceRecord

_WITHOUT_ANSWER = "5"


@dataclass(frozen=True)
class _Turn:
    session: str
    speaker: str
    text: str


def read_locomo(records: Records, harvest: Harvest) -> None:
    """Read each question of each conversation as a fact, if what was said holds the answer."""
    for record in harvest.usable(records):
        with harvest.rejecting(record):
            turns = _turns(record, harvest)
            for place, asked in enumerate(record.filled("qa")):
                with harvest.rejecting(record, asked):
                    harvest.add(record, [_fact(record, place, turns, harvest.name)], part=asked)


def _turns(record: SourceRecord, harvest: Harvest) -> dict[str, _Turn]:
    """Return the turns with words, by their id."""
    record.text("sample_id")
    found = {}
    for key in record.keys("conversation"):
        if not re.fullmatch(r"session_\d+", key):
            continue
        for place, turn in enumerate(record.items("conversation", key)):
            path = ("conversation", key, place)
            with harvest.rejecting(record, turn):
                if record.value(*path, "text"):  # a turn may be a picture only
                    name, speaker, text = (record.text(*path, part) for part in ("dia_id", "speaker", "text"))
                    found[name] = _Turn(key, speaker, text)
    return found


def _fact(record: SourceRecord, place: int, turns: Mapping[str, _Turn], source: str) -> CorpusFact:
    asked = ("qa", place)
    if str(record.value(*asked, "category")) == _WITHOUT_ANSWER:
        raise InputError(
            "asks for what was never said, so there is no fact; nothing to do",
            field=field_name([*asked, "category"]),
        )
    question, answer = record.text(*asked, "question"), record.text(*asked, "answer")
    said = _evidence(record, asked, turns)
    dates = [_moment(record, turn.session) for turn in said]
    statement = " ".join(
        f'On {date.day} {date:%B %Y}, {turn.speaker} said: "{turn.text}"'
        for date, turn in zip(dates, said, strict=True)
    )
    span = re.search(
        rf"(?<!\w){re.escape(answer)}(?!\w)", " ".join(turn.text for turn in said), re.IGNORECASE
    )
    if span is None:
        raise InputError(
            "does not stand in the words of its evidence, so nothing stored could give it",
            field=field_name([*asked, "answer"]),
        )
    return worded_fact(
        statement,
        [question],
        span.group(),
        [answer],
        subject=said[0].speaker,
        relation=question,
        source=source,
        kind="agent",
        group=f"conversation:{record.text('sample_id')}",
        valid_from=max(dates),
    )


def _evidence(record: SourceRecord, asked: tuple[str, int], turns: Mapping[str, _Turn]) -> list[_Turn]:
    named = [name for text in record.texts(*asked, "evidence") for name in re.split(r"[\s;,]+", text) if name]
    field = field_name([*asked, "evidence"])
    if not named:
        raise InputError("is missing; a fact is made of the turns it names", field=field)
    if unknown := [name for name in named if name not in turns]:
        raise InputError(f"names {unknown[0]}, and no turn with words has that id", field=field)
    return [turns[name] for name in dict.fromkeys(named)]


def _moment(record: SourceRecord, session: str) -> datetime:
    path = ("conversation", f"{session}_date_time")
    text = record.text(*path)
    try:
        return datetime.strptime(text, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    except ValueError as error:
        raise InputError(
            f"expected '1:56 pm on 8 May, 2023', not {text!r}", field=field_name(path)
        ) from error
