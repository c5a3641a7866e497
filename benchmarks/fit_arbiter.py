"""Fit the arbiter that chooses between store and weights, on calibration facts only.

    .venv/bin/python benchmarks/fit_arbiter.py --out arbiter.json

Part of the facts are stored, part are not; each is asked in a wording no memory has seen. Then some are written back
and those proven leave the store, and all are asked again, since a model that was trained is surer of itself. Where
exactly one of the two carriers is right, that is an example for a logistic regression on the inputs of
`recall.arbiter`. Prints its weights, and what they gain over always reading the store when fitted on other subjects
(five folds).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer

from carriers.adapters import stack_adapters
from carriers.question_names import missing_names
from carriers.recall import Recall
from consolidation.anchors import read_anchors, training_anchors
from consolidation.probes import probe_targets, proven_ids
from consolidation.records import FactTargets
from consolidation.targets import check_targets, training_targets
from consolidation.write_back import train_update
from eval.arms import PlainStore, always_from_store
from eval.known_facts import known_world_facts
from eval.router_data import router_facts
from routers.head_fitting import group_folds
from serving.loaded_models import LoadedModels, shared_models
from sharpwave.matching import exact_match
from sharpwave.settings import Settings, load_settings

if TYPE_CHECKING:
    from carriers.language_model import LanguageModel
    from eval.corpora.corpus import CorpusFact

_INPUTS = ("similarity", "missing_names", "store_prob", "weights_prob")


class _Rows(NamedTuple):
    """What the arbiter sees [n, inputs], which of store and weights is right [n, 2], and the subjects."""

    inputs: Any
    right: Any
    subjects: list[str]

    def __add__(self, other: Any) -> _Rows:
        return _Rows(
            np.concatenate([self.inputs, other.inputs]),
            np.concatenate([self.right, other.right]),
            self.subjects + other.subjects,
        )


def main(
    out: Annotated[Path, typer.Option(help="JSON file for the weights and figures.")],
    profile: Annotated[str, typer.Option(help="Profile whose models are used.")] = "embedded",
    known: Annotated[int, typer.Option(help="Facts the model knows; every second one is stored.")] = 160,
    unknown: Annotated[int, typer.Option(help="Other facts, all stored.")] = 240,
    taught: Annotated[int, typer.Option(help="How many of these are written back; 0 trains nothing.")] = 64,
    seed: Annotated[int, typer.Option(help="Seeds the draw and the training.")] = 0,
) -> None:
    """Fit on calibration facts and write the result."""
    settings = load_settings(profile)
    models = shared_models(settings.models)
    familiar = [item.item for item in known_world_facts(models.reader, "calibration", known, seed)[:known]]
    ids = {item.id for item in familiar}
    pool = router_facts({"calibration": unknown * 2}, seed)["calibration"]
    others = [item for item in pool if item.id not in ids][:unknown]
    asked, stored = familiar + others, familiar[::2] + others
    rows = {"before": _ask(settings, models, models.reader, asked, stored)}
    if taught:
        with tempfile.TemporaryDirectory() as folder:
            model, learnt = _teach(
                settings, models, others[:: max(1, unknown // taught)][:taught], Path(folder), seed
            )
        rows["after"] = _ask(
            settings, models, model, asked, [item for item in stored if item.id not in learnt]
        )
    both = rows["before"] + rows["after"] if taught else rows["before"]
    bias, weights = _fit(both, np.arange(len(both.inputs)))
    result = {
        "arbiter": {
            "bias": round(bias, 2),
            **{name: round(float(value), 2) for name, value in zip(_INPUTS, weights, strict=True)},
        },
        **{when: _figures(both, part, seed) for when, part in rows.items()},
        "seed": seed,
    }
    out.write_text(json.dumps(result, indent=2), encoding="utf-8")
    sys.stdout.write(json.dumps(result, indent=2) + "\n")


def _ask(
    settings: Settings,
    models: LoadedModels,
    weights: LanguageModel,
    asked: Sequence[CorpusFact],
    stored: Sequence[CorpusFact],
) -> _Rows:
    """Put the held-out question of each fact to store and weights."""
    with tempfile.TemporaryDirectory() as folder:
        store = PlainStore(Path(folder) / "index", models.embedder)
        store.hold([item.fact for item in stored])
        recall = Recall(
            store,
            reader=models.reader,
            weights=weights,
            settings=always_from_store(settings.recall),
            generation=0,
        )
        questions = [item.heldout_question for item in asked]
        notes = recall.notes(questions, "default")
        read, alone = recall.read(questions, notes), recall.ask_weights(questions)
        store.close()
    inputs, right, subjects = [], [], []
    for item, found, from_store, from_weights in zip(asked, notes, read, alone, strict=True):
        if from_store is None:
            continue
        named = missing_names(item.heldout_question, found[0].text)
        inputs.append([found[0].similarity, named, from_store.lowest_prob, from_weights.lowest_prob])
        right.append([exact_match(answer.text, item.fact.answers) for answer in (from_store, from_weights)])
        subjects.append(item.group)
    return _Rows(np.array(inputs), np.array(right), subjects)


def _teach(
    settings: Settings, models: LoadedModels, items: Sequence[CorpusFact], folder: Path, seed: int
) -> tuple[LanguageModel, set[str]]:
    """Write facts back; return the new model and the ids of the facts it proves to know."""
    targets, _ = check_targets([
        FactTargets(
            fact_id=item.id,
            text=item.fact.text,
            answers=item.fact.answers,
            train_questions=item.train_questions,
            paraphrase=item.probe_question,
        )
        for item in items
    ])
    recipe = settings.consolidation.write_back
    anchors = training_anchors(read_anchors(settings.consolidation.anchors_file), recipe, seed)
    update, stacked = folder / "update", folder / "stacked"
    train_update(models.load_large(None), training_targets(targets), anchors, recipe, update, seed=seed)
    stack_adapters(None, update, stacked, settings.consolidation.promotion.scales[0])
    model = models.load_large(stacked)
    probes = probe_targets(model, targets, 1)
    return model, set(proven_ids(probes, settings.consolidation.probe.min_token_prob))


def _fit(rows: _Rows, places: Any) -> tuple[float, Any]:
    """Return bias and weights of a logistic regression on the facts about which exactly one carrier is right."""
    from sklearn.linear_model import LogisticRegression

    chosen = places[rows.right[places, 0] != rows.right[places, 1]]
    fitted = LogisticRegression(C=10.0).fit(rows.inputs[chosen], rows.right[chosen, 0])
    return float(fitted.intercept_[0]), fitted.coef_[0]


def _figures(rows: _Rows, part: _Rows, seed: int) -> dict[str, float]:
    """Return exact match on one part by an arbiter fitted on all rows about other subjects."""
    subjects = np.array(rows.subjects, dtype=object)
    own = np.array(part.subjects, dtype=object)
    score = np.zeros(len(own))
    for train, left_out in group_folds(rows.subjects, 5, seed):
        bias, weights = _fit(rows, train)
        here = np.isin(own, np.unique(subjects[left_out]))
        score[here] = bias + part.inputs[here] @ weights
    chosen = np.where(score > 0, part.right[:, 0], part.right[:, 1])
    return {
        "n": len(own),
        "n_differ": int((part.right[:, 0] != part.right[:, 1]).sum()),
        "em_store_always": float(part.right[:, 0].mean()),
        "em_weights_always": float(part.right[:, 1].mean()),
        "em_arbiter_other_subjects": float(chosen.mean()),
        "em_oracle": float(part.right.any(axis=1).mean()),
    }


if __name__ == "__main__":
    typer.run(main)
