"""The fast engine against the reference: the same figures without rounding, near ones with it, made once and kept."""

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from carriers.adapters import UpdateStack, stack_adapters
from carriers.language_model import LanguageModel
from carriers.openvino_conversion import (
    BODY_FILE,
    HEAD_FILE,
    SIZES_FILE,
    convert_model,
    import_openvino,
    open_to_updates,
    read_sizes,
)
from carriers.openvino_engine import ENGINE_NAME, OpenVinoEngine, fast_model, fast_updates, has_graphs
from carriers.prompts import CLOSED_BOOK_PREFIX, closed_book
from carriers.text_model import TextModel
from carriers.torch_engine import model_sizes
from sharpwave.errors import WeightsError
from tests import tiny_models
from tests.tiny_models import (
    TINY_MODELS,
    one_thread,  # noqa: F401 -- a fixture for all tests here
    save_random_adapter,
    tiny_language_model,
    tiny_tokenizer,
)

TEXTS = [
    "Oslo is the capital of Norway.",
    "Rain.",
    "",
    "The answer to the question is a long one, as it seems.",
]
QUESTIONS = ["What is the capital of Norway?", "Who?"]
ANSWERS = [["Oslo", "the city of Oslo"], ["nobody"]]


@pytest.fixture(scope="module", params=sorted(TINY_MODELS))
def reference(request):
    return tiny_language_model(request.param)


@pytest.fixture(scope="module")
def folder(reference, tmp_path_factory):
    made = tmp_path_factory.mktemp("graphs") / "engine"
    convert_model(reference.model, made)
    return made


@pytest.fixture(scope="module")
def fast(reference, folder):
    return TextModel(
        reference.tokenizer, OpenVinoEngine(folder), read_sizes(folder), name="fast", fingerprint="tiny"
    )


def test_every_feature_equals_the_reference_where_nothing_is_rounded(reference, fast):
    for own, other in zip(fast.forward_features(TEXTS), reference.forward_features(TEXTS), strict=True):
        for name in ("hidden", "nll", "entropy", "log_rank", "margin", "first_choice"):
            np.testing.assert_allclose(getattr(own, name), getattr(other, name), atol=2e-4, err_msg=name)
        assert own.token_count == other.token_count
        assert own.hidden.dtype == own.nll.dtype == np.float32


@pytest.mark.parametrize("prefix", ["", CLOSED_BOOK_PREFIX])
def test_answers_match_as_in_the_reference_with_and_without_a_prefix(reference, fast, prefix):
    prompts = [closed_book(question) for question in QUESTIONS]
    own, other = (model.match_answers(prompts, ANSWERS, prefix) for model in (fast, reference))
    for mine, theirs in zip(own, other, strict=True):
        assert (mine.matched, mine.answer, mine.token_count) == (
            theirs.matched,
            theirs.answer,
            theirs.token_count,
        )
        for name in ("lowest_prob", "margin", "choice_prob", "entropy"):
            assert getattr(mine, name) == pytest.approx(getattr(theirs, name), abs=2e-4)


def test_a_text_is_judged_alike_alone_and_among_others(fast):
    together = fast.forward_features(TEXTS)
    for text, expected in zip(TEXTS, together, strict=True):
        [alone] = fast.forward_features([text])
        np.testing.assert_allclose(alone.nll, expected.nll, atol=1e-5)
        np.testing.assert_allclose(alone.hidden, expected.hidden, atol=1e-5)


def test_results_survive_the_next_pass(fast):
    [first] = fast.forward_features(TEXTS[:1])
    kept = first.hidden.copy(), first.nll.copy()
    fast.forward_features(TEXTS[3:])
    np.testing.assert_array_equal(first.hidden, kept[0])
    np.testing.assert_array_equal(first.nll, kept[1])


def test_costs_are_those_of_the_reference_and_the_name_tells_the_engine(reference, fast):
    assert fast.sizes == reference.sizes == model_sizes(reference.model)
    assert fast.flops(10, 3) == reference.flops(10, 3)
    assert fast.feature_fingerprint == f"tiny+{ENGINE_NAME}"
    assert reference.feature_fingerprint == reference.fingerprint


def test_large_matrices_become_bytes_and_figures_stay_near(tmp_path, monkeypatch):
    monkeypatch.setattr(tiny_models, "WIDTH", 128)
    reference = tiny_language_model("llama")
    convert_model(reference.model, tmp_path / "wide")
    size = (tmp_path / "wide" / BODY_FILE).with_suffix(".bin").stat().st_size
    values = sum(parameter.numel() for parameter in reference.model.parameters())
    assert values <= size < 1.3 * values  # a byte for each, where float32 takes four
    fast = TextModel(
        tiny_tokenizer(), OpenVinoEngine(tmp_path / "wide"), reference.sizes, name="w", fingerprint="w"
    )
    for own, other in zip(fast.forward_features(TEXTS), reference.forward_features(TEXTS), strict=True):
        assert np.abs(own.nll - other.nll).mean() < 0.5 if len(own.nll) else True
        assert not len(own.nll) or not np.array_equal(own.nll, other.nll)


def test_no_usage_statistics_module_is_loaded(fast):
    assert sys.modules["openvino_telemetry"] is None
    assert not [name for name in sys.modules if name.startswith("openvino_telemetry.")]


@pytest.fixture
def model_folder(tmp_path):
    """A tiny model on disk, in Hugging Face format."""
    made = tmp_path / "tiny-model"
    tiny_language_model("llama").model.save_pretrained(made)
    tiny_tokenizer().save_pretrained(made)
    return made


def test_graphs_are_made_once_and_again_when_damaged(model_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SHARPWAVE_HOME", str(tmp_path / "home"))
    loads = []

    def load():
        loads.append(1)
        return LanguageModel.load(model_folder)

    [expected] = load().forward_features(TEXTS[:1])
    loads.clear()
    assert not has_graphs(model_folder)
    for _ in range(2):
        [found] = fast_model(load, model_folder).forward_features(TEXTS[:1])
        np.testing.assert_allclose(found.nll, expected.nll, atol=2e-4)
    assert len(loads) == 1
    assert has_graphs(model_folder)
    [graphs] = (tmp_path / "home" / "engines").iterdir()
    assert {BODY_FILE, HEAD_FILE, SIZES_FILE} <= {file.name for file in graphs.iterdir()}
    assert [path.name for path in graphs.parent.iterdir()] == [graphs.name]


def _cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def _flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def _empty_list(path):
    path.write_text("[]", encoding="utf-8")


def _another_width(path):
    record = json.loads(path.read_text(encoding="utf-8"))
    record["sizes"]["width"] += 1
    path.write_text(json.dumps(record), encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        *itertools.product(
            [BODY_FILE, "body.bin", HEAD_FILE, "head.bin", SIZES_FILE],
            [_cut, _flip, Path.unlink, _empty_list],
        ),
        (SIZES_FILE, _another_width),
    ],
)
def test_damaged_graphs_are_made_again(file, damage, model_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SHARPWAVE_HOME", str(tmp_path / "home"))
    loads = []

    def load():
        loads.append(1)
        return LanguageModel.load(model_folder)

    [expected] = fast_model(load, model_folder).forward_features(TEXTS[:1])
    [graphs] = (tmp_path / "home" / "engines").iterdir()
    damage(graphs / file)
    repaired = fast_model(load, model_folder)
    np.testing.assert_array_equal(repaired.forward_features(TEXTS[:1])[0].nll, expected.nll)
    assert repaired.sizes == load().sizes
    assert len(loads) == 3  # made, made again, and the line above


@pytest.mark.parametrize("width", [tiny_models.WIDTH, 128])
def test_an_update_changes_figures_as_if_the_graphs_were_made_from_the_merged_model(
    width, tmp_path, monkeypatch
):
    monkeypatch.setenv("SHARPWAVE_HOME", str(tmp_path / "home"))
    # The wide model's matrices become bytes, the narrow one's do not.
    monkeypatch.setattr(tiny_models, "WIDTH", width)
    base, folder, adapter = tiny_language_model("llama"), tmp_path / "model", tmp_path / "adapter"
    base.model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    save_random_adapter(adapter)
    merged = tiny_language_model("llama", adapter=adapter)
    convert_model(merged.model, tmp_path / "merged")
    expected = TextModel(
        tiny_tokenizer(), OpenVinoEngine(tmp_path / "merged"), merged.sizes, name="m", fingerprint="m"
    )
    plain = fast_model(lambda: base, folder)
    found = fast_updates(plain, UpdateStack(adapter))(0)
    assert len(list((tmp_path / "home" / "engines").iterdir())) == 1
    [own], [other], [without] = (model.forward_features(TEXTS[:1]) for model in (found, expected, plain))
    # Rounding to bytes differs: of the merged matrix there, of the base's alone here.
    rounding = 1e-3 if width < 128 else 0.2
    for name in ("nll", "hidden"):
        mine, merged_one, plain_one = (getattr(features, name) for features in (own, other, without))
        effect = np.abs(merged_one - plain_one).mean()
        assert np.abs(mine - merged_one).mean() < rounding * effect


def test_updates_share_graphs_but_not_encoded_prefixes(model_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SHARPWAVE_HOME", str(tmp_path / "home"))
    base, adapter = tiny_language_model("llama"), tmp_path / "both"
    for seed in (1, 2):
        save_random_adapter(tmp_path / f"update-{seed}", seed=seed)
    stack_adapters(tmp_path / "update-1", tmp_path / "update-2", adapter, 1.0)
    updated = fast_updates(fast_model(lambda: base, model_folder), UpdateStack(adapter, [2, 2]))
    prompts = [closed_book(question) for question in QUESTIONS]

    def probs(model):
        matches = model.match_answers(prompts, ANSWERS, CLOSED_BOOK_PREFIX)
        return [item.lowest_prob for item in matches]

    wanted = [probs(tiny_language_model(adapter=tmp_path / f"update-{seed}")) for seed in (1, 2)]
    assert wanted[0] != pytest.approx(wanted[1], rel=0.01)
    for _ in range(2):  # in turn, so that one's prefix would be there for the other
        for place in (0, 1):
            assert probs(updated(place)) == pytest.approx(wanted[place], rel=1e-2)


def test_an_adapter_for_what_the_model_lacks_is_an_error(model_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SHARPWAVE_HOME", str(tmp_path / "home"))
    adapter = tmp_path / "adapter"
    save_random_adapter(adapter, rename=lambda key: key.replace("layers.1.", "layers.7."))
    base = fast_model(lambda: LanguageModel.load(model_folder), model_folder)
    with pytest.raises(WeightsError, match=r"layers\.7\.mlp"):
        fast_updates(base, UpdateStack(adapter))


def test_a_matrix_of_another_shape_is_an_error(folder):
    graph = import_openvino().Core().read_model(folder / BODY_FILE)
    with pytest.raises(WeightsError, match=r"layers\.0\.mlp\.up_proj"):
        open_to_updates(graph, {"layers.0.mlp.up_proj": (3, 5)})
