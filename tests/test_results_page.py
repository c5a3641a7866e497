"""The page of results: every figure on it comes from the records, and the records kept beside it give it again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eval.run_records import Run, write_run
from sharpwave.errors import InputError
from tests.made_runs import make_run

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import results_page


def with_cascade(seed: int) -> Run:
    run = make_run(seed=seed)
    ours = run.arms[0].model_copy(update={"escalation_rate": 0.25, "routing_cost_ratio": 0.4})
    cascade = ours.model_copy(update={"name": "cascade", "storage_ratio": 0.6})
    rows = [row.model_copy(update={"arm": "cascade"}) for row in run.answers if row.arm == "sharpwave"]
    return run.model_copy(update={"arms": (ours, *run.arms[1:], cascade), "answers": (*run.answers, *rows)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed in (0, 1):
        write_run(tmp_path / "runs" / f"seed-{seed}", with_cascade(seed))
    return tmp_path / "runs"


def test_published_figures_stand_beside_ours(folder: Path, tmp_path: Path):
    page = tmp_path / "docs" / "results.md"
    page.parent.mkdir()
    results_page.main(folder, page, None)
    text = page.read_text(encoding="utf-8")
    assert "| exact match kept of the full store's | > 98% |" in text
    assert "| about 40% | 25.0% (25.0\u201325.0%) |" in text
    assert "| up to 68% | 40.0% (40.0\u201340.0%) |" in text
    assert "| 30% to 39% | 60.0% (60.0\u201360.0%) |" in text
    assert "1,752 / 10,683 = 16.4% | 4 / 16 = 25.0%" in text


def test_the_page_is_made_again_from_the_records_it_keeps(folder: Path, tmp_path: Path):
    page, kept = tmp_path / "results.md", tmp_path / "kept"
    results_page.main(folder, page, kept)
    first = page.read_bytes()
    archives = {path: path.read_bytes() for path in kept.rglob("*.gz")}
    results_page.main(kept, page, None)
    assert page.read_bytes() == first
    results_page.main(folder, page, kept)
    assert {path: path.read_bytes() for path in kept.rglob("*.gz")} == archives
    for line in first.decode().splitlines():
        if line.startswith("!["):
            assert (tmp_path / line.partition("](")[2].partition(")")[0]).is_file()


def test_another_folder_is_refused(folder: Path, tmp_path: Path):
    with pytest.raises(InputError, match="not the folder of a benchmark"):
        results_page.main(folder / "seed-0", tmp_path / "page.md", None)
