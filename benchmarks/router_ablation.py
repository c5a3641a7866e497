"""Which features and which kind of head tell known from unknown facts: cross-validation on the training set only.

    .venv/bin/python benchmarks/router_ablation.py --out ablation.json

Reads the observations that `sharpwave train-router` keeps, and makes those that are missing. Scores are out of fold,
subjects kept apart. Two figures each: the AUC (known to the answering model in every wording or not), with a 95 %
interval by drawing subjects anew, and the share of the known facts that could be dropped before 1.2 % of a full store's
answers are lost. Calibration and report facts are not looked at.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from routers.features import CURVES
from routers.head_fitting import fit_hidden_reduction, fit_ridge, group_folds
from routers.linear import Standardiser
from serving.loaded_models import shared_models
from sharpwave.settings import load_settings
from sharpwave.statistics import auc
from tasks.router_tasks import corpus_examples, facts_for_router

if TYPE_CHECKING:
    from routers.examples import RoutingExample

FEATURE_SETS: Mapping[str, tuple[str, ...]] = {
    **{curve: (curve,) for curve in CURVES},
    "curves": (*CURVES, "length"),
    "hidden": ("hidden",),
    "curves, hidden": (*CURVES, "length", "hidden"),
    "curves, span": (*CURVES, "length", "span"),
    "probe": ("probe",),
    "all but hidden": (*CURVES, "length", "span", "probe"),
    "all but probe": (*CURVES, "length", "span", "hidden"),
    "all": (*CURVES, "length", "span", "probe", "hidden"),
}
_COMPONENTS = 32
_RESAMPLES = 200
_TARGET_LOSS = 0.012

Fit = Callable[[Any, Any, int], Callable[[Any], Any]]


def main(
    out: Annotated[Path, typer.Option(help="JSON file for the figures.")],
    profile: Annotated[str, typer.Option(help="Profile whose models are used.")] = "embedded",
    limit: Annotated[int, typer.Option(help="Most training facts; 0 takes all.")] = 0,
    seed: Annotated[int, typer.Option(help="Seeds folds, components and heads.")] = 0,
) -> None:
    """Print both tables as Markdown and write all figures."""
    examples = _examples(profile, limit)
    known = np.array([item.label.is_known for item in examples])
    gains = np.array([item.label.gain for item in examples])
    lost = _Loss(np.maximum(gains, 0), sum(item.label.em_with for item in examples))
    folds = group_folds([item.group for item in examples], 5, seed)
    resample = _Resampler([item.group for item in examples], seed)
    result: dict[str, Any] = {"n": len(examples), "n_known": int(known.sum()), "seed": seed}
    for title, rows in (
        ("features", {name: (names, _LOGISTIC) for name, names in FEATURE_SETS.items()}),
        ("heads", {name: (FEATURE_SETS["all"], fits) for name, fits in _HEADS.items()}),
        ("what is predicted", {name: (FEATURE_SETS["all"], fits) for name, fits in _AIMS.items()}),
    ):
        table = result[title] = {}
        for name, (groups, fits) in rows.items():
            truth = gains if title == "what is predicted" and name != _KNOWN_AIM else known
            table[name] = {}
            for side in ("small", "large"):
                scores = _cross_scores(_groups(examples, side), groups, truth, folds, fits, seed)
                table[name][side] = resample.auc(scores, known) | {"pruned": lost.pruned(scores, known)}
            sys.stderr.write(f"{title}: {name}\n")
        sys.stdout.write(_markdown(title, table) + "\n\n")
    out.write_text(json.dumps(result, indent=2), encoding="utf-8")


def _examples(profile: str, limit: int) -> list[RoutingExample]:
    settings = load_settings(profile)
    return corpus_examples(shared_models(settings.models), facts_for_router(settings, limit)["train"])


def _groups(examples: Sequence[RoutingExample], side: str) -> list[Mapping[str, Any]]:
    return [getattr(item, side).groups for item in examples]


def _cross_scores(
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    known: Any,
    folds: Sequence[tuple[Any, Any]],
    fits: Sequence[Fit],
    seed: int,
) -> Any:
    """Return for each fact the probability of being known, by heads fitted on the other folds; several are averaged."""
    plain = [name for name in names if name != "hidden"]
    table = np.array([np.concatenate([row[name] for name in plain]) for row in rows]) if plain else None
    hidden = np.stack([row["hidden"] for row in rows]) if "hidden" in names else None
    scores = np.zeros(len(rows))
    for train, left_out in folds:
        parts = []
        if table is not None:
            standardiser = Standardiser.fit(table[train])
            parts.append(standardiser.apply(table))
        if hidden is not None:
            parts.append(fit_hidden_reduction(hidden[train], _COMPONENTS, seed).apply(hidden))
        inputs = np.concatenate(parts, axis=1)
        for fit in fits:
            scores[left_out] += fit(inputs[train], known[train], seed)(inputs[left_out]) / len(fits)
    return scores


def _logistic(inputs: Any, known: Any, seed: int) -> Callable[[Any], Any]:
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(C=0.03, max_iter=3000, random_state=seed).fit(inputs, known)
    return lambda held: fitted.predict_proba(held)[:, 1]


def _boosting(inputs: Any, known: Any, seed: int) -> Callable[[Any], Any]:
    from sklearn.ensemble import HistGradientBoostingClassifier

    fitted = HistGradientBoostingClassifier(
        learning_rate=0.05, max_iter=150, max_leaf_nodes=15, l2_regularization=1.0, random_state=seed
    ).fit(inputs, known)
    return lambda held: fitted.predict_proba(held)[:, 1]


def _perceptron(inputs: Any, known: Any, seed: int) -> Callable[[Any], Any]:
    from sklearn.neural_network import MLPClassifier

    fitted = MLPClassifier(
        hidden_layer_sizes=(32,), alpha=1.0, early_stopping=True, max_iter=500, random_state=seed
    ).fit(inputs, known)
    return lambda held: fitted.predict_proba(held)[:, 1]


_LOGISTIC: tuple[Fit, ...] = (_logistic,)
_HEADS: Mapping[str, tuple[Fit, ...]] = {
    "logistic": _LOGISTIC,
    "gradient boosting": (_boosting,),
    "small perceptron": (_perceptron,),
    "logistic and boosting, averaged": (_logistic, _boosting),
}


def _gain_by_ridge(inputs: Any, gains: Any, seed: int) -> Callable[[Any], Any]:
    del seed
    fitted = fit_ridge(inputs, gains, 100.0)
    return lambda held: -fitted.apply(held)[:, 0]


def _gain_by_boosting(inputs: Any, gains: Any, seed: int) -> Callable[[Any], Any]:
    from sklearn.ensemble import HistGradientBoostingRegressor

    fitted = HistGradientBoostingRegressor(
        learning_rate=0.05, max_iter=150, max_leaf_nodes=15, l2_regularization=1.0, random_state=seed
    ).fit(inputs, gains)
    return lambda held: -fitted.predict(held)


_KNOWN_AIM = "known or not (logistic)"
_AIMS: Mapping[str, tuple[Fit, ...]] = {
    _KNOWN_AIM: _LOGISTIC,
    "gain in exact match (ridge)": (_gain_by_ridge,),
    "gain in exact match (boosting)": (_gain_by_boosting,),
}


class _Loss:
    """What dropping facts costs: the exact match that each would lose, [n], and the full store's sum."""

    def __init__(self, each: Any, full: float) -> None:
        self._each = each
        self._allowed = _TARGET_LOSS * full

    def pruned(self, scores: Any, known: Any) -> float:
        """Drop the highest scores first until the loss is reached; return the share of the known facts dropped."""
        order = np.argsort(-scores, kind="stable")
        count = int(np.searchsorted(np.cumsum(self._each[order]), self._allowed, side="right"))
        return float(known[order][:count].sum() / known.sum())


class _Resampler:
    """AUC with an interval by drawing whole subjects with replacement."""

    def __init__(self, groups: Sequence[str], seed: int) -> None:
        _, self._numbers = np.unique(np.asarray(groups, dtype=object), return_inverse=True)
        self._rng = np.random.default_rng(seed)

    def auc(self, scores: Any, known: Any) -> dict[str, float]:
        members = [np.flatnonzero(self._numbers == number) for number in range(self._numbers.max() + 1)]
        drawn = []
        for _ in range(_RESAMPLES):
            rows = np.concatenate([members[k] for k in self._rng.integers(len(members), size=len(members))])
            value = auc(scores[rows].tolist(), known[rows].tolist())
            if value is not None:
                drawn.append(value)
        low, high = np.quantile(drawn, [0.025, 0.975])
        return {
            "auc": float(auc(scores.tolist(), known.tolist()) or 0.0),
            "low": float(low),
            "high": float(high),
        }


def _markdown(title: str, table: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    lines = [
        f"| {title} | AUC, small model | AUC, large model | pruned, small | pruned, large |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, sides in table.items():
        cells = [f"{cell['auc']:.3f} ({cell['low']:.3f} to {cell['high']:.3f})" for cell in sides.values()]
        cells += [f"{cell['pruned']:.0%}" for cell in sides.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    typer.run(main)
