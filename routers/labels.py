"""The right route of a fact, found by behaviour: the answering model is asked without and with the fact.

Answers are kept on disk as they were given, so a run that was killed goes on where it stopped, and a changed
alias changes the label without asking again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from carriers.prompts import CLOSED_BOOK_PREFIX, OPEN_BOOK_PREFIX, closed_book, open_book
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
    """How the answering model fares on one fact by itself and with the fact before it.

    `prob_without` is the lowest token probability of the answer given without the fact.
    """

    fact_id: str
    em_without: bool
    em_with: bool
    answer_without: str
    prob_without: float
    action: RouteAction

    @property
    def gain(self) -> int:
        """Exact match with the fact minus without: -1, 0 or 1."""
        return int(self.em_with) - int(self.em_without)


@dataclass(frozen=True)
class _Behaviour:
    """The answers as the model gave them: what is kept on disk."""

    answer_without: str
    prob_without: float
    answer_with: str

    def label(self, fact: Fact) -> BehaviourLabel:
        em_without = exact_match(self.answer_without, fact.answers)
        return BehaviourLabel(
            fact_id=fact.id,
            em_without=em_without,
            em_with=exact_match(self.answer_with, fact.answers),
            answer_without=self.answer_without,
            prob_without=self.prob_without,
            action=label_action(em_without, self.prob_without),
        )


def label_action(em_without: bool, prob_without: float) -> RouteAction:
    """Return the class that a behaviour belongs to."""
    if em_without:
        return RouteAction.NON_WRITE
    return RouteAction.WRITE_UPDATE if prob_without >= CONFIDENT_PROB else RouteAction.WRITE_NEW


def label_facts(
    model: LanguageModel,
    facts: Sequence[Fact],
    *,
    variant: str = "",
    cache_folder: Path | None = None,
    on_count: OnCount | None = None,
) -> list[BehaviourLabel]:
    """Label facts by the behaviour of the answering model, in the order given.

    The model is asked `questions[-1]` by greedy decoding, once from the weights alone and once with the fact
    as the only note. What was asked before is read from the cache.

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
    keys = [behaviour_key(fact) for fact in facts]
    missing = list({key: row for row, key in enumerate(keys) if key not in cache.known}.values())
    done = len(facts) - len(missing)
    for start in range(0, len(missing), _FACTS_PER_CHUNK):
        if on_count is not None:
            on_count(done + start, len(facts))
        rows = missing[start : start + _FACTS_PER_CHUNK]
        behaviours = _ask(model, [facts[row] for row in rows])
        cache.append({keys[row]: behaviour for row, behaviour in zip(rows, behaviours, strict=True)})
    if on_count is not None:
        on_count(len(facts), len(facts))
    return [cache.known[key].label(fact) for key, fact in zip(keys, facts, strict=True)]


def label_cache_path(fingerprint: str, variant: str = "", folder: Path | None = None) -> Path:
    """Return the file that holds the answers of one model."""
    name = f"{fingerprint}-{variant}" if variant else fingerprint
    return (folder or cache_home() / "labels") / f"{name}.jsonl"


def behaviour_key(fact: Fact) -> str:
    """Return 32 hex digits of what an answer depends on beside the model: fact, question, prompt wording."""
    parts = [
        fact.id,
        CLOSED_BOOK_PREFIX + closed_book(fact.questions[-1]),
        OPEN_BOOK_PREFIX + open_book(fact.questions[-1], [fact.text]),
    ]
    return hashlib.sha256("\0".join(parts).encode("utf-8")).hexdigest()[:32]


def _ask(model: LanguageModel, facts: Sequence[Fact]) -> list[_Behaviour]:
    without = model.answer([closed_book(fact.questions[-1]) for fact in facts], CLOSED_BOOK_PREFIX)
    given = model.answer([open_book(fact.questions[-1], [fact.text]) for fact in facts], OPEN_BOOK_PREFIX)
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
    try:
        data = json.loads(line)
        return data["key"], _Behaviour(data["without"], float(data["prob_without"]), data["with"])
    except (ValueError, KeyError, TypeError):
        return None
