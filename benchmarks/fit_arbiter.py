"""Fit the arbiter that chooses between store and weights, on calibration facts only.

    .venv/bin/python benchmarks/fit_arbiter.py --out arbiter.json

Part of the facts are stored, part are not; each is asked in a wording no memory has seen. Where exactly one of
the two carriers is right, that is an example for a logistic regression on the inputs of `recall.arbiter`. Prints
its weights, and what they gain over always reading the store when fitted on other subjects (five folds).
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from carriers.question_names import missing_names
from carriers.recall import Recall
from eval.arms import PlainStore, always_from_store
from eval.known_facts import known_world_facts
from eval.router_data import router_facts
from routers.head_fitting import group_folds
from serving.loaded_models import shared_models
from sharpwave.matching import exact_match
from sharpwave.settings import load_settings

_INPUTS = ("similarity", "missing_names", "store_prob", "weights_prob")


def main(
    out: Annotated[Path, typer.Option(help="JSON file for the weights and figures.")],
    profile: Annotated[str, typer.Option(help="Profile whose models are used.")] = "embedded",
    known: Annotated[int, typer.Option(help="Facts the model knows; every second one is stored.")] = 160,
    unknown: Annotated[int, typer.Option(help="Other facts, all stored.")] = 240,
    seed: Annotated[int, typer.Option(help="Seeds the draw.")] = 0,
) -> None:
    """Fit on calibration facts and write the result."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    settings = load_settings(profile)
    models = shared_models(settings.models)
    familiar = [item.item for item in known_world_facts(models.reader, "calibration", known, seed)[:known]]
    ids = {item.id for item in familiar}
    others = [
        item for item in router_facts({"calibration": unknown * 2}, seed)["calibration"] if item.id not in ids
    ]
    asked = familiar + others[:unknown]
    stored = familiar[::2] + others[:unknown]
    with tempfile.TemporaryDirectory() as folder:
        store = PlainStore(Path(folder) / "index", models.embedder)
        store.hold([item.fact for item in stored])
        recall = Recall(
            store,
            reader=models.reader,
            weights=models.reader,
            settings=always_from_store(settings.recall),
            generation=0,
        )
        questions = [item.heldout_question for item in asked]
        notes = recall.notes(questions, "default")
        read, alone = recall.read(questions, notes), recall.ask_weights(questions)
        store.close()
    rows, right, subjects = [], [], []
    for item, found, from_store, from_weights in zip(asked, notes, read, alone, strict=True):
        if from_store is None:
            continue
        named = missing_names(item.heldout_question, found[0].text)
        rows.append([found[0].similarity, named, from_store.lowest_prob, from_weights.lowest_prob])
        subjects.append(item.group)
        right.append([exact_match(answer.text, item.fact.answers) for answer in (from_store, from_weights)])
    inputs, correct = np.array(rows), np.array(right)
    differ = correct[:, 0] != correct[:, 1]

    def fit(places: Any) -> Any:
        chosen = places[differ[places]]
        return LogisticRegression(C=10.0).fit(inputs[chosen], correct[chosen, 0])

    prefers_store = np.zeros(len(inputs), dtype=bool)
    for train, left_out in group_folds(subjects, 5, seed):
        prefers_store[left_out] = fit(train).decision_function(inputs[left_out]) > 0
    chosen = np.where(prefers_store, correct[:, 0], correct[:, 1])
    fitted = fit(np.arange(len(inputs)))
    result = {
        "arbiter": {
            "bias": round(float(fitted.intercept_[0]), 2),
            **{name: round(float(weight), 2) for name, weight in zip(_INPUTS, fitted.coef_[0], strict=True)},
        },
        "n": len(inputs),
        "n_differ": int(differ.sum()),
        "em_store_always": float(correct[:, 0].mean()),
        "em_weights_always": float(correct[:, 1].mean()),
        "em_arbiter_other_subjects": float(chosen.mean()),
        "em_oracle": float(correct.any(axis=1).mean()),
        "seed": seed,
    }
    out.write_text(json.dumps(result, indent=2), encoding="utf-8")
    sys.stdout.write(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
