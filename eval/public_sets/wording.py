"""Words for what the sets give: statements and several questions, from one table or from what a record says itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from consolidation.targets import QUESTION_FRAMES
from eval.corpora.corpus import (
    MIN_QUESTIONS,
    CorpusFact,
    Kind,
    accepted_answers,
    checked_fact,
    defects,
)
from sharpwave.errors import InputError
from sharpwave.records import Moment, Slot

_FRAMES = (*QUESTION_FRAMES, "Please answer this. {}")


@dataclass(frozen=True)
class RelationWording:
    """The words of one Wikidata property: `{s}` is the subject, `{a}` the answer."""

    property_id: str
    name: str
    statement: str
    questions: tuple[str, ...]

    def questions_about(self, subject: str) -> list[str]:
        """Return its questions about a subject: training form, second form, probe, held-out form."""
        return [question.format(s=subject) for question in self.questions]

    def statement_of(self, subject: str, answer: str) -> str:
        """Return the statement that a subject has this value."""
        return self.statement.format(s=subject, a=answer)


@cache
def relation_wordings() -> Mapping[str, RelationWording]:
    """Return the table `data/relations.tsv` by Wikidata property."""
    table = resources.files("eval.public_sets") / "data" / "relations.tsv"
    rows = (line.split("\t") for line in table.read_text(encoding="utf-8").splitlines()[1:])
    return {row[0]: RelationWording(row[0], row[1], row[2], tuple(row[3:])) for row in rows}


def wording_of(property_id: str, field: str) -> RelationWording:
    """Return the words of a Wikidata property.

    Raises:
        InputError: The table does not have it.
    """
    if property_id not in relation_wordings():
        raise InputError(
            f"there are no questions for {property_id!r}; add a row to eval/public_sets/data/relations.tsv",
            field=field,
        )
    return relation_wordings()[property_id]


def enough_questions(given: Sequence[str]) -> list[str]:
    """Return the questions, and where they are fewer than a corpus fact needs, frames around the first.

    >>> enough_questions(["Who?", "Which one?"])
    ['Who?', 'Here is something I would like to know. Who?', 'Can you tell me this? Who?', 'Which one?']
    """
    own = list(dict.fromkeys(given))
    missing = max(0, MIN_QUESTIONS + 1 - len(own))
    framed = [frame.format(own[0]) for frame in _FRAMES[:missing]]
    return [*own[: max(1, len(own) - 1)], *framed, *own[1:][-1:]]


def worded_fact(
    statement: str,
    questions: Sequence[str],
    answer: str,
    aliases: Iterable[str] = (),
    *,
    subject: str,
    relation: str,
    source: str,
    kind: Kind = "world",
    group: str | None = None,
    valid_from: Moment | None = None,
    valid_to: Moment | None = None,
) -> CorpusFact:
    """Return a corpus fact; aliases that no corpus may have (with brackets, or named by a question) are left out.

    Args:
        statement: Must hold the answer letter for letter.
        questions: The last of several is held out; frames make up for missing ones.
        answer: The canonical answer.
        aliases: What else counts as right.
        subject: The slot's subject, and what a split keeps together unless `group` says otherwise.
        relation: The slot's relation.
        source: Name of the set.
        kind: What kind of fact it is.
        group: What a split keeps together.
        valid_from: First moment at which the value held.
        valid_to: Last moment at which the value held.

    Raises:
        InputError: It breaks rules of the corpora; the message names them.
    """
    asked = enough_questions(questions)
    others = [alias for alias in aliases if not defects(alias, asked, [alias])]
    return checked_fact(
        re.sub(r"\.\.$", ".", statement),  # the answer may bring a full stop of its own
        asked,
        accepted_answers([answer, *others]),
        slot=Slot(subject=subject, relation=relation),
        group=group or f"subject:{subject.casefold()}",
        kind=kind,
        source=source,
        valid_from=valid_from,
        valid_to=valid_to,
    )


def related_fact(
    wording: RelationWording,
    subject: str,
    answer: str,
    aliases: Iterable[str] = (),
    *,
    source: str,
    kind: Kind = "world",
    question: str | None = None,
    opening: str = "",
    valid_from: Moment | None = None,
    valid_to: Moment | None = None,
) -> CorpusFact:
    """Return a fact in the words of its relation; a question that the set itself asks becomes the training form.

    Raises:
        InputError: It breaks rules of the corpora; the message names them.
    """
    own = [question] if question else []
    return worded_fact(
        after_opening(opening, wording.statement_of(subject, answer)),
        [*own, *wording.questions_about(subject)],
        answer,
        aliases,
        subject=subject,
        relation=wording.name,
        source=source,
        kind=kind,
        valid_from=valid_from,
        valid_to=valid_to,
    )


def after_opening(opening: str, statement: str) -> str:
    """Put an opening before a statement.

    >>> after_opening("As of 2010, ", "The mayor is Ada.")
    'As of 2010, the mayor is Ada.'
    """
    return (
        f"{opening}the {statement[4:]}" if opening and statement.startswith("The ") else opening + statement
    )


def as_history(values: Sequence[CorpusFact]) -> list[CorpusFact]:
    """Return the values of one slot, oldest first, each with its kind; a single one never changed."""
    kinds: list[Kind] = ["update_old"] * (len(values) - 1)
    kinds.append("update_new" if kinds else "world")
    return [replace(item, kind=kind) for item, kind in zip(values, kinds, strict=False)]
