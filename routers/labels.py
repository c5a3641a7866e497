"""The right route of a fact, found by behaviour: the answering model is asked without and with the fact.

A fact counts as known only if the model answers every wording kept for this (`wordings.labelling_questions`).
Answers are kept on disk as they were given, so a run that was killed goes on where it stopped, and a changed
alias changes the label without asking again.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from carriers.prompts import CLOSED_BOOK_PREFIX, OPEN_BOOK_PREFIX, closed_book, open_book
from routers.wordings import labelling_questions
from sharpwave.errors import InputError
from sharpwave.matching import exact_match
from sharpwave.records import Fact, RouteAction
from sharpwave.settings import cache_home

if TYPE_CHECKING:
    from carriers.language_model import LanguageModel
    from routers.observation import OnCount

CONFIDENT_PROB = 0.5
"""A wrong answer whose every token was at least this probable is a belief that the fact would correct."""
_FACTS_PER_CHUNK = 128


@dataclass(frozen=True)
class BehaviourLabel:
    """How the answering model fares on one fact by itself and with the fact before it; one entry per question.

    `probs_without` are the lowest token probabilities of the answers given without the fact.
    """

    fact_id: str
    right_without: tuple[bool, ...]
    right_with: tuple[bool, ...]
    answers_without: tuple[str, ...]
    probs_without: tuple[float, ...]

    @property
    def action(self) -> RouteAction:
        """The class that the behaviour belongs to."""
        return label_action(self.right_without, self.probs_without)

    @property
    def is_known(self) -> bool:
        """Whether the model needs the fact for none of the questions."""
        return all(self.right_without)

    @property
    def em_without(self) -> float:
        """Exact match without the fact: the share of the questions answered right."""
        return sum(self.right_without) / len(self.right_without)

    @property
    def em_with(self) -> float:
        """Exact match with the fact at hand."""
        return sum(self.right_with) / len(self.right_with)

    @property
    def gain(self) -> float:
        """Exact match with the fact minus without, in [-1, 1]."""
        return self.em_with - self.em_without

    @property
    def drawn(self) -> tuple[bool, bool]:
        """Right without and with the fact on one of the questions, drawn by the fact's id: a sample of one each."""
        place = zlib.crc32(self.fact_id.encode()) % len(self.right_without)
        return self.right_without[place], self.right_with[place]


@dataclass(frozen=True)
class _Behaviour:
    """The answers as the model gave them: what is kept on disk."""

    answer_without: str
    prob_without: float
    answer_with: str


def label_action(right_without: Sequence[bool], probs_without: Sequence[float]) -> RouteAction:
    """Return the class of a behaviour: known, a belief in something else on any of the questions, or neither."""
    if all(right_without):
        return RouteAction.NON_WRITE
    believes = any(
        not right and prob >= CONFIDENT_PROB for right, prob in zip(right_without, probs_without, strict=True)
    )
    return RouteAction.WRITE_UPDATE if believes else RouteAction.WRITE_NEW


def label_facts(
    model: LanguageModel,
    facts: Sequence[Fact],
    *,
    variant: str = "",
    cache_folder: Path | None = None,
    on_count: OnCount | None = None,
) -> list[BehaviourLabel]:
    """Label facts by the behaviour of the answering model, in the order given.

    The model is asked `wordings.labelling_questions` by greedy decoding, each once from the weights alone and once
    with the fact as the only note. What was asked before is read from the cache.

    Args:
        model: The large model.
        facts: Each with a question and an answer.
        variant: Names the adapter merged into the model, if any; its answers are kept apart.
        cache_folder: Where answers are kept; `labels/` in the cache by default.
        on_count: Told how many facts are labelled, after every chunk.

    Raises:
        InputError: A fact has no question.
    """
    for fact in facts:
        if not fact.questions:
            raise InputError(
                f"fact {fact.id} has no question, so behaviour cannot label it", field="questions"
            )
    cache = _BehaviourCache(label_cache_path(model.fingerprint, variant, cache_folder))
    asked = [[(fact, question) for question in labelling_questions(fact)] for fact in facts]
    keys = [[behaviour_key(*pair) for pair in pairs] for pairs in asked]
    missing = [row for row, own in enumerate(keys) if any(key not in cache.known for key in own)]
    done = len(facts) - len(missing)
    for start in range(0, len(missing), _FACTS_PER_CHUNK):
        if on_count is not None:
            on_count(done + start, len(facts))
        new = {
            key: pair
            for row in missing[start : start + _FACTS_PER_CHUNK]
            for key, pair in zip(keys[row], asked[row], strict=True)
            if key not in cache.known
        }
        behaviours = _ask(model, list(new.values()))
        cache.append(dict(zip(new, behaviours, strict=True)))
    if on_count is not None:
        on_count(len(facts), len(facts))
    return [_label(fact, [cache.known[key] for key in own]) for fact, own in zip(facts, keys, strict=True)]


def _label(fact: Fact, behaviours: Sequence[_Behaviour]) -> BehaviourLabel:
    return BehaviourLabel(
        fact_id=fact.id,
        right_without=tuple(exact_match(item.answer_without, fact.answers) for item in behaviours),
        right_with=tuple(exact_match(item.answer_with, fact.answers) for item in behaviours),
        answers_without=tuple(item.answer_without for item in behaviours),
        probs_without=tuple(item.prob_without for item in behaviours),
    )


def label_cache_path(fingerprint: str, variant: str = "", folder: Path | None = None) -> Path:
    """Return the file that holds the answers of one model."""
    name = f"{fingerprint}-{variant}" if variant else fingerprint
    return (folder or cache_home() / "labels") / f"{name}.jsonl"


def behaviour_key(fact: Fact, question: str) -> str:
    """Return 32 hex digits of what an answer depends on beside the model: fact, question, prompt wording."""
    parts = [
        fact.id,
        CLOSED_BOOK_PREFIX + closed_book(question),
        OPEN_BOOK_PREFIX + open_book(question, [fact.text]),
    ]
    return hashlib.sha256("\0".join(parts).encode("utf-8")).hexdigest()[:32]


def _ask(model: LanguageModel, asked: Sequence[tuple[Fact, str]]) -> list[_Behaviour]:
    without = model.answer([closed_book(question) for _, question in asked], CLOSED_BOOK_PREFIX)
    given = model.answer([open_book(question, [fact.text]) for fact, question in asked], OPEN_BOOK_PREFIX)
    return [
        _Behaviour(alone.text, alone.lowest_prob, helped.text)
        for alone, helped in zip(without, given, strict=True)
    ]


class _BehaviourCache:
    """Answers by key in a JSON Lines file that only grows. A line cut short by a kill is passed over."""

    def __init__(self, path: Path) -> None:
        self._path = path
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        self._is_cut = bool(text) and not text.endswith("\n")
        self.known: dict[str, _Behaviour] = {}
        for line in text.split("\n"):
            entry = _entry(line)
            if entry is not None:
                self.known[entry[0]] = entry[1]

    def append(self, behaviours: Mapping[str, _Behaviour]) -> None:
        """Keep further answers, on disk first."""
        lines = [
            json.dumps(
                {
                    "key": key,
                    "without": item.answer_without,
                    "prob_without": item.prob_without,
                    "with": item.answer_with,
                },
                ensure_ascii=False,
            )
            for key, item in behaviours.items()
        ]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(("\n" if self._is_cut else "") + "\n".join(lines) + "\n")
        self._is_cut = False
        self.known.update(behaviours)


def _entry(line: str) -> tuple[str, _Behaviour] | None:
    """Return what a line of the cache says; None for one that is damaged, whose fact is asked again."""
    try:
        data = json.loads(line)
        key, prob = data["key"], float(data["prob_without"])
        answers = data["without"], data["with"]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    is_sound = all(isinstance(text, str) for text in (key, *answers)) and 0 <= prob <= 1
    return (key, _Behaviour(answers[0], prob, answers[1])) if is_sound else None
