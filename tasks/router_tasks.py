"""Prefect tasks that make a router and the anchor bank from the corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from consolidation.anchors import AnchorQuestion, read_anchors, write_anchors
from eval.known_facts import known_world_facts
from eval.router_data import router_facts
from eval.router_plots import write_router_frontier
from routers.examples import RoutingExample, collect_examples
from routers.training import RouterTraining, train_router
from serving.loaded_models import LoadedModels, shared_models
from sharpwave.progress import current_progress
from sharpwave.records import Record
from tasks.policies import side_effect_task
from tasks.run_settings import read_settings
from tasks.tracking import joined_run

if TYPE_CHECKING:
    from eval.corpora.corpus import CorpusFact
    from routers.examples import OnStep
    from sharpwave.settings import Settings

FACTS_PER_SPLIT = {"train": 2400, "calibration": 1400, "report": 1200}
"""Facts labelled by default: about an hour on two cores, once per model."""

ANCHORS_WANTED = {"train": 260, "gate": 100}


class RouterReport(Record):
    """Where a trained router lies and how it does on the report facts."""

    folder: str
    version: str
    metrics: dict[str, float]


def fit_router(
    settings_path: str,
    out: str,
    limit: int,
    target_em_loss: float,
    max_escalation: float,
    mlflow_run_id: str | None,
) -> RouterReport:
    """Label facts by behaviour, fit heads, calibrate prices, report, save. Labels already made are used again.

    Args:
        settings_path: Resolved settings.
        out: Folder for heads, card and frontier.
        limit: Most facts per split; 0 takes the default of each.
        target_em_loss: Share of the full store's right answers that may be lost.
        max_escalation: Largest share of facts sent on to the large model.
        mlflow_run_id: Run to log to.
    """
    settings = read_settings(settings_path)
    models = shared_models(settings.models)
    chosen = facts_for_router(settings, limit)
    examples = {split: _examples(models, split, chosen[split]) for split in FACTS_PER_SPLIT}
    current_progress().stage("fitting heads")
    trained = train_router(
        examples["train"],
        examples["calibration"],
        examples["report"],
        RouterTraining(seed=settings.seed, target_em_loss=target_em_loss, max_escalation=max_escalation),
        small_fingerprint=models.small.feature_fingerprint,
        large_fingerprint=models.large_screen(None).feature_fingerprint,
    )
    version = trained.save(Path(out))
    richest = list(trained.frontier)[-1]
    write_router_frontier(
        Path(out) / "frontier.svg",
        [asdict(point) for point in trained.frontier[richest]],
        trained.card["evidence"][richest]["report"]["operating_point"],
    )
    with joined_run(settings, mlflow_run_id) as tracker:
        tracker.log_metrics(trained.metrics())
        for file in sorted(Path(out).iterdir()):
            tracker.log_artifact(file)
    return RouterReport(folder=out, version=version, metrics=trained.metrics())


def write_anchor_bank(settings_path: str) -> int:
    """Write the bank of questions that the answering model knows; return how many there are."""
    settings = read_settings(settings_path)
    reader = shared_models(settings.models).reader
    bank = []
    for split, wanted in ANCHORS_WANTED.items():
        current_progress().stage(f"looking for known facts ({split})", wanted)
        found = known_world_facts(reader, split, wanted, settings.seed, current_progress().advance)
        bank += [
            AnchorQuestion(
                question=known.item.probe_question,
                answer=known.answer,
                aliases=tuple(alias for alias in known.item.fact.answers if alias != known.answer),
                role="anchor" if split == "train" else "gate",
                subject=known.item.group,
                model_fingerprint=reader.fingerprint,
            )
            for known in found[:wanted]
        ]
    write_anchors(settings.consolidation.anchors_file, bank)
    return len(bank)


def facts_for_router(settings: Settings, limit: int) -> dict[str, list[CorpusFact]]:
    """Return the facts of each split that a router is made from, at most `limit` of each; 0 takes the default."""
    limits = {split: min(limit, count) if limit else count for split, count in FACTS_PER_SPLIT.items()}
    known = {anchor.question for anchor in read_anchors(settings.consolidation.anchors_file)}
    return router_facts(limits, settings.seed, known_questions=known)


def corpus_examples(
    models: LoadedModels, items: Sequence[CorpusFact], on_step: OnStep | None = None
) -> list[RoutingExample]:
    """Label facts of the corpus and let both base models look at them; see `collect_examples`."""
    return collect_examples(
        models.small,
        models.large_screen(None),
        models.reader,
        [item.fact for item in items],
        [item.group for item in items],
        on_step=on_step,
    )


def _examples(models: LoadedModels, split: str, items: Sequence[CorpusFact]) -> list[RoutingExample]:
    progress, current, done = current_progress(), "", 0

    def on_step(step: str, finished: int, total: int) -> None:
        nonlocal current, done
        if step != current:
            progress.stage(f"{split}: {step}", total)
            current, done = step, 0
        progress.advance(finished - done)
        done = finished

    return corpus_examples(models, items, on_step)


fit_router_task = side_effect_task(fit_router)
write_anchor_bank_task = side_effect_task(write_anchor_bank)
