"""Prefect task that closes a benchmark: figures of all its seeds together, page, plots, and a run in the tracker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eval.benchmark_figures import write_benchmark
from eval.benchmark_folder import read_benchmark
from eval.benchmark_report import BenchmarkReport, write_benchmark_report
from eval.plots import write_pngs
from tasks.policies import side_effect_task
from tasks.run_settings import read_settings
from tasks.tracking import joined_run


def finish_benchmark(settings_path: str, folder: str, mlflow_run_id: str | None) -> None:
    """Write figures, differences, page and plots into the benchmark's folder, and log them."""
    out = Path(folder)
    report = BenchmarkReport(read_benchmark(out))
    files = write_benchmark(out, report.metrics, report.differences)
    page = write_benchmark_report(out, report)
    plots = write_pngs(report.drawings(), out / "plots")
    with joined_run(read_settings(settings_path), mlflow_run_id) as tracker:
        tracker.log_metrics(_tracked(report.metrics))
        for path in (*files, page, *plots):
            tracker.log_artifact(path)


def _tracked(metrics: dict[str, Any]) -> dict[str, float]:
    """Return every mean as one metric, named as in the single runs: `arm_NAME_FIGURE`."""
    figures = {
        f"arm_{arm}_{key}": figure["mean"]
        for arm, own in metrics.items()
        if isinstance(own, dict)
        for key, figure in own.items()
        if figure["mean"] is not None
    }
    return figures | {key: float(metrics[key]) for key in ("n_facts", "n_questions")}


finish_benchmark_task = side_effect_task(finish_benchmark)
