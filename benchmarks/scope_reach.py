"""Measure what a scope takes in: unseen wordings of trained facts, and questions it should leave to the base model.

    .venv/bin/python benchmarks/scope_reach.py

No model is trained. Some facts of the calibration split, about the world and an agent's own, are taken for trained; a
scope is made from their training wordings. It should cover their two other wordings and no question about the other
facts, of which those about a trained fact's subject are the hard ones. The default similarity was chosen on this table.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from write_back import share

from carriers.scope import SCOPE_FILE, Scope, ScopedFact
from eval.corpora.agent_world import agent_world
from eval.corpora.splits import split_of
from eval.corpora.stable_draw import StableDraw
from eval.corpora.world import load_world_corpus
from serving.loaded_models import shared_models
from sharpwave.settings import load_settings

if TYPE_CHECKING:
    from eval.corpora.corpus import CorpusFact

_AGENT_FACTS = 400


def main(
    similarity: Annotated[list[float] | None, typer.Option(help="Similarities to try. Repeatable.")] = None,
    trained: Annotated[int, typer.Option(help="Facts taken for trained.")] = 500,
    seed: Annotated[int, typer.Option(help="Seeds the draw.")] = 0,
    profile: Annotated[str, typer.Option(help="Profile whose embedder is used.")] = "embedded",
) -> None:
    """Print, for each similarity, the shares in scope with their intervals, and what a fact costs."""
    settings = load_settings(profile)
    embedder = shared_models(settings.models).embedder
    world = [item for item in load_world_corpus() if split_of(item.group) == "calibration"]
    own = [item for item in agent_world(10 * _AGENT_FACTS, seed) if split_of(item.group) == "calibration"]
    items = StableDraw(seed, "scope-reach").shuffled([*world, *own[:_AGENT_FACTS]], "items")
    learnt, others = items[:trained], items[trained:]
    subjects = {item.slot.subject for item in learnt}
    asked = {
        "unseen_wordings": [q for item in learnt for q in (item.probe_question, item.heldout_question)],
        "statements": [item.fact.text for item in learnt],
        "same_subject": _questions([item for item in others if item.slot.subject in subjects]),
        "other_subject": _questions([item for item in others if item.slot.subject not in subjects]),
    }
    facts = [ScopedFact(item.train_questions, item.fact.text, item.id) for item in learnt]
    for value in similarity or [0.75, 0.8, 0.85, 0.9]:
        scope = Scope.of(facts, settings.consolidation.write_back.lora_rank, value, embedder)
        shares = {name: share(sum(scope.covers(texts)), len(texts)) for name, texts in asked.items()}
        figures = {"similarity": value, "trained": len(learnt), "bytes_per_fact": _bytes(scope) / len(learnt)}
        sys.stdout.write(json.dumps(figures | shares) + "\n")


def _questions(items: Sequence[CorpusFact]) -> list[str]:
    return [question for item in items for question in item.questions]


def _bytes(scope: Scope) -> int:
    with tempfile.TemporaryDirectory() as folder:
        scope.write(Path(folder))
        return (Path(folder) / SCOPE_FILE).stat().st_size


if __name__ == "__main__":
    typer.run(main)
