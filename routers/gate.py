"""The gate: how much the realised utility of a decision would rise if the large model were asked.

Utility of a decision is the gain in exact match it brings minus the storage price if it writes. The gate
reads the small model's scores and a few figures of its token curves, and predicts large minus small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from routers.features import CURVE_FEATURES, FloatArray
from routers.linear import Array64, LinearMap, Parameters, Standardiser, log_odds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from routers.stage_heads import StageScores

_CENTRES = np.linspace(-6.0, 6.0, 9)
_WIDTH = 1.5
_CURVE_FIGURES = tuple(
    (curve, CURVE_FEATURES.index(figure))
    for curve, figure in (
        ("nll", "mean"),
        ("nll", "max"),
        ("nll", "last"),
        ("entropy", "mean"),
        ("log_rank", "mean"),
        ("margin", "min"),
        ("first_choice", "mean"),
    )
)
GATE_INPUTS = len(_CENTRES) + 4 + len(_CURVE_FIGURES) + 1


@dataclass(frozen=True)
class GateHead(Parameters):
    """A standardised linear map from `gate_inputs` to utility: mean, scale, weight [inputs, 1], bias [1]."""

    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]

    def predict(self, inputs: Array64) -> Array64:
        """Return the expected rise in utility of each row."""
        standardised = Standardiser(self.mean, self.scale).apply(inputs)
        return LinearMap(self.weight, self.bias).apply(standardised)[:, 0]


def gate_inputs(rows: Sequence[Mapping[str, FloatArray]], small: StageScores) -> Array64:
    """Describe what the small model thinks of facts; shape [facts, GATE_INPUTS].

    The gain enters through bumps along its log-odds, since asking pays most somewhere in the middle.
    """
    if not rows:
        return np.zeros((0, GATE_INPUTS))
    bumps = np.exp(-0.5 * ((log_odds(small.gain)[:, None] - _CENTRES) / _WIDTH) ** 2)
    probs = small.class_probs
    entropy = -(probs * np.log(np.clip(probs, 1e-12, 1))).sum(axis=1, keepdims=True)
    figures = np.array([[row[curve][place] for curve, place in _CURVE_FIGURES] for row in rows])
    length = np.array([[row["length"][0]] for row in rows])
    return np.concatenate([bumps, probs, entropy, figures, length], axis=1)


def realised_utility(writes: NDArray[np.bool_], gain: NDArray[Any], storage_price: float) -> Array64:
    """Return what each decision brought: the fact's true gain minus the price if written, else 0."""
    return np.where(writes, np.asarray(gain, dtype=np.float64) - storage_price, 0.0)


def utility_of_asking(
    small: StageScores, large: StageScores, gain: NDArray[Any], storage_price: float
) -> Array64:
    """Return the realised utility of the large decision minus that of the small one, per fact."""
    return realised_utility(large.gain > storage_price, gain, storage_price) - realised_utility(
        small.gain > storage_price, gain, storage_price
    )
