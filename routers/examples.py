"""What a router learns from: facts as both models see them, with the answering model's behaviour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from routers.calibration import CascadeScores
from routers.labels import BehaviourLabel, label_facts
from routers.observation_cache import observe_once
from routers.stage_heads import ACTIONS, StageScores
from sharpwave.errors import InputError

if TYPE_CHECKING:
    from carriers.language_model import LanguageModel
    from carriers.text_model import TextModel
    from routers.features import Evidence
    from routers.heads import RouterHeads
    from routers.linear import Array64
    from routers.observation import FactObservation, OnCount
    from sharpwave.records import Fact

OnStep = Callable[[str, int, int], None]
"""Called with the step, how many facts are done and how many there are."""


@dataclass(frozen=True)
class RoutingExample:
    """One fact as both models see it, with the answering model's behaviour and the fact's subject."""

    small: FactObservation
    large: FactObservation
    label: BehaviourLabel
    group: str


def collect_examples(
    small_model: TextModel,
    large_model: TextModel,
    answering_model: LanguageModel,
    facts: Sequence[Fact],
    groups: Sequence[str],
    *,
    on_step: OnStep | None = None,
) -> list[RoutingExample]:
    """Label facts by the answering model's behaviour and let both screening models look at them.

    Args:
        small_model: Screens every fact.
        large_model: Judges escalated facts: the answering model's weights, on the engine that routes.
        answering_model: Shows by its behaviour what is known.
        facts: Each with at least two questions, one to probe and one to label with.
        groups: Subject of each fact.
        on_step: Told the step ("label", "observe small", "observe large"), facts done and facts in all.

    Raises:
        InputError: A fact has fewer than two questions.
    """
    for fact in facts:
        if len(fact.questions) < 2:
            raise InputError(
                f"fact {fact.id} has {len(fact.questions)} question(s); training needs one to probe and another "
                "to label with",
                field="questions",
            )
    labels = label_facts(answering_model, facts, on_count=_counting(on_step, "label"))
    small = observe_once(small_model, facts, on_count=_counting(on_step, "observe small"))
    large = observe_once(large_model, facts, on_count=_counting(on_step, "observe large"))
    return [RoutingExample(*parts) for parts in zip(small, large, labels, groups, strict=True)]


def cascade_scores(heads: RouterHeads, examples: Sequence[RoutingExample], kind: Evidence) -> CascadeScores:
    """Score with both models the facts that offer a kind of evidence, as if they offered no more."""
    chosen = [item for item in examples if item.small.evidence(kind) is kind]
    small_limit, large_limit = heads.small_limit.at_most(kind), heads.large_limit.at_most(kind)
    rows = [item.small.groups for item in chosen]
    small = heads.small.score(rows, small_limit)
    large = heads.large.score([item.large.groups for item in chosen], large_limit)
    gate = heads.gate_values(rows, small, [kind] * len(chosen))
    return scores_of(chosen, small, large, gate, (small_limit, large_limit))


def scores_of(
    examples: Sequence[RoutingExample],
    small: StageScores,
    large: StageScores,
    gate: Array64,
    limits: tuple[Evidence, Evidence],
) -> CascadeScores:
    """Join scores with the truth and with what the looks cost, up to (small, large) limits of evidence."""
    return CascadeScores(
        small=small,
        large=large,
        gate=gate,
        classes=np.array([ACTIONS.index(item.label.action) for item in examples], dtype=np.intp),
        em_without=np.array([item.label.em_without for item in examples], dtype=np.float64),
        em_with=np.array([item.label.em_with for item in examples], dtype=np.float64),
        drawn_without=np.array([item.label.drawn[0] for item in examples], dtype=bool),
        drawn_with=np.array([item.label.drawn[1] for item in examples], dtype=bool),
        small_flops=np.array([item.small.flops(limits[0]) for item in examples], dtype=np.float64),
        large_flops=np.array([item.large.flops(limits[1]) for item in examples], dtype=np.float64),
        groups=tuple(item.group for item in examples),
    )


def check_disjoint(sets: Mapping[str, Sequence[RoutingExample]]) -> None:
    """Refuse sets that are empty or share a subject.

    Raises:
        InputError: Names the set and what is wrong with it.
    """
    owners: dict[str, str] = {}
    for name, items in sets.items():
        if not items:
            raise InputError(f"the {name} set holds no facts", field=name)
        for group in sorted({item.group for item in items}):
            if owners.setdefault(group, name) != name:
                raise InputError(
                    f"subject {group!r} is in the {owners[group]} and the {name} set", field=name
                )


def _counting(on_step: OnStep | None, step: str) -> OnCount | None:
    return None if on_step is None else lambda done, total: on_step(step, done, total)
