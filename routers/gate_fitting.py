"""Fits the gate on out-of-fold scores and compares it with plainer ways to choose whom to ask about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from routers.calibration import CascadeScores, empirical_storage_price, price_for_rate
from routers.gate import GateHead, utility_of_asking
from routers.head_fitting import fit_ridge, group_folds
from routers.linear import Array64, Standardiser

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PENALTIES = (1000.0, 100.0, 10.0)
_ROUNDS = 2


@dataclass(frozen=True)
class FittedGate:
    """A gate, the storage price its utility was reckoned with, and its out-of-fold values."""

    gate: GateHead
    storage_price: float
    out_of_fold: Array64


def fit_gate(
    inputs: Array64,
    scores: CascadeScores,
    *,
    target_loss: float,
    max_escalation: float,
    folds: int,
    seed: int,
) -> FittedGate:
    """Fit the gate to the realised utility of asking the large model.

    Utility needs a storage price, and the price that keeps the loss in bounds depends on whom the gate sends on:
    the price of the large model alone comes first, then that of the cascade the first gate makes.

    Args:
        inputs: `gate.gate_inputs` of the training facts.
        scores: Out-of-fold scores of both models on them; their own gate values are not looked at.
        target_loss: Share of the full store's answers that may be lost at the price.
        max_escalation: Share of facts that may be escalated.
        folds: Folds of the cross-validation that chooses the penalty, subjects kept apart.
        seed: Seed of the folds.
    """
    splits = group_folds(scores.groups, folds, seed)
    decided = scores.large
    fitted: FittedGate | None = None
    for _ in range(_ROUNDS):
        price = empirical_storage_price(decided.gain, scores.em_with, scores.em_without, target_loss)
        utility = utility_of_asking(scores.small, scores.large, scores.true_gain, price)
        values = {penalty: _cross_predict(inputs, utility, splits, penalty) for penalty in _PENALTIES}
        caught = {
            penalty: caught_utility(value, utility, max_escalation) for penalty, value in values.items()
        }
        penalty = max(caught, key=caught.__getitem__)
        fitted = FittedGate(_fit(inputs, utility, penalty), price, values[penalty])
        asked = fitted.out_of_fold > price_for_rate(fitted.out_of_fold, max_escalation)
        decided = type(decided)(decided.class_probs, np.where(asked, scores.large.gain, scores.small.gain))
    assert fitted is not None
    return fitted


def caught_utility(values: Array64, utility: Array64, rate: float) -> float:
    """Return the mean utility per fact won by asking about the share of facts with the highest values."""
    if not len(values):
        return 0.0
    asked = np.argsort(-values, kind="stable")[: int(np.floor(rate * len(values)))]
    return float(utility[asked].sum() / len(values))


def compare_gates(scores: CascadeScores, storage_price: float, rate: float, seed: int) -> dict[str, float]:
    """Return the utility per fact won at an equal rate by the gate, by uncertainty, at random and at best."""
    utility = utility_of_asking(scores.small, scores.large, scores.true_gain, storage_price)
    probs = scores.small.class_probs
    entropy = -(probs * np.log(np.clip(probs, 1e-12, 1))).sum(axis=1)
    chance = np.random.default_rng(seed).random(len(scores))
    return {
        "rate": rate,
        "storage_price": storage_price,
        "gate": caught_utility(scores.gate, utility, rate),
        "uncertainty": caught_utility(entropy, utility, rate),
        "random": caught_utility(chance, utility, rate),
        "oracle": caught_utility(utility, utility, rate),
    }


def _fit(inputs: Array64, utility: Array64, penalty: float) -> GateHead:
    standardiser = Standardiser.fit(inputs)
    linear = fit_ridge(standardiser.apply(inputs), utility, penalty)
    return GateHead(standardiser.mean, standardiser.scale, linear.weight, linear.bias)


def _cross_predict(
    inputs: Array64,
    utility: Array64,
    splits: Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]],
    penalty: float,
) -> Array64:
    values = np.zeros(len(inputs))
    for train, left_out in splits:
        values[left_out] = _fit(inputs[train], utility[train], penalty).predict(inputs[left_out])
    return values
