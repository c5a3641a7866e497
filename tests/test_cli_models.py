"""Somebody's own file through the real commands and models: ingest, ask, status, history."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sharpwave.cli.main import app
from sharpwave.settings import PROJECT_ROOT

pytestmark = pytest.mark.models

GOOD = [
    {"text": "The badge number of Mira Solbakken is 48213."},
    {
        "text": "Tomas Ferreyra keeps his bicycle in Ruelle Bartok.",
        "question": "Where does Tomas Ferreyra keep his bicycle?",
        "answer": "Ruelle Bartok",
    },
    {
        "text": "La llave de Ana Quiroga está debajo de la maceta azul.",
        "question": "¿Dónde está la llave de Ana Quiroga?",
        "answer": "debajo de la maceta azul",
    },
    {"text": "李明的猫叫小豆子。", "question": "李明的猫叫什么?", "answer": "小豆子"},
]
BAD = {
    "broken JSON": '{"text": "half a line',
    "is empty; give it visible text": '{"text": "  "}',
    "expected text, not a number": '{"text": 17}',
    "'txet': unknown key; did you mean 'text'?": '{"txet": "The colour is red."}',
    "is 1000000 characters long": json.dumps({"text": "a" * 1_000_000}),
    "is not UTF-8": b'{"text": "caf\xe9"}',
}
MENDED = [
    '{"text": "The code of the\\u0000 door is 1177."}',
    '{"text": "The ferry \\ud83d leaves at six."}',
]

runner = CliRunner()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, embedded_models: dict[str, Path]) -> Path:
    """A working directory whose store has taken in a file with every sort of line."""
    folder = tmp_path_factory.mktemp("home")
    lines = [json.dumps(fact, ensure_ascii=False) for fact in GOOD]
    write_lines(folder / "facts.jsonl", [*lines[:2], *BAD.values(), *MENDED, "", *lines[2:]])
    return folder


@pytest.fixture(scope="module")
def taken(home: Path) -> dict[str, Any]:
    """What `ingest` said about that file; a real process, as a user would start it."""
    code = "import sys; sys.argv[0] = 'sharpwave'; from sharpwave.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "ingest", "facts.jsonl", "--json", *tracking(home)],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


@pytest.fixture(scope="module", autouse=True)
def prefect_server() -> Iterator[None]:
    """One server for the commands that run in this process."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=200):
        yield


def write_lines(path: Path, lines: Sequence[str | bytes]) -> None:
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode("utf-8") for line in lines))


def tracking(home: Path) -> list[str]:
    return ["--set", f"tracking.uri=sqlite:///{home / 'mlflow.db'}"]


def run(home: Path, *arguments: str, **options: Any) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        return runner.invoke(app, [*arguments], **options)


def data(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_every_good_line_is_taken_and_every_bad_one_is_told(home, taken):
    assert taken["observed"] == len(GOOD) + len(MENDED)
    assert taken["new"] == len(GOOD) + len(MENDED)
    assert taken["rejected"] == len(BAD)
    assert taken["changed"] == len(MENDED)
    rejects = [
        json.loads(line) for line in (home / taken["rejects_path"]).read_text(encoding="utf-8").splitlines()
    ]
    for rejected, words in zip(rejects, BAD, strict=True):
        assert words in rejected["error"], rejected["error"]
    assert sum(taken["actions"].values()) == taken["observed"]


def test_facts_nobody_knows_are_stored_and_answered(home, taken):
    [answer] = data(run(home, "ask", "Where does Tomas Ferreyra keep his bicycle?", "--json"))
    assert answer["text"].strip(" .") == "Ruelle Bartok"
    assert answer["origin"] == "store"
    assert GOOD[1]["text"] in [fact["text"] for fact in answer["facts"]]


def test_several_questions_from_standard_input(home, taken):
    page = run(
        home, "ask", "--stdin", input="What is the badge number of Mira Solbakken?\n\n李明的猫叫什么?\n"
    ).stdout
    assert "48213" in page
    assert "小豆子" in page
    assert page.count("? ") >= 2
    assert re.search(r"from the store \(\d facts? read", page)


def test_status_and_history_of_a_stored_fact(home, taken):
    status = data(run(home, "status", "--json"))
    assert status["observed"] == len(GOOD) + len(MENDED)
    assert status["indexed"] == status["counts"]["hot"] > 0
    [answer] = data(run(home, "ask", "Where does Tomas Ferreyra keep his bicycle?", "--json"))
    page = run(home, "history", answer["facts"][0]["id"][:12]).stdout
    assert re.search(r"observed.*\n.*routed.*\n.*stored", page)


def test_changed_values_are_counted_and_told(home, taken):
    values = [
        {"text": f"The vault is in {place}.", "subject": "the vault", "relation": "place"} for place in "AB"
    ]
    write_lines(home / "vault.jsonl", [json.dumps(value) for value in values])
    page = run(home, "ingest", "vault.jsonl", *tracking(home)).stdout
    assert "2 facts taken in (2 new, 0 repeats)" in page
    assert "superseded: 1 fact with another value" in page
    write_lines(home / "back.jsonl", [json.dumps(values[0])])
    page = run(home, "ingest", "back.jsonl", *tracking(home)).stdout
    assert "1 fact taken in (0 new, 0 repeats, 1 current again)" in page
    assert "superseded: 1 fact with another value" in page


def test_an_answer_that_nobody_knows_is_called_a_guess(home, taken):
    page = run(home, "ask", "What is the name of the aunt of Ottokar Prohaska-Lindqvist?").stdout
    assert "a guess" in page


def test_nothing_but_bad_lines_fails(home, taken):
    write_lines(home / "bad.jsonl", list(BAD.values()))
    result = run(home, "ingest", "bad.jsonl", *tracking(home))
    assert result.exit_code == 1, result.output
    assert f"{len(BAD)} lines rejected and kept in " in result.stderr


def test_an_empty_file_is_a_warning(home, taken):
    write_lines(home / "empty.jsonl", [])
    result = run(home, "ingest", "empty.jsonl", *tracking(home))
    assert result.exit_code == 0
    assert "there was no line to take in" in result.stderr


def test_a_file_that_is_no_text_is_our_error_and_not_prefects(home, taken):
    (home / "photo.jsonl").write_bytes(b"\x1f\x8b" + bytes(range(256)))
    result = run(home, "ingest", "photo.jsonl", *tracking(home))
    assert result.exit_code == 1
    assert re.fullmatch(
        r"sharpwave ingest: photo.jsonl: is gzip, not UTF-8 text; convert it first",
        result.stderr.splitlines()[-1],
    )


def test_ten_thousand_duplicates_are_one_fact(home, taken):
    before = data(run(home, "status", "--json"))["observed"]
    write_lines(home / "same.jsonl", ['{"text": "The alarm code of the depot is 9041."}'] * 10_000)
    summary = data(run(home, "ingest", "same.jsonl", "--json", *tracking(home)))
    assert (summary["observed"], summary["new"], summary["repeats"]) == (10_000, 1, 9_999)
    assert data(run(home, "status", "--json"))["observed"] == before + 1
    assert data(run(home, "doctor", "--json"))["clean"]


def test_plain_text_from_standard_input(home, taken):
    text = "The spare key of the barn hangs behind the clock.\n"
    result = run(home, "ingest", "-", "--text", "--json", *tracking(home), input=text)
    assert data(result)["new"] == 1
    assert list((home / "memory-store" / "incoming").iterdir()) == []


def test_an_export_on_standard_input_is_kept_and_named(home, taken):
    exported = run(home, "export", "-").stdout_bytes
    result = run(home, "ingest", "-", *tracking(home), input=exported)
    assert result.exit_code == 1
    assert "use `sharpwave import`" in result.stderr
    kept = re.search(r"is kept: ingest (\S+) to go on", result.stderr)
    assert kept
    assert (home / kept[1]).read_bytes() == exported


def test_label_counts_what_the_model_knows_and_writes_every_answer(home, taken):
    facts = [
        {
            "text": "The capital of Italy is Rome.",
            "question": "What is the capital of Italy?",
            "answer": "Rome",
        },
        {
            "text": "Zoltan's parrot is Quillon.",
            "question": "What is Zoltan's parrot called?",
            "answer": "Quillon",
        },
        {"text": "A fact without a question."},
    ]
    write_lines(home / "to-label.jsonl", [*map(json.dumps, facts), "{half"])
    result = run(home, "label", "to-label.jsonl", "--out", "labels.jsonl", "--json")
    shares = data(result)
    assert shares["n"] == 2
    assert shares["classes"]["non_write"] == pytest.approx(
        {"n": 1, "share": 0.5, "low": 0.095, "high": 0.905}, abs=0.01
    )
    assert shares["right_with_fact"]["n"] == 2
    lines = [json.loads(line) for line in (home / "labels.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["right_without"], line["right_with"]) for line in lines] == [
        ([True], [True]),
        ([False], [True]),
    ]
    told = run(home, "label", "to-label.jsonl")
    assert "1 fact left out: behaviour cannot label a fact without a question" in told.stderr
    assert "left out: to-label.jsonl, line 4" in told.stderr
    assert "non_write" in told.stdout


def test_models_lists_licences(home, embedded_models):
    rows = data(run(home, "models", "--json"))
    assert {row["role"] for row in rows} == {"small", "large", "embedder"}
    assert all(row["is_cached"] and row["licence"] and row["licence_url"] for row in rows)
    assert "Gemma terms of use" in run(home, "models").stdout


def test_a_dry_run_changes_nothing(home, taken):
    before = data(run(home, "status", "--json"))
    few = ["--set", "consolidation.selection.max_facts=2", "--set", "consolidation.selection.min_facts=1"]
    result = run(home, "consolidate", "--dry-run", *few)
    assert result.exit_code == 0, result.output
    assert "nothing was changed" in result.stdout
    assert "would be skipped" not in result.output
    many = [
        "--set",
        "consolidation.selection.max_facts=1000",
        "--set",
        "consolidation.selection.min_facts=1000",
    ]
    skipped = run(home, "consolidate", "--dry-run", *many)
    assert re.search(r"would be skipped: only \d+ of the 1,?000 facts", skipped.output), skipped.output
    after = data(run(home, "status", "--json"))
    for status in (before, after):  # the size of SQLite's journal is no change of ours
        status["bytes"].pop("ledger")
    assert after == before
