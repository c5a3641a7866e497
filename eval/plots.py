"""The plots of a run, drawn with matplotlib on its own canvas (no pyplot, no global state).

`figures(run)` draws all that a run has data for, `drawings` what several runs together have; `write_pngs` writes the
files for a tracker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eval.display_text import DASH
from eval.metrics import headline_rows
from eval.plot_style import (
    ARM_DASHES,
    ARM_MARKERS,
    BACK,
    BAD,
    GONE,
    GOOD,
    GRID,
    INK,
    LABEL_GAP,
    MUTED,
    OTHER_DASHES,
    OTHER_MARKER,
    arm_colour,
    arm_label,
    axis_height,
    canvas,
    finish,
    spread,
)
from eval.run_records import FULL_STORE_ARM, HEADLINE_ARMS, NO_MEMORY_ARM, SHARPWAVE_ARM, WEIGHTS_LINE
from eval.statistics import expected_calibration_error, reliability_bins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from eval.run_records import ArmFigures, ConsolidationSummary, Run, StepRecord

_FAR_RIGHT = 0.6  # storage ratio beyond which a name no longer fits between its point and the axes' end
_MOST_BESIDE_POINTS = 5
_WORDS = {
    "storage": (
        "Storage over the stream",
        "Share of the distinct facts seen so far that sit in the store. The full store is 100%.",
    ),
    "em": (
        "Answers over the stream",
        "Questions answered exactly right after each step, each arm on the same questions.",
    ),
    "frontier": (
        "Storage against answers",
        "Each arm over the whole stream with its 95% interval. Up and to the left is better.",
    ),
    "nights": (
        "What each consolidation did",
        "Facts proven in the weights, taken out of the store, damaged by the training, and put back.",
    ),
    "shift": (
        "From the store into the weights",
        "What the weights answer without the store, beside the whole memory and the untrained model.",
    ),
    "cost": (
        "What deciding costs",
        "Arms with a router: compute of their decisions against the large router's alone, and what they answered.",
    ),
    "calibration": (
        "How far confidence can be trusted",
        "Answers grouped by their lowest token probability; on the diagonal both rates agree.",
    ),
}


class Drawing(NamedTuple):
    """A figure with its title and its caption."""

    name: str
    title: str
    caption: str
    figure: Figure


def figures(run: Run) -> list[Drawing]:
    """Return the drawings that the run has data for, in reading order."""
    drawn = drawings(run.arms, run.steps, run.consolidations)
    rated = [
        (row.confidence, row.correct)
        for row in headline_rows(run.answers, SHARPWAVE_ARM)
        if row.confidence is not None
    ]
    if rated:
        trusted = calibration([prob for prob, _ in rated], [right for _, right in rated])
        drawn.append(Drawing("calibration", *_WORDS["calibration"], trusted))
    return drawn


def drawings(
    arms: Sequence[ArmFigures],
    steps: Sequence[StepRecord],
    nights_: Sequence[ConsolidationSummary],
) -> list[Drawing]:
    """Return the drawings of arms, stream and nights that there is data for, in reading order."""
    drawn: dict[str, Figure] = {}
    if steps:
        drawn["storage"] = storage_curve(steps, nights_)
        drawn["em"] = em_curves(steps, nights_)
    if any(step.em_weights is not None for step in steps):
        drawn["shift"] = epistemic_shift(steps, nights_)
    if arms:
        drawn["frontier"] = frontier(arms)
    if len([arm for arm in arms if arm.routing_cost_ratio is not None]) > 1:
        drawn["cost"] = cost(arms)
    if nights_:
        drawn["nights"] = nights(nights_)
    return [Drawing(name, *_WORDS[name], figure) for name, figure in drawn.items()]


def storage_curve(steps: Sequence[StepRecord], nights_: Sequence[ConsolidationSummary] = ()) -> Figure:
    """Draw the storage ratio of Sharpwave and of the full store over the stream."""
    figure, axes = canvas()
    places = [step.step for step in steps]
    lines = {
        SHARPWAVE_ARM: [step.storage_ratio for step in steps],
        FULL_STORE_ARM: [1.0 for _ in steps],
    }
    axes.set_ylim(0, 1.08)
    _draw_lines(axes, places, lines)
    _mark_nights(axes, nights_)
    finish(axes, xlabel="step of the stream", ylabel="share of facts stored", percent="y")
    return figure


def em_curves(steps: Sequence[StepRecord], nights_: Sequence[ConsolidationSummary] = ()) -> Figure:
    """Draw the EM of every arm over the stream; steps without questions leave a gap."""
    figure, axes = canvas()
    lines = {arm: [step.em.get(arm) for step in steps] for arm in HEADLINE_ARMS}
    axes.set_ylim(0, 1.08)
    _draw_lines(axes, [step.step for step in steps], lines)
    _mark_nights(axes, nights_)
    finish(axes, xlabel="step of the stream", ylabel="exact match", percent="y")
    return figure


def epistemic_shift(steps: Sequence[StepRecord], nights_: Sequence[ConsolidationSummary] = ()) -> Figure:
    """Draw the EM of the memory, of its weights without the store, and of the untrained model over the stream."""
    figure, axes = canvas()
    lines = {
        SHARPWAVE_ARM: [step.em.get(SHARPWAVE_ARM) for step in steps],
        WEIGHTS_LINE: [step.em_weights for step in steps],
        NO_MEMORY_ARM: [step.em.get(NO_MEMORY_ARM) for step in steps],
    }
    axes.set_ylim(0, 1.08)
    _draw_lines(axes, [step.step for step in steps], lines)
    _mark_nights(axes, nights_)
    finish(axes, xlabel="step of the stream", ylabel="exact match", percent="y")
    return figure


def frontier(arms: Sequence[ArmFigures]) -> Figure:
    """Draw every arm as a point of storage ratio and EM, with its interval and its name beside it."""
    return _scatter([(arm.storage_ratio, arm) for arm in arms], xlabel="share of facts stored")


def cost(arms: Sequence[ArmFigures]) -> Figure:
    """Draw every arm that routes as a point of routing cost and EM."""
    placed = [(arm.routing_cost_ratio, arm) for arm in arms if arm.routing_cost_ratio is not None]
    return _scatter(placed, xlabel="router FLOPs / large router alone")


def nights(nights_: Sequence[ConsolidationSummary]) -> Figure:
    """Draw the counts of every consolidation as bars, each with its number on it."""
    figure, axes = canvas(right=0.97, bottom=0.215)
    series = [
        ("internalised", [night.internalised for night in nights_], GOOD, ""),
        ("evicted", [night.evicted for night in nights_], GONE, "///"),
        ("damaged", [night.damaged for night in nights_], BAD, "xxx"),
        ("re-admitted", [night.readmitted for night in nights_], BACK, "..."),
    ]
    width = 0.8 / len(series)
    for place, (label, counts, colour, hatch) in enumerate(series):
        xs = [night + (place - 1.5) * width for night in range(len(nights_))]
        bars = axes.bar(xs, counts, width * 0.9, color=colour, label=label, hatch=hatch, edgecolor=GRID, lw=0)
        if len(nights_) <= 4:
            axes.bar_label(bars, fontsize=8.5, color=INK, padding=1.5)
    names = [_night_name(night) for night in nights_]
    axes.set_xticks(range(len(nights_)), names)
    axes.set_xlim(-0.6, len(nights_) - 0.4)
    axes.set_ylim(0, max(1, *(max(counts) for _, counts, _, _ in series)) * 1.28)
    axes.legend(
        loc="upper center", ncols=4, frameon=False, fontsize=8.5, labelcolor=INK, handlelength=1.1,
        columnspacing=1.0, handletextpad=0.5, bbox_to_anchor=(0.5, 1.02),
    )  # fmt: skip
    finish(axes, xlabel="generation, and damaged / probed stable facts", ylabel="facts", names=True)
    return figure


def calibration(probs: Sequence[float], labels: Sequence[bool], bins: int = 10) -> Figure:
    """Draw a reliability diagram with the expected calibration error written into it.

    Raises:
        ValueError: lengths differ, or a probability lies outside [0, 1].
    """
    figure, axes = canvas(right=0.97)
    axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls=(0, (2, 3)))
    parts = reliability_bins(probs, labels, bins)
    largest = max((part.n for part in parts), default=1)
    axes.scatter(
        [part.mean_prob for part in parts],
        [part.observed_rate for part in parts],
        s=[30 + 220 * part.n / largest for part in parts],
        color=arm_colour(SHARPWAVE_ARM),
        alpha=0.85,
        linewidths=0,
    )
    axes.plot(
        [part.mean_prob for part in parts],
        [part.observed_rate for part in parts],
        color=arm_colour(SHARPWAVE_ARM),
        lw=1.2,
    )
    error = expected_calibration_error(probs, labels, bins)
    note = f"expected calibration error {error:.3f}\nn = {len(probs)}, larger dot = more answers"
    axes.text(0.98, 0.03, note, transform=axes.transAxes, ha="right", va="bottom", color=INK, fontsize=9)
    axes.set_xlim(-0.03, 1.06)
    axes.set_ylim(-0.03, 1.1)
    finish(axes, xlabel="stated probability", ylabel="observed rate", percent="xy")
    return figure


def write_pngs(drawn: Sequence[Drawing], folder: Path) -> list[Path]:
    """Write every drawing as `<name>.png` into the folder, made if missing, and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for drawing in drawn:
        path = folder / f"{drawing.name}.png"
        drawing.figure.savefig(path, dpi=150, facecolor="white")
        paths.append(path)
    return paths


def _scatter(placed: Sequence[tuple[float, ArmFigures]], xlabel: str) -> Figure:
    """Draw arms at (x, EM), x from 0 to 1 where it does not go beyond; ours lies on top."""
    figure, axes = canvas() if len(placed) <= _MOST_BESIDE_POINTS else canvas(right=0.69)
    lowest = min(arm.em_low for _, arm in placed)
    highest = max(arm.em_high for _, arm in placed)
    pad = max(0.05, 0.15 * (highest - lowest))
    axes.set_ylim(max(-0.03, lowest - pad), min(1.05, highest + pad))
    axes.set_xlim(-0.04, 1.06 * max(1.0, *(x for x, _ in placed)))
    for x, arm in placed:
        axes.errorbar(
            x,
            arm.em,
            yerr=[[max(0.0, arm.em - arm.em_low)], [max(0.0, arm.em_high - arm.em)]],
            fmt=ARM_MARKERS.get(arm.name, OTHER_MARKER),
            color=arm_colour(arm.name),
            markersize=9 if arm.name == SHARPWAVE_ARM else 6.5,
            elinewidth=1.4,
            capsize=3,
            zorder=4 if arm.name == SHARPWAVE_ARM else 2.5,
        )
    _label_points(axes, placed)
    axes.text(0.015, 0.985, "↖ better", transform=axes.transAxes, color=MUTED, va="top", fontsize=9)
    finish(axes, xlabel=xlabel, ylabel="exact match", percent="xy")
    return figure


def _draw_lines(axes: Axes, places: Sequence[int], lines: Mapping[str, Sequence[float | None]]) -> None:
    """Draw one line per arm and write its name at its right end."""
    ends = []
    for name, values in lines.items():
        points = [(x, y) for x, y in zip(places, values, strict=True) if y is not None]
        if not points:
            continue
        axes.plot(
            places,
            [float("nan") if value is None else value for value in values],
            color=arm_colour(name),
            ls=ARM_DASHES.get(name, OTHER_DASHES),
            lw=2.4 if name == SHARPWAVE_ARM else 1.6,
            marker=ARM_MARKERS.get(name, OTHER_MARKER),
            markersize=4 if len(places) <= 30 else 0,
            zorder=3 if name == SHARPWAVE_ARM else 2,
        )
        ends.append((name, *points[-1]))
    heights = spread([axis_height(axes, y) for _, _, y in ends])
    for (name, _, y), height in zip(ends, heights, strict=True):
        axes.annotate(
            f"{arm_label(name).partition(',')[0]} {y:.0%}",
            xy=(1.0, height),
            xycoords="axes fraction",
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            color=arm_colour(name),
            fontsize=9,
            fontweight="bold" if name == SHARPWAVE_ARM else "normal",
        )


def _mark_nights(axes: Axes, nights_: Sequence[ConsolidationSummary]) -> None:
    placed = [night for night in nights_ if night.step is not None]
    for night in placed:
        axes.axvline((night.step or 0) + 0.5, color=MUTED, lw=1, ls=(0, (1, 2)), zorder=1)
        if len(placed) <= 8:
            axes.annotate(
                "sleep" if night.status == "promoted" else night.status,
                xy=((night.step or 0) + 0.5, 0.015),
                xycoords=("data", "axes fraction"),
                xytext=(3, 0),
                textcoords="offset points",
                color=MUTED,
                fontsize=8.5,
                rotation=90,
                va="bottom",
            )


def _label_points(axes: Axes, placed: Sequence[tuple[float, ArmFigures]]) -> None:
    """Write every arm's name right of its point, or many names in a column on the right."""
    if len(placed) > _MOST_BESIDE_POINTS:
        _label_side(axes, placed, column=1.05)
        return
    _label_side(axes, [item for item in placed if item[0] <= _FAR_RIGHT])
    _label_side(axes, [item for item in placed if item[0] > _FAR_RIGHT])


def _label_side(axes: Axes, placed: Sequence[tuple[float, ArmFigures]], column: float | None = None) -> None:
    """Names that would collide move apart; a name away from its point hangs on a hairline."""
    low, high = axes.get_xlim()
    heights = spread([axis_height(axes, arm.em) for _, arm in placed])
    for (x, arm), height in zip(placed, heights, strict=True):
        moved = column is not None or abs(height - axis_height(axes, arm.em)) > LABEL_GAP / 2
        label = arm_label(arm.name)
        axes.annotate(
            label.partition(",")[0] if column else label.replace(", ", ",\n"),
            xy=(x, arm.em),
            xytext=(column or 0.04 + (x - low) / (high - low), height),
            textcoords="axes fraction",
            va="center",
            color=arm_colour(arm.name),
            fontsize=8 if column else 9,
            fontweight="bold" if arm.name == SHARPWAVE_ARM else "normal",
            arrowprops={"arrowstyle": "-", "color": MUTED, "lw": 0.5} if moved else None,
        )


def _night_name(night: ConsolidationSummary) -> str:
    generation = night.status if night.generation is None else str(night.generation)
    status = f" {night.status}" if night.generation and night.status != "promoted" else ""
    damage = f"{night.damaged / night.stable_probed:.1%}" if night.stable_probed else DASH
    return f"{generation}{status}\n{damage}"
