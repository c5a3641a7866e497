"""What one model's features say about a fact: class probabilities and the expected gain of storing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from routers.features import Evidence, FloatArray, evidence_in, feature_matrix, hidden_matrix
from routers.linear import LEAST_GAIN, Array64, HiddenReduction, LinearMap, Standardiser, softmax
from sharpwave.records import RouteAction

if TYPE_CHECKING:
    from numpy.typing import NDArray

ACTIONS = (RouteAction.NON_WRITE, RouteAction.WRITE_NEW, RouteAction.WRITE_UPDATE)
"""Order of the columns of class probabilities."""
_UPDATE = ACTIONS.index(RouteAction.WRITE_UPDATE)


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
class Prices:
    """When to write and when to ask.

    Write if the expected gain is above `storage`, or the probability of an update above `update`: a belief left
    uncorrected costs most. Ask the large model if the gate is above `escalation`.
    """

    storage: float
    escalation: float
    update: float = 1.0

    def writes(self, scores: StageScores) -> NDArray[np.bool_]:
        """Tell which facts are stored, [n]."""
        return np.asarray((scores.gain > self.storage) | (scores.class_probs[:, _UPDATE] > self.update))


@dataclass(frozen=True)
class EvidenceHead:
    """The head for one kind of evidence: a standardiser, a class map, and the gain of storing what is not known.

    The expected gain is a multiple of the probability that the fact is not known. A regression on the gain itself
    was worse at telling what can be dropped: it spends itself on which facts the reader can read.
    """

    standardiser: Standardiser
    classes: LinearMap
    gain_scale: float

    def inputs(self, table: FloatArray, hidden: Array64) -> Array64:
        """Join standardised features and reduced hidden states; shape [rows, features + kept]."""
        return np.concatenate([self.standardiser.apply(table), hidden], axis=1)

    def score(self, table: FloatArray, hidden: Array64) -> StageScores:
        """Score rows of `feature_matrix` with their reduced hidden states."""
        probs = softmax(self.classes.apply(self.inputs(table, hidden)))
        return StageScores(probs, np.clip(self.gain_scale * (1 - probs[:, 0]), LEAST_GAIN, 1.0))


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
