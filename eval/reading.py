"""Questions put to an arm, in one of three ways of reading, and its answers judged.

Real: the arm reads what its embedder finds. Oracle: it is handed the right fact if it holds it, which sets admission
apart from retrieval. Weights: it is handed nothing. An arm sees questions and days only, never the right answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from carriers.recall import Note
from eval.run_records import ABSENT, SUPERSEDED, AnswerRow, ReadMode
from sharpwave.matching import exact_match, token_f1
from sharpwave.records import AnswerOrigin, Moment, RecallAnswer, Record

if TYPE_CHECKING:
    from eval.arms import Arm

_NAMESPACE = "default"


class AskedQuestion(Record):
    """A question of the stream with what an answer row needs; `as_of` is the day it asks about, None for now."""

    fact_id: str
    question: str
    answers: tuple[str, ...]
    kind: str
    group: str
    as_of: Moment | None = None


def read_real(
    arm: Arm, step: int, questions: Sequence[AskedQuestion], texts: Mapping[str, str]
) -> list[AnswerRow]:
    """Let an arm answer from what it finds; `texts` holds the words of the facts asked about.

    A row's `found` tells whether the notes held the fact asked about; None where the arm does not hold it.
    """
    rows: dict[int, AnswerRow] = {}
    for day in dict.fromkeys(asked.as_of for asked in questions):
        places = [place for place, asked in enumerate(questions) if asked.as_of == day]
        chosen = [questions[place] for place in places]
        notes = arm.recall.notes([asked.question for asked in chosen], _NAMESPACE, day)
        answers = arm.recall.answer_from([asked.question for asked in chosen], notes, day)
        for place, asked, answer, found in zip(places, chosen, answers, notes, strict=True):
            text = texts.get(asked.fact_id)
            is_found = any(note.text == text for note in found) if text in arm.held else None
            rows[place] = _row(arm, step, asked, answer, "real", found=is_found)
    return [rows[place] for place in range(len(questions))]


def read_oracle(
    arm: Arm, step: int, questions: Sequence[AskedQuestion], texts: Mapping[str, str]
) -> list[AnswerRow]:
    """Hand an arm the right fact if it holds it, else nothing; only what holds now is asked."""
    chosen = present_questions(questions)
    notes = [
        [Note(asked.fact_id, texts[asked.fact_id], 1.0)] if texts.get(asked.fact_id) in arm.held else []
        for asked in chosen
    ]
    answers = arm.recall.answer_from([asked.question for asked in chosen], notes)
    return [_row(arm, step, asked, answer, "oracle") for asked, answer in zip(chosen, answers, strict=True)]


def read_weights(arm: Arm, step: int, questions: Sequence[AskedQuestion]) -> list[AnswerRow]:
    """Let an arm's weights answer alone; only what holds now is asked."""
    chosen = present_questions(questions)
    answers = [
        RecallAnswer(
            question=asked.question,
            text=said.text,
            origin=AnswerOrigin.WEIGHTS,
            lowest_token_prob=said.lowest_prob,
            generation=arm.recall.generation,
            tokens_read=said.prompt_tokens,
        )
        for asked, said in zip(
            chosen, arm.recall.ask_weights([asked.question for asked in chosen]), strict=True
        )
    ]
    return [_row(arm, step, asked, answer, "weights") for asked, answer in zip(chosen, answers, strict=True)]


def present_questions(questions: Sequence[AskedQuestion]) -> list[AskedQuestion]:
    """Return the questions about facts of the stream that hold now."""
    return [asked for asked in questions if asked.kind not in (SUPERSEDED, ABSENT)]


def _row(
    arm: Arm,
    step: int,
    asked: AskedQuestion,
    answer: RecallAnswer,
    read: ReadMode,
    *,
    found: bool | None = None,
) -> AnswerRow:
    return AnswerRow(
        arm=arm.name,
        step=step,
        fact_id=asked.fact_id,
        question=asked.question,
        answer=asked.answers[0],
        given=answer.text,
        correct=exact_match(answer.text, asked.answers),
        origin=answer.origin,
        f1=token_f1(answer.text, asked.answers),
        group=asked.group,
        kind=asked.kind,
        read=read,
        as_of=asked.as_of,
        found=found,
        tokens=answer.tokens_read,
        confidence=min(1.0, answer.lowest_token_prob),
    )
