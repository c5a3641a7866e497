"""Training on tiny random models: what moves, what does not, what is refused, and what is saved."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from carriers.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS, merge_adapter, stack_adapters
from carriers.prompts import CLOSED_BOOK_PREFIX, closed_book
from consolidation.anchors import prose_anchors
from consolidation.general_text import GENERAL_TEXT
from consolidation.write_back import Anchor, TrainingTarget, encode_text, train_update
from sharpwave.errors import TrainingError, WeightsError
from sharpwave.settings import WriteBackSettings
from tests.tiny_models import LAYERS, one_thread, tiny_language_model  # noqa: F401 -- a fixture for all tests here

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")

QUESTIONS = [f"What is in box {number}?" for number in range(4)]
TARGETS = [
    TrainingTarget(f"fact-{number}", closed_book(question), "blue", prefixed=number % 2 == 1)
    for number, question in enumerate(QUESTIONS)
]
ANCHORS = [
    Anchor(closed_book("Who wrote the play?"), "red"),
    Anchor(closed_book("How many doors are there?"), "9"),
]
READ_AFTER = ("", CLOSED_BOOK_PREFIX)  # the student's forms of the anchors


def settings(**changes) -> WriteBackSettings:
    return WriteBackSettings(
        **{"lora_rank": 4, "lora_alpha": 8, "epochs": 3, "batch_size": 4, "learning_rate": 5e-3} | changes
    )


def train(folder, *, targets=TARGETS, anchors=ANCHORS, kind="llama", adapter=None, **changes):
    """Train a tiny model; return the receipt and the `LanguageModel`, which is left with the update attached."""
    on_log = changes.pop("on_log", None)
    model = tiny_language_model(kind, adapter=adapter)
    receipt = train_update(model, targets, anchors, settings(**changes), folder, seed=0, on_log=on_log)
    return receipt, model


def logits(model, question=QUESTIONS[0]) -> torch.Tensor:
    ids = torch.tensor([model.prompt_ids(closed_book(question), "")])
    with torch.inference_mode():
        return model.model(input_ids=ids).logits[0]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(tmp_path_factory.mktemp("update"))


def test_adapter_tensors_move_and_base_tensors_do_not(trained):
    before = dict(tiny_language_model().model.named_parameters())
    base, updates = 0, []
    for name, after in trained[1].model.named_parameters():
        if ".lora_B." in name:
            updates.append(after.abs().max().item())  # B starts at zero
        elif ".lora_" not in name:
            torch.testing.assert_close(after, before[name.replace(".base_layer", "")], rtol=0, atol=0)
            base += 1
    assert base == len(before)
    assert len(updates) == 3 * LAYERS
    assert min(updates) > 0


def test_embeddings_and_output_head_get_no_adapter(trained):
    keys = load_file(str(trained[0].folder / ADAPTER_WEIGHTS))
    assert keys
    assert not [key for key in keys if "embed" in key or "lm_head" in key]


def test_upper_half_leaves_the_lower_layers_alone(tmp_path):
    receipt, _ = train(tmp_path / "update", layers="upper_half", epochs=1)
    layers = {
        key.split(".layers.")[1].split(".")[0] for key in load_file(str(receipt.folder / ADAPTER_WEIGHTS))
    }
    assert layers == {str(layer) for layer in range(LAYERS // 2, LAYERS)}


def test_the_receipt_counts_supervised_tokens_of_facts_only(trained):
    receipt, model = trained
    assert receipt.supervised_tokens == len(TARGETS) * len(model.answer_ids("blue"))
    assert receipt.trained_tokens > receipt.supervised_tokens * 3
    assert receipt.steps == 6  # six segments, four a step, three epochs
    assert receipt.seconds > 0
    assert set(receipt.figures()) == {
        "seconds",
        "steps",
        "supervised_tokens",
        "trained_tokens",
        "final_loss",
        "final_divergence",
    }


def test_training_teaches_the_targets(tmp_path):
    receipt, _ = train(
        tmp_path / "update", epochs=40, learning_rate=2e-2, distill_weight=0.0, anchors=[], modules="all"
    )
    taught, untaught = tiny_language_model(adapter=receipt.folder), tiny_language_model()
    prompts = [closed_book(question) for question in QUESTIONS]
    for prefix in ("", CLOSED_BOOK_PREFIX):
        assert all(match.matched for match in taught.match_answers(prompts, [["blue"]] * 4, prefix))
        assert not any(match.matched for match in untaught.match_answers(prompts, [["blue"]] * 4, prefix))
    assert [answer.text for answer in taught.answer(prompts)] == ["blue"] * 4


def test_every_step_is_logged_and_the_loss_falls(tmp_path, capsys):
    logged = []
    train(
        tmp_path / "update",
        epochs=15,
        learning_rate=3e-2,
        sure_prob=1.0,
        on_log=lambda figures, step: logged.append(figures["loss_facts"]),
    )
    assert len(logged) == 30
    assert min(logged[-2:]) < 0.8 * max(logged[:2])
    assert capsys.readouterr().out == "", "training talks through on_log only"


def test_facts_that_are_learnt_leave_the_training_and_it_ends_early(tmp_path):
    receipt, _ = train(
        tmp_path / "update", epochs=40, batch_size=1, anchors=[], distill_weight=0.0, sure_prob=0.5
    )
    assert len(QUESTIONS) < receipt.steps < 40 * len(QUESTIONS)
    taught = tiny_language_model(adapter=receipt.folder)
    prompts = [closed_book(question) for question in QUESTIONS]
    assert all(match.matched for match in taught.match_answers(prompts, [["blue"]] * 4, CLOSED_BOOK_PREFIX))


def test_the_time_limit_ends_the_training_early_and_still_saves(tmp_path):
    receipt, _ = train(tmp_path / "update", epochs=50, max_train_seconds=0.001)
    assert receipt.steps == 1
    assert (receipt.folder / ADAPTER_WEIGHTS).exists()


@pytest.mark.parametrize(
    ("targets", "message"),
    [([], "no targets"), ([TrainingTarget("a", "Question: ?\nAnswer:", "", prefixed=False)], None)],
)
def test_nothing_to_supervise_is_refused_or_counted(tmp_path, targets, message):
    if message:
        with pytest.raises(TrainingError, match=message):
            train(tmp_path / "update", targets=targets)
        assert not (tmp_path / "update").exists()
    else:  # an empty answer still teaches the line break, and says so
        receipt, model = train(tmp_path / "update", targets=targets, epochs=1)
        assert receipt.supervised_tokens == len(model.answer_ids("")) > 0


def test_a_loss_that_is_not_finite_stops_the_training_and_saves_nothing(tmp_path):
    model = tiny_language_model()
    with torch.no_grad():
        model.model.model.layers[0].mlp.down_proj.weight[0, 0] = float("nan")
    with pytest.raises(TrainingError, match="not finite"):
        train_update(model, TARGETS, [], settings(), tmp_path / "update", seed=0)
    assert not (tmp_path / "update" / ADAPTER_WEIGHTS).exists()


def test_distillation_keeps_the_anchors_near_the_previous_generation(tmp_path):
    drift = {}
    for weight in (0.0, 30.0):
        receipt, _ = train(tmp_path / f"update-{weight:g}", epochs=12, distill_weight=weight)
        model, former = tiny_language_model(adapter=receipt.folder), tiny_language_model()
        drift[weight] = sum(
            _divergence(model, former, *read) for read in zip(ANCHORS, READ_AFTER, strict=True)
        )
    assert drift[30.0] < 0.5 * drift[0.0]


def test_bare_anchors_come_to_be_answered_like_those_after_the_prefix(tmp_path):
    receipt, _ = train(tmp_path / "update", epochs=60, distill_weight=30.0, aim_ridge=0.0)
    model, former = tiny_language_model(adapter=receipt.folder), tiny_language_model()
    apart = _divergence(former, former, ANCHORS[0], "")
    assert apart > 1e-4  # the prefix matters to this model
    assert _divergence(model, former, ANCHORS[0], "") < 0.5 * apart


def _divergence(model, former, anchor, prefix) -> float:
    """How far a model's predictions, after `prefix`, are from the former model's after the few-shot prefix."""
    found, wanted = (
        _answer_log_probs(model, anchor, prefix),
        _answer_log_probs(former, anchor, CLOSED_BOOK_PREFIX),
    )
    return float(torch.nn.functional.kl_div(found, wanted, log_target=True, reduction="batchmean"))


def _answer_log_probs(model, anchor, prefix) -> torch.Tensor:
    start = (
        [model.start_id, *model.tokenizer(prefix, add_special_tokens=False)["input_ids"]] if prefix else []
    )
    answer = model.answer_ids(anchor.answer)
    ids = [*start, *model.prompt_ids(anchor.prompt, prefix), *answer]
    with torch.inference_mode():
        return model.model(input_ids=torch.tensor([ids])).logits[0, -len(answer) - 1 : -1].log_softmax(-1)


@pytest.mark.parametrize("kind", ["llama", "gemma"])
def test_the_saved_adapter_reloaded_and_merged_equals_the_trained_model(tmp_path, kind):
    receipt, model = train(tmp_path / "update", kind=kind)
    model.model.eval()
    reloaded = tiny_language_model(kind, adapter=receipt.folder)
    torch.testing.assert_close(logits(reloaded), logits(model), rtol=1e-4, atol=1e-5)
    assert (logits(reloaded) - logits(tiny_language_model(kind))).abs().max() > 1e-3


@pytest.mark.parametrize("layers", ["all", "upper_half"])
def test_a_stacked_adapter_is_the_parent_plus_the_scaled_update(tmp_path, layers):
    parent, _ = train(tmp_path / "parent")
    update, _ = train(
        tmp_path / "update", adapter=parent.folder, layers=layers, lora_rank=2, lora_alpha=6, epochs=2
    )
    stack_adapters(parent.folder, update.folder, tmp_path / "both", 0.25)
    expected = _changes(parent.folder)
    for module, change in _changes(update.folder).items():
        expected[module] = expected[module] + 0.25 * change
    found = _changes(tmp_path / "both")
    assert set(found) == set(expected)
    for module, change in expected.items():
        torch.testing.assert_close(found[module], change, rtol=1e-5, atol=1e-7)
    # The night trains on the merged parent, so one merge of the stack must equal the two in a row.
    stack_adapters(parent.folder, update.folder, tmp_path / "whole", 1.0)
    twice = tiny_language_model(adapter=parent.folder)
    twice.model = merge_adapter(twice.model, update.folder)
    torch.testing.assert_close(
        logits(tiny_language_model(adapter=tmp_path / "whole")), logits(twice), rtol=1e-4, atol=1e-5
    )


def test_modules_choose_what_is_adapted(tmp_path):
    receipt, _ = train(tmp_path / "update", modules="all", epochs=1)
    assert len(_changes(receipt.folder)) == 7 * LAYERS


@pytest.mark.parametrize(
    ("former", "expected"),
    [
        ({"layers": "upper_half"}, 3 * LAYERS),
        ({"modules": "all"}, 7 * LAYERS),
        ({"layers": "upper_half", "modules": "all"}, 4 * (LAYERS - LAYERS // 2) + 3 * LAYERS),
    ],
)
def test_an_adapter_grows_by_modules_that_its_parent_left_alone(tmp_path, former, expected):
    parent, _ = train(tmp_path / "parent", epochs=1, **former)
    update, _ = train(tmp_path / "update", adapter=parent.folder, epochs=1)
    stack_adapters(parent.folder, update.folder, tmp_path / "both", 1.0)
    assert len(_changes(tmp_path / "both")) == expected
    merged = logits(tiny_language_model(adapter=tmp_path / "both"))
    assert (merged - logits(tiny_language_model(adapter=parent.folder))).abs().max() > 1e-4


def test_stacking_twice_gives_the_same_bytes(trained, tmp_path):
    for name in ("one", "two"):
        stack_adapters(None, trained[0].folder, tmp_path / name, 0.5)
    for file in (ADAPTER_WEIGHTS, ADAPTER_CONFIG):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def _changes(folder) -> dict[str, torch.Tensor]:
    """The weight change of each module, from the files alone."""
    config = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    tensors = load_file(str(folder / ADAPTER_WEIGHTS))
    return {
        key.replace(".lora_A.weight", ""): tensors[key.replace(".lora_A.", ".lora_B.")]
        @ value
        * (config["lora_alpha"] / config["r"])
        for key, value in tensors.items()
        if ".lora_A." in key
    }


def _drop_one(tensors, config):
    tensors.pop(sorted(tensors)[0])


def _add_one(tensors, config):
    tensors["base_model.model.model.layers.0.mlp.strange.lora_A.weight"] = torch.zeros(4, 4)


def _reshape_one(tensors, config):
    key = next(key for key in sorted(tensors) if ".lora_A." in key)
    tensors[key] = tensors[key][:, :-1].contiguous()


def _other_rank(tensors, config):
    config["r"] = 5


@pytest.mark.parametrize("damage", [_drop_one, _add_one, _reshape_one, _other_rank])
def test_an_adapter_that_does_not_fit_is_refused(trained, tmp_path, damage):
    broken = shutil.copytree(trained[0].folder, tmp_path / "broken")
    tensors = load_file(str(broken / ADAPTER_WEIGHTS))
    config = json.loads((broken / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    damage(tensors, config)
    save_file(tensors, str(broken / ADAPTER_WEIGHTS))
    (broken / ADAPTER_CONFIG).write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(WeightsError, match="does not fit"):
        tiny_language_model(adapter=broken)


def test_an_incomplete_or_cut_adapter_is_refused(trained, tmp_path):
    with pytest.raises(WeightsError, match="not an adapter folder"):
        tiny_language_model(adapter=tmp_path)
    broken = shutil.copytree(trained[0].folder, tmp_path / "broken")
    weights = (broken / ADAPTER_WEIGHTS).read_bytes()
    (broken / ADAPTER_WEIGHTS).write_bytes(weights[: len(weights) // 2])
    with pytest.raises(WeightsError, match="does not fit"):
        tiny_language_model(adapter=broken)


def test_prose_is_read_without_the_prefix_by_teacher_and_student():
    anchors = [*ANCHORS, *prose_anchors(5, seed=1)]
    encoded = encode_text(tiny_language_model(), [], anchors)
    prose = [number for number, anchor in enumerate(anchors) if anchor.bare]
    assert len(prose) == 5
    assert not any(encoded.readings[number].prefixed or encoded.segments[number].prefixed for number in prose)
    assert [encoded.readings[number] for number in prose] == [encoded.segments[number] for number in prose]
    assert all(reading.prefixed for reading in encoded.readings[: len(ANCHORS)])


def test_prose_of_a_training_is_not_that_of_the_gate():
    gate = GENERAL_TEXT.read_text(encoding="utf-8")
    drawn = prose_anchors(10_000, seed=0)
    assert len(drawn) > 90
    assert len({(anchor.prompt, anchor.answer) for anchor in drawn}) == len(drawn)
    assert not [anchor for anchor in drawn if anchor.answer in gate]
    assert prose_anchors(7, seed=3) == prose_anchors(7, seed=3) != prose_anchors(7, seed=4)


def test_no_usage_report_leaves_the_machine(tmp_path, monkeypatch):
    from huggingface_hub import constants
    from huggingface_hub.utils import _telemetry
    from trl.trainer import base_trainer

    for switch in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setattr(constants, switch, False)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(_telemetry, "_telemetry_worker", lambda: None)
    asked = []
    monkeypatch.setattr(
        base_trainer,
        "send_telemetry",
        lambda *args, **kwargs: (asked.append(args), _telemetry.send_telemetry(*args, **kwargs)),
    )
    train(tmp_path, epochs=1)
    assert asked  # else this test watches nothing
    assert _telemetry._TELEMETRY_QUEUE.empty()
