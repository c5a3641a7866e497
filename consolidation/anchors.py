"""The anchor bank: questions the answering model is known to answer, by behaviour, kept in one JSON Lines file.

Lines with role `anchor` are distilled on during training; lines with role `gate` only measure damage before a
promotion. The two roles have different subjects, and neither shares a subject with any reported figure. The bank is
written by `sharpwave train-router`, which labels the facts. Prose keeps what is neither question nor answer.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from carriers.prompts import closed_book
from sharpwave.errors import InputError
from sharpwave.records import Record

if TYPE_CHECKING:
    from consolidation.write_back import Anchor
    from sharpwave.settings import WriteBackSettings


TRAINING_TEXT = Path(__file__).parent / "anchors" / "training_text.txt"
"""Paragraphs written for this project, one per line, that a training may distil on."""
_PROSE_WORDS, _PROSE_CONTEXT = 8, 32


class AnchorQuestion(Record):
    """A question, the answer in the model's own words, other right answers, and what the line may be used for."""

    question: str
    answer: str
    aliases: tuple[str, ...] = ()
    role: Literal["anchor", "gate"]
    subject: str
    model_fingerprint: str


def read_anchors(path: Path) -> list[AnchorQuestion]:
    """Read a bank; a missing file is an empty bank, a bad line is an InputError that names it."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    bank = []
    for number, line in enumerate(lines, start=1):
        try:
            bank.append(AnchorQuestion.model_validate_json(line))
        except ValidationError as error:
            raise InputError(
                f"not an anchor question ({error.errors()[0]['msg']}); "
                "run `sharpwave train-router` to write the bank anew",
                file=str(path),
                line=number,
            ) from error
    return bank


def write_anchors(path: Path, bank: Sequence[AnchorQuestion]) -> None:
    """Write a bank, replacing the file at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(item.model_dump(), ensure_ascii=False) + "\n" for item in bank)
    temporary = path.with_suffix(".new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def training_anchors(bank: Sequence[AnchorQuestion], settings: WriteBackSettings, seed: int) -> list[Anchor]:
    """Draw what every training distils on, whatever the store holds: questions of the bank and places in prose."""
    from consolidation.write_back import Anchor

    pool = [item for item in bank if item.role == "anchor"]
    drawn = random.Random(seed).sample(pool, min(settings.anchor_count, len(pool)))
    questions = [Anchor(closed_book(item.question), item.answer) for item in drawn]
    return questions + prose_anchors(settings.prose_count, seed)


def prose_anchors(count: int, seed: int, file: Path = TRAINING_TEXT) -> list[Anchor]:
    """Draw places in plain prose to distil on, at most `count`: what stands before, and the next few words.

    The prose is not that of `general_text`, on which the gate measures.
    """
    from consolidation.write_back import Anchor

    windows = []
    for paragraph in file.read_text(encoding="utf-8").splitlines():
        words = paragraph.split()
        for end in range(2 * _PROSE_WORDS, len(words) + 1, _PROSE_WORDS):
            before, after = words[: end - _PROSE_WORDS], words[end - _PROSE_WORDS : end]
            windows.append(Anchor(" ".join(before[-_PROSE_CONTEXT:]), " ".join(after), bare=True))
    return random.Random(seed).sample(windows, min(count, len(windows)))


def gate_questions(bank: Sequence[AnchorQuestion]) -> list[AnchorQuestion]:
    """Return the questions that only gate a promotion."""
    return [item for item in bank if item.role == "gate"]
