"""The picture of the prices."""

import pytest

from eval.router_plots import router_frontier, write_router_frontier


def point(storage, em, rate):
    return {"storage_ratio": storage, "em_retention": em, "escalation_rate": rate}


POINTS = [
    point(storage, 1 - (1 - storage) * (0.3 - 0.2 * rate), rate)
    for rate in (0.0, 0.3, 1.0)
    for storage in (1.0, 0.8, 0.6)
]
CHOSEN = point(0.85, 0.985, 0.31)


def test_there_is_a_line_per_rate_and_the_point_in_use():
    [axes] = router_frontier(POINTS, CHOSEN).axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["0% escalated", "30% escalated", "100% escalated", "in use (31%)"]
    star = axes.get_lines()[3]
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (0.85, 0.985)
    assert list(axes.get_lines()[1].get_xdata()) == [0.6, 0.8, 1.0]
    assert axes.get_ylim()[0] == pytest.approx(0.86)


def test_the_same_figures_give_the_same_file(tmp_path):
    for name in ("a.svg", "b.svg"):
        write_router_frontier(tmp_path / name, POINTS, CHOSEN)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
