"""Flow: everything a night does on a schedule: finish what was killed, take in the inbox, consolidate."""

from __future__ import annotations

from pathlib import Path

from prefect import flow, get_run_logger

from consolidation.night_folder import unfinished_nights
from consolidation.records import NightReport
from flows.consolidate_memory import consolidate_memory
from flows.ingest_stream import ingest_stream
from flows.missed_runs import collapse_missed_runs
from tasks.inbox_tasks import archive_file_task, waiting_files
from tasks.run_settings import begin_run, new_run_id
from tasks.tracking import parent_run


@flow(name="nightly-cycle", on_running=[collapse_missed_runs])
def nightly_cycle(
    run_id: str | None = None,
    inbox: str | None = None,
    profile: str = "embedded",
    overrides: list[str] | None = None,
    config: str | None = None,
) -> NightReport:
    """Ingest every file of the inbox folder (`<store>/inbox` by default), then consolidate.

    A night that was killed is finished first, under its own run id. Files that were taken in move to
    `inbox/done`. While a night waits for review, files are taken in and no night is begun or finished.
    """
    run_id = run_id or new_run_id("night")
    chosen = profile, overrides or [], config
    settings, _ = begin_run(run_id, *chosen)
    folder = Path(inbox) if inbox else settings.store.path / "inbox"
    with parent_run("nightly-cycle", settings, run_id, resume=True) as tracker:
        for night in unfinished_nights(settings.store.path):
            consolidate_memory(night, *chosen, tracker.run_id)
        for file in waiting_files(folder):
            ingest_stream(str(file), f"{run_id}-{file.stem}", *chosen, tracker.run_id)
            archive_file_task(str(file))
        report = consolidate_memory(f"{run_id}-sleep", *chosen, tracker.run_id)
        if report.is_waiting:
            get_run_logger().warning(
                "No consolidation: %s waits for review. %s", report.run_id, report.reason
            )
        else:
            tracker.log_metrics(report.metrics())
    return report
