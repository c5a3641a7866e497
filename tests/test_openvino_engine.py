"""The fast engine against the reference: the same figures without rounding, near ones with it, made once and kept."""

import os
import sys

import numpy as np
import pytest

from carriers.language_model import LanguageModel
from carriers.openvino_conversion import BODY_FILE, HEAD_FILE, SIZES_FILE, convert_model, read_sizes
from carriers.openvino_engine import ENGINE_NAME, OpenVinoEngine, fast_model, has_graphs
from carriers.prompts import CLOSED_BOOK_PREFIX, closed_book
from carriers.text_model import TextModel
from carriers.torch_engine import model_sizes
from tests import tiny_models
from tests.tiny_models import TINY_MODELS, one_thread, tiny_language_model, tiny_tokenizer  # noqa: F401 -- a fixture for all tests here

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
        [found] = fast_model(load, model_folder, None).forward_features(TEXTS[:1])
        np.testing.assert_allclose(found.nll, expected.nll, atol=2e-4)
    assert len(loads) == 1
    assert has_graphs(model_folder)
    [graphs] = (tmp_path / "home" / "engines").iterdir()
    assert {BODY_FILE, HEAD_FILE, SIZES_FILE} <= {file.name for file in graphs.iterdir()}
    for file in (BODY_FILE, SIZES_FILE):
        (graphs / file).write_text("damaged", encoding="utf-8")
        [found] = fast_model(load, model_folder, None).forward_features(TEXTS[:1])
        np.testing.assert_allclose(found.nll, expected.nll, atol=2e-4)
    assert len(loads) == 3
    assert [path.name for path in graphs.parent.iterdir()] == [graphs.name]


def test_adapters_have_graphs_of_their_own_and_only_the_last_few_are_kept(
    model_folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("SHARPWAVE_HOME", str(tmp_path / "home"))
    home = tmp_path / "home" / "engines"
    fast_model(lambda: LanguageModel.load(model_folder), model_folder, None)
    [base] = home.iterdir()
    for night in range(5):
        adapter = tmp_path / f"adapter-{night}"
        adapter.mkdir()
        (adapter / "adapter_model.safetensors").write_bytes(bytes([night]))
        fast_model(lambda: LanguageModel.load(model_folder), model_folder, adapter)
        newest = max(home.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (night + 1, night + 1))
    kept = [path for path in home.iterdir() if path != base]
    assert base.is_dir()
    assert sorted(path.stat().st_mtime for path in kept) == [3, 4, 5]
