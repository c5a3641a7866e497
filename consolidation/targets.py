"""Training targets of a fact: the questions it is trained with, and one wording that is only ever probed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from carriers.prompts import closed_book
from consolidation.grounding import gives_away
from consolidation.records import FactTargets, Rejection
from sharpwave.matching import normalise_answer

if TYPE_CHECKING:
    from carriers.ledger_records import StoredFact
    from consolidation.write_back import TrainingTarget

MAX_TRAIN_QUESTIONS = 3
QUESTION_FRAMES = ("Here is something I would like to know. {}", "Can you tell me this? {}")
"""Sentences around a question: further wordings where there is only one."""


def given_targets(fact: StoredFact) -> FactTargets | None:
    """Return the targets of a fact that came with questions; None for one without.

    The last wording is kept for probing where there are several. With a single wording the paraphrases are made by
    putting it into another sentence frame.
    """
    words = fact.fact
    if not words.questions:
        return None
    return FactTargets(
        fact_id=fact.id,
        text=words.text,
        answers=words.answers,
        **_wordings(words.questions),
    )


def known_targets(facts: Sequence[StoredFact], wordings: Mapping[str, FactTargets]) -> list[FactTargets]:
    """Return the targets of those facts that have words and questions: their own, or such as a night made.

    Args:
        facts: Facts of the store, the forgotten among them.
        wordings: By fact id, the targets that a former night made for a fact without questions.
    """
    found = [given_targets(fact) or wordings.get(fact.id) for fact in facts if fact.words is not None]
    return [item for item in found if item is not None]


def generated_targets(fact: StoredFact, questions: Sequence[str], answer: str) -> FactTargets:
    """Return the targets of a fact whose questions a model proposed and the validator accepted."""
    return FactTargets(
        fact_id=fact.id, text=fact.fact.text, answers=(answer,), generated=True, **_wordings(questions)
    )


def _wordings(questions: Sequence[str]) -> dict[str, tuple[str, ...] | str]:
    if len(questions) > 1:
        return {"train_questions": tuple(questions[:-1][:MAX_TRAIN_QUESTIONS]), "paraphrase": questions[-1]}
    (question,) = questions
    framed, paraphrase = (frame.format(question) for frame in QUESTION_FRAMES)
    return {"train_questions": (question, framed), "paraphrase": paraphrase}


def training_targets(targets: Sequence[FactTargets]) -> list[TrainingTarget]:
    """Return prompt-completion pairs: each wording bare and after the few-shot prefix, forms alternating."""
    from consolidation.write_back import TrainingTarget

    return [
        TrainingTarget(
            item.fact_id, closed_book(question), item.answers[0], prefixed=(number + turn) % 2 == 1
        )
        for item in targets
        for turn in (0, 1)
        for number, question in enumerate(item.train_questions)
    ]


def check_targets(targets: Sequence[FactTargets]) -> tuple[list[FactTargets], list[Rejection]]:
    """Separate the targets that can teach something from those that would teach the wrong thing.

    Refused: an empty answer, a question that gives the answer away, and two facts that answer one question
    differently (the model could learn only one of them).
    """
    answers_of: dict[str, set[str]] = {}
    for item in targets:
        for question in item.train_questions:
            answers_of.setdefault(normalise_answer(question), set()).add(normalise_answer(item.answers[0]))
    kept, rejected = [], []
    for item in targets:
        reason = _fault(item, answers_of)
        if reason:
            rejected.append(Rejection(fact_id=item.fact_id, reason=reason))
        else:
            kept.append(item)
    return kept, rejected


def _fault(item: FactTargets, answers_of: dict[str, set[str]]) -> str | None:
    if not normalise_answer(item.answers[0]):
        return "its answer has no visible word"
    if any(gives_away(question, item.answers[0]) for question in (*item.train_questions, item.paraphrase)):
        return "a question gives the answer away"
    if any(len(answers_of[normalise_answer(question)]) > 1 for question in item.train_questions):
        return "another stored fact answers the same question differently"
    return None
