"""Questions for facts that came without any: the model proposes, the code decides.

For each statement rules name answer spans, and the model words questions for a span after worked examples. Kept is
what is grounded in the text and what the model, with the text before it, answers with the span (round trip). A fact
needs two such wordings of one answer: one to train, one that is only probed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from carriers.prompts import OPEN_BOOK_PREFIX, one_line, open_book
from consolidation.answer_spans import candidate_spans, language_of
from consolidation.grounding import fault_of_question
from consolidation.question_wording import (
    example,
    in_place,
    is_copied,
    openings,
    turned_around,
    worked_examples,
)
from consolidation.records import FactTargets, Rejection
from consolidation.targets import MAX_TRAIN_QUESTIONS, generated_targets
from sharpwave.matching import exact_match, normalise_answer

if TYPE_CHECKING:
    from carriers.language_model import LanguageModel
    from carriers.ledger_records import StoredFact

MIN_QUESTIONS, MAX_QUESTIONS = 2, MAX_TRAIN_QUESTIONS + 1
MAX_STATEMENT_CHARS = 400
SPANS_TRIED = 3
_QUESTION_TOKENS = 28


@dataclass
class _Attempt:
    """One fact on its way: the spans still to try and, for the present one, the accepted questions."""

    fact: StoredFact
    text: str
    spans: list[str]
    accepted: list[str] = field(default_factory=list)
    answer: str = ""


def propose_targets(
    model: LanguageModel, facts: Sequence[StoredFact]
) -> tuple[list[FactTargets], list[Rejection]]:
    """Make questions and answers for facts that have none; their records stay as they are.

    Costs, per fact, up to `SPANS_TRIED` rounds of three short generations and their round trips, in batches.

    Args:
        model: The answering model, which proposes questions and is asked them with the text before it.
        facts: Facts with words and without questions.

    Returns:
        The targets in the order of the facts, and a rejection with its reason for every other fact.
    """
    attempts = [_attempt(fact) for fact in facts]
    for _ in range(SPANS_TRIED):
        pending = [item for item in attempts if item.spans and len(item.accepted) < MIN_QUESTIONS]
        if not pending:
            break
        for item in pending:
            item.answer, item.accepted = item.spans.pop(0), []
        _try_span(model, pending)
    done = [item for item in attempts if len(item.accepted) >= MIN_QUESTIONS]
    targets = [generated_targets(item.fact, item.accepted[:MAX_QUESTIONS], item.answer) for item in done]
    rejected = [
        Rejection(fact_id=item.fact.id, reason=_reason(item))
        for item in attempts
        if len(item.accepted) < MIN_QUESTIONS
    ]
    return targets, rejected


def _attempt(fact: StoredFact) -> _Attempt:
    text = one_line(fact.fact.text)
    if len(text) > MAX_STATEMENT_CHARS:
        return _Attempt(fact, text, [])
    given = [answer for answer in fact.fact.answers if answer in text]
    spans = list(dict.fromkeys([*given, *candidate_spans(text)]))
    return _Attempt(fact, text, spans[:SPANS_TRIED])


def _reason(item: _Attempt) -> str:
    if len(item.text) > MAX_STATEMENT_CHARS:
        return (
            f"its text is longer than the {MAX_STATEMENT_CHARS} characters from which questions are made; "
            "give `questions` and `answers`"
        )
    return (
        "no two questions could be made from it that the model answers from the text; "
        "give `questions` and `answers`"
    )


def _try_span(model: LanguageModel, attempts: Sequence[_Attempt]) -> None:
    """Collect proposals for the present span of each attempt and keep those that pass, deduplicated."""
    worded: list[list[str]] = [[] for _ in attempts]
    for place, question in _by_model(model, attempts):
        if not is_copied(question, attempts[place].text):
            worded[place].append(question)
    pairs: list[tuple[int, str, bool]] = []
    for place, (item, questions) in enumerate(zip(attempts, worded, strict=True)):
        fresh: dict[str, tuple[int, str, bool]] = {}
        for question, is_sound in _by_trust(item, questions):
            if fault_of_question(question, item.text, item.answer) is None:
                fresh.setdefault(normalise_answer(question), (place, question, is_sound))
        pairs += fresh.values()
    prompts = [open_book(question, [attempts[place].text]) for place, question, _ in pairs]
    for (place, question, is_sound), reply in zip(
        pairs, model.answer(prompts, OPEN_BOOK_PREFIX), strict=True
    ):
        item = attempts[place]
        is_wanted = is_sound or len(item.accepted) < MIN_QUESTIONS
        if is_wanted and exact_match(reply.text, [item.answer]):
            item.accepted.append(question)


def _by_trust(item: _Attempt, by_model: Sequence[str]) -> list[tuple[str, bool]]:
    """Order wordings, the soundest first: by rule, the model's first, in place, then its others.

    The others often ask something slightly different, so they only serve where the sound ones are too few.
    """
    by_rule = turned_around(item.text, item.answer, item.fact.fact.slot)
    sound = [*by_rule, *by_model[:1], *in_place(item.text, item.answer)]
    return [(question, True) for question in sound] + [(question, False) for question in by_model[1:]]


def _by_model(model: LanguageModel, attempts: Sequence[_Attempt]) -> Iterator[tuple[int, str]]:
    """Yield the model's wordings as (place of the attempt, question), the likeliest opening first."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for place, item in enumerate(attempts):
        language = language_of(item.text)
        groups.setdefault(language, []).extend(
            (place, opening) for opening in openings(language, item.text, item.answer)
        )
    for language, begun in groups.items():
        prompts = [
            f"{example(language, attempts[place].text, attempts[place].answer)} {opening}".rstrip()
            for place, opening in begun
        ]
        replies = model.answer(prompts, worked_examples(language), _QUESTION_TOKENS)
        for (place, opening), reply in zip(begun, replies, strict=True):
            yield place, f"{opening} {reply.text}".strip()
