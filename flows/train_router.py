"""Flow: make the router heads and the anchor bank anew, from the corpus and the models' own behaviour."""

from __future__ import annotations

from prefect import flow

from tasks.router_tasks import RouterReport, fit_router_task, write_anchor_bank_task
from tasks.run_settings import begin_run
from tasks.tracking import nested_run


@flow(name="train-router")
def train_router(
    out: str,
    run_id: str,
    profile: str = "embedded",
    overrides: list[str] | None = None,
    config: str | None = None,
    limit: int = 0,
    target_em_loss: float = 0.02,
    max_escalation: float = 0.3,
    parent_id: str | None = None,
) -> RouterReport:
    """Write the anchor bank; label, observe, fit, calibrate, report. What models said is kept: a killed run goes on."""
    settings, settings_path = begin_run(run_id, profile, overrides or [], config)
    with nested_run("train-router", settings, run_id, parent_id) as tracker:
        tracker.log_metrics({"anchors": float(write_anchor_bank_task(settings_path))})
        return fit_router_task(settings_path, out, limit, target_em_loss, max_escalation, tracker.run_id)
