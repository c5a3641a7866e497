"""The cascade at work: the small model screens every fact, the gate picks those worth asking the large one about.

Prices lie outside the scores: the heads bring calibrated ones, and the caller may set others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from routers.features import Evidence
from routers.observation import FactObservation, OnCount, observation_flops, observe, usable_evidence
from routers.stage_heads import ACTIONS, Prices, StageScores
from sharpwave.records import RouteAction, RouteDecision, RouteStage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from carriers.text_model import TextModel
    from routers.heads import RouterHeads
    from sharpwave.records import Fact
    from sharpwave.settings import Stages

_BELIEFS = {
    RouteAction.WRITE_NEW: "the model does not seem to know it",
    RouteAction.WRITE_UPDATE: "the model seems to believe something else",
}


@dataclass(frozen=True)
class _Verdict:
    """What is known about one fact when its action is chosen."""

    fact_id: str
    stage: RouteStage
    class_probs: tuple[float, ...]
    expected_gain: float
    gate_value: float
    prices: Prices
    evidence: Evidence
    flops: float
    is_conflict: bool

    @property
    def is_worth_storing(self) -> bool:
        return self.expected_gain > self.prices.storage or self.may_be_update

    @property
    def may_be_update(self) -> bool:
        return self.class_probs[ACTIONS.index(RouteAction.WRITE_UPDATE)] > self.prices.update

    def action(self) -> RouteAction:
        if self.is_conflict:
            return RouteAction.WRITE_UPDATE
        if not self.is_worth_storing:
            return RouteAction.NON_WRITE
        _, new, update = self.class_probs
        return RouteAction.WRITE_UPDATE if update > new else RouteAction.WRITE_NEW

    def reason(self) -> str:
        if self.is_conflict:
            return "its slot holds another live value, so it is stored whatever the model knows"
        has_gain = self.expected_gain > self.prices.storage
        figures = f"expected gain {self.expected_gain:.4f} {'>' if has_gain else '<='} price {self.prices.storage:.4f}"
        if not has_gain and self.may_be_update:
            prob = self.class_probs[ACTIONS.index(RouteAction.WRITE_UPDATE)]
            figures += f", but an update with probability {prob:.4f} > {self.prices.update:.4f}"
        belief = _BELIEFS.get(self.action(), "the model seems to know it")
        return f"{figures} by the {self.stage.value} model: {belief}"


@dataclass(frozen=True)
class _Judged:
    """Scores, gate values [facts], the places at which the large model was asked, and costs [facts]."""

    scores: StageScores
    gate: NDArray[np.float64]
    asked: Sequence[int]
    flops: NDArray[np.float64]


class CascadeRouter:
    """Decides about facts with a small and a large model. Keeps no state between calls.

    Args:
        small_model: Screens every fact.
        large_model: Judges what the gate escalates; it should carry the current generation.
        heads: Trained on these two models' bases.
        storage_price: Expected gain that a stored fact must exceed; None takes the calibrated price.
        escalation_price: Gate value above which the large model is asked; None takes the calibrated price. The
            gate estimates a utility, so 1e9 never asks and -1e9 always does.
        update_price: Probability of an update above which a fact is stored whatever its gain; None takes the
            calibrated price, 1 never stores for this reason.
        use_self_probe: Whether a fact's own question may be asked; without, its text alone is judged.
        stages: `both` is the cascade; `small` never asks the large model, `large` asks it alone.
    """

    def __init__(
        self,
        small_model: TextModel,
        large_model: TextModel,
        heads: RouterHeads,
        *,
        storage_price: float | None = None,
        escalation_price: float | None = None,
        update_price: float | None = None,
        use_self_probe: bool = True,
        stages: Stages = "both",
    ) -> None:
        self.small_model = small_model
        self.large_model = large_model
        self.heads = heads
        self.storage_price = storage_price
        self.escalation_price = escalation_price
        self.update_price = update_price
        self.use_self_probe = use_self_probe
        self.stages = stages

    def decide(
        self,
        facts: Sequence[Fact],
        generation: int,
        *,
        conflicting_ids: Collection[str] = (),
        learnt_ids: Collection[str] = (),
        on_count: OnCount | None = None,
    ) -> list[RouteDecision]:
        """Decide about facts, in the order given.

        Args:
            facts: New facts; exact repeats are the caller's, see `repeat_decision`.
            generation: Number of the generation that the large model carries.
            conflicting_ids: Facts whose slot holds another live value: stored as updates without asking further.
            learnt_ids: Facts near to what the large model was trained on: it is asked about them whatever the gate
                says, for the gate was fitted before and the small model has learnt nothing.
            on_count: Told as the small model proceeds.
        """
        if not facts:
            return []
        kinds = [usable_evidence(fact, self._limit(Evidence.PROBE)) for fact in facts]
        prices = [self._prices(kind) for kind in kinds]
        if self.stages == "large":
            scores, costs = self._ask_large(facts)
            judged = _Judged(scores, np.zeros(len(facts)), range(len(facts)), np.array(costs))
        else:
            judged = self._screened(facts, kinds, prices, conflicting_ids, learnt_ids, on_count)
        asked = set(judged.asked)
        verdicts = [
            _Verdict(
                fact_id=fact.id,
                stage=RouteStage.LARGE if place in asked else RouteStage.SMALL,
                class_probs=tuple(float(prob) for prob in judged.scores.class_probs[place]),
                expected_gain=float(judged.scores.gain[place]),
                gate_value=float(judged.gate[place]),
                prices=prices[place],
                evidence=kinds[place],
                flops=float(judged.flops[place]),
                is_conflict=fact.id in conflicting_ids,
            )
            for place, fact in enumerate(facts)
        ]
        return [self._decision(verdict, generation) for verdict in verdicts]

    def _screened(
        self,
        facts: Sequence[Fact],
        kinds: Sequence[Evidence],
        prices: Sequence[Prices],
        conflicting_ids: Collection[str],
        learnt_ids: Collection[str],
        on_count: OnCount | None,
    ) -> _Judged:
        """Let the small model look at all facts and the large one at those that are worth it."""
        limit = self._limit(self.heads.small_limit)
        seen = observe(self.small_model, facts, limit, on_count)
        rows = [item.groups for item in seen]
        small = self.heads.small.score(rows, limit)
        gate = self.heads.gate_values(rows, small, kinds)
        flops = np.array([item.flops(limit) for item in seen])
        if self.stages == "small":
            return _Judged(small, gate, (), flops)
        asked = [
            place
            for place, fact in enumerate(facts)
            if fact.id not in conflicting_ids
            and (fact.id in learnt_ids or gate[place] > prices[place].escalation)
        ]
        large, costs = self._ask_large([facts[place] for place in asked])
        flops[asked] += costs
        return _Judged(_overlaid(small, large, asked), gate, asked, flops)

    def large_only_flops(self, facts: Sequence[Fact]) -> list[float]:
        """Return for each fact what the large model alone would have cost; no pass is made.

        The sum of the decisions' `flops` over the sum of these is the routing cost ratio.
        """
        limit = self._limit(self.heads.large_limit)
        return [observation_flops(self.large_model, fact, limit) for fact in facts]

    def _limit(self, wanted: Evidence) -> Evidence:
        return wanted if self.use_self_probe else wanted.at_most(Evidence.SPAN)

    def _prices(self, kind: Evidence) -> Prices:
        calibrated = self.heads.prices[self.heads.known_kind(kind)]
        return Prices(
            calibrated.storage if self.storage_price is None else self.storage_price,
            calibrated.escalation if self.escalation_price is None else self.escalation_price,
            calibrated.update if self.update_price is None else self.update_price,
        )

    def _ask_large(self, facts: Sequence[Fact]) -> tuple[StageScores, list[float]]:
        limit = self._limit(self.heads.large_limit)
        seen: list[FactObservation] = observe(self.large_model, facts, limit)
        scores = self.heads.large.score([item.groups for item in seen], limit)
        return scores, [item.flops(limit) for item in seen]

    def _decision(self, verdict: _Verdict, generation: int) -> RouteDecision:
        known, new, update = verdict.class_probs
        return RouteDecision(
            fact_id=verdict.fact_id,
            action=verdict.action(),
            stage=verdict.stage,
            p_non_write=known,
            p_write_new=new,
            p_write_update=update,
            expected_gain=verdict.expected_gain,
            gate_value=verdict.gate_value,
            storage_price=verdict.prices.storage,
            escalation_price=verdict.prices.escalation,
            update_price=verdict.prices.update,
            evidence=verdict.evidence.value,
            router_version=self.heads.version,
            generation=generation,
            flops=verdict.flops,
            reason=verdict.reason(),
        )


def repeat_decision(fact_id: str, generation: int, router_version: str = "") -> RouteDecision:
    """Return the decision about an exact repeat of a fact on record: nothing is written, no model is asked."""
    return RouteDecision(
        fact_id=fact_id,
        action=RouteAction.NON_WRITE,
        stage=RouteStage.REPEAT,
        p_non_write=1.0,
        p_write_new=0.0,
        p_write_update=0.0,
        expected_gain=0.0,
        storage_price=0.0,
        escalation_price=0.0,
        router_version=router_version,
        generation=generation,
        reason="an exact repeat of a fact on record",
    )


def _overlaid(small: StageScores, large: StageScores, asked: Sequence[int]) -> StageScores:
    """Return the small model's scores with the large one's in the places that were asked about."""
    scores = StageScores(np.array(small.class_probs).reshape(-1, len(ACTIONS)), np.array(small.gain))
    if asked:
        scores.class_probs[list(asked)], scores.gain[list(asked)] = large.class_probs, large.gain
    return scores
