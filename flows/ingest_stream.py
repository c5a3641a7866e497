"""Flow: take a file of facts into the memory."""

from __future__ import annotations

from prefect import flow

from serving.ingestion import IngestSummary
from tasks.ingest_tasks import ingest_file_task
from tasks.run_settings import begin_run
from tasks.tracking import nested_run


@flow(name="ingest-stream")
def ingest_stream(
    facts_path: str,
    run_id: str,
    profile: str = "embedded",
    overrides: list[str] | None = None,
    config: str | None = None,
    parent_id: str | None = None,
) -> IngestSummary:
    """Route every fact of a file and store what is worth storing."""
    settings, settings_path = begin_run(run_id, profile, overrides or [], config)
    with nested_run("ingest-stream", settings, run_id, parent_id) as tracker:
        summary = ingest_file_task(settings_path, facts_path, run_id, tracker.run_id)
        tracker.log_metrics({
            "observed": summary.observed,
            "new": summary.new,
            "repeats": summary.repeats,
            "rejected": summary.rejected,
            "escalation_rate": summary.escalation_rate,
            "seconds": summary.seconds,
        })
    return summary
