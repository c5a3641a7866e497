"""Commands around a consolidation that waits for review: diff, accept, reject, and what others say meanwhile."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from carriers.store_layout import open_generations, open_ledger
from consolidation.night import night_lease
from consolidation.night_folder import PLAN, REVIEW, NightFolder, waiting_night
from consolidation.records import NightReport, Review
from sharpwave.cli import sleep_commands
from sharpwave.records import Fact, FactStatus
from sharpwave.settings import PROJECT_ROOT
from tests.cli_runs import data, run
from tests.waiting_nights import (
    BADGE,
    LATER,
    NOTARY,
    PARIS,
    RUN,
    VAGUE,
    make_waiting_night,
    opened,
    plan_of,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    store = tmp_path_factory.mktemp("waiting") / "store"
    make_waiting_night(store)
    return store


@pytest.fixture
def store(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


def files(store: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in store.rglob("*")
        if path.is_file() and "lock" not in path.name and "-" not in path.suffix
    }


def status_of(store: Path, fact: Fact) -> FactStatus:
    with open_ledger(store) as ledger:
        return ledger.fact(fact.id).status


def current(store: Path) -> int:
    with open_ledger(store) as ledger:
        return open_generations(store, ledger).current().number


# ---------------------------------------------------------------------------------------------- diff


def test_diff_shows_the_waiting_night(store):
    before = files(store)
    page = run(store, "diff").stdout
    assert page.startswith(f"{RUN}: waiting, generation 1 on 0\n")
    assert re.search(r"0\.5 \(chosen\) +66\.7% +10\.0% +50", page)
    assert re.search(r"1 +100\.0% +40\.0% +50", page)
    for words in (
        f"into the weights: 2 facts\n  + {BADGE.id[:12]}  {BADGE.text}",
        f"out of the store: 2 facts\n  \u2212 {BADGE.id[:12]}  {BADGE.text}",
        f"out of the weights, damaged by the training: 1 fact\n  ! {PARIS.id[:12]}  {PARIS.text}",
        f"back into the store: 2 facts\n  ↩ {PARIS.id[:12]}  {PARIS.text}",
        f"× {VAGUE.id[:12]}  {VAGUE.text}  not proven: paraphrase (0.31)",
        f"{LATER.id[:12]}  {LATER.text}  left for a later night",
    ):
        assert words in page
    assert "kept in the store" not in page
    assert "\x1b" not in page
    assert files(store) == before


def test_diff_is_coloured_on_a_terminal(store):
    page = run(store, "diff", env={"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "160"}).stdout
    assert f"\x1b[32m{BADGE.text}\x1b[0m" in page  # green: into the weights
    assert f"\x1b[9m{BADGE.text}\x1b[0m" in page  # struck out: out of the store
    assert re.search(rf"\x1b\[(9;31|31;9)m{re.escape(PARIS.text)}\x1b\[0m", page)
    assert "notary <b>⟨U+001B⟩[31m." in page


def test_diff_as_data_names_nights_and_generations(store):
    for chosen in ((), ("1",), (RUN,)):
        found = data(run(store, "diff", *chosen, "--json"))
        assert (found["run_id"], found["scale"]) == (RUN, 0.5)
        assert [line["fact_id"] for line in found["evicted"]] == [BADGE.id, NOTARY.id]
        assert found["not_proven"][0]["failed"][0]["lowest_answer_prob"] == 0.31
    for chosen, words in (("9", "no generation 9"), ("night-9", "no consolidation night-9")):
        result = run(store, "diff", chosen)
        assert result.exit_code == 1
        assert words in result.stderr


def test_diff_without_any_night_says_how_to_get_one(store):
    shutil.rmtree(store / "consolidations")
    result = run(store, "diff")
    assert result.exit_code == 1
    assert "`sharpwave consolidate --review`" in result.stderr


def test_diff_writes_a_page(store, tmp_path):
    page = tmp_path / "new" / "changes.html"
    found = data(run(store, "diff", "--json", "--html", str(page)))
    assert found["run_id"] == RUN
    html = page.read_text(encoding="utf-8")
    assert f"<del><bdi>{BADGE.text}</bdi></del>" in html
    assert "&lt;b&gt;" in html


def test_diff_has_no_words_of_a_forgotten_fact(store, tmp_path):
    data(run(store, "forget", BADGE.id, "--yes", "--json"))
    page = tmp_path / "changes.html"
    shown = run(store, "diff", "--html", str(page)).stdout + run(store, "diff", "--json").stdout
    assert "Tomas" not in shown + page.read_text(encoding="utf-8")
    assert f"{BADGE.id[:12]}  (forgotten)" in shown


def test_diff_loads_no_model_and_no_index(store):
    code = (
        "import sys\n"
        "from sharpwave.cli.main import app\n"
        f"app(['diff', '--store', {str(store)!r}], standalone_mode=False)\n"
        "heavy = {'torch', 'chromadb', 'transformers', 'prefect', 'mlflow'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, check=True)


# -------------------------------------------------------------------------------- accept and reject


def test_accept_promotes_the_night(store):
    result = run(store, "accept")
    assert result.exit_code == 0, result.output
    assert f"{RUN}: promoted" in result.stdout
    assert "current generation: 1" in result.stdout
    assert (current(store), status_of(store, BADGE), status_of(store, PARIS)) == (
        1,
        FactStatus.INTERNALISED,
        FactStatus.HOT,
    )
    assert run(store, "doctor").exit_code == 0
    again = run(store, "accept")
    assert again.exit_code == 1
    assert "no consolidation waits for review" in again.stderr
    assert run(store, "diff").stdout.startswith(f"{RUN}: promoted, generation 1 on 0\n")


def test_reject_discards_the_night(store):
    report = data(run(store, "reject", "--json"))
    assert (report["status"], report["reason"]) == ("discarded", "rejected in review")
    assert (current(store), status_of(store, BADGE), status_of(store, PARIS)) == (
        0,
        FactStatus.HOT,
        FactStatus.KNOWN,
    )
    assert "no consolidation waits for review" in run(store, "reject").stderr


def test_reject_of_a_fact_keeps_it_in_the_store(store):
    marked = run(store, "reject", NOTARY.id[:10].upper())
    assert marked.exit_code == 0, marked.output
    assert "1 fact will stay in the store" in marked.stdout
    assert "still waits" in marked.stderr
    assert "kept in the store by the review: 1 fact" in run(store, "diff").stdout
    assert waiting_night(store) == RUN
    report = data(run(store, "accept", "--json"))
    assert (report["evicted"], report["kept"], report["internalised"]) == (1, 1, 2)
    assert status_of(store, NOTARY) is FactStatus.HOT
    events = data(run(store, "history", NOTARY.id, "--json"))["events"]
    assert "a review kept it in the store" in next(e["reason"] for e in events if e["kind"] == "proven")


def test_accept_of_a_fact_takes_the_mark_back(store):
    data(run(store, "reject", NOTARY.id, BADGE.id, "--json"))
    assert data(run(store, "accept", NOTARY.id, "--json"))["kept"] == [BADGE.id]
    assert waiting_night(store) == RUN


@pytest.mark.parametrize("command", ["accept", "reject"])
def test_what_cannot_be_marked_is_an_error_and_marks_nothing(store, command):
    with opened(store) as memory:
        memory.observe([Fact(text=f"Note {number}.") for number in range(17)], "more")
        ids = [fact.id for fact in memory.ledger.iter_facts()]
    shared = next(item[0] for item in ids if sum(other[0] == item[0] for other in ids) > 1)
    for given, words in (
        ("f" * 32, "no fact has an id that begins with"),
        (shared, "several facts have an id that begins with"),
        ("xyz", "is no fact id"),
        (VAGUE.id, "is not proven"),
        (LATER.id, "has no part in this consolidation"),
    ):
        result = run(store, command, BADGE.id, given)
        assert result.exit_code == 1
        assert words in result.stderr
    assert NightFolder(store, RUN).read(REVIEW, Review) == Review()


def test_accept_is_refused_when_the_store_has_moved_on(store):
    NightFolder(store, RUN).write(PLAN, plan_of(3))
    before = files(store)
    result = run(store, "accept")
    assert result.exit_code == 1
    assert "trained on generation 3 and 0 is current now" in result.stderr
    assert "`sharpwave consolidate --review` again" in result.stderr
    assert (
        files(store)[NightFolder(store, RUN).path / REVIEW] == before[NightFolder(store, RUN).path / REVIEW]
    )
    assert data(run(store, "reject", "--json"))["status"] == "discarded"


@pytest.mark.parametrize("arguments", [("accept",), ("reject",), ("reject", BADGE.id)])
def test_nothing_is_decided_beside_a_running_consolidation(store, arguments):
    with night_lease(store):
        result = run(store, *arguments)
    assert result.exit_code == 1
    assert "another consolidation is running" in result.stderr
    assert NightFolder(store, RUN).read(REVIEW, Review) == Review()


# -------------------------------------------------------------------------------------- meanwhile


def test_status_tells_a_waiting_consolidation_from_an_interrupted_one(store):
    result = run(store, "status")
    assert f"the consolidation {RUN} waits for review" in result.stderr
    assert "sharpwave accept" in result.stderr
    assert "interrupted" not in result.stderr
    status = data(run(store, "status", "--json"))
    assert (status["waiting_night"], status["interrupted_nights"]) == (RUN, [])
    data(run(store, "reject", "--json"))
    assert data(run(store, "status", "--json"))["waiting_night"] is None


def test_doctor_repair_spares_a_waiting_consolidation(store):
    report = data(run(store, "doctor", "--repair", "--json"))
    assert report["clean"] is True
    assert data(run(store, "accept", "--json"))["status"] == "promoted"


@pytest.mark.parametrize("options", [(), ("--review",)])
def test_consolidate_goes_on_with_no_waiting_night(store, options, monkeypatch):
    monkeypatch.setattr(sleep_commands, "flow_session", _unreachable)
    result = run(store, "consolidate", *options)
    assert result.exit_code == 1
    assert f"the consolidation {RUN} waits for review" in result.stderr
    assert "--new rejects it" in result.stderr
    assert waiting_night(store) == RUN


def _unreachable(*_: object) -> None:
    raise AssertionError("this must not be called")


@pytest.mark.parametrize("options", [(), ("--review",)])
def test_consolidate_new_rejects_the_waiting_night_first(store, options, monkeypatch):
    from flows import consolidate_memory

    calls = []

    def flow(run_id: str, *, review: bool, **_: Any) -> NightReport:
        calls.append((run_id, review))
        return NightReport(
            run_id=run_id,
            status="waiting",
            reason="as asked",
            generation=0,
            parent=0,
            scale=None,
            selected=0,
            internalised=0,
            evicted=0,
            damaged=0,
            readmitted=0,
            stable_probed=0,
        )

    monkeypatch.setattr(sleep_commands, "flow_session", lambda *_: nullcontext())
    monkeypatch.setattr(consolidate_memory, "consolidate_memory", flow)
    result = run(store, "consolidate", "--new", *options)
    assert result.exit_code == 0, result.output
    ((run_id, review),) = calls
    assert run_id != RUN
    assert review is bool(options)
    assert f"The consolidation {RUN}, which waited for review, was rejected." in result.stderr
    assert "Nothing that a reader sees has changed." in result.stderr
    assert waiting_night(store) is None
    with open_ledger(store) as ledger:
        assert open_generations(store, ledger).get(1).reason == "rejected in review"
