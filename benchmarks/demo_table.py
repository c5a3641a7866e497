"""Print the figures of several demo runs side by side, as Markdown: a column per run.

for seed in 0 1 2; do .venv/bin/sharpwave demo --seed $seed --out runs/demo-$seed; done
.venv/bin/python benchmarks/demo_table.py runs/demo-0 runs/demo-1 runs/demo-2

The README prints this table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from eval.metrics import rows_by_question
from eval.run_records import FULL_STORE_ARM, SHARPWAVE_ARM, AnswerRow, Run, RunMetrics, read_run

Cell = Callable[[RunMetrics], str]


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _interval(value: float, low: float, high: float) -> str:
    return f"{_percent(value)} ({100 * low:.0f} to {100 * high:.0f})"


ROWS: dict[str, Cell] = {
    "facts, questions": lambda m: f"{m.n_facts}, {m.n_questions}",
    "EM, Sharpwave": lambda m: _interval(m.em, m.em_low, m.em_high),
    "EM, full store": lambda m: _interval(m.em_full_store, m.em_full_store_low, m.em_full_store_high),
    "EM, random at equal storage": lambda m: _interval(m.em_random, m.em_random_low, m.em_random_high),
    "EM, no memory": lambda m: _interval(m.em_no_memory, m.em_no_memory_low, m.em_no_memory_high),
    "EM kept of full store": lambda m: _interval(m.em_retention, m.em_retention_low, m.em_retention_high),
    "storage before the night, at the end": lambda m: (
        f"{_percent(m.storage_ratio_before_consolidation)}, {_percent(m.storage_ratio)}"
    ),
    "escalated": lambda m: _percent(m.escalation_rate),
    "router cost against large-only": lambda m: _percent(m.routing_cost_ratio),
    "internalised of selected": lambda m: f"{m.internalised} of {m.selected}",
    "damaged of probed stable facts, back in the store": lambda m: (
        f"{m.damaged} of {m.stable_probed}, {m.readmitted}"
    ),
    "damaged of the gate questions, which no training sees": lambda m: _percent(m.gate_damage_rate),
    "EM before, after the night": lambda m: (
        f"{_percent(m.em_before_consolidation)}, {_percent(m.em_after_consolidation)}"
    ),
    "wall time": lambda m: f"{m.wall_seconds:.0f} s",
}


def _only(run: Run, arm: str, other: str) -> list[tuple[AnswerRow, AnswerRow]]:
    """Return the questions that one arm answered and the other did not: its row, then the other's."""
    own, others = (rows_by_question(run.answers, name) for name in (arm, other))
    return [(row, others[key]) for key, row in own.items() if row.correct and not others[key].correct]


def _wins(run: Run) -> str:
    rows = [row for row, _ in _only(run, SHARPWAVE_ARM, FULL_STORE_ARM)]
    return f"{len(rows)} ({sum(row.kind == 'update' for row in rows)})"


def _losses(run: Run) -> str:
    rows = [ours for _, ours in _only(run, FULL_STORE_ARM, SHARPWAVE_ARM)]
    return f"{len(rows)} ({sum(row.origin == 'store' for row in rows)})"


ANSWER_ROWS: dict[str, Callable[[Run], str]] = {
    "answered by Sharpwave only (values that had changed)": _wins,
    "answered by the full store only (Sharpwave read another note)": _losses,
}


def main(runs: Annotated[list[Path], typer.Argument(help="Folders of finished demo runs.")]) -> None:
    """Print the table."""
    read = [read_run(run) for run in runs]
    table = {
        "figure": [f"seed {run.metrics.seed}" for run in read],
        "---": ["---"] * len(read),
        **{name: [cell(run.metrics) for run in read] for name, cell in ROWS.items()},
        **{name: [cell(run) for run in read] for name, cell in ANSWER_ROWS.items()},
    }
    lines = [f"| {name} | {' | '.join(cells)} |" for name, cells in table.items()]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    typer.run(main)
