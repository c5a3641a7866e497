"""A picture of a router's prices: what storage and escalation buy in exact match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eval.plot_style import MUTED, canvas, finish

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

_COLOURS = "viridis"


def write_router_frontier(
    path: Path, points: Sequence[Mapping[str, float]], chosen: Mapping[str, float]
) -> None:
    """Write `router_frontier` as an SVG file; the same figures give the same bytes."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "router-frontier"}):
        router_frontier(points, chosen).savefig(path, format="svg", metadata={"Date": None})


def router_frontier(points: Sequence[Mapping[str, float]], chosen: Mapping[str, float]) -> Figure:
    """Draw EM retention against storage, a line per escalation rate, and the operating point in use.

    Args:
        points: Fields of `routers.calibration.OperatingPoint`, swept over both prices.
        chosen: The same of the calibrated prices.
    """
    import matplotlib

    figure, axes = canvas()
    rates = sorted({round(point["escalation_rate"], 3) for point in points})
    shades = matplotlib.colormaps[_COLOURS].resampled(len(rates) + 1)
    for number, rate in enumerate(rates):
        line = sorted(
            (point["storage_ratio"], point["em_retention"])
            for point in points
            if round(point["escalation_rate"], 3) == rate
        )
        axes.plot(
            *zip(*line, strict=True), color=shades(number), linewidth=1.6, label=f"{rate:.0%} escalated"
        )
    axes.plot(
        chosen["storage_ratio"],
        chosen["em_retention"],
        marker="*",
        markersize=13,
        linestyle="none",
        color="black",
        label=f"in use ({chosen['escalation_rate']:.0%})",
    )
    lowest = min(point["em_retention"] for point in points if point["storage_ratio"] > 0.5)
    axes.set_ylim(max(0.0, lowest - 0.02), 1.02)
    axes.set_xlim(0.5, 1.02)
    axes.axhline(0.98, color=MUTED, linewidth=0.8, linestyle=":")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    finish(axes, xlabel="share of facts stored", ylabel="exact match / full store's", percent="xy")
    return figure
