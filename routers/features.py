"""From one model's reading of a fact to named groups of numbers of fixed length.

Three kinds of evidence build on each other: the text alone, the answer's place in the text, the self-probe. A
head is trained per kind, so that a bare text is never judged by weights that expect a probe.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from carriers.text_model import AnswerMatch, TextFeatures

FloatArray = NDArray[np.float32]
FeatureGroups = dict[str, FloatArray]

CURVE_POINTS = 8
TAIL_TOKENS = 5
CURVES = ("nll", "entropy", "log_rank", "margin", "first_choice")
CURVE_STATISTICS = ("mean", "std", "min", "max", "last", "q25", "q50", "q75", "q90")
_QUANTILES = (0.25, 0.5, 0.75, 0.9)
_LOWEST_PROB = 1e-8
_MOST_NATS = 100.0  # stands for infinity

CURVE_FEATURES = tuple(
    [f"at_{point}" for point in range(CURVE_POINTS)]
    + list(CURVE_STATISTICS)
    + [f"tail_{place}" for place in range(TAIL_TOKENS)]
)
SPAN_FEATURES = (
    "has_span",
    "nll_mean",
    "nll_max",
    "nll_first",
    "log_rank_mean",
    "log_rank_max",
    "margin_min",
    "entropy_first",
    "first_choice_mean",
    "all_first_choice",
)
PROBE_FEATURES = (
    "has_probe",
    "matched_mean",
    "matched_min",
    "matched_max",
    "lowest_prob_mean",
    "log_lowest_prob_mean",
    "log_lowest_prob_min",
    "margin_mean",
    "margin_min",
    "choice_prob_mean",
    "entropy_mean",
    "other_belief_mean",
    "other_belief_max",
)
LENGTH_FEATURES = ("log_tokens", "is_empty")


class Evidence(StrEnum):
    """What a decision may rest on; each kind holds all of the one before."""

    TEXT = "text"  # the statement alone
    SPAN = "span"  # and where the answer stands in it
    PROBE = "probe"  # and whether the model would answer the fact's question

    @property
    def rank(self) -> int:
        """Position in the order from least to most."""
        return list(Evidence).index(self)

    def at_most(self, other: Evidence) -> Evidence:
        """Return the lesser of the two."""
        return self if self.rank <= other.rank else other


def evidence_in(groups: Mapping[str, FloatArray], limit: Evidence) -> Evidence:
    """Tell the most evidence, up to a limit, that a fact's features can support."""
    if limit is Evidence.PROBE and groups["probe"][0] > 0:
        return Evidence.PROBE
    return Evidence.SPAN if limit is not Evidence.TEXT and groups["span"][0] > 0 else Evidence.TEXT


GROUP_SIZES: Mapping[str, int] = {
    **{curve: len(CURVE_FEATURES) for curve in CURVES},
    "length": len(LENGTH_FEATURES),
    "span": len(SPAN_FEATURES),
    "probe": len(PROBE_FEATURES),
}
"""Length of every group but "hidden", whose length is the model's."""


def groups_of(evidence: Evidence) -> tuple[str, ...]:
    """Name the groups, without "hidden", that a kind of evidence consists of."""
    names = [*CURVES, "length"]
    if evidence.rank >= Evidence.SPAN.rank:
        names.append("span")
    if evidence is Evidence.PROBE:
        names.append("probe")
    return tuple(names)


def feature_names(evidence: Evidence) -> tuple[str, ...]:
    """Name every number that `feature_matrix` puts into a row, in its order."""
    members = {
        **dict.fromkeys(CURVES, CURVE_FEATURES),
        "length": LENGTH_FEATURES,
        "span": SPAN_FEATURES,
        "probe": PROBE_FEATURES,
    }
    return tuple(f"{group}.{member}" for group in groups_of(evidence) for member in members[group])


def feature_digest() -> str:
    """Return a digest of the features' names and order: heads fit only the features they were trained on."""
    names = [feature_names(kind) for kind in Evidence]
    described = json.dumps([names, CURVES, dict(GROUP_SIZES)], sort_keys=True)
    return hashlib.sha256(described.encode("utf-8")).hexdigest()[:16]


def feature_vector(
    features: TextFeatures, probes: Sequence[AnswerMatch] = (), span: tuple[int, int] | None = None
) -> FeatureGroups:
    """Turn one model's reading of one fact into groups of float32 numbers.

    Args:
        features: What the pass over the text revealed; a text of one token has curves without a point.
        probes: Outcomes of the self-probe, one per wording, if the fact came with questions.
        span: First and one-past-last token of the answer in the text, counted as the curves are.

    Returns:
        One vector per group of `GROUP_SIZES`, and "hidden" with all pooled layers end to end.
    """
    groups = {curve: _curve_features(_curve(features, curve)) for curve in CURVES}
    tokens = len(features.nll)
    groups["length"] = np.array([np.log1p(tokens), tokens == 0], dtype=np.float32)
    groups["span"] = _span_features(features, span)
    groups["probe"] = _probe_features(probes)
    groups["hidden"] = np.asarray(features.hidden, dtype=np.float32).reshape(-1)
    return {
        name: np.nan_to_num(values, posinf=_MOST_NATS, neginf=-_MOST_NATS) for name, values in groups.items()
    }


def feature_matrix(rows: Sequence[Mapping[str, FloatArray]], evidence: Evidence) -> FloatArray:
    """Stack the groups of a kind of evidence, without "hidden"; shape [rows, features]."""
    names = groups_of(evidence)
    if not rows:
        return np.zeros((0, sum(GROUP_SIZES[name] for name in names)), dtype=np.float32)
    return np.stack([np.concatenate([row[name] for name in names]) for row in rows])


def hidden_matrix(rows: Sequence[Mapping[str, FloatArray]]) -> FloatArray:
    """Stack the pooled hidden states; shape [rows, layers times width]."""
    return np.stack([row["hidden"] for row in rows]) if rows else np.zeros((0, 0), dtype=np.float32)


def _curve(features: TextFeatures, name: str) -> FloatArray:
    curve = np.asarray(getattr(features, name), dtype=np.float32)
    return np.nan_to_num(curve, nan=0.0, posinf=_MOST_NATS, neginf=-_MOST_NATS)


def _curve_features(curve: FloatArray) -> FloatArray:
    if not len(curve):
        return np.zeros(len(CURVE_FEATURES), dtype=np.float32)
    places = np.linspace(0, len(curve) - 1, CURVE_POINTS)
    resampled = np.interp(places, np.arange(len(curve)), curve)
    statistics = [curve.mean(), curve.std(), curve.min(), curve.max(), curve[-1]]
    tail = np.full(TAIL_TOKENS, curve.mean(), dtype=np.float32)  # a short text has no further tokens to show
    recent = curve[::-1][:TAIL_TOKENS]
    tail[: len(recent)] = recent
    return np.concatenate([resampled, statistics, np.quantile(curve, _QUANTILES), tail]).astype(np.float32)


def _span_features(features: TextFeatures, span: tuple[int, int] | None) -> FloatArray:
    first, last = span if span is not None else (0, 0)
    last = min(last, len(features.nll))  # a long text is read up to the model's limit only
    if first >= last:
        return np.zeros(len(SPAN_FEATURES), dtype=np.float32)
    nll, entropy, log_rank, margin, chosen = (_curve(features, name)[first:last] for name in CURVES)
    return np.array(
        [
            1.0,
            nll.mean(),
            nll.max(),
            nll[0],
            log_rank.mean(),
            log_rank.max(),
            margin.min(),
            entropy[0],
            chosen.mean(),
            chosen.min(),
        ],
        dtype=np.float32,
    )


def _probe_features(probes: Sequence[AnswerMatch]) -> FloatArray:
    """Describe the outcomes of all wordings together, so that facts with fewer wordings look no different."""
    if not probes:
        return np.zeros(len(PROBE_FEATURES), dtype=np.float32)
    matched, lowest, margin, choice, entropy = np.array([
        (probe.matched, max(probe.lowest_prob, _LOWEST_PROB), probe.margin, probe.choice_prob, probe.entropy)
        for probe in probes
    ]).T
    other = np.where(matched > 0, 0.0, choice)
    return np.array(
        [
            1.0,
            matched.mean(),
            matched.min(),
            matched.max(),
            lowest.mean(),
            np.log(lowest).mean(),
            np.log(lowest).min(),
            margin.mean(),
            margin.min(),
            choice.mean(),
            entropy.mean(),
            other.mean(),
            other.max(),
        ],
        dtype=np.float32,
    )
