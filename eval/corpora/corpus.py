"""What a corpus is made of: the labelled fact, the templates that word it, the rules every fact must pass.

Sources only deliver (subject, relation, answers); wording, checking and de-duplication happen here.
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Self

from sharpwave.errors import InputError
from sharpwave.matching import normalise_answer
from sharpwave.records import Fact, Moment, Slot

Kind = Literal["world", "agent", "update_old", "update_new", "counterfactual"]

OBSERVED_AT = datetime(2026, 1, 1, tzinfo=UTC)
"""Stamp of every corpus fact, so that a corpus is the same bytes on every run; streams stamp their own."""

MAX_ANSWER_WORDS = 6
MIN_QUESTIONS = 3
_FORBIDDEN_IN_ANSWER = frozenset('<>()[]{};:&"\n\t|*_=')
# Letters that Unicode does not take apart into a base and an accent.
_PLAIN_LETTERS = str.maketrans({
    "ø": "o",
    "Ø": "O",
    "ł": "l",
    "Ł": "L",
    "đ": "d",
    "\u0131": "i",
    "ß": "ss",
    "æ": "ae",
})


@dataclass(frozen=True, slots=True)
class CorpusFact:
    """A fact with what an experiment must know about it and the memory must not.

    `fact.questions` are the wordings the memory may see: the first is the training form, the last one the
    probe. `heldout_question` is asked in evaluations only and is never part of `fact`.
    """

    fact: Fact
    group: str
    kind: Kind
    language: str
    heldout_question: str

    @property
    def id(self) -> str:
        """The fact's id."""
        return self.fact.id

    @property
    def slot(self) -> Slot:
        """Subject and relation; every corpus fact has them."""
        if self.fact.slot is None:
            raise InputError("a corpus fact needs a slot", field="slot")
        return self.fact.slot

    @property
    def relation(self) -> str:
        """The slot's relation."""
        return self.slot.relation

    @property
    def train_questions(self) -> tuple[str, ...]:
        """Wordings a write-back may train on; the first is the training form."""
        return self.fact.questions[:-1]

    @property
    def probe_question(self) -> str:
        """The wording kept for router self-probes and consolidation probes."""
        return self.fact.questions[-1]

    @property
    def questions(self) -> tuple[str, ...]:
        """All wordings, the training form first and the held-out one last."""
        return (*self.fact.questions, self.heldout_question)

    def to_json(self) -> dict[str, Any]:
        """Return plain data that `json.dumps` takes."""
        return {
            "fact": self.fact.model_dump(mode="json", exclude_none=True),
            "group": self.group,
            "kind": self.kind,
            "language": self.language,
            "heldout_question": self.heldout_question,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str) -> Self:
        """Read what `to_json` wrote, as a mapping or as a line of text."""
        values = dict(json.loads(data) if isinstance(data, str) else data)
        return cls(**{**values, "fact": Fact.model_validate(values["fact"])})


@dataclass(frozen=True, slots=True)
class RelationTemplate:
    """The words of one relation.

    Placeholders: `{s}` the subject as it stands in running text, `{S}` the same at the start of a sentence,
    `{a}` the answer, and any further name that `build` is given. The last question is the held-out one.
    """

    name: str
    statement: str
    questions: tuple[str, ...]
    language: str = "en"
    kind: Kind = "world"

    def build(
        self,
        subject: str,
        answers: Sequence[str],
        *,
        group: str,
        source: str,
        in_text: str | None = None,
        valid_from: Moment | None = None,
        valid_to: Moment | None = None,
        words: Mapping[str, str] | None = None,
    ) -> CorpusFact | None:
        """Word one fact, or return None where it breaks a rule of `defects`.

        Args:
            subject: Name in the slot; unique in the corpus together with the relation.
            answers: Canonical answer first, then aliases; spellings without accents are added.
            group: What is kept together by a split, such as ``country:FR``.
            source: Package (and file) the value comes from.
            in_text: How the subject is written inside a sentence, if not as in the slot.
            valid_from: First moment at which the value held.
            valid_to: Last moment at which the value held.
            words: Further placeholders of this template.
        """
        accepted = accepted_answers(answers)
        if not accepted:
            return None
        written = in_text or subject
        filled = {"s": written, "S": written[:1].upper() + written[1:], "a": accepted[0], **(words or {})}
        try:
            return checked_fact(
                self.statement.format_map(filled),
                [question.format_map(filled) for question in self.questions],
                accepted,
                slot=Slot(subject=subject, relation=self.name),
                group=group,
                kind=self.kind,
                language=self.language,
                source=source,
                valid_from=valid_from,
                valid_to=valid_to,
            )
        except InputError:
            return None


def accepted_answers(answers: Iterable[str]) -> tuple[str, ...]:
    """Return the answers without empty and equal ones, and after them their spellings without accents."""
    given = [answer.strip() for answer in answers if answer.strip()]
    return tuple(dict.fromkeys([*given, *map(without_accents, given)]))


def checked_fact(
    statement: str,
    questions: Sequence[str],
    answers: Sequence[str],
    *,
    slot: Slot,
    group: str,
    kind: Kind,
    source: str,
    language: str = "en",
    valid_from: Moment | None = None,
    valid_to: Moment | None = None,
) -> CorpusFact:
    """Return a worded fact that keeps the rules of `defects`; the last question is the held-out one.

    Raises:
        InputError: It breaks rules; the message names them.
    """
    if found := defects(statement, questions, answers):
        raise InputError("; ".join(found), field="answer")
    fact = Fact(
        text=statement,
        slot=slot,
        questions=tuple(questions[:-1]),
        answers=tuple(answers),
        valid_from=valid_from,
        valid_to=valid_to,
        observed_at=OBSERVED_AT,
        source=source,
    )
    return CorpusFact(fact, group, kind, language, questions[-1])


def without_accents(text: str) -> str:
    """Return the text in plain letters, as people type names on a foreign keyboard.

    >>> without_accents("São Tomé")
    'Sao Tome'
    """
    parts = unicodedata.normalize("NFD", text.translate(_PLAIN_LETTERS))
    return unicodedata.normalize("NFC", "".join(c for c in parts if not unicodedata.combining(c)))


def contains_words(text: str, phrase: str) -> bool:
    """Tell whether the phrase occurs in the text as whole words, after answer normalisation.

    >>> contains_words("What is the capital of Kuwait?", "Kuwait City")
    False
    """
    words = normalise_answer(phrase)
    return bool(words) and f" {words} " in f" {normalise_answer(text)} "


def defects(statement: str, questions: Sequence[str], answers: Sequence[str]) -> list[str]:
    """Name every rule that a worded fact breaks; an empty list means that it may enter a corpus."""
    canonical = answers[0]
    found = []
    if canonical not in statement:
        found.append("the answer is not a span of the statement")
    if not normalise_answer(canonical):
        found.append("the answer is empty once normalised")
    if len(canonical.split()) > MAX_ANSWER_WORDS or len(canonical) > 60:
        found.append("the answer is long")
    if "/" in canonical or any(_FORBIDDEN_IN_ANSWER & set(answer) for answer in answers):
        found.append("an answer has markup or brackets in it")
    if len(set(questions)) <= MIN_QUESTIONS:
        found.append("there are too few different questions")
    if _gives_away(questions, answers):
        found.append("a question gives the answer away")
    return found


def _gives_away(questions: Sequence[str], answers: Sequence[str]) -> bool:
    # One normalisation for all questions, kept apart by a word that no answer contains.
    asked = f" {normalise_answer(' zzzz '.join(questions))} "
    return any(f" {normalise_answer(answer)} " in asked for answer in answers)


def keep_unambiguous(items: Iterable[CorpusFact]) -> list[CorpusFact]:
    """Drop every slot that two sources fill differently, and the second of two equal facts.

    The same text for two slots (two towns of one name) or a question with two answers is dropped, too.
    """
    unique = list({item.id: item for item in items}.values())
    slots = Counter((item.slot.subject, item.slot.relation) for item in unique)
    texts = Counter(item.fact.text for item in unique)
    asked = Counter(question for item in unique for question in set(item.questions))
    return [
        item
        for item in unique
        if slots[item.slot.subject, item.slot.relation] == 1
        and texts[item.fact.text] == 1
        and all(asked[question] == 1 for question in item.questions)
    ]


CORPUS_NAMES = ("world", "agent", "updates")


def load_corpus(name: str, *, count: int = 1000, seed: int = 0) -> list[CorpusFact]:
    """Return a corpus by name; `count` and `seed` apply to the generated ones.

    "world" is the whole world corpus, "agent" invents `count` facts, "updates" gives both sides of `count`
    changes, each older value before the newer one.

    Raises:
        InputError: There is no corpus of that name, or too many facts are wanted.
    """
    from eval.corpora import agent_world, updates, world

    if name == "world":
        return world.load_world_corpus()
    if name == "agent":
        return agent_world.agent_world(count, seed)
    if name == "updates":
        return [item for pair in updates.updates(count, seed) for item in (pair.old, pair.new)]
    raise InputError(f"there is no corpus {name!r}; choose one of {', '.join(CORPUS_NAMES)}")


def relation_counts(items: Iterable[CorpusFact]) -> dict[str, int]:
    """Count facts per relation, most frequent first, ties by name."""
    counts = Counter(item.relation for item in items)
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
