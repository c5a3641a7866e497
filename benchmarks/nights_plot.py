"""Draw what rows of nights leave: what was proven and is still answered, and what was known and is.

A line is the mean over the seeds, the band around it reaches from the lowest to the highest of them.

.venv/bin/python benchmarks/nights_plot.py consolidation.json --out docs/nights.svg
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from eval.plot_style import BACK, BAD, GOOD, INK, canvas, finish

_LINES = (
    ("proven_still_answered", "proven so far, still answered by store or weights", GOOD, "o"),
    ("proven_still_in_weights", "proven so far, still answered by the weights alone", BACK, "s"),
    ("stable_kept_rate", "stable facts never trained, still answered by the weights", INK, "^"),
    ("storage", "share of observed facts in the store", BAD, "x"),
)


def main(
    figures: Annotated[Path, typer.Argument(help="What consolidation_nights.py wrote.")],
    out: Annotated[Path, typer.Option(help="SVG file.")] = Path("nights.svg"),
) -> None:
    """Draw the rows of nights of one run."""
    nights: list[dict[str, Any]] = json.loads(figures.read_text(encoding="utf-8"))["nights"]
    figure, axes = canvas(right=0.97, bottom=0.34)
    for key, label, colour, marker in _LINES:
        points: dict[int, list[float]] = {}
        for night in nights:
            if (value := _value(night, key)) is not None:
                points.setdefault(night["night"], []).append(value)
        means = [sum(values) / len(values) for values in points.values()]
        lows, highs = ([end(values) for values in points.values()] for end in (min, max))
        axes.plot(list(points), means, color=colour, marker=marker, markersize=4, lw=1.6, label=label)
        axes.fill_between(list(points), lows, highs, color=colour, alpha=0.18, lw=0)
    axes.set_ylim(0, 1.04)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.19), frameon=False, fontsize=8)
    finish(axes, xlabel="night", ylabel="share of facts", percent="y")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, format="svg", metadata={"Date": None})


def _value(night: dict[str, Any], key: str) -> float | None:
    if key != "stable_kept_rate":
        value: float | None = night[key]
        return value
    return night["stable_kept"] / night["n_stable"] if "n_stable" in night else None


if __name__ == "__main__":
    typer.run(main)
