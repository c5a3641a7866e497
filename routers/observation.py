"""One model looks at facts: one pass over each text and, where there are questions, a self-probe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carriers.prompts import CLOSED_BOOK_PREFIX, closed_book
from routers.features import Evidence, FeatureGroups, evidence_in, feature_vector
from routers.wordings import probed_questions

if TYPE_CHECKING:
    from carriers.text_model import AnswerMatch, TextModel
    from sharpwave.records import Fact

OnCount = Callable[[int, int], None]
"""Called with how many are done and how many there are."""

MAX_PROBED_ANSWERS = 2
"""Aliases beyond these are not probed: each costs a pass of its own, and the canonical answer comes first."""
_MOST_PROBED_CHARS = 400
"""A longer question with its answer is not probed: attention over it would hold up every fact that waits behind."""
_FACTS_PER_CHUNK = 256


@dataclass(frozen=True)
class FactObservation:
    """What one model revealed about one fact, and what looking cost.

    Attributes:
        fact_id: The fact looked at.
        groups: Feature groups as `features.feature_vector` makes them.
        text_flops: Cost of the pass over the text.
        probe_flops: Cost of the self-probe, 0 without one. Few-shot prefixes are encoded once per process and
            not counted.
    """

    fact_id: str
    groups: FeatureGroups
    text_flops: float
    probe_flops: float

    def evidence(self, limit: Evidence = Evidence.PROBE) -> Evidence:
        """Tell the most evidence, up to a limit, that this observation can support."""
        return evidence_in(self.groups, limit)

    def flops(self, limit: Evidence = Evidence.PROBE) -> float:
        """Return what this observation costs when it is gathered up to a limit."""
        return self.text_flops + (self.probe_flops if limit is Evidence.PROBE else 0.0)


def observe(
    model: TextModel,
    facts: Sequence[Fact],
    limit: Evidence = Evidence.PROBE,
    on_count: OnCount | None = None,
) -> list[FactObservation]:
    """Let a model look at facts, in the order given.

    Args:
        model: The small or the large model.
        facts: What to look at.
        limit: The most evidence to gather; facts that offer less are looked at as far as they go.
        on_count: Told after every chunk.
    """
    seen: list[FactObservation] = []
    for start in range(0, len(facts), _FACTS_PER_CHUNK):
        seen.extend(_observe_chunk(model, facts[start : start + _FACTS_PER_CHUNK], limit))
        if on_count is not None:
            on_count(len(seen), len(facts))
    return seen


def observation_flops(model: TextModel, fact: Fact, limit: Evidence = Evidence.PROBE) -> float:
    """Return what `observe` would cost for one fact, from its token counts alone; no pass is made."""
    probe = _probe_flops(model, fact) if _is_probed(fact, limit) else 0.0
    return _text_flops(model, fact) + probe


def usable_evidence(fact: Fact, limit: Evidence = Evidence.PROBE) -> Evidence:
    """Tell the most evidence, up to a limit, that a fact offers."""
    if _is_probed(fact, limit):
        return Evidence.PROBE
    has_place = limit is not Evidence.TEXT and answer_place(fact) is not None
    return Evidence.SPAN if has_place else Evidence.TEXT


def answer_place(fact: Fact) -> tuple[int, int] | None:
    """Return first and one-past-last character of the answer in the text; None where no answer stands in it.

    The canonical answer is looked for first; the last occurrence counts, since statements mostly end in it.
    """
    for answer in fact.answers:
        start = fact.text.rfind(answer) if answer else -1
        if start >= 0:
            return start, start + len(answer)
    return None


def _is_probed(fact: Fact, limit: Evidence) -> bool:
    if limit is not Evidence.PROBE or not fact.questions:
        return False
    asked, answers = probed_questions(fact), fact.answers[:MAX_PROBED_ANSWERS]
    return max(map(len, asked)) + max(map(len, answers), default=0) <= _MOST_PROBED_CHARS


def _observe_chunk(model: TextModel, facts: Sequence[Fact], limit: Evidence) -> list[FactObservation]:
    texts = model.forward_features([fact.text for fact in facts])
    asked = [
        (row, question)
        for row, fact in enumerate(facts)
        if _is_probed(fact, limit)
        for question in probed_questions(fact)
    ]
    found = model.match_answers(
        [closed_book(question) for _, question in asked],
        [facts[row].answers[:MAX_PROBED_ANSWERS] for row, _ in asked],
        CLOSED_BOOK_PREFIX,
    )
    matches: dict[int, list[AnswerMatch]] = {}
    for (row, _), match in zip(asked, found, strict=True):
        matches.setdefault(row, []).append(match)
    return [
        FactObservation(
            fact_id=fact.id,
            groups=feature_vector(
                features,
                matches.get(row, []),
                None if limit is Evidence.TEXT else _answer_tokens(model, fact),
            ),
            text_flops=_text_flops(model, fact),
            probe_flops=_probe_flops(model, fact) if row in matches else 0.0,
        )
        for row, (fact, features) in enumerate(zip(facts, texts, strict=True))
    ]


def _text_flops(model: TextModel, fact: Fact) -> float:
    ids = model.tokenizer(fact.text, add_special_tokens=False)["input_ids"]
    tokens = min(len(ids) + 1, model.context_tokens)
    return model.flops(tokens, tokens - 1)


def _probe_flops(model: TextModel, fact: Fact) -> float:
    prompts = [
        len(model.prompt_ids(closed_book(question), CLOSED_BOOK_PREFIX))
        for question in probed_questions(fact)
    ]
    lengths = [len(model.answer_ids(answer)) for answer in fact.answers[:MAX_PROBED_ANSWERS]]
    return sum(model.flops(prompt + length, length) for prompt in prompts for length in lengths)


def _answer_tokens(model: TextModel, fact: Fact) -> tuple[int, int] | None:
    """Return first and one-past-last token of the answer in the text; None where it has no place there."""
    place = answer_place(fact)
    if place is None:
        return None
    encoded = model.tokenizer(fact.text, add_special_tokens=False, return_offsets_mapping=True)
    inside = [
        token
        for token, (start, end) in enumerate(encoded["offset_mapping"])
        if start < place[1] and end > place[0]
    ]
    return (inside[0], inside[-1] + 1) if inside else None
