"""Time TRL's trainer against a bare loop that does the same work on the same steps.

.venv/bin/python benchmarks/trainer_overhead.py
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from carriers.prompts import closed_book
from consolidation.anchors import read_anchors, training_anchors
from consolidation.curriculum import Curriculum
from consolidation.distillation import ask_teacher, hidden_at_sources, weigh
from consolidation.packing import pack_row
from consolidation.write_back import Anchor, TrainingTarget, attach_lora, encode_text, train_update
from eval.router_data import router_facts
from serving.loaded_models import LoadedModels, shared_models
from sharpwave.settings import load_settings

if TYPE_CHECKING:
    from sharpwave.settings import Settings, WriteBackSettings


def main(
    facts: Annotated[int, typer.Option(help="Facts of the head-training split in one epoch.")] = 64,
    repeats: Annotated[int, typer.Option(help="How often each way is timed, by turns.")] = 2,
    profile: Annotated[str, typer.Option(help="Profile whose models are used.")] = "embedded",
) -> None:
    """Print tokens per second both ways, and their ratio."""
    figures = trainer_overhead(load_settings(profile), facts, repeats)
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")


def trainer_overhead(settings: Settings, facts: int, repeats: int) -> dict[str, float]:
    """Return tokens per second of the bare loop and of the trainer, best of the repeats, and the first over the second.

    Each trains for one epoch with the settings' recipe; the teacher's reading is not timed.
    """
    recipe = settings.consolidation.write_back.model_copy(update={"epochs": 1})
    models = shared_models(settings.models)
    targets = [
        TrainingTarget(item.id, closed_book(question), item.fact.answers[0], prefixed=bool(turn))
        for item in router_facts({"train": facts}, 0)["train"]
        for turn, question in enumerate(item.train_questions[:2])
    ]
    anchors = training_anchors(read_anchors(settings.consolidation.anchors_file), recipe, 0)
    bare, trainer = 0.0, 0.0
    for _ in range(repeats):
        bare = max(bare, _bare(models, targets, anchors, recipe))
        trainer = max(trainer, _trainer(models, targets, anchors, recipe))
    return {
        "bare_tokens_per_second": bare,
        "trainer_tokens_per_second": trainer,
        "trainer_overhead": bare / trainer,
    }


def _trainer(
    models: LoadedModels,
    targets: Sequence[TrainingTarget],
    anchors: Sequence[Anchor],
    recipe: WriteBackSettings,
) -> float:
    with tempfile.TemporaryDirectory() as folder:
        receipt = train_update(
            models.load_large(None), targets, anchors, recipe, Path(folder) / "update", seed=0
        )
    return receipt.trained_tokens / receipt.seconds


def _bare(
    models: LoadedModels,
    targets: Sequence[TrainingTarget],
    anchors: Sequence[Anchor],
    recipe: WriteBackSettings,
) -> float:
    import torch

    model = models.load_large(None)
    encoded = encode_text(model, targets, anchors)
    adapted = attach_lora(model.model, recipe, 0)
    teacher = ask_teacher(adapted, *encoded, recipe.aim_ridge)
    curriculum = Curriculum(encoded.segments, recipe, 0)
    trained = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=recipe.learning_rate, weight_decay=0.0)
    adapted.train()
    tokens, started = 0, time.perf_counter()
    while numbers := curriculum.next_step():
        row = pack_row([encoded.segments[number] for number in numbers], encoded.prefix_ids)
        loss, _, lowest = weigh(hidden_at_sources(adapted, row), row, teacher, recipe.distill_weight)
        curriculum.note(lowest)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        tokens += int(row.input_ids.numel())
    return tokens / (time.perf_counter() - started)


if __name__ == "__main__":
    typer.run(main)
