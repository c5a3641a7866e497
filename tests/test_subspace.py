"""Directions for an update: loud on what is learnt, silent on what is kept, whatever B becomes."""

from __future__ import annotations

import pytest
import torch

from carriers.prompts import closed_book
from consolidation.subspace import UpdateAim, leading_directions
from consolidation.write_back import Anchor, TrainingTarget, train_update
from sharpwave.errors import TrainingError
from tests.test_write_back import ANCHORS, TARGETS, settings
from tests.tiny_models import one_thread, tiny_language_model  # noqa: F401 -- a fixture for all tests here

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")

WIDTH, RANK = 24, 3


def moment(rows: torch.Tensor) -> torch.Tensor:
    return rows.T @ rows / len(rows)


def inputs(seed: int, first: int, last: int) -> torch.Tensor:
    """Inputs that vary in the dimensions first to last only, and a little in all."""
    draw = torch.Generator().manual_seed(seed)
    rows = 0.01 * torch.randn(200, WIDTH, generator=draw)
    rows[:, first:last] += torch.randn(200, last - first, generator=draw)
    return rows


def energy(directions: torch.Tensor, rows: torch.Tensor) -> float:
    return float((rows.double() @ directions.T).pow(2).mean())


def test_directions_are_loud_on_what_is_learnt_and_silent_on_what_is_kept():
    learnt, kept = inputs(0, 0, 12), inputs(1, 6, 18)  # half of what is learnt lies where the kept inputs are
    directions = leading_directions(moment(learnt), moment(kept), RANK, 0.01)
    usual = float(learnt.pow(2).mean() / 3)
    assert energy(directions, learnt) == pytest.approx(usual, rel=0.05)
    assert energy(directions, kept) < 0.01 * usual
    assert directions[:, :6].pow(2).sum() > 0.99 * directions.pow(2).sum()


def test_each_direction_adds_something():
    directions = leading_directions(moment(inputs(0, 0, 12)), moment(inputs(1, 6, 18)), RANK, 0.01)
    assert directions.shape == (RANK, WIDTH)
    assert torch.linalg.matrix_rank(directions) == RANK


def test_without_anchors_the_directions_follow_what_is_learnt():
    learnt = inputs(0, 0, RANK)
    directions = leading_directions(moment(learnt), torch.zeros(WIDTH, WIDTH), RANK, 0.03)
    assert directions[:, :RANK].pow(2).sum() > 0.99 * directions.pow(2).sum()


def test_a_rank_above_the_width_gives_as_many_directions_as_there_are():
    assert leading_directions(moment(inputs(0, 0, 9)), moment(inputs(1, 3, 9)), 99, 0.03).shape == (
        WIDTH,
        WIDTH,
    )


@pytest.mark.parametrize("kind", ["llama", "gemma"])
def test_aimed_updates_move_the_anchors_less_than_random_ones(tmp_path, kind):
    drift = {}
    for ridge in (0.0, 0.03):
        folder = tmp_path / f"update-{ridge:g}"
        train_update(
            tiny_language_model(kind),
            TARGETS,
            ANCHORS,
            settings(aim_ridge=ridge, distill_weight=0.0),
            folder,
            seed=0,
        )
        model, former = tiny_language_model(kind, adapter=folder), tiny_language_model(kind)
        drift[ridge] = sum(
            float((_states(model, anchor) - _states(former, anchor)).pow(2).mean()) for anchor in ANCHORS
        )
    assert 0 < drift[0.03] < 0.5 * drift[0.0]


def _states(model, anchor: Anchor) -> torch.Tensor:
    ids = [*model.prompt_ids(anchor.prompt, ""), *model.answer_ids(anchor.answer)]
    with torch.inference_mode():
        return model.model.base_model(input_ids=torch.tensor([ids])).last_hidden_state[0]


def test_modules_too_large_for_memory_together_are_aimed_in_several_passes(tmp_path, monkeypatch):
    from safetensors.torch import load_file

    whole, parts = (
        _update(tmp_path / name, monkeypatch, budget) for name, budget in (("whole", 2 << 30), ("parts", 1))
    )
    first, second = (load_file(str(folder / "adapter_model.safetensors")) for folder in (whole, parts))
    for key in (key for key in first if ".lora_A." in key):
        rows = first[key].double(), second[key].double()
        # The same space; the start of the iteration differs.
        spans = [torch.linalg.qr(part.T)[0] for part in rows]
        assert torch.linalg.matrix_norm(spans[0].T @ spans[1], 2) == pytest.approx(1.0, abs=0.05), key


def _update(folder, monkeypatch, budget):
    monkeypatch.setattr("consolidation.subspace._MOMENT_BYTES", budget)
    train_update(tiny_language_model(), TARGETS, ANCHORS, settings(epochs=1), folder, seed=0)
    return folder


def test_only_b_is_trained_once_a_is_aimed(tmp_path):
    model = tiny_language_model()
    train_update(model, TARGETS, ANCHORS, settings(epochs=1), tmp_path / "update", seed=0)
    trained = {name for name, value in model.model.named_parameters() if value.requires_grad}
    assert trained
    assert all(".lora_B." in name for name in trained)


def test_hidden_states_that_are_not_finite_are_refused(tmp_path):
    model = tiny_language_model()
    with torch.no_grad():
        model.model.model.layers[0].mlp.down_proj.weight[0, 0] = float("inf")
    target = TrainingTarget("a", closed_book("What is it?"), "blue", prefixed=False)
    with pytest.raises(TrainingError, match="not finite"):
        train_update(model, [target], [], settings(), tmp_path / "update", seed=0)


def test_no_hook_stays_on_the_model():
    model = tiny_language_model()
    from consolidation.write_back import attach_lora

    wrapped = attach_lora(model.model, settings(), 0)
    aim = UpdateAim(wrapped, 0.03)
    for _ in aim.passes():
        aim.watch(torch.arange(4), is_anchor=False)
        wrapped.get_base_model().base_model(input_ids=torch.tensor([[1, 2, 3, 4]]))
    assert not any(module._forward_pre_hooks for module in wrapped.modules())
