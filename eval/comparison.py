"""Paired comparisons: of Sharpwave with another arm of one run, and of two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eval.display_text import DASH, markdown_table, percent, points
from eval.metrics import internalised_rate, rows_by_question, subjects
from eval.plot_style import arm_label
from eval.run_records import SHARPWAVE_ARM
from eval.statistics import PairedDifference, paired_bootstrap_difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eval.run_records import AnswerRow, ArmFigures, Run


_NOTE = (
    "An interval stands only where both runs were asked the same questions; it comes from a paired bootstrap over "
    "subjects."
)


class ComparisonRow(NamedTuple):
    """One figure of two runs. The interval is None where the runs give no pairs to compare."""

    figure: str
    first: float
    second: float
    difference: float
    low: float | None = None
    high: float | None = None
    n_pairs: int = 0


def difference_to(run: Run, arm: str) -> PairedDifference | None:
    """Return Sharpwave's EM minus the arm's on the questions that both answered; None without any."""
    ours, theirs = rows_by_question(run.answers, SHARPWAVE_ARM), rows_by_question(run.answers, arm)
    shared = [key for key in ours if key in theirs]
    if not shared:
        return None
    return _paired([ours[key] for key in shared], [theirs[key] for key in shared], run.metrics.seed)


def comparison_table(first: Run, second: Run) -> list[ComparisonRow]:
    """Return the figures of two runs, and the second minus the first.

    EM per arm carries a paired bootstrap interval over subjects if the arm was asked the same questions in
    both runs; all other figures are plain differences.
    """
    arms = {arm.name: arm for arm in second.arms}
    rows = []
    for arm in first.arms:
        if arm.name in arms:
            label, other = arm_label(arm.name), arms[arm.name]
            rows.append(_em_comparison(first, second, arm, other))
            rows.append(_plain(f"{label}: F1", arm.f1, other.f1))
            rows.append(_plain(f"{label}: facts stored", arm.storage_ratio, other.storage_ratio))
    for label, name in (
        ("EM kept", "em_retention"),
        ("escalation rate", "escalation_rate"),
        ("router cost against large-only", "routing_cost_ratio"),
        ("damage rate", "damage_rate"),
        ("damage rate of the gate questions", "gate_damage_rate"),
    ):
        rows.append(_plain(label, getattr(first.metrics, name), getattr(second.metrics, name)))
    shares = [internalised_rate(run.metrics.internalised, run.metrics.selected) for run in (first, second)]
    rows.append(_plain("internalised / selected", *shares))
    return rows


def comparison_markdown(rows: Sequence[ComparisonRow], first: str, second: str, note: str = _NOTE) -> str:
    """Return the comparison of two runs, or of two benchmarks, with these names, as Markdown."""
    cells = [
        [
            row.figure,
            percent(row.first),
            percent(row.second),
            points(row.difference),
            DASH if row.low is None or row.high is None else f"{points(row.low)} to {points(row.high)}",
            str(row.n_pairs) if row.n_pairs else DASH,
        ]
        for row in rows
    ]
    head = ["figure", f"A: {first}", f"B: {second}", "B minus A", "95%, paired", "pairs"]
    return markdown_table(head, cells) + "\n\n" + note


def _em_comparison(first: Run, second: Run, old: ArmFigures, new: ArmFigures) -> ComparisonRow:
    label = f"{arm_label(old.name)}: EM"
    before, after = rows_by_question(first.answers, old.name), rows_by_question(second.answers, old.name)
    if not before or before.keys() != after.keys():
        return _plain(label, old.em, new.em)
    keys = list(before)
    difference = _paired([after[key] for key in keys], [before[key] for key in keys], first.metrics.seed)
    return ComparisonRow(label, old.em, new.em, *difference)


def _plain(figure: str, first: float, second: float) -> ComparisonRow:
    return ComparisonRow(figure, first, second, second - first)


def _paired(first: Sequence[AnswerRow], second: Sequence[AnswerRow], seed: int) -> PairedDifference:
    return paired_bootstrap_difference(
        [float(row.correct) for row in first],
        [float(row.correct) for row in second],
        seed,
        subjects(first),
    )
