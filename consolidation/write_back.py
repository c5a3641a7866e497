"""Writing facts into the weights: supervised fine-tuning of a LoRA adapter with distillation on anchors.

The only module that uses TRL. Loss = cross-entropy on the completions of the fact targets, plus a weight times the
distance of the final hidden states on anchor answers to those of the previous generation (a form of learning
without forgetting, Li and Hoiem, 2016). At step 0 the adapter changes nothing, so the model itself, before its
first step, is the teacher. Logits are computed at supervised positions only.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carriers.prompts import PromptForm, prefix_of
from consolidation.packing import PackedRow, Segment, pack_row, plan_steps
from sharpwave.errors import TrainingError

if TYPE_CHECKING:
    import torch

    from carriers.language_model import LanguageModel
    from sharpwave.settings import WriteBackSettings

OnLog = Callable[[Mapping[str, float], int], None]
TeacherStates = dict[tuple[int, int], "torch.Tensor"]

_LORA_MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True)
class TrainingTarget:
    """A prompt and the completion to learn; `fact_id` says which fact it teaches."""

    fact_id: str
    prompt: str
    completion: str
    prefixed: bool


@dataclass(frozen=True)
class Anchor:
    """A question the previous generation answers right and whose answer must not move."""

    prompt: str
    answer: str
    prefixed: bool


@dataclass(frozen=True)
class WriteBackReceipt:
    """What a training run did: where the raw update lies and what it cost."""

    folder: Path
    seconds: float
    steps: int
    supervised_tokens: int
    trained_tokens: int
    final_loss: float
    final_distance: float

    def figures(self) -> dict[str, Any]:
        """Return what the run cost, without the folder."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "folder"}


def train_update(
    model: LanguageModel,
    targets: Sequence[TrainingTarget],
    anchors: Sequence[Anchor],
    settings: WriteBackSettings,
    output: Path,
    *,
    seed: int,
    on_log: OnLog | None = None,
) -> WriteBackReceipt:
    """Train a LoRA update on top of the model (base plus merged parent adapter) and save it to `output`.

    The model is consumed: it is left with the update attached and must not be used for answers afterwards.

    Args:
        model: The previous generation.
        targets: What to learn; every completion must have tokens.
        anchors: What to keep.
        settings: Rank, learning rate, epochs, weights.
        output: Folder for the adapter in PEFT format; created.
        seed: Seeds order and initial weights.
        on_log: Called with the losses and the step after each logged step.

    Raises:
        TrainingError: Nothing to learn, no supervised token, or a loss that is not finite.
    """
    if not targets:
        raise TrainingError("no targets: select facts with questions and answers before training")
    segments, prefix_ids = encode_segments(model, targets, anchors)
    supervised = sum(len(segment.completion_ids) for segment in segments if segment.fact >= 0)
    if supervised == 0:
        raise TrainingError("no supervised tokens: every target's completion is empty")
    wrapped = _attach_lora(model.model, settings, seed)
    teacher = _teacher_states(wrapped, [s for s in segments if s.anchor >= 0], prefix_ids)
    trainer = _make_trainer(
        wrapped, model.tokenizer, segments, prefix_ids, teacher, settings, output, seed, on_log
    )
    started = time.perf_counter()
    if settings.max_train_seconds:
        trainer.deadline = started + settings.max_train_seconds
    trainer.train()
    seconds = time.perf_counter() - started
    wrapped.save_pretrained(str(output))
    return WriteBackReceipt(
        folder=output,
        seconds=seconds,
        steps=int(trainer.state.global_step),
        supervised_tokens=supervised,
        trained_tokens=trainer.trained_tokens,
        final_loss=trainer.last_losses["loss_facts"],
        final_distance=trainer.last_losses["anchor_distance"],
    )


def planned_steps(target_count: int, anchor_count: int, settings: WriteBackSettings) -> int:
    """Return how many optimiser steps a training on so many targets, with such a bank, takes."""
    per_epoch = target_count + min(settings.anchors_per_epoch, anchor_count)
    return math.ceil(per_epoch / settings.batch_size) * settings.epochs


def encode_segments(
    model: LanguageModel, targets: Sequence[TrainingTarget], anchors: Sequence[Anchor]
) -> tuple[list[Segment], list[int]]:
    """Turn targets and anchors into token segments with the ids that decoding will see.

    Returns:
        The segments (targets first) and the ids of the shared few-shot prefix.
    """
    prefix = prefix_of(PromptForm.CLOSED_BOOK)
    prefix_ids = [model.start_id, *model.tokenizer(prefix, add_special_tokens=False)["input_ids"]]
    numbers: dict[str, int] = {}
    segments = [
        Segment(
            prompt_ids=tuple(model.prompt_ids(target.prompt, prefix if target.prefixed else "")),
            completion_ids=tuple(model.answer_ids(target.completion)),
            prefixed=target.prefixed,
            fact=numbers.setdefault(target.fact_id, len(numbers)),
        )
        for target in targets
    ]
    segments += [
        Segment(
            prompt_ids=tuple(model.prompt_ids(anchor.prompt, prefix if anchor.prefixed else "")),
            completion_ids=tuple(model.answer_ids(anchor.answer)),
            prefixed=anchor.prefixed,
            anchor=number,
        )
        for number, anchor in enumerate(anchors)
    ]
    return segments, prefix_ids


def _attach_lora(model: Any, settings: WriteBackSettings, seed: int) -> Any:
    from peft import LoraConfig, get_peft_model

    from sharpwave.seeding import seed_everything

    seed_everything(seed)
    depth = int(model.config.num_hidden_layers)
    layers = list(range(depth // 2, depth)) if settings.layers == "upper_half" else None
    config = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=0.0,
        target_modules=_LORA_MODULES,
        layers_to_transform=layers,
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        # PEFT 0.21 still asks transformers under an attribute's old name.
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        return get_peft_model(model, config)


def _hidden_at_sources(model: Any, row: PackedRow) -> Any:
    """Return the final hidden states [S, width] at the positions that predict completion tokens."""
    device = model.device
    output = model.get_base_model().base_model(
        input_ids=row.input_ids.to(device),
        position_ids=row.position_ids.to(device),
        attention_mask=row.attention_mask.to(device),
        use_cache=False,
    )
    return output.last_hidden_state[0, row.source.to(device)]


def _teacher_states(model: Any, anchors: Sequence[Segment], prefix_ids: list[int]) -> TeacherStates:
    """Return the hidden state of the untouched model at each (anchor number, place in its answer)."""
    import torch

    states: TeacherStates = {}
    model.eval()
    with torch.no_grad():
        for start in range(0, len(anchors), 24):
            row = pack_row(anchors[start : start + 24], prefix_ids)
            hidden = _hidden_at_sources(model, row)
            for number, place, state in zip(row.anchor.tolist(), row.offset.tolist(), hidden, strict=True):
                states[number, place] = state.clone()
    return states


def _make_trainer(
    model: Any,
    tokenizer: Any,
    segments: list[Segment],
    prefix_ids: list[int],
    teacher: TeacherStates,
    settings: WriteBackSettings,
    output: Path,
    seed: int,
    on_log: OnLog | None,
) -> Any:
    from datasets import Dataset
    from transformers import PrinterCallback

    def collate(examples: list[dict[str, list[int]]]) -> dict[str, Any]:
        (step,) = examples
        return vars(pack_row([segments[number] for number in step["segments"]], prefix_ids))

    steps = plan_steps(
        segments,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        anchors_per_epoch=settings.anchors_per_epoch,
        seed=seed,
    )
    dataset = Dataset.from_dict({"segments": steps, "labels": [0] * len(steps)})
    trainer = _trainer_class()(
        model=model,
        args=_sft_config(settings, output, seed),
        train_dataset=dataset,
        data_collator=collate,
        processing_class=tokenizer,
    )
    trainer.remove_callback(
        PrinterCallback
    )  # it prints to standard output, which belongs to the command line
    trainer.teacher, trainer.settings, trainer.on_log = teacher, settings, on_log
    trainer.remove_callback(PrinterCallback)  # prints to standard output
    return trainer


def _trainer_class() -> Any:
    import torch
    from trl import SFTTrainer

    class DistillingTrainer(SFTTrainer):
        """SFTTrainer whose loss reads packed rows and pulls anchors towards the previous generation."""

        teacher: TeacherStates
        settings: WriteBackSettings
        on_log: OnLog | None
        trained_tokens = 0
        deadline = float("inf")
        last_losses: dict[str, float] = {"loss_facts": 0.0, "anchor_distance": 0.0}  # noqa: RUF012

        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            row = PackedRow(**{key: inputs[key] for key in PackedRow.__dataclass_fields__})
            hidden = _hidden_at_sources(model, row)
            loss, distance = _losses(model.get_base_model().lm_head, hidden, row, self.teacher)
            total = loss + self.settings.distill_weight * distance
            if not torch.isfinite(total):
                raise TrainingError("the loss is not finite; lower write_back.learning_rate")
            self.trained_tokens += int(row.input_ids.numel())
            self.last_losses = {"loss_facts": loss.item(), "anchor_distance": distance.item()}
            if self.on_log is not None:
                self.on_log(self.last_losses, int(self.state.global_step))
            if time.perf_counter() > self.deadline:
                self.control.should_training_stop = True
            return total

    return DistillingTrainer


def _sft_config(settings: WriteBackSettings, output: Path, seed: int) -> Any:
    import torch
    from trl import SFTConfig

    return SFTConfig(
        output_dir=str(output),
        per_device_train_batch_size=1,  # one packed row; the steps of all epochs are laid out beforehand
        num_train_epochs=1,
        train_sampling_strategy="sequential",
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=10,
        weight_decay=0.0,
        seed=seed,
        data_seed=seed,
        use_cpu=not torch.cuda.is_available(),
        bf16=False,
        activation_checkpointing=False,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
    )


def _losses(lm_head: Any, hidden: Any, row: PackedRow, teacher: TeacherStates) -> tuple[Any, Any]:
    """Return the mean cross-entropy of fact tokens and the mean relative distance of anchor states."""
    import torch

    facts, anchors = row.fact >= 0, row.anchor >= 0
    zero = hidden.sum() * 0.0
    loss = (
        torch.nn.functional.cross_entropy(lm_head(hidden[facts]), row.target[facts].to(hidden.device))
        if facts.any()
        else zero
    )
    if not anchors.any():
        return loss, zero
    wanted = torch.stack([
        teacher[key] for key in zip(row.anchor[anchors].tolist(), row.offset[anchors].tolist(), strict=True)
    ])
    distance = (hidden[anchors] - wanted).pow(2).mean(1) / wanted.pow(2).mean(1)
    return loss, distance.mean()
