"""Prefect task that ingests one file."""

from __future__ import annotations

from pathlib import Path

from eval.run_records import write_atomically
from serving.ingestion import IngestSummary
from serving.ingestion import ingest_file as ingest_with_settings
from sharpwave.settings import Settings
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
    write_atomically(_summary_file(settings, run_id), summary.model_dump_json(indent=2).encode("utf-8"))
    return summary


def read_summary(settings: Settings, run_id: str) -> IngestSummary:
    """Return what became of the file that was taken in under a run id, by the last call that finished."""
    return IngestSummary.model_validate_json(_summary_file(settings, run_id).read_bytes())


def _summary_file(settings: Settings, run_id: str) -> Path:
    return settings.runs_dir / run_id / "summary.json"


ingest_file_task = side_effect_task(ingest_file)
