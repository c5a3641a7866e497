"""The look of all plots: colours, markers, canvas, direct labels, and the form a page can take in."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from eval.run_records import (
    CASCADE_ARM,
    FULL_STORE_ARBITER_ARM,
    FULL_STORE_ARM,
    LARGE_ROUTER_ARM,
    LLM_JUDGE_ARM,
    NO_MEMORY_ARM,
    NOVELTY_ARM,
    ORACLE_ADMISSION_ARM,
    RANDOM_ARM,
    RECENCY_ARM,
    SHARPWAVE_ARM,
    SMALL_ROUTER_ARM,
    WEIGHTS_LINE,
    WITHOUT_READMISSION_ARM,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ARM_LABELS = {
    SHARPWAVE_ARM: "Sharpwave",
    FULL_STORE_ARM: "full store",
    NO_MEMORY_ARM: "no memory",
    RANDOM_ARM: "random, equal storage",
    FULL_STORE_ARBITER_ARM: "full store + arbiter",
    NOVELTY_ARM: "novelty, equal storage",
    RECENCY_ARM: "recency, equal storage",
    LLM_JUDGE_ARM: "LLM judge",
    SMALL_ROUTER_ARM: "small router only",
    LARGE_ROUTER_ARM: "large router only",
    CASCADE_ARM: "cascade, no nights",
    WITHOUT_READMISSION_ARM: "without re-admission",
    ORACLE_ADMISSION_ARM: "oracle admission",
    WEIGHTS_LINE: "weights alone",
}

# Okabe and Ito's palette, told apart with every common colour blindness. Every value is unique: `to_svg`
# turns each into a CSS variable so that a dark page can lighten it.
INK, MUTED, GRID = "#1b2430", "#5c6773", "#dde2e8"
ARM_COLOURS = {
    SHARPWAVE_ARM: "#0067b3",
    FULL_STORE_ARM: "#c04a00",
    NO_MEMORY_ARM: "#707b87",
    RANDOM_ARM: "#00805f",
}
ARM_MARKERS = {SHARPWAVE_ARM: "o", FULL_STORE_ARM: "s", NO_MEMORY_ARM: "X", RANDOM_ARM: "^"}
OTHER_MARKER = "D"
ARM_DASHES = {SHARPWAVE_ARM: "-", FULL_STORE_ARM: "--", NO_MEMORY_ARM: ":", RANDOM_ARM: "-."}
OTHER_DASHES = "-"
OTHER_COLOUR, GOOD, GONE, BAD, BACK = "#8a6100", "#1a7f43", "#4b5b6b", "#b3261e", "#7a3fb0"
CSS_VARIABLES = {
    INK: "--plot-ink",
    MUTED: "--plot-muted",
    GRID: "--plot-grid",
    ARM_COLOURS[SHARPWAVE_ARM]: "--plot-ours",
    ARM_COLOURS[FULL_STORE_ARM]: "--plot-full",
    ARM_COLOURS[NO_MEMORY_ARM]: "--plot-none",
    ARM_COLOURS[RANDOM_ARM]: "--plot-random",
    OTHER_COLOUR: "--plot-other",
    GOOD: "--plot-good",
    GONE: "--plot-gone",
    BAD: "--plot-bad",
    BACK: "--plot-back",
}

_SIZE = (4.9, 3.3)  # inches; small, so that letters stay readable when a phone shrinks the page
LABEL_GAP = 0.062  # least distance between two direct labels, in axis heights
_FONT = "DejaVu Sans"


def to_svg(figure: Figure, name: str) -> str:
    """Return the figure as an SVG element for a page: named ids, no prolog, colours as CSS variables.

    Text stays text, so it can be read aloud and searched. The same figure gives the same string.
    """
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg [^>]*?)width="[^"]*" height="[^"]*"|(<svg )', r"\1\2", svg, count=1)
    svg = re.sub(r'(?<=\sid=")|(?<=href="#)|(?<=url\(#)', f"{name}-", svg)
    for colour, variable in CSS_VARIABLES.items():
        svg = svg.replace(colour, f"var({variable}, {colour})")
    return svg.replace(f"'{_FONT}'", "var(--plot-font, sans-serif)").strip()


def arm_label(name: str) -> str:
    """Return the words for an arm: its own label, or its name with spaces."""
    return ARM_LABELS.get(name, name.replace("_", " "))


def canvas(right: float = 0.735, bottom: float = 0.155) -> tuple[Figure, Axes]:
    """Return a figure whose axes leave room on the right for direct labels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE)
    axes = figure.add_axes((0.145, bottom, right - 0.145, 0.95 - bottom))
    return figure, axes


def finish(axes: Axes, *, xlabel: str, ylabel: str, percent: str = "", names: bool = False) -> None:
    """Label the axes; `percent` names those in per cent, `names` keeps the ticks on x as they are."""
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axes.set_xlabel(xlabel, color=MUTED, fontsize=9.5)
    axes.set_ylabel(ylabel, color=MUTED, fontsize=9.5)
    if "y" in percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    if "x" in percent:
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    elif not names:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
    axes.tick_params(colors=MUTED, labelsize=9, length=0, pad=5)
    axes.grid(visible=True, axis="y", color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(MUTED)
    for text in [*axes.texts, axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels()]:
        text.set_fontfamily(_FONT)
        text.set_parse_math(False)


def axis_height(axes: Axes, value: float) -> float:
    """Return where a value lies on the vertical axis, 0 at its foot and 1 at its head."""
    low, high = axes.get_ylim()
    return (value - low) / (high - low)


def spread(heights: Sequence[float], gap: float = LABEL_GAP) -> list[float]:
    """Move labels apart until neighbours keep the gap; order is kept, a crowd stays centred where it was.

    >>> [round(height, 2) for height in spread([0.5, 0.5], gap=0.1)]
    [0.45, 0.55]
    """
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    blocks: list[tuple[float, list[int]]] = []
    for place in order:
        centre, members = heights[place], [place]
        while blocks and blocks[-1][0] + gap * (len(blocks[-1][1]) + len(members)) / 2 > centre:
            before, former = blocks.pop()
            centre = (before * len(former) + centre * len(members)) / (len(former) + len(members))
            members = former + members
        blocks.append((centre, members))
    result = [0.0] * len(heights)
    for centre, members in blocks:
        for rank, place in enumerate(members):
            result[place] = centre + (rank - (len(members) - 1) / 2) * gap
    return result


def arm_colour(name: str) -> str:
    """Return the colour of an arm; arms without their own share one."""
    return ARM_COLOURS.get(name, OTHER_COLOUR)
