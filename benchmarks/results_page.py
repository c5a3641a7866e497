"""Write docs/results.md from a benchmark's records: the published figures beside ours, all tables, the plots.

for seed in 0 1 2; do .venv/bin/sharpwave benchmark --size full --first-seed $seed --out runs/full; done
.venv/bin/python benchmarks/results_page.py runs/full --keep docs/results/full

With --keep the records are copied there, gzipped, so that the page can be made again and `sharpwave report` shows them.
"""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from eval.benchmark_folder import is_benchmark, read_benchmark, seed_folder
from eval.benchmark_report import BenchmarkReport
from eval.display_text import markdown_table, percent, percent_range
from eval.run_records import CASCADE_ARM, SHARPWAVE_ARM, Run
from eval.statistics import wilson_interval
from sharpwave.errors import InputError

_LINES = ("steps.jsonl", "decisions.jsonl", "answers.jsonl")
_OBJECTS = ("config.json", "arms.json", "consolidations.json", "metrics.json")
_DIFFERENT = (
    "The published figures are for Qwen3-1.7B and 8B on the authors' stream, ours for the models, facts and mix of "
    "this project. Shares that the mix decides (storage) or the reader (exact match) can be set side by side, not "
    "subtracted; ratios against the full store and the large router on the same stream can."
)


class Published(NamedTuple):
    """A published figure beside ours, and how far the two mean the same."""

    figure: str
    theirs: str
    ours: str
    meaning: str


def _figure(figure: dict[str, float | None], *, less_from_one: bool = False) -> str:
    mean, low, high = figure["mean"], figure["low"], figure["high"]
    if mean is None:
        return "not measured"
    if less_from_one:
        mean, low, high = 1 - mean, None if high is None else 1 - high, None if low is None else 1 - low
    return percent(mean) if low is None or high is None else f"{percent(mean)} ({percent_range(low, high)})"


def published_rows(report: BenchmarkReport) -> list[Published]:
    """Return the published figures, each with ours and with what differs in the definition."""
    ours: dict[str, Any] = report.metrics[SHARPWAVE_ARM]
    cascade: dict[str, Any] = report.metrics[CASCADE_ARM]
    damaged, internalised = (
        sum(getattr(run.metrics, key) for run in report.runs) for key in ("damaged", "internalised")
    )
    return [
        Published(
            "storage ratio with periodic training",
            "32.08%",
            _figure(ours["storage_ratio"]),
            "stored / observed facts in both; ours counts distinct facts, at the end of the stream",
        ),
        Published(
            "memory pruned by the router, without training",
            "up to 68%",
            _figure(cascade["storage_ratio"], less_from_one=True),
            "the share depends on how much of the stream the model knows",
        ),
        Published(
            "exact match at that storage",
            "90.71%",
            _figure(ours["em"]),
            "other models and questions: not comparable",
        ),
        Published(
            "exact match kept of the full store's",
            "> 98%",
            _figure(ours["em_retention"]),
            "same definition: ratio on the same questions",
        ),
        Published(
            "escalated to the large model",
            "about 40%",
            _figure(ours["escalation_rate"]),
            "ours leaves out exact repeats, which would lower it",
        ),
        Published(
            "router compute saved against large-only",
            "30% to 39%",
            _figure(ours["routing_cost_ratio"], less_from_one=True),
            "same definition, in FLOPs of the model passes; ours has models of nearly equal size (135M, 270M), "
            "which leaves less to save",
        ),
        Published(
            "stable facts damaged / facts internalised",
            "1,752 / 10,683 = 16.4%",
            f"{damaged} / {internalised} = {percent(damaged / internalised if internalised else 0.0)}"
            f" ({percent_range(*wilson_interval(min(damaged, internalised), internalised))})",
            "same ratio; ours at a smaller scale",
        ),
    ]


def page(report: BenchmarkReport, source: Path, plots: list[tuple[str, str, str]]) -> str:
    """Return the page as Markdown."""
    rows = [[row.figure, row.theirs, row.ours, row.meaning] for row in published_rows(report)]
    parts = [
        "# Results",
        f"Made by `benchmarks/results_page.py` from the records in `{source}`; not edited by hand. "
        f"{report.origin()} Intervals are 95 %.",
        "## In short",
        "\n".join(f"- {sentence}" for sentence in report.sentences()),
        "## The published figures beside ours",
        _DIFFERENT,
        markdown_table(["figure", "published", "Sharpwave", "how far they mean the same"], rows),
    ]
    for table in report.tables():
        parts += [f"## {table.title}", table.note, markdown_table(table.head, table.rows)]
    parts += ["## Seed by seed", markdown_table(*_by_seed(report.runs))]
    parts.append("## Plots")
    parts += [f"![{title}]({path})\n\n{caption}" for title, caption, path in plots]
    return "\n\n".join(parts) + "\n"


def _by_seed(runs: list[Run]) -> tuple[list[str], list[list[str]]]:
    head = ["seed", "facts", "questions", "stored", "EM", "EM, full store", "EM kept", "escalated", "router cost",
            "internalised / selected", "damaged / probed", "re-admitted", "minutes"]  # fmt: skip
    rows = []
    for run in runs:
        own = run.metrics
        rows.append([
            str(own.seed), str(own.n_facts), str(own.n_questions), percent(own.storage_ratio), percent(own.em),
            percent(own.em_full_store), percent(own.em_retention), percent(own.escalation_rate),
            percent(own.routing_cost_ratio), f"{own.internalised} / {own.selected}",
            f"{own.damaged} / {own.stable_probed}", str(own.readmitted), f"{own.wall_seconds / 60:.0f}",
        ])  # fmt: skip
    return head, rows


def keep_records(folder: Path, kept: Path) -> None:
    """Copy what `read_benchmark` reads, lines gzipped; the same records give the same bytes."""
    for run in read_benchmark(folder):
        source, target = seed_folder(folder, run.metrics.seed), seed_folder(kept, run.metrics.seed)
        target.mkdir(parents=True, exist_ok=True)
        for name in _OBJECTS:
            shutil.copyfile(source / name, target / name)
        for name in _LINES:
            (target / f"{name}.gz").write_bytes(gzip.compress((source / name).read_bytes(), mtime=0))


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished benchmark.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The page to write.")] = Path("docs/results.md"),
    keep: Annotated[Path | None, typer.Option(file_okay=False, help="Where to copy the records.")] = None,
) -> None:
    """Write the page and its plots, and copy the records where wanted."""
    if not is_benchmark(folder):
        raise InputError("not the folder of a benchmark", file=str(folder))
    if keep is not None:
        keep_records(folder, keep)
    source = keep or folder
    report = BenchmarkReport(read_benchmark(source))
    plots = []
    for drawing in report.drawings():
        path = source / f"{drawing.name}.svg"
        drawing.figure.savefig(path, metadata={"Date": None})
        plots.append((drawing.title, drawing.caption, os.path.relpath(path, out.parent)))
    out.write_text(page(report, source, plots), encoding="utf-8")
    print(out)


if __name__ == "__main__":
    typer.run(main)
