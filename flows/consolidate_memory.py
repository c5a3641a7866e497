"""Flow: one night. Write stored facts into the weights, prove, promote, evict, repair; or wait before promotion."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from consolidation.night import night_lease
from consolidation.night_folder import waiting_night
from consolidation.records import NightPlan, NightReport
from sharpwave.settings import load_settings
from tasks.consolidation_tasks import (
    apply_verdict_task,
    judge_shadow_task,
    make_plan,
    plan_night_task,
    train_shadow_task,
)
from tasks.run_settings import begin_run
from tasks.tracking import nested_run


@flow(name="consolidate-memory")
def consolidate_memory(
    run_id: str,
    profile: str = "embedded",
    overrides: list[str] | None = None,
    config: str | None = None,
    parent_id: str | None = None,
    review: bool = False,
) -> NightReport:
    """Write stored facts into the weights. Until the last task nothing that a reader sees has changed.

    Calling again with the run id of a night that was killed goes on after its last finished stage. With `review` a
    night that passes its gate stops before the last task. While a night waits for review, nothing is planned or
    trained, whatever the run id: its report is returned instead.
    """
    settings, settings_path = begin_run(run_id, profile, overrides or [], config)
    with (
        night_lease(settings.store.path),
        nested_run("consolidate-memory", settings, run_id, parent_id) as tracker,
    ):
        waiting = waiting_night(settings.store.path)
        if waiting is None and plan_night_task(settings_path, run_id, review):
            train_shadow_task(settings_path, run_id, tracker.run_id)
            judge_shadow_task(settings_path, run_id, tracker.run_id)
        report = apply_verdict_task(settings_path, waiting or run_id)
        if waiting is None:
            tracker.log_metrics(report.metrics())
        if not report.is_waiting:
            tracker.log_artifact(settings.store.path / "consolidations" / run_id / "report.json")
    return report


def plan_only(
    profile: str = "embedded", overrides: list[str] | None = None, config: str | None = None
) -> NightPlan:
    """Return what a night would do now, without changing anything on disk."""
    settings = load_settings(profile, overrides or [], file=Path(config) if config else None)
    return make_plan(settings, "dry-run", save=False)
