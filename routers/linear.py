"""The arithmetic of trained heads: standardise, reduce, project. Plain NumPy, so deciding loads no trainer.

Parameters are float32 as on disk; the sums are float64, so the same features give the same decision anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array32 = NDArray[np.float32]
Array64 = NDArray[np.float64]

MOST_DEVIATIONS = 6.0
"""Standardised features are cut here, so that one strange token cannot decide alone."""
LEAST_GAIN = 1e-6
"""Expected gains are at least this, so that a storage price of 0 stores everything."""


class Parameters:
    """A frozen dataclass of arrays that can be written to and read from a flat dictionary.

    The arrays are made contiguous: safetensors writes the memory as it lies, and a product of matrices that lie
    otherwise may differ in the last bit, so that heads would score otherwise once they were saved and read.
    """

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, item.name, np.ascontiguousarray(getattr(self, item.name)))

    def arrays(self, prefix: str) -> dict[str, Array32]:
        """Return the arrays by dotted name."""
        return {f"{prefix}.{item.name}": getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any], prefix: str) -> Self:
        """Read what `arrays` wrote; a missing name is a KeyError."""
        return cls(**{item.name: arrays[f"{prefix}.{item.name}"] for item in fields(cls)})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Standardiser(Parameters):
    """Brings features to mean 0 and deviation 1, cut at `MOST_DEVIATIONS`; both arrays are [features]."""

    mean: Array32
    scale: Array32

    @classmethod
    def fit(cls, values: NDArray[Any]) -> Self:
        """Measure mean and deviation of [rows, features]; a constant feature gets scale 1."""
        table = np.asarray(values, dtype=np.float64)
        scale = table.std(axis=0)
        scale[scale < 1e-6] = 1.0
        return cls(table.mean(axis=0).astype(np.float32), scale.astype(np.float32))

    def apply(self, values: NDArray[Any]) -> Array64:
        """Return the standardised [rows, features]."""
        centred = np.asarray(values, dtype=np.float64) - self.mean.astype(np.float64)
        return np.clip(centred / self.scale.astype(np.float64), -MOST_DEVIATIONS, MOST_DEVIATIONS)


@dataclass(frozen=True)
class HiddenReduction(Parameters):
    """Principal components of pooled hidden states: mean [width], components [kept, width], scale [kept]."""

    mean: Array32
    components: Array32
    scale: Array32

    def apply(self, hidden: NDArray[Any]) -> Array64:
        """Return [rows, kept] components of about unit deviation."""
        centred = np.asarray(hidden, dtype=np.float64) - self.mean.astype(np.float64)
        reduced = centred @ self.components.astype(np.float64).T / self.scale.astype(np.float64)
        return np.clip(reduced, -MOST_DEVIATIONS, MOST_DEVIATIONS)


@dataclass(frozen=True)
class LinearMap(Parameters):
    """Weights [features, outputs] and bias [outputs]."""

    weight: Array32
    bias: Array32

    def apply(self, values: Array64) -> Array64:
        """Return [rows, outputs]."""
        return values @ self.weight.astype(np.float64) + self.bias.astype(np.float64)


def softmax(logits: Array64) -> Array64:
    """Return row-wise probabilities."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def log_odds(prob: Array64) -> Array64:
    """Return log(p / (1 - p)), finite at 0 and 1."""
    inside = np.clip(prob, LEAST_GAIN, 1 - LEAST_GAIN)
    return np.asarray(np.log(inside) - np.log1p(-inside))
