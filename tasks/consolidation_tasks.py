"""Prefect tasks for the four stages of a night; each opens what it needs and hands over small records."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from carriers.retention import retire_generations
from consolidation import night, night_folder
from consolidation.anchors import read_anchors, training_anchors
from consolidation.curriculum import most_steps
from consolidation.records import NightPlan, NightReport, NightVerdict, TrainingReceipt
from consolidation.reviewing import request_review
from serving.loaded_models import shared_models
from serving.opened_store import open_store
from sharpwave.progress import current_progress
from sharpwave.settings import Settings
from tasks.policies import side_effect_task
from tasks.run_settings import read_settings
from tasks.tracking import joined_run


def make_plan(settings: Settings, run_id: str, *, save: bool, review: bool = False) -> NightPlan:
    """Choose facts and targets; with `save` the plan is kept for the later stages, with `review` it will wait."""
    from consolidation.question_generation import propose_targets

    models = shared_models(settings.models)
    current_progress().stage("choosing facts")
    with open_store(settings, writer=save) as memory:
        if review:
            request_review(memory, run_id)
        return night.plan_night(
            memory,
            settings.consolidation,
            run_id,
            models.reader.fingerprint,
            lambda facts: propose_targets(models.reader, facts),
            bank=read_anchors(settings.consolidation.anchors_file),
            seed=settings.seed,
            load_generation=models.generation if save else None,
        )


def plan_night(settings_path: str, run_id: str, review: bool) -> bool:
    """Plan the night and keep the plan; tell whether there is enough to train on."""
    settings = read_settings(settings_path)
    return make_plan(settings, run_id, save=True, review=review).is_worthwhile


def train_shadow(settings_path: str, run_id: str, mlflow_run_id: str | None) -> TrainingReceipt:
    """Train a shadow generation; the store stays readable and writable meanwhile."""
    settings = read_settings(settings_path)
    bank = read_anchors(settings.consolidation.anchors_file)
    plan, chosen = _plan(settings, run_id), settings.consolidation
    wordings = (2 * len(item.train_questions) for item in plan.targets)  # each in both forms
    recipe = chosen.write_back
    anchors = len(training_anchors(bank, recipe, plan.seed)) + recipe.replay_count
    current_progress().stage("training", most_steps(wordings, anchors, recipe))
    with joined_run(settings, mlflow_run_id) as tracker, open_store(settings, writer=False) as memory:
        return night.train_shadow(
            memory,
            plan,
            chosen,
            bank,
            shared_models(settings.models).load_large,
            _reporting(tracker.log_metrics, "training"),
        )


def judge_shadow(settings_path: str, run_id: str, mlflow_run_id: str | None) -> NightVerdict:
    """Probe the saved and reloaded shadow and decide."""
    settings = read_settings(settings_path)
    bank = read_anchors(settings.consolidation.anchors_file)
    with joined_run(settings, mlflow_run_id) as tracker, open_store(settings, writer=False) as memory:
        current_progress().stage("probing the new generation")
        return night.judge_shadow(
            memory,
            _plan(settings, run_id),
            _folder(settings, run_id).required(night_folder.TRAINING, TrainingReceipt),
            settings.consolidation,
            bank,
            shared_models(settings.models).load_generation,
            _reporting(tracker.log_metrics, "scale"),
        )


def apply_verdict(settings_path: str, run_id: str) -> NightReport:
    """Promote or discard, evict and re-admit, in one transaction; only report a night that waits for review.

    Afterwards the adapters of old generations are deleted.
    """
    settings = read_settings(settings_path)
    folder = _folder(settings, run_id)
    with open_store(settings, writer=True) as memory:
        report = night.apply_verdict(
            memory,
            _plan(settings, run_id),
            folder.read(night_folder.TRAINING, TrainingReceipt),
            folder.read(night_folder.VERDICT, NightVerdict),
        )
        retire_generations(memory.generations, settings.consolidation.keep_generations)
        return report


def _plan(settings: Settings, run_id: str) -> NightPlan:
    return _folder(settings, run_id).required(night_folder.PLAN, NightPlan)


def _folder(settings: Settings, run_id: str) -> night_folder.NightFolder:
    return night_folder.NightFolder(settings.store.path, run_id)


def _reporting(
    log_metrics: Callable[[Mapping[str, float], int | None], None], prefix: str
) -> Callable[[Mapping[str, float], int], None]:
    def report(figures: Mapping[str, float], step: int) -> None:
        log_metrics({f"{prefix}_{key}": float(value) for key, value in figures.items()}, step)
        current_progress().advance(1, **{key: float(value) for key, value in figures.items()})

    return report


plan_night_task = side_effect_task(plan_night)
train_shadow_task = side_effect_task(train_shadow)
judge_shadow_task = side_effect_task(judge_shadow)
apply_verdict_task = side_effect_task(apply_verdict)
