"""Chooses the two prices on facts set aside for it, and computes what any pair of prices would have led to.

The promise, by Learn-then-Test with a fixed sequence of prices: of the questions that a full store would answer, at
most `target_loss` are about facts that are dropped although the model cannot answer without. EM is then at least
(1 - target_loss) of the full store's. It assumes that facts to come and calibration facts are exchangeable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from routers.stage_heads import ACTIONS, Prices, StageScores
from sharpwave.records import RouteAction
from sharpwave.statistics import binomial_tail_p_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from routers.linear import Array64

STORAGE_PRICES: tuple[float, ...] = tuple(
    float(price) for price in np.concatenate([np.geomspace(1e-4, 0.02, 40), np.arange(0.025, 1.0, 0.005)])
)
"""The prices tested, in this order; fixed beforehand, as the test requires."""
UPDATE_PRICES: tuple[float, ...] = tuple(float(price) for price in np.geomspace(1e-3, 0.9, 80))
FRONTIER_RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0)
_FRONTIER_EVERY = 10


@dataclass(frozen=True)
class CascadeScores:
    """Scores, truth and cost of n facts: all that prices are chosen from.

    Attributes:
        small: Scores of the small model.
        large: Scores of the large model, here for every fact.
        gate: Value of the gate, [n].
        classes: True class of each fact as a place in `stage_heads.ACTIONS`, [n].
        em_without: Share of the questions that the answering model gets right without the fact, [n].
        em_with: The same with the fact at hand, [n].
        drawn_without: Whether it is right without the fact on one question, drawn by the fact's id, [n].
        drawn_with: The same with the fact at hand, [n].
        small_flops: Cost of the small model's look, [n].
        large_flops: Cost of the large model's look, [n].
        groups: Subject of each fact.
    """

    small: StageScores
    large: StageScores
    gate: Array64
    classes: NDArray[np.intp]
    em_without: Array64
    em_with: Array64
    drawn_without: NDArray[np.bool_]
    drawn_with: NDArray[np.bool_]
    small_flops: Array64
    large_flops: Array64
    groups: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.gate)

    @cached_property
    def true_gain(self) -> Array64:
        """Exact match with the fact minus without, [n]."""
        return self.em_with - self.em_without

    @property
    def known(self) -> NDArray[np.bool_]:
        """Tell which facts the answering model needs for none of the questions, [n]."""
        return np.asarray(self.em_without >= 1)

    def escalated(self, escalation_price: float) -> NDArray[np.bool_]:
        """Tell which facts the large model decides, [n]."""
        return np.asarray(self.gate > escalation_price)

    def decided(self, escalation_price: float) -> StageScores:
        """Return for each fact the scores of the model that decides it."""
        asked = self.escalated(escalation_price)
        return StageScores(
            np.where(asked[:, None], self.large.class_probs, self.small.class_probs),
            np.where(asked, self.large.gain, self.small.gain),
        )

    def joined(self, other: CascadeScores) -> CascadeScores:
        """Return these facts followed by others."""
        return CascadeScores(
            self.small.joined(other.small),
            self.large.joined(other.large),
            np.concatenate([self.gate, other.gate]),
            np.concatenate([self.classes, other.classes]),
            np.concatenate([self.em_without, other.em_without]),
            np.concatenate([self.em_with, other.em_with]),
            np.concatenate([self.drawn_without, other.drawn_without]),
            np.concatenate([self.drawn_with, other.drawn_with]),
            np.concatenate([self.small_flops, other.small_flops]),
            np.concatenate([self.large_flops, other.large_flops]),
            self.groups + other.groups,
        )

    def subset(self, places: NDArray[np.intp]) -> CascadeScores:
        """Return some facts, in the order given."""
        rows = [int(place) for place in places]
        return CascadeScores(
            self.small.rows(rows),
            self.large.rows(rows),
            self.gate[places],
            self.classes[places],
            self.em_without[places],
            self.em_with[places],
            self.drawn_without[places],
            self.drawn_with[places],
            self.small_flops[places],
            self.large_flops[places],
            tuple(self.groups[row] for row in rows),
        )


@dataclass(frozen=True)
class Promise:
    """What was promised about losses, and what was counted for it on the calibration facts.

    `errors` of the `n` calibration facts that a full store would answer are lost at `storage_price`; `p_value` is
    that of the hypothesis that the true share is above `target_loss`. At price 0 everything is stored.
    """

    storage_price: float
    target_loss: float
    confidence: float
    errors: int
    n: int
    p_value: float

    @property
    def least_n(self) -> int:
        """Calibration facts answered by a full store without which no price above 0 can be certified."""
        return math.ceil(math.log(1 - self.confidence) / math.log(1 - self.target_loss))

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with the assumption the promise rests on."""
        return asdict(self) | {
            "least_n": self.least_n,
            "assumes": "facts to come are exchangeable with the calibration facts",
        }


@dataclass(frozen=True)
class UpdatePromise:
    """What was promised about updates: `missed` of the `n` calibration updates are not stored at `update_price`."""

    update_price: float
    target_recall: float
    confidence: float
    missed: int
    n: int
    is_certified: bool


@dataclass(frozen=True)
class OperatingPoint:
    """What a pair of prices led to on n facts; ratios are 0 where there is nothing to divide by.

    Attributes:
        storage_price: Price of storing.
        escalation_price: Price of asking the large model.
        update_price: Probability of an update above which a fact is stored in any case.
        storage_ratio: Share of the facts that were written.
        em: Exact match with what was written.
        em_full_store: Exact match had all been written.
        em_no_memory: Exact match had nothing been written.
        em_retention: `em` / `em_full_store`.
        em_loss: Share, of the questions a full store answers, whose fact was dropped and is not known.
        prunable_pruned: Share that was dropped of the facts known in every wording asked.
        escalation_rate: Share of the facts the large model decided.
        routing_cost_ratio: FLOPs spent / FLOPs had the large model seen all facts and the small one none.
        n: Number of facts.
    """

    storage_price: float
    escalation_price: float
    update_price: float
    storage_ratio: float
    em: float
    em_full_store: float
    em_no_memory: float
    em_retention: float
    em_loss: float
    prunable_pruned: float
    escalation_rate: float
    routing_cost_ratio: float
    n: int


def price_for_rate(gate: Array64, max_rate: float) -> float:
    """Return the least price of 0 or more at which at most this share of facts is escalated.

    >>> price_for_rate(np.array([0.1, 0.2, 0.3, 0.4]), 0.5)
    0.2
    """
    allowed = int(np.floor(max_rate * len(gate) + 1e-9))
    if allowed >= len(gate):
        return 0.0
    return float(max(0.0, np.sort(gate)[::-1][allowed]))


def lost_answers(writes: NDArray[np.bool_], em_with: Array64, em_without: Array64) -> Array64:
    """Return for each fact the exact match that is lost if it is dropped; 0 where it is stored or known."""
    return np.where(writes, 0.0, np.maximum(em_with - em_without, 0.0))


def certify_storage_price(
    gain: Array64,
    drawn_with: NDArray[np.bool_],
    drawn_without: NDArray[np.bool_],
    *,
    target_loss: float = 0.02,
    confidence: float = 0.95,
) -> Promise:
    """Return the highest storage price for which the promise can be made.

    Prices are tested upwards from the safest; the first that fails ends the search, so no correction for many
    tests is due. With too few facts the price is 0, which stores everything and keeps any promise. The test is the
    exact binomial one on one question per fact: questions about the same fact do not err independently.

    Args:
        gain: Expected gain of each calibration fact by the model that decides it.
        drawn_with: Whether the answering model is right with the fact, on one question.
        drawn_without: Whether it is right without, on the same question.
        target_loss: Largest share of the full store's right answers that may be lost.
        confidence: Probability, over calibration sets, that the promise is true.
    """
    answered = int(drawn_with.sum())
    best = Promise(0.0, target_loss, confidence, 0, answered, 0.0)
    would_be_lost = np.sort(gain[drawn_with & ~drawn_without])
    counts = np.searchsorted(would_be_lost, STORAGE_PRICES, side="right")
    p_values = {
        int(errors): binomial_tail_p_value(int(errors), answered, target_loss) for errors in np.unique(counts)
    }
    for price, errors in zip(STORAGE_PRICES, counts.tolist(), strict=True):
        if p_values[errors] > 1 - confidence:
            break
        best = Promise(price, target_loss, confidence, errors, answered, p_values[errors])
    return best


def certify_update_price(
    scores: StageScores,
    classes: NDArray[np.intp],
    storage_price: float,
    *,
    target_recall: float = 0.95,
    confidence: float = 0.95,
) -> UpdatePromise:
    """Return the highest update price for which at least `target_recall` of the updates are stored, with confidence.

    Tested upwards from the safest, as storage prices are. With too few updates nothing can be certified: the price
    is then 1, which never stores a fact for this reason alone, and the promise says so.

    Args:
        scores: Of the calibration facts, by the model that decides each.
        classes: True class of each as a place in `ACTIONS`.
        storage_price: Price at which the facts are stored anyway.
        target_recall: Least share of updates stored.
        confidence: Probability, over calibration sets, that the promise is true.
    """
    chosen = np.flatnonzero(classes == ACTIONS.index(RouteAction.WRITE_UPDATE))
    updates = scores.rows(chosen.tolist())
    best = UpdatePromise(1.0, target_recall, confidence, 0, len(chosen), is_certified=False)
    for price in UPDATE_PRICES:
        missed = int((~Prices(storage_price, 0.0, price).writes(updates)).sum())
        if binomial_tail_p_value(missed, len(chosen), 1 - target_recall) > 1 - confidence:
            break
        best = UpdatePromise(price, target_recall, confidence, missed, len(chosen), is_certified=True)
    return best


def empirical_storage_price(
    gain: Array64, em_with: Array64, em_without: Array64, target_loss: float
) -> float:
    """Return the highest tested price whose loss on these very facts is within the target; promises nothing."""
    order = np.argsort(gain, kind="stable")
    lost = np.concatenate([[0.0], np.cumsum(np.maximum(em_with - em_without, 0.0)[order])])
    losses = lost[np.searchsorted(gain[order], STORAGE_PRICES, side="right")]
    allowed = target_loss * em_with.sum() + 1e-9
    within = [price for price, loss in zip(STORAGE_PRICES, losses, strict=True) if loss <= allowed]
    return within[-1] if within else 0.0


def operating_point(scores: CascadeScores, prices: Prices) -> OperatingPoint:
    """Return what prices lead to on these facts."""
    asked = scores.escalated(prices.escalation)
    writes = prices.writes(scores.decided(prices.escalation))
    em = _share(np.where(writes, scores.em_with, scores.em_without))
    full = _share(scores.em_with)
    large_only = scores.large_flops.sum()
    spent = scores.small_flops.sum() + scores.large_flops[asked].sum()
    lost = lost_answers(writes, scores.em_with, scores.em_without).sum()
    answered = scores.em_with.sum()
    return OperatingPoint(
        storage_price=prices.storage,
        escalation_price=prices.escalation,
        update_price=prices.update,
        storage_ratio=_share(writes),
        em=em,
        em_full_store=full,
        em_no_memory=_share(scores.em_without),
        em_retention=em / full if full else 0.0,
        em_loss=float(lost / answered) if answered else 0.0,
        prunable_pruned=_share(~writes[scores.known]),
        escalation_rate=_share(asked),
        routing_cost_ratio=float(spent / large_only) if large_only else 0.0,
        n=len(scores),
    )


def frontier(
    scores: CascadeScores, update_price: float = 1.0, rates: Sequence[float] = FRONTIER_RATES
) -> list[OperatingPoint]:
    """Sweep the prices of asking, by the rates they lead to, and of storing, by every few of the tested ones."""
    escalations = [np.inf if rate == 0 else price_for_rate(scores.gate, rate) for rate in rates[:-1]]
    return [
        operating_point(scores, Prices(storage, float(escalation), update_price))
        for escalation in [*escalations, -np.inf]
        for storage in (0.0, *STORAGE_PRICES[::_FRONTIER_EVERY])
    ]


def loss_over_resplits(
    scores: CascadeScores,
    *,
    target_loss: float,
    confidence: float,
    max_escalation: float,
    resplits: int = 100,
    seed: int = 0,
) -> Array64:
    """Return the realised loss in random halvings by subject, [resplits]; above `target_loss` a promise is broken.

    Prices are chosen on one half and judged on the other. The judging half is a sample, too, so a true loss just
    under the target is seen above it now and then.
    """
    subjects = np.unique(np.asarray(scores.groups, dtype=object))
    rng = np.random.default_rng(seed)
    losses = np.zeros(resplits)
    for turn in range(resplits):
        first = set(rng.permutation(subjects)[: len(subjects) // 2])
        is_first = np.array([group in first for group in scores.groups], dtype=bool)
        chosen, judged = (scores.subset(np.flatnonzero(part)) for part in (is_first, ~is_first))
        escalation = price_for_rate(chosen.gate, max_escalation)
        promise = certify_storage_price(
            chosen.decided(escalation).gain,
            chosen.drawn_with,
            chosen.drawn_without,
            target_loss=target_loss,
            confidence=confidence,
        )
        losses[turn] = operating_point(judged, Prices(promise.storage_price, escalation)).em_loss
    return losses


def _share(flags: NDArray[Any]) -> float:
    return float(np.mean(flags)) if len(flags) else 0.0
