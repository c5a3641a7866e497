"""What a model's reading of a fact is turned into: fixed lengths, names, and the odd texts."""

from dataclasses import replace

import numpy as np
import pytest

from carriers.text_model import AnswerMatch, TextFeatures
from routers.features import (
    CURVE_FEATURES,
    GROUP_SIZES,
    LENGTH_FEATURES,
    PROBE_FEATURES,
    SPAN_FEATURES,
    Evidence,
    evidence_in,
    feature_matrix,
    feature_names,
    feature_vector,
    hidden_matrix,
)

PROBE = AnswerMatch(
    matched=True,
    lowest_prob=0.25,
    margin=1.5,
    choice_prob=0.5,
    entropy=2.0,
    answer="Paris",
    token_count=9,
)


def reading(nll, *, log_rank=None):
    curve = np.array(nll, dtype=np.float32)
    ranks = np.array(log_rank if log_rank is not None else np.zeros(len(curve)), dtype=np.float32)
    return TextFeatures(
        hidden=np.arange(6, dtype=np.float32).reshape(3, 2),
        nll=curve,
        entropy=curve / 2,
        log_rank=ranks,
        margin=-curve,
        first_choice=ranks == 0,
        token_count=len(curve) + 1,
    )


def named(groups, group, members):
    return dict(zip(members, groups[group].tolist(), strict=True))


@pytest.mark.parametrize("length", [0, 1, 2, 5, 400])
def test_every_text_gives_the_same_finite_lengths(length):
    groups = feature_vector(reading(np.linspace(0, 3, length)), [PROBE], (0, length))
    assert {name: len(values) for name, values in groups.items()} == {**GROUP_SIZES, "hidden": 6}
    assert all(np.isfinite(values).all() and values.dtype == np.float32 for values in groups.values())


def test_a_text_without_a_token_says_so_and_is_otherwise_zero():
    groups = feature_vector(reading([]))
    assert named(groups, "length", LENGTH_FEATURES) == {"log_tokens": 0.0, "is_empty": 1.0}
    assert not groups["nll"].any()
    assert not groups["span"].any()


def test_curve_statistics_by_hand():
    values = named(feature_vector(reading([1, 2, 3, 6])), "nll", CURVE_FEATURES)
    assert values["mean"] == 3.0
    assert (values["min"], values["max"], values["last"], values["q50"]) == (1, 6, 6, 2.5)
    assert [values[f"tail_{place}"] for place in range(5)] == [6, 3, 2, 1, 3]  # the mean where nothing is
    assert (values["at_0"], values["at_7"]) == (1, 6)
    assert values["at_1"] == pytest.approx(1 + 3 / 7)


def test_span_figures_concern_the_answer_only():
    groups = feature_vector(reading([9, 1, 2, 9], log_rank=[3, 0, 1, 3]), span=(1, 3))
    values = named(groups, "span", SPAN_FEATURES)
    assert values["has_span"] == 1
    assert (values["nll_mean"], values["nll_max"], values["nll_first"]) == (1.5, 2, 1)
    assert (values["first_choice_mean"], values["all_first_choice"]) == (0.5, 0)
    assert values["margin_min"] == -2


def test_a_span_beyond_the_part_that_was_read_is_no_span():
    assert not feature_vector(reading([1, 2, 3]), span=(3, 6))["span"].any()
    assert feature_vector(reading([1, 2, 3]), span=(2, 6))["span"][0] == 1


def test_probe_values_and_an_impossible_probability():
    values = named(feature_vector(reading([1]), [PROBE]), "probe", PROBE_FEATURES)
    assert values == pytest.approx({
        "has_probe": 1,
        "matched_mean": 1,
        "matched_min": 1,
        "matched_max": 1,
        "lowest_prob_mean": 0.25,
        "log_lowest_prob_mean": np.log(0.25),
        "log_lowest_prob_min": np.log(0.25),
        "margin_mean": 1.5,
        "margin_min": 1.5,
        "choice_prob_mean": 0.5,
        "entropy_mean": 2.0,
        "other_belief_mean": 0.0,
        "other_belief_max": 0.0,
    })
    sure_not = replace(PROBE, matched=False, lowest_prob=0.0, margin=-90.0, choice_prob=0.75)
    values = named(feature_vector(reading([1]), [sure_not]), "probe", PROBE_FEATURES)
    assert np.isfinite(list(values.values())).all()
    assert values["other_belief_mean"] == 0.75


def test_several_wordings_are_told_by_mean_and_extremes():
    other = replace(PROBE, matched=False, lowest_prob=0.01, margin=-2.5, choice_prob=0.9, entropy=1.0)
    values = named(feature_vector(reading([1]), [PROBE, other]), "probe", PROBE_FEATURES)
    assert values == pytest.approx({
        "has_probe": 1,
        "matched_mean": 0.5,
        "matched_min": 0,
        "matched_max": 1,
        "lowest_prob_mean": 0.13,
        "log_lowest_prob_mean": (np.log(0.25) + np.log(0.01)) / 2,
        "log_lowest_prob_min": np.log(0.01),
        "margin_mean": -0.5,
        "margin_min": -2.5,
        "choice_prob_mean": 0.7,
        "entropy_mean": 1.5,
        "other_belief_mean": 0.45,
        "other_belief_max": 0.9,
    })


def test_infinite_statistics_do_not_reach_the_heads():
    groups = feature_vector(reading([np.inf, np.nan, 1.0]))
    assert np.isfinite(groups["nll"]).all()


@pytest.mark.parametrize(
    ("probe", "span", "limit", "expected"),
    [
        ([PROBE], (0, 1), Evidence.PROBE, Evidence.PROBE),
        ([PROBE], None, Evidence.PROBE, Evidence.PROBE),
        ([PROBE], (0, 1), Evidence.SPAN, Evidence.SPAN),
        ([PROBE], None, Evidence.SPAN, Evidence.TEXT),
        ([], (0, 1), Evidence.PROBE, Evidence.SPAN),
        ([PROBE], (0, 1), Evidence.TEXT, Evidence.TEXT),
    ],
)
def test_evidence_is_what_is_there_up_to_the_limit(probe, span, limit, expected):
    assert evidence_in(feature_vector(reading([1, 2]), probe, span), limit) is expected


def test_matrix_columns_are_the_names_in_order():
    rows = [feature_vector(reading([1, 2, 3]), [PROBE], (1, 2)), feature_vector(reading([4]))]
    for kind in Evidence:
        names = feature_names(kind)
        table = feature_matrix(rows, kind)
        assert table.shape == (2, len(names))
        assert len(set(names)) == len(names)
        assert table[0, names.index("nll.mean")] == 2
        assert feature_matrix([], kind).shape == (0, len(names))
    full = feature_names(Evidence.PROBE)
    assert feature_matrix(rows, Evidence.PROBE)[:, full.index("probe.has_probe")].tolist() == [1, 0]
    assert "probe.matched" not in feature_names(Evidence.SPAN)
    assert hidden_matrix(rows).shape == (2, 6)
