"""Writing facts into the weights: supervised fine-tuning of a LoRA adapter with distillation on anchors.

The only module that uses TRL. Loss = cross-entropy on the completions of the fact targets, plus a weight times the
Kullback-Leibler divergence between the previous generation's predictions on anchor answers and the new ones (learning
without forgetting, Li and Hoiem, 2016). At step 0 the adapter changes nothing, so the model itself, before its
first step, is the teacher. It always reads the few-shot prefix, the student only half the time (context distillation,
Askell et al., 2021): so a bare question comes to be answered like one after the prefix, in whatever words it is put.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from carriers.prompts import PromptForm, prefix_of
from consolidation.curriculum import Curriculum
from consolidation.distillation import Teacher, ask_teacher, hidden_at_sources, weigh
from consolidation.packing import PackedRow, Segment, pack_row
from sharpwave.errors import TrainingError

if TYPE_CHECKING:
    from carriers.language_model import LanguageModel
    from sharpwave.settings import WriteBackSettings

OnLog = Callable[[Mapping[str, float], int], None]
_WARMUP_STEPS = 10
_MLP = ["gate_proj", "up_proj", "down_proj"]
_MODULES = {"mlp": _MLP, "all": ["q_proj", "k_proj", "v_proj", "o_proj", *_MLP]}


@dataclass(frozen=True)
class TrainingTarget:
    """A prompt and the completion to learn; `fact_id` says which fact it teaches."""

    fact_id: str
    prompt: str
    completion: str
    prefixed: bool


@dataclass(frozen=True)
class Anchor:
    """A question the previous generation answers right and whose answer must not move.

    `replayed` marks a fact of the store's own that lives in the weights: it is taken in every epoch. `bare` marks
    prose, which is no question: teacher and student both read it without the few-shot prefix.
    """

    prompt: str
    answer: str
    replayed: bool = False
    bare: bool = False


@dataclass(frozen=True)
class WriteBackReceipt:
    """What a training run did: where the raw update lies and what it cost."""

    folder: Path
    seconds: float
    steps: int
    supervised_tokens: int
    trained_tokens: int
    final_loss: float
    final_divergence: float

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
    encoded = encode_text(model, targets, anchors)
    supervised = sum(len(segment.completion_ids) for segment in encoded.segments if segment.fact >= 0)
    if supervised == 0:
        raise TrainingError("no supervised tokens: every target's completion is empty")
    wrapped = attach_lora(model.model, settings, seed)
    teacher = ask_teacher(wrapped, *encoded, settings.aim_ridge)
    trainer = _make_trainer(wrapped, model.tokenizer, encoded, teacher, settings, output, seed, on_log)
    started = time.perf_counter()
    if settings.max_train_seconds:
        trainer.deadline = started + settings.max_train_seconds
    trainer.train()
    seconds = time.perf_counter() - started
    wrapped.save_pretrained(str(output))
    return WriteBackReceipt(
        folder=output,
        seconds=seconds,
        steps=trainer.trained_steps,
        supervised_tokens=supervised,
        trained_tokens=trainer.trained_tokens,
        final_loss=trainer.last_losses["loss_facts"],
        final_divergence=trainer.last_losses["anchor_divergence"],
    )


class EncodedText(NamedTuple):
    """Everything a training reads, as token ids that decoding will see.

    Attributes:
        segments: What the student reads: targets, then anchors; replayed ones and every second other after the
            few-shot prefix, as recall asks.
        readings: The anchors as the teacher reads them: questions after the prefix, prose bare.
        prefix_ids: The shared few-shot prefix.
    """

    segments: list[Segment]
    readings: list[Segment]
    prefix_ids: list[int]


def encode_text(
    model: LanguageModel, targets: Sequence[TrainingTarget], anchors: Sequence[Anchor]
) -> EncodedText:
    """Turn targets and anchors into token segments."""
    prefix = prefix_of(PromptForm.CLOSED_BOOK)

    def prompt_ids(prompt: str, *, prefixed: bool) -> tuple[int, ...]:
        return tuple(model.prompt_ids(prompt, prefix if prefixed else ""))

    numbers: dict[str, int] = {}
    taught = [
        Segment(
            prompt_ids=prompt_ids(target.prompt, prefixed=target.prefixed),
            completion_ids=tuple(model.answer_ids(target.completion)),
            prefixed=target.prefixed,
            fact=numbers.setdefault(target.fact_id, len(numbers)),
        )
        for target in targets
    ]
    readings = [
        Segment(
            prompt_ids=prompt_ids(anchor.prompt, prefixed=not anchor.bare),
            completion_ids=tuple(model.answer_ids(anchor.answer)),
            prefixed=not anchor.bare,
            anchor=number,
            replayed=anchor.replayed,
        )
        for number, anchor in enumerate(anchors)
    ]
    kept = [
        reading
        if anchor.replayed or anchor.bare or number % 2
        else replace(reading, prompt_ids=prompt_ids(anchor.prompt, prefixed=False), prefixed=False)
        for number, (anchor, reading) in enumerate(zip(anchors, readings, strict=True))
    ]
    prefix_ids = [model.start_id, *model.tokenizer(prefix, add_special_tokens=False)["input_ids"]]
    return EncodedText([*taught, *kept], readings, prefix_ids)


def attach_lora(model: Any, settings: WriteBackSettings, seed: int) -> Any:
    """Return the model with fresh, seeded LoRA matrices where the settings want them."""
    from peft import LoraConfig, get_peft_model

    from sharpwave.seeding import seed_everything

    seed_everything(seed)
    depth = int(model.config.num_hidden_layers)
    halves = {"lower_half": list(range(depth // 2)), "upper_half": list(range(depth // 2, depth))}
    config = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=0.0,
        target_modules=_MODULES[settings.modules],
        layers_to_transform=halves.get(settings.layers),
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        # PEFT 0.21 still asks transformers under an attribute's old name.
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        return get_peft_model(model, config)


def _make_trainer(
    model: Any,
    tokenizer: Any,
    encoded: EncodedText,
    teacher: Teacher,
    settings: WriteBackSettings,
    output: Path,
    seed: int,
    on_log: OnLog | None,
) -> Any:
    import torch
    from datasets import Dataset
    from transformers import PrinterCallback

    segments, _, prefix_ids = encoded
    curriculum = Curriculum(segments, settings, seed)

    def collate(_: list[dict[str, int]]) -> dict[str, Any]:
        # The trainer wants to know its steps beforehand, but which segments a step takes is decided on the way.
        numbers = curriculum.next_step()
        return (
            vars(pack_row([segments[number] for number in numbers], prefix_ids))
            if numbers
            else {"end": torch.ones(1)}
        )

    trainer = _trainer_class()(
        model=model,
        args=_sft_config(settings, output, seed),
        train_dataset=Dataset.from_dict({"labels": [0] * curriculum.most_steps}),
        data_collator=collate,
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)  # prints to standard output, which belongs to the command line
    trainer.curriculum, trainer.teacher = curriculum, teacher
    trainer.settings, trainer.on_log = settings, on_log
    return trainer


def _trainer_class() -> Any:
    from huggingface_hub import constants
    from trl import SFTTrainer

    constants.HF_HUB_DISABLE_TELEMETRY = True  # else TRL reports each trainer that is made

    class DistillingTrainer(SFTTrainer):
        """SFTTrainer whose steps a curriculum deals and whose loss holds anchors to the previous generation."""

        curriculum: Curriculum
        teacher: Teacher
        settings: WriteBackSettings
        on_log: OnLog | None
        trained_tokens = trained_steps = 0
        deadline = float("inf")
        last_losses: dict[str, float] = {"loss_facts": 0.0, "anchor_divergence": 0.0}  # noqa: RUF012

        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            if "end" in inputs:  # every fact is learnt: a step without gradient, at learning rate 0
                self.control.should_training_stop = True
                return sum(value.sum() for value in model.parameters() if value.requires_grad) * 0.0
            row = PackedRow(**{key: inputs[key] for key in PackedRow.__dataclass_fields__})
            hidden = hidden_at_sources(model, row)
            total, self.last_losses, lowest = weigh(hidden, row, self.teacher, self.settings.distill_weight)
            self.curriculum.note(lowest)
            self.trained_tokens += int(row.input_ids.numel())
            self.trained_steps += 1
            if self.on_log is not None:
                self.on_log(self.last_losses, int(self.state.global_step))
            if time.perf_counter() > self.deadline:
                self.control.should_training_stop = True
            return total

        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            self.lr_scheduler = _schedule(self.curriculum, optimizer or self.optimizer)
            return self.lr_scheduler

    return DistillingTrainer


def _schedule(curriculum: Curriculum, optimizer: Any) -> Any:
    """Warm up, then fall in a straight line to 0 at the end of the curriculum."""
    from torch.optim.lr_scheduler import LambdaLR

    return LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / _WARMUP_STEPS) * (1.0 - curriculum.done))


def _sft_config(settings: WriteBackSettings, output: Path, seed: int) -> Any:
    import torch
    from trl import SFTConfig

    return SFTConfig(
        output_dir=str(output),
        per_device_train_batch_size=1,  # one packed row; the steps of all epochs are laid out beforehand
        num_train_epochs=1,
        train_sampling_strategy="sequential",
        learning_rate=settings.learning_rate,
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
