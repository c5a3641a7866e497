"""Updates of a stack, one at a time on shared weights: equal to what merging gives, and gone after use."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from carriers.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS, UpdateStack, stack_adapters
from carriers.prompts import CLOSED_BOOK_PREFIX, closed_book
from carriers.updated_model import updated_models
from sharpwave.errors import WeightsError
from tests.tiny_models import (
    one_thread,  # noqa: F401 -- a fixture for all tests here
    save_random_adapter,
    tiny_language_model,
)

PROMPTS = [closed_book(question) for question in ("Where does Mira live?", "Who painted the ceiling?")]
TEXTS = ["Mira lives in Porto.", "Rain."]
RANK = 2  # of a random adapter


@pytest.fixture
def updates(tmp_path):
    """Two random adapters."""
    folders = [tmp_path / f"update-{seed}" for seed in (1, 2)]
    for seed, folder in enumerate(folders, start=1):
        save_random_adapter(folder, seed=seed)
    return folders


@pytest.fixture
def stacked(updates, tmp_path):
    """Both in one adapter folder."""
    stack_adapters(updates[0], updates[1], tmp_path / "stacked", 1.0)
    return tmp_path / "stacked"


def nlls(model):
    return np.concatenate([item.nll for item in model.forward_features(TEXTS)])


def test_each_update_gives_what_merging_it_alone_gives(updates, stacked):
    base = tiny_language_model()
    updated = updated_models(base, UpdateStack(stacked, [RANK, RANK]))
    for place, folder in enumerate(updates):
        merged, own = tiny_language_model(adapter=folder), updated(place)
        np.testing.assert_allclose(nlls(own), nlls(merged), atol=1e-4)
        assert (
            own.answer(PROMPTS, CLOSED_BOOK_PREFIX)[0].text
            == merged.answer(PROMPTS, CLOSED_BOOK_PREFIX)[0].text
        )
        found, wanted = (
            model.match_answers(PROMPTS, [["Porto"], ["nobody"]], CLOSED_BOOK_PREFIX)
            for model in (own, merged)
        )
        assert [item.lowest_prob for item in found] == pytest.approx(
            [item.lowest_prob for item in wanted], rel=1e-3
        )
    assert np.abs(nlls(updated(0)) - nlls(updated(1))).max() > 0.01


def test_what_an_update_says_does_not_change_when_another_is_stacked_on_it(updates, stacked):
    alone = updated_models(tiny_language_model(), UpdateStack(updates[0]))(0)
    among = updated_models(tiny_language_model(), UpdateStack(stacked, [RANK, RANK]))(0)
    np.testing.assert_array_equal(nlls(alone), nlls(among))


def test_the_base_model_is_as_before_during_and_after(stacked):
    base = tiny_language_model()
    before = nlls(base)
    updated = updated_models(base, UpdateStack(stacked, [RANK, RANK]))
    changed = nlls(updated(0))
    np.testing.assert_array_equal(nlls(base), before)
    hooks = updated(0)._hooks
    with hooks.applied(updated(0)._update):
        np.testing.assert_array_equal(nlls(base), changed)  # the thread that applied it
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(nlls(base)))
        thread.start()
        thread.join()
        np.testing.assert_array_equal(elsewhere[0], before)


def test_hooks_go_with_what_made_them(stacked):
    base = tiny_language_model()
    updated = updated_models(base, UpdateStack(stacked, [RANK, RANK]))
    module = base.model.base_model.get_submodule("layers.0.mlp.up_proj")
    assert len(module._forward_hooks) == 1
    updated(0)
    del updated
    gc.collect()
    assert not module._forward_hooks


def test_a_failing_pass_leaves_no_update_applied(stacked):
    base = tiny_language_model()
    before = nlls(base)
    updated = updated_models(base, UpdateStack(stacked, [RANK, RANK]))
    with pytest.raises(ValueError, match="text"):
        updated(0).forward_features([None])
    np.testing.assert_array_equal(nlls(base), before)


def test_a_stack_of_one_needs_no_ranks(updates):
    assert UpdateStack(updates[0]).ranks == (RANK,)


def test_ranks_of_another_adapter_are_an_error(stacked):
    with pytest.raises(WeightsError, match="scope is of another adapter"):
        UpdateStack(stacked, [RANK])


def test_an_adapter_for_what_the_model_lacks_is_an_error(tmp_path):
    save_random_adapter(tmp_path, rename=lambda key: key.replace("layers.1.", "layers.7."))
    with pytest.raises(WeightsError, match=r"layers\.7\.mlp"):
        updated_models(tiny_language_model(), UpdateStack(tmp_path))


@pytest.mark.parametrize("file", [ADAPTER_CONFIG, ADAPTER_WEIGHTS])
@pytest.mark.parametrize("damage", ["cut", "gone", "empty"])
def test_a_damaged_adapter_is_an_error(updates, file, damage):
    path = updates[0] / file
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-20] if damage == "cut" else b"")
    with pytest.raises(WeightsError, match="damaged"):
        UpdateStack(updates[0])
