"""`sharpwave report`: one run, two runs, and what a terminal shows of the table."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eval.metrics import arm_figures, run_metrics
from eval.run_records import AnswerRow, NetBytes, Run, RunConfig, StepRecord, write_run
from sharpwave.cli.main import app
from sharpwave.settings import PROJECT_ROOT

STORAGE = {"sharpwave": 0.4, "full_store": 1.0, "no_memory": 0.0, "random": 0.4}
WRONG_EVERY = {"sharpwave": 6, "full_store": 7, "no_memory": 2, "random": 3}

runner = CliRunner()


def make_run(run_id: str, wrong_every: dict[str, int]) -> Run:
    answers = tuple(
        AnswerRow(
            arm=arm,
            step=1,
            fact_id=f"{number:032x}",
            question=f"question {number}?",
            answer="peso",
            given="peso" if number % every else "euro",
            correct=number % every != 0,
            origin="store",
            group=f"subject {number % 7}",
        )
        for arm, every in wrong_every.items()
        for number in range(42)
    )
    arms = tuple(arm_figures(name, answers, storage, seed=1) for name, storage in STORAGE.items())
    step = StepRecord(
        step=1,
        n_observed=42,
        n_distinct=42,
        hot=17,
        storage_ratio=0.4,
        em={"sharpwave": 0.8, "full_store": 0.85, "no_memory": 0.5, "random": 0.66},
        escalation_rate=0.3,
        generation=0,
        n_questions=42,
    )
    metrics = run_metrics(
        answers,
        arms,
        (),
        n_facts=42,
        storage_ratio_before_consolidation=0.6,
        escalation=0.3,
        routing_cost=0.5,
        net_bytes=NetBytes(vectors=1536, text=200, ledger=4096, adapters=0),
        wall_seconds=12.0,
        seed=1,
        profile="smoke",
    )
    config = RunConfig(run_id=run_id, digest="ab" * 32, seeds=(1,), resolved={})
    return Run(config=config, metrics=metrics, arms=arms, steps=(step,), answers=answers)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "first", make_run("first", WRONG_EVERY))


def test_report_writes_the_page_and_prints_the_table(folder):
    result = runner.invoke(app, ["report", str(folder)])
    assert result.exit_code == 0, result.output
    assert "| arm | facts stored | EM (95%) |" in result.stdout
    rows = [line for line in result.stdout.splitlines() if line.startswith("| ")]
    labels = [row.split("|")[1].strip().lower() for row in rows]
    assert [label for label in labels if label in {"sharpwave", "full store", "no memory"}] == [
        "sharpwave",
        "full store",
        "no memory",
    ]
    assert any("random" in label for label in labels)
    assert "(95%)" in result.stdout
    page = folder / "report.html"
    assert str(page) in result.stdout
    assert page.read_text(encoding="utf-8").startswith("<!")


def test_report_as_json(folder):
    result = runner.invoke(app, ["report", str(folder), "--json"])
    found = json.loads(result.stdout)
    assert found["metrics"]["n_facts"] == 42
    assert [arm["name"] for arm in found["arms"]] == list(STORAGE)
    assert Path(found["report"]).is_file()


def test_two_runs_are_compared_with_an_interval(folder, tmp_path):
    other = write_run(tmp_path / "second", make_run("second", {**WRONG_EVERY, "sharpwave": 3}))
    before = sorted(other.iterdir())
    result = runner.invoke(app, ["report", str(folder), str(other)])
    assert result.exit_code == 0, result.output
    assert "A: first" in result.stdout
    assert "B: second" in result.stdout
    rows = json.loads(runner.invoke(app, ["report", str(folder), str(other), "--json"]).stdout)
    em = next(row for row in rows if row["figure"].lower() == "sharpwave: em")
    assert em["low"] <= em["difference"] <= em["high"] < 0
    assert em["n_pairs"] == 42
    assert sorted(other.iterdir()) == before


def test_an_unfinished_run_is_named(folder):
    (folder / "metrics.json").unlink()
    result = runner.invoke(app, ["report", str(folder)])
    assert result.exit_code == 1
    assert "an unfinished run: metrics.json is missing" in result.stderr


def read_terminal(master: int) -> str:
    parts = []
    try:
        while part := os.read(master, 1 << 16):
            parts.append(part)
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(master)
    return b"".join(parts).decode("utf-8", errors="replace")


def test_a_terminal_shows_a_drawn_table(folder):
    code = "import sys; sys.argv[0] = 'sharpwave'; from sharpwave.cli.main import main; main()"
    master, slave = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT), "COLUMNS": "140", "TERM": "xterm"}
    subprocess.run(
        [sys.executable, "-c", code, "report", str(folder)], env=environment, stdout=slave, check=True
    )
    os.close(slave)
    shown = read_terminal(master)
    assert "facts stored" in shown
    assert "| arm |" not in shown
    assert "━" in shown or "─" in shown
