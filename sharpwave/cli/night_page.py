"""What one night did or would do, as the terminal shows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eval.display_text import CROSS, DASH, MINUS, percent
from eval.night_page import FORGOTTEN, when
from sharpwave.cli.display import console, counted, note, print_table, say, shown, warn

if TYPE_CHECKING:
    from consolidation.night_diff import DiffLine, NightDiff
    from consolidation.records import NightReport, Rejection

_REJECTIONS_SHOWN = 10
_LINES_SHOWN = 100
_SECTIONS = (
    ("entered", "into the weights", "+", "green"),
    ("evicted", "out of the store", MINUS, "strike"),
    ("kept", "kept in the store by the review", "=", "cyan"),
    ("damaged", "out of the weights, damaged by the training", "!", "red strike"),
    ("readmitted", "back into the store", "↩", "magenta"),
    ("not_proven", "trained and not proven, they stay in the store", CROSS, "yellow"),
    ("left_out", "left out of the plan", DASH, "dim"),
)  # fmt: skip


def print_night(report: NightReport, store: Path) -> None:
    """Print the outcome of a night."""
    say(f"{report.run_id}: {report.status} ({shown(report.reason)})")
    rows = [
        ["selected", report.selected],
        ["internalised", report.internalised],
        ["out of the store after a second proof", report.confirmed],
        ["out of the store at once", report.evicted],
        ["in the store until a second proof", report.awaiting],
        ["kept in the store by the review", report.kept],
        ["formerly known facts probed", report.stable_probed],
        ["damaged", report.damaged],
        ["put back into the store", report.readmitted],
    ]
    print_table(["figure", "facts"], [[str(name), str(value)] for name, value in rows], right=(1,))
    print_rejections(report.rejected)
    say(f"current generation: {report.generation}")
    if report.is_waiting:
        note("Nothing that a reader sees has changed.")
        return
    say(f"record: {store / 'consolidations' / report.run_id / 'report.json'}")
    if report.status == "discarded":
        warn(
            "the new generation was discarded; the former one stays current and every fact stays in the store"
        )


def print_rejections(rejected: tuple[Rejection, ...]) -> None:
    """Print the facts that a plan left out, the first few by name."""
    for item in rejected[:_REJECTIONS_SHOWN]:
        say(f"left out {item.fact_id[:12]}: {shown(item.reason)}")
    if len(rejected) > _REJECTIONS_SHOWN:
        say(f"and {len(rejected) - _REJECTIONS_SHOWN} more left out")


def print_diff(diff: NightDiff) -> None:
    """Print what a night changes: what enters the weights in green, what leaves weights or store struck out."""
    made = "no generation" if diff.generation is None else f"generation {diff.generation}"
    say(f"{diff.run_id}: {diff.status}, {made} on {diff.parent}")
    say(shown(diff.reason, 1000))
    if diff.trials:
        print_table(
            ["scale", "internalised", "gate damaged", "gate facts probed", "perplexity"],
            [
                [
                    f"{trial.scale:g}{' (chosen)' if trial.scale == diff.scale else ''}",
                    percent(trial.internalised_rate),
                    percent(trial.gate_damage_rate),
                    str(trial.gate_probed),
                    f"x {trial.perplexity_ratio:.3f}",
                ]
                for trial in diff.trials
            ],
            right=(1, 2, 3, 4),
        )
    for name, title, sign, style in _SECTIONS:
        _print_lines(title + when(diff, name), getattr(diff, name), sign, style)


def _print_lines(title: str, lines: tuple[DiffLine, ...], sign: str, style: str) -> None:
    from rich.text import Text

    if not lines:
        return
    out = console()
    out.print(Text(f"{title}: {counted(len(lines), 'fact')}", style="bold"))
    for line in lines[:_LINES_SHOWN]:
        words = FORGOTTEN if line.text is None else shown(line.text)
        text = Text(f"  {sign} {line.fact_id[:12]}  ").append(words, style=style)
        out.print(text.append(f"  {shown(line.reason)}" if line.reason else "", style="dim"))
    if len(lines) > _LINES_SHOWN:
        out.print(f"  and {len(lines) - _LINES_SHOWN} more; --json lists all")
