"""Training on facts whose truth is written into their features: what is learnt, saved, refused and repeated."""

import json
from dataclasses import replace

import numpy as np
import pytest

from carriers.text_model import AnswerMatch, TextFeatures
from routers.calibration import operating_point
from routers.examples import RoutingExample, cascade_scores
from routers.features import Evidence, feature_vector
from routers.head_fitting import fit_classes, fit_ridge, group_folds
from routers.heads import ARRAYS_FILE, CARD_FILE, FRONTIER_FILE, HEADS_FILE, RouterHeads, load_card
from routers.labels import BehaviourLabel
from routers.linear import LinearMap, softmax
from routers.observation import FactObservation
from routers.scorecard import confusion_counts, macro_f1
from routers.training import RouterTraining, train_router
from sharpwave.errors import ConfigError, InputError, IntegrityError
from sharpwave.records import RouteAction

SETTINGS = RouterTraining(seed=3, folds=3, hidden_components=4, resplits=10)
MODELS = {"small_fingerprint": "small-1", "large_fingerprint": "large-1"}


def observation(rng, fact_id, known, confident, noise, *, tokens=8, bare=False):
    """A model's reading of a fact: known ones have low, sure curves, and the probe says so, too."""
    level = (0.5 if known else 3.0) + rng.normal(0, noise)
    nll = np.abs(rng.normal(level, 0.4, tokens)).astype(np.float32)
    rank = np.where(nll > 1.5, nll, 0).astype(np.float32)
    features = TextFeatures(
        hidden=(rng.normal(0, 1, (3, 6)) + (1.0 if confident else -1.0)).astype(np.float32),
        nll=nll,
        entropy=nll * (0.3 if confident else 1.0),
        log_rank=rank,
        margin=2 - nll,
        first_choice=rank == 0,
        token_count=tokens + 1,
    )
    margin = float((2.0 if known else -2.0) + rng.normal(0, noise))
    prob = float(1 / (1 + np.exp(-margin)))
    probe = AnswerMatch(margin > 0, prob, margin, 0.8 if confident else 0.3, 1.0, "x", 6)
    groups = feature_vector(features, [] if bare else [probe], None if bare else (tokens - 2, tokens))
    return FactObservation(fact_id, groups, text_flops=1.0, probe_flops=0.0 if bare else 0.5)


def examples(n, seed, prefix, *, bare_share=0.2):
    rng = np.random.default_rng(seed)
    made = []
    for place in range(n):
        known, confident, bare = rng.random() < 0.4, rng.random() < 0.5, rng.random() < bare_share
        prob = 0.9 if confident else 0.2
        fact_id = f"{prefix}-{place}"
        label = BehaviourLabel(fact_id, (known,), (bool(rng.random() < 0.97),), ("x",), (prob,))
        small = observation(rng, fact_id, known, confident, noise=1.2, bare=bare)
        large = observation(rng, fact_id, known, confident, noise=0.5, bare=bare)
        large = replace(large, text_flops=4.0, probe_flops=large.probe_flops * 4)
        made.append(RoutingExample(small, large, label, f"{prefix} subject {place // 3}"))
    return made


@pytest.fixture(scope="module")
def sets():
    return examples(360, 0, "train"), examples(420, 1, "calibration"), examples(360, 2, "report")


@pytest.fixture(scope="module")
def trained(sets):
    return train_router(*sets, SETTINGS, **MODELS)


def assert_same_scores(first, second, items):
    for kind in Evidence:
        one, other = cascade_scores(first, items, kind), cascade_scores(second, items, kind)
        for name in ("small", "large"):
            assert np.array_equal(getattr(one, name).class_probs, getattr(other, name).class_probs)
            assert np.array_equal(getattr(one, name).gain, getattr(other, name).gain)
        assert np.array_equal(one.gate, other.gate)


def test_separable_facts_are_separated(trained):
    figures = trained.card["evidence"]["probe"]["report"]["figures"]
    assert figures["auc_large"]["value"] > 0.97
    assert figures["auc_cascade"]["value"] > figures["auc_small"]["value"] > 0.8
    assert figures["macro_f1"]["value"] > 0.85
    assert figures["update_recall"]["value"] > 0.9
    assert figures["ece"]["value"] < 0.1
    for figure in figures.values():
        assert figure["n"] > 0
        assert figure["low"] <= figure["value"] <= figure["high"]


def test_every_kind_of_evidence_has_prices_gate_and_frontier(trained, sets):
    assert set(trained.heads.prices) == set(trained.heads.gates) == set(Evidence)
    assert set(trained.frontier) == {"text", "span", "probe"}
    for kind in Evidence:
        scores = cascade_scores(trained.heads, sets[2], kind)
        prices = trained.heads.prices[kind]
        point = operating_point(scores, prices)
        assert point.escalation_rate <= SETTINGS.max_escalation + 0.1
        assert point.em_loss <= 0.05
        assert point.storage_ratio < 1.0
    # bare facts count for the text heads only
    assert len(cascade_scores(trained.heads, sets[2], Evidence.TEXT)) == 360
    assert len(cascade_scores(trained.heads, sets[2], Evidence.PROBE)) < 330


def test_the_card_tells_what_the_heads_were_made_from(trained):
    card = trained.card
    assert card["models"] == {"small": "small-1", "large": "large-1"}
    assert card["sets"]["train"]["facts"] == 360
    assert sum(card["sets"]["train"]["classes"].values()) == 360
    assert card["made_with"]["seed"] == 3
    assert card["evidence"]["probe"]["report"]["gate_utility"]["oracle"] > 0
    promise = card["evidence"]["probe"]["promise"]
    assert (promise["target_loss"], promise["confidence"]) == (0.02, 0.95)
    assert promise["p_value"] <= 0.05
    assert "exchangeable" in promise["assumes"]
    assert set(card["auc_by_evidence"]["small"]) == {"text", "span", "probe"}
    confusion = card["evidence"]["probe"]["report"]["confusion"]
    assert (
        sum(sum(row.values()) for row in confusion.values()) == card["auc_by_evidence"]["small"]["probe"]["n"]
    )


def test_metrics_are_flat_numbers(trained):
    metrics = trained.metrics()
    assert {"auc_cascade", "text_auc_cascade", "escalation_rate", "routing_cost_ratio", "loss"} <= set(
        metrics
    )
    assert all(isinstance(value, float) for value in metrics.values())


def test_saved_heads_decide_as_before(trained, sets, tmp_path):
    version = trained.save(tmp_path / "heads")
    loaded = RouterHeads.load(tmp_path / "heads", **MODELS)
    assert loaded.version == version == trained.heads.version
    assert loaded.prices == trained.heads.prices
    assert_same_scores(loaded, trained.heads, sets[2])
    assert load_card(tmp_path / "heads")["version"] == version
    assert load_card(tmp_path) == {}


def test_training_and_saving_repeat_to_the_byte(trained, sets, tmp_path):
    trained.save(tmp_path / "first")
    train_router(*sets, SETTINGS, **MODELS).save(tmp_path / "second")
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes()


def test_no_file_holds_a_pickle(trained, tmp_path):
    trained.save(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}
    for path in tmp_path.glob("*.json"):
        json.loads(path.read_text(encoding="utf-8"))
    header_size = int.from_bytes((tmp_path / ARRAYS_FILE).read_bytes()[:8], "little")
    header = json.loads((tmp_path / ARRAYS_FILE).read_bytes()[8 : 8 + header_size])
    assert {entry["dtype"] for entry in header.values()} == {"F32"}


@pytest.mark.parametrize("name", ["small", "large"])
def test_heads_of_another_model_are_refused(trained, tmp_path, name):
    trained.save(tmp_path)
    with pytest.raises(ConfigError, match=rf"the {name} model .*-1, but .* other-9.*sharpwave train-router"):
        RouterHeads.load(tmp_path, **{**MODELS, f"{name}_fingerprint": "other-9"})


def test_missing_and_outdated_heads_name_the_remedy(trained, tmp_path):
    with pytest.raises(ConfigError, match=r"no trained router heads.*sharpwave train-router"):
        RouterHeads.load(tmp_path)
    trained.save(tmp_path)
    path = tmp_path / HEADS_FILE
    path.write_text(
        path.read_text(encoding="utf-8").replace('"features": "', '"features": "0'), encoding="utf-8"
    )
    with pytest.raises(ConfigError, match="other features"):
        RouterHeads.load(tmp_path)


@pytest.mark.parametrize("damage", ["arrays", "json", "missing"])
def test_damaged_heads_are_noticed(trained, tmp_path, damage):
    trained.save(tmp_path)
    arrays = tmp_path / ARRAYS_FILE
    if damage == "arrays":
        content = bytearray(arrays.read_bytes())
        content[-1] ^= 1
        arrays.write_bytes(content)
    elif damage == "missing":
        arrays.unlink()
    else:
        (tmp_path / HEADS_FILE).write_text("{", encoding="utf-8")
    with pytest.raises(IntegrityError, match="damaged router heads"):
        RouterHeads.load(tmp_path)


@pytest.mark.parametrize(
    "edit",
    [
        lambda heads: heads.update(seed=99),
        lambda heads: heads.update(version=None),
        lambda heads: heads.pop("version"),
        lambda heads: heads.update(gain_scales=[]),
        lambda heads: heads.update(references=[]),
        lambda heads: next(iter(heads["prices"].values())).update(storage=0.9),
        lambda heads: next(iter(heads["prices"].values())).update(storage=float("nan")),
    ],
)
def test_edited_heads_are_noticed(trained, tmp_path, edit):
    trained.save(tmp_path)
    path = tmp_path / HEADS_FILE
    description = json.loads(path.read_text(encoding="utf-8"))
    edit(description)
    path.write_text(json.dumps(description), encoding="utf-8")
    with pytest.raises(IntegrityError, match="damaged router heads"):
        RouterHeads.load(tmp_path)


def test_deeply_nested_heads_are_damaged_heads(trained, tmp_path):
    trained.save(tmp_path)
    (tmp_path / HEADS_FILE).write_text("[" * 200_000, encoding="utf-8")
    with pytest.raises(IntegrityError, match="damaged router heads"):
        RouterHeads.load(tmp_path)


def test_version_changes_with_the_prices(trained):
    prices = {
        kind: replace(price, storage=price.storage + 0.01) for kind, price in trained.heads.prices.items()
    }
    assert replace(trained.heads, prices=prices).versioned().version != trained.heads.version
    assert len(trained.heads.version) == 12


def test_a_router_of_bare_texts_only(tmp_path):
    sets = [
        examples(n, seed, name, bare_share=1.0)
        for n, seed, name in ((90, 0, "a"), (60, 1, "b"), (60, 2, "c"))
    ]
    trained = train_router(*sets, SETTINGS, **MODELS)
    assert set(trained.heads.prices) == {Evidence.TEXT}
    assert "auc_cascade" in trained.metrics()
    trained.save(tmp_path)
    heads = RouterHeads.load(tmp_path)
    rich = examples(20, 5, "d", bare_share=0.0)
    rows = [item.small.groups for item in rich]
    scores = heads.small.score(rows, Evidence.PROBE)  # judged by the text heads
    assert np.array_equal(scores.gain, heads.small.score(rows, Evidence.TEXT).gain)
    assert len(heads.gate_values(rows, scores, [Evidence.PROBE] * 20)) == 20


def test_tiny_sets_without_some_class_still_train():
    sets = [[item for item in examples(30, seed, f"s{seed}") if item.label.is_known] for seed in range(3)]
    trained = train_router(*sets, replace(SETTINGS, resplits=2), **MODELS)
    scores = cascade_scores(trained.heads, sets[2], Evidence.TEXT)
    assert (scores.decided(0.0).class_probs.argmax(axis=1) == 0).all()
    assert trained.card["evidence"]["text"]["report"]["figures"]["auc_cascade"]["value"] is None
    assert "text_auc_cascade" not in trained.metrics()


def test_sets_must_be_full_and_apart(sets):
    with pytest.raises(InputError, match="report set holds no facts"):
        train_router(sets[0], sets[1], [], SETTINGS, **MODELS)
    with pytest.raises(InputError, match="'train subject 0' is in the train and the report set"):
        train_router(sets[0], sets[1], sets[0], SETTINGS, **MODELS)


def test_folds_keep_subjects_together_and_cover_all():
    groups = [f"g{place % 7}" for place in range(60)]
    splits = group_folds(groups, 3, seed=1)
    left_out = np.concatenate([part for _, part in splits])
    assert sorted(left_out.tolist()) == list(range(60))
    for train, held in splits:
        assert not {groups[row] for row in train} & {groups[row] for row in held}
        assert abs(len(held) - 20) <= 9
    assert len(group_folds(["a", "a", "b"], 5, seed=0)) == 2
    with pytest.raises(InputError, match="two subjects"):
        group_folds(["a", "a"], 5, seed=0)


@pytest.mark.parametrize("present", [[0], [0, 2], [1, 2], [0, 1, 2]])
def test_class_head_copes_with_absent_classes(present):
    rng = np.random.default_rng(0)
    classes = np.array([present[place % len(present)] for place in range(60)])
    inputs = np.eye(3)[classes] + rng.normal(0, 0.1, (60, 3))
    probs = softmax(fit_classes(inputs, classes, 3, 1.0).apply(inputs))
    assert (probs.argmax(axis=1) == classes).all()
    absent = [kind for kind in range(3) if kind not in present]
    assert (probs[:, absent] < 1e-4).all()


def test_ridge_finds_the_line_and_leaves_the_bias_alone():
    inputs = np.linspace(-1, 1, 50)[:, None]
    fitted = fit_ridge(inputs, 3 * inputs[:, 0] + 7, 1e-6)
    assert fitted.weight[0, 0] == pytest.approx(3, abs=1e-3)
    assert fit_ridge(inputs, 3 * inputs[:, 0] + 7, 1e9).bias[0] == pytest.approx(7, abs=1e-3)


def test_linear_map_round_trip_by_name():
    linear = LinearMap(np.ones((2, 1), dtype=np.float32), np.zeros(1, dtype=np.float32))
    arrays = linear.arrays("a.b")
    assert set(arrays) == {"a.b.weight", "a.b.bias"}
    assert np.array_equal(LinearMap.from_arrays(arrays, "a.b").weight, linear.weight)


def test_macro_f1_and_confusion_by_hand():
    truth, guess = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1])
    # class 0: 2*1/3, class 1: 2*1/4, class 2: 0
    assert macro_f1(truth, guess) == pytest.approx((2 / 3 + 0.5 + 0) / 3)
    assert macro_f1(truth[:0], guess[:0]) is None
    table = confusion_counts(truth, guess)
    assert table[RouteAction.WRITE_UPDATE.value][RouteAction.WRITE_NEW.value] == 1
    assert table["non_write"] == {"non_write": 1, "write_new": 1, "write_update": 0}


def test_the_frontier_is_a_table_per_kind_of_evidence(trained, tmp_path):
    trained.save(tmp_path)
    tables = json.loads((tmp_path / FRONTIER_FILE).read_text(encoding="utf-8"))
    for kind, points in trained.frontier.items():
        assert len(tables[kind]["rows"]) == len(points)
        first = dict(zip(tables[kind]["columns"], tables[kind]["rows"][0], strict=True))
        assert first["storage_ratio"] == 1.0
    assert (tmp_path / FRONTIER_FILE).stat().st_size < 80_000


def test_card_file_is_readable_text(trained, tmp_path):
    trained.save(tmp_path)
    text = (tmp_path / CARD_FILE).read_text(encoding="utf-8")
    assert "NaN" not in text
    assert "Infinity" not in text
