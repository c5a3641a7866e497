"""Fits the heads of one model and predicts every training fact by heads that never saw its subject.

The penalty is chosen by cross-validation that keeps subjects apart; the out-of-fold
scores of the chosen ones train the gate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from routers.features import Evidence, FloatArray, evidence_in, feature_matrix, hidden_matrix
from routers.linear import Array64, HiddenReduction, LinearMap, Standardiser, softmax
from routers.stage_heads import ACTIONS, EvidenceHead, StageHeads, StageScores
from sharpwave.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_INVERSE_PENALTIES = (0.003, 0.03, 0.3)  # the strongest first: a tie keeps the simpler head
_ABSENT_LOGIT = -20.0
_LEAST_SCALE = 0.01
_MOST_ITERATIONS = 3000
_LEAST_ROWS = 8

Split = tuple["NDArray[np.intp]", "NDArray[np.intp]"]


@dataclass(frozen=True)
class StageTargets:
    """What the heads of a stage learn: `classes` [n] as places in `ACTIONS`, `gains` [n] in [-1, 1]."""

    classes: NDArray[np.intp]
    gains: NDArray[np.float64]

    def rows(self, places: NDArray[np.intp]) -> StageTargets:
        """Return the targets of some facts."""
        return StageTargets(self.classes[places], self.gains[places])


@dataclass(frozen=True)
class FittedStage:
    """Heads fitted on all training facts, out-of-fold scores per evidence limit, and what was chosen."""

    heads: StageHeads
    out_of_fold: Mapping[Evidence, StageScores]
    choices: Mapping[str, dict[str, Any]]

    def scores_up_to(self, limit: Evidence) -> StageScores:
        """Return the out-of-fold scores for a limit, or for the next lesser one that heads were fitted for."""
        fitting = [kind for kind in self.out_of_fold if kind.rank <= limit.rank]
        return self.out_of_fold[max(fitting, key=lambda kind: kind.rank)]


@dataclass(frozen=True)
class _Choice:
    inverse_penalty: float


def group_folds(groups: Sequence[str], folds: int, seed: int) -> list[Split]:
    """Return (training rows, left-out rows) of each fold; a group is left out as a whole.

    Groups go, largest first, to the fold with the fewest rows; the seed breaks ties between equal sizes.

    Raises:
        InputError: There are fewer than two groups.
    """
    names, numbers, sizes = np.unique(
        np.asarray(groups, dtype=object), return_inverse=True, return_counts=True
    )
    if len(names) < 2:
        raise InputError(
            f"training needs facts about at least two subjects, not {len(names)}", field="groups"
        )
    shuffled = np.random.default_rng(seed).permutation(len(names))
    filled = np.zeros(min(folds, len(names)), dtype=np.intp)
    fold_of = np.zeros(len(names), dtype=np.intp)
    for group in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        fold_of[group] = int(filled.argmin())
        filled[fold_of[group]] += sizes[group]
    own = fold_of[numbers]
    return [(np.flatnonzero(own != fold), np.flatnonzero(own == fold)) for fold in range(len(filled))]


def fit_hidden_reduction(hidden: FloatArray, components: int, seed: int) -> HiddenReduction:
    """Fit principal components of pooled hidden states [rows, width]; fewer if there are too few rows."""
    from sklearn.decomposition import PCA

    standardiser = Standardiser.fit(hidden)
    kept = max(1, min(components, len(hidden) - 1, hidden.shape[1]))
    fitted = PCA(kept, svd_solver="randomized", random_state=seed).fit(standardiser.apply(hidden))
    scale = np.sqrt(np.maximum(fitted.explained_variance_, 1e-12))
    # The standardiser is folded into mean and components: one product at decision time.
    mean = standardiser.mean.astype(np.float64) + fitted.mean_ * standardiser.scale
    return HiddenReduction(
        mean.astype(np.float32),
        (fitted.components_ / standardiser.scale).astype(np.float32),
        scale.astype(np.float32),
    )


def fit_stage(
    rows: Sequence[Mapping[str, FloatArray]],
    targets: StageTargets,
    groups: Sequence[str],
    *,
    components: int,
    folds: int,
    seed: int,
) -> FittedStage:
    """Fit the heads of one model for every kind of evidence that the training facts hold.

    Args:
        rows: Feature groups of each training fact.
        targets: Behaviour of the answering model on the same facts.
        groups: Subject of each fact.
        components: Principal components kept of the hidden states.
        folds: Folds of the cross-validation.
        seed: Seed of folds and components.

    Returns:
        Heads and scores. Out-of-fold scores for a limit exist for every fact: what holds less evidence than
        the limit is scored by the head for what it holds.

    Raises:
        InputError: There are fewer than two subjects.
    """
    splits = group_folds(groups, folds, seed)
    hidden = hidden_matrix(rows)
    reductions = [fit_hidden_reduction(hidden[train], components, seed) for train, _ in splits]
    whole = fit_hidden_reduction(hidden, components, seed)
    heads: dict[Evidence, EvidenceHead] = {}
    out_of_fold: dict[Evidence, StageScores] = {}
    choices: dict[str, dict[str, Any]] = {}
    for kind in Evidence:
        places = np.flatnonzero([evidence_in(row, kind) is kind for row in rows])
        subjects = {groups[int(place)] for place in places}
        if kind is not Evidence.TEXT and (len(places) < _LEAST_ROWS or len(subjects) < 2):
            continue
        table = feature_matrix([rows[int(place)] for place in places], kind)
        fitter = _EvidenceFitter(table, hidden[places], targets.rows(places))
        inner = [_within(split, places, len(rows)) for split in splits]
        kept = [
            (reduction, *split) for reduction, split in zip(reductions, inner, strict=True) if len(split[1])
        ]
        choice, errors = fitter.choose(kept)
        scores = fitter.cross_score(kept, choice)
        heads[kind] = fitter.fit(np.arange(len(places)), whole, choice)
        out_of_fold[kind] = _merged(out_of_fold, kind, places, scores)
        choices[kind.value] = {"n": len(places), **choice.__dict__, **errors}
    return FittedStage(StageHeads(whole, heads), out_of_fold, choices)


def fit_classes(inputs: Array64, classes: NDArray[np.intp], count: int, inverse_penalty: float) -> LinearMap:
    """Fit a multinomial logistic map to `count` classes; a class without rows gets next to no probability."""
    from sklearn.linear_model import LogisticRegression

    present = np.unique(classes)
    weight, bias = np.zeros((inputs.shape[1], count)), np.full(count, _ABSENT_LOGIT)
    if len(present) == 1:
        bias[present] = 0.0
    else:
        solver = LogisticRegression(C=inverse_penalty, max_iter=_MOST_ITERATIONS)
        fitted = solver.fit(inputs, classes)
        if len(present) == 2:  # scikit-learn gives the log-odds of the second class
            weight[:, present[1]], bias[present] = fitted.coef_[0], [0.0, fitted.intercept_[0]]
        else:
            weight[:, present], bias[present] = fitted.coef_.T, fitted.intercept_
    return LinearMap(weight.astype(np.float32), bias.astype(np.float32))


def fit_ridge(inputs: Array64, values: NDArray[np.float64], penalty: float) -> LinearMap:
    """Fit a least-squares map to one value with a penalty on the weights but not on the bias."""
    centre = inputs.mean(axis=0)
    centred, offset = inputs - centre, values.mean()
    gram = centred.T @ centred + penalty * np.eye(inputs.shape[1])
    weight = np.linalg.solve(gram, centred.T @ (values - offset))
    bias = np.array([offset - centre @ weight])
    return LinearMap(weight[:, None].astype(np.float32), bias.astype(np.float32))


def fit_gain_scale(known_probs: Array64, gains: NDArray[np.float64]) -> float:
    """Return the gain in exact match per probability of not being known: least squares through the origin."""
    unknown = 1 - known_probs
    return float(np.clip(unknown @ gains / max(float(unknown @ unknown), 1e-9), _LEAST_SCALE, 1.0))


_Fold = tuple[HiddenReduction, "NDArray[np.intp]", "NDArray[np.intp]"]


class _EvidenceFitter:
    """Fits heads for one kind of evidence on the rows that hold it."""

    def __init__(self, table: FloatArray, hidden: FloatArray, targets: StageTargets) -> None:
        self._table = table
        self._hidden = hidden
        self._targets = targets

    def fit(self, train: NDArray[np.intp], reduction: HiddenReduction, choice: _Choice) -> EvidenceHead:
        inputs, standardiser = self._inputs(train, reduction)
        targets = self._targets.rows(train)
        classes = fit_classes(inputs, targets.classes, len(ACTIONS), choice.inverse_penalty)
        known = softmax(classes.apply(inputs))[:, 0]
        return EvidenceHead(standardiser, classes, fit_gain_scale(known, targets.gains))

    def choose(self, folds: Sequence[_Fold]) -> tuple[_Choice, dict[str, float]]:
        """Return the choice with the least out-of-fold error, and those errors."""
        prepared = [self._prepare(fold) for fold in folds]
        errors = {c: self._error(prepared, self._class_loss(c)) for c in _INVERSE_PENALTIES}
        inverse_penalty = min(errors, key=errors.__getitem__)
        return _Choice(inverse_penalty), {"class_log_loss": errors[inverse_penalty]}

    def cross_score(self, folds: Sequence[_Fold], choice: _Choice) -> StageScores:
        """Score every row by heads fitted on the other folds."""
        scores = StageScores(np.zeros((len(self._table), len(ACTIONS))), np.zeros(len(self._table)))
        for reduction, train, left_out in folds:
            head = self.fit(train, reduction, choice)
            part = head.score(self._table[left_out], reduction.apply(self._hidden[left_out]))
            scores.class_probs[left_out], scores.gain[left_out] = part.class_probs, part.gain
        return scores

    def _inputs(self, train: NDArray[np.intp], reduction: HiddenReduction) -> tuple[Array64, Standardiser]:
        standardiser = Standardiser.fit(self._table[train])
        parts = [standardiser.apply(self._table[train]), reduction.apply(self._hidden[train])]
        return np.concatenate(parts, axis=1), standardiser

    def _prepare(self, fold: _Fold) -> tuple[Array64, StageTargets, Array64, StageTargets]:
        reduction, train, left_out = fold
        inputs, standardiser = self._inputs(train, reduction)
        held = [standardiser.apply(self._table[left_out]), reduction.apply(self._hidden[left_out])]
        return inputs, self._targets.rows(train), np.concatenate(held, axis=1), self._targets.rows(left_out)

    @staticmethod
    def _error(
        prepared: Sequence[tuple[Array64, StageTargets, Array64, StageTargets]],
        loss: Callable[[Array64, StageTargets, Array64, StageTargets], Array64],
    ) -> float:
        return float(np.concatenate([loss(*fold) for fold in prepared]).mean())

    @staticmethod
    def _class_loss(inverse_penalty: float) -> Callable[..., Array64]:
        def loss(inputs: Array64, targets: StageTargets, held: Array64, truth: StageTargets) -> Array64:
            fitted = fit_classes(inputs, targets.classes, len(ACTIONS), inverse_penalty)
            probs = softmax(fitted.apply(held))[np.arange(len(held)), truth.classes]
            return np.asarray(-np.log(np.clip(probs, 1e-9, 1)))

        return loss


def _within(split: Split, places: NDArray[np.intp], total: int) -> Split:
    """Restrict a split of all rows to some of them, renumbered from 0."""
    number = np.full(total, -1, dtype=np.intp)
    number[places] = np.arange(len(places))
    train, left_out = (number[part] for part in split)
    return train[train >= 0], left_out[left_out >= 0]


def _merged(
    before: Mapping[Evidence, StageScores], kind: Evidence, places: NDArray[np.intp], scores: StageScores
) -> StageScores:
    """Lay the scores of the rows with this evidence over those of the next lesser kind."""
    lesser = [other for other in before if other.rank < kind.rank]
    if not lesser:
        return scores
    base = before[max(lesser, key=lambda other: other.rank)]
    merged = StageScores(base.class_probs.copy(), base.gain.copy())
    merged.class_probs[places], merged.gain[places] = scores.class_probs, scores.gain
    return merged
