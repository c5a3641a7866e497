"""Prefect task that ingests one file."""

from __future__ import annotations

from pathlib import Path

from serving.ingestion import IngestSummary
from serving.ingestion import ingest_file as ingest_with_settings
from tasks.policies import side_effect_task
from tasks.run_settings import read_settings
from tasks.tracking import joined_run


def ingest_file(settings_path: str, facts_path: str, run_id: str, mlflow_run_id: str | None) -> IngestSummary:
    """Take in a file of facts under the settings of a run."""
    settings = read_settings(settings_path)
    with joined_run(settings, mlflow_run_id) as tracker:
        summary = ingest_with_settings(settings, Path(facts_path), run_id, tracker)
        decisions = settings.runs_dir / run_id / "decisions.jsonl"
        if decisions.exists():
            tracker.log_artifact(decisions)
    return summary


ingest_file_task = side_effect_task(ingest_file)
