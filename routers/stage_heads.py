"""What one model's features say about a fact: class probabilities and the expected gain of storing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from routers.features import Evidence, FloatArray, evidence_in, feature_matrix, hidden_matrix
from routers.linear import LEAST_GAIN, Array64, HiddenReduction, LinearMap, Standardiser, softmax
from sharpwave.records import RouteAction

ACTIONS = (RouteAction.NON_WRITE, RouteAction.WRITE_NEW, RouteAction.WRITE_UPDATE)
"""Order of the columns of class probabilities."""

GainKind = Literal["logistic", "ridge"]


@dataclass(frozen=True)
class StageScores:
    """One model's scores of n facts: `class_probs` [n, 3] in the order of `ACTIONS`, `gain` [n] in (0, 1]."""

    class_probs: Array64
    gain: Array64

    def rows(self, places: Sequence[int]) -> StageScores:
        """Return the scores of some facts, in the order given."""
        chosen = np.asarray(places, dtype=np.intp)
        return StageScores(self.class_probs[chosen], self.gain[chosen])

    def joined(self, other: StageScores) -> StageScores:
        """Return these scores followed by others."""
        return StageScores(
            np.concatenate([self.class_probs, other.class_probs]), np.concatenate([self.gain, other.gain])
        )


@dataclass(frozen=True)
class EvidenceHead:
    """The head for one kind of evidence: a standardiser, a class map and a gain map."""

    standardiser: Standardiser
    classes: LinearMap
    gain: LinearMap
    gain_kind: GainKind

    def inputs(self, table: FloatArray, hidden: Array64) -> Array64:
        """Join standardised features and reduced hidden states; shape [rows, features + kept]."""
        return np.concatenate([self.standardiser.apply(table), hidden], axis=1)

    def score(self, table: FloatArray, hidden: Array64) -> StageScores:
        """Score rows of `feature_matrix` with their reduced hidden states."""
        inputs = self.inputs(table, hidden)
        return StageScores(
            softmax(self.classes.apply(inputs)), predicted_gain(self.gain, self.gain_kind, inputs)
        )


@dataclass(frozen=True)
class StageHeads:
    """All heads of one model. Features of a fact are judged by the head for the evidence they hold."""

    hidden: HiddenReduction
    by_evidence: Mapping[Evidence, EvidenceHead]

    def score(self, rows: Sequence[Mapping[str, FloatArray]], limit: Evidence) -> StageScores:
        """Score facts by their feature groups, using evidence up to a limit."""
        kinds = [self._head_for(evidence_in(row, limit)) for row in rows]
        scores = StageScores(np.zeros((len(rows), len(ACTIONS))), np.zeros(len(rows)))
        for kind in set(kinds):
            places = [place for place, own in enumerate(kinds) if own is kind]
            chosen = [rows[place] for place in places]
            part = self.by_evidence[kind].score(
                feature_matrix(chosen, kind), self.hidden.apply(hidden_matrix(chosen))
            )
            scores.class_probs[places], scores.gain[places] = part.class_probs, part.gain
        return scores

    def _head_for(self, evidence: Evidence) -> Evidence:
        """Fall back to less evidence where no head was trained for the kind at hand."""
        fitting = [kind for kind in self.by_evidence if kind.rank <= evidence.rank]
        return max(fitting, key=lambda kind: kind.rank)


def predicted_gain(gain: LinearMap, kind: GainKind, inputs: Array64) -> Array64:
    """Return the expected gain of each row, in [LEAST_GAIN, 1]."""
    raw = gain.apply(inputs)[:, 0]
    value = 1.0 / (1.0 + np.exp(-np.clip(raw, -40, 40))) if kind == "logistic" else raw
    return np.clip(value, LEAST_GAIN, 1.0)
