"""Commands on a real store that need no language model: status, history, forget, doctor, rollback, transfer."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from carriers.embedder import load_embedder
from carriers.external_memory import ExternalMemory
from carriers.generations import adapter_digest
from carriers.store_layout import open_generations, open_ledger
from consolidation.night import night_lease
from consolidation.night_folder import PLAN, NightFolder
from consolidation.records import FactTargets, NightPlan
from serving.store_status import measure_bytes, read_status
from sharpwave.cli.main import app
from sharpwave.records import Fact, RouteAction, RouteDecision, RouteStage, Slot
from sharpwave.settings import PROJECT_ROOT
from tests.cli_runs import data, run, runner

NEW = Fact(text="Mira Solbakken works as a notary.", questions=("What does Mira do?",), answers=("notary",))
OLD_VALUE = Fact(
    text="Ada lives in Rome.", slot=Slot(subject="Ada", relation="home"), valid_from="2020-01-01"
)
NEW_VALUE = Fact(
    text="Ada lives in Oslo.", slot=Slot(subject="Ada", relation="home"), valid_from="2024-01-01"
)
KNOWN = Fact(text="Paris is the capital of France.")
LEARNT = Fact(text="The badge of Tomas is 4711.")
STRANGE = Fact(text="\x1b[31mRed\x1b[0m \u202eevil, 中文, español ñ")
OTHERS = Fact(text="Their secret is safe.", namespace="others")
ALL = (NEW, OLD_VALUE, NEW_VALUE, KNOWN, LEARNT, STRANGE, OTHERS)


def decide(fact: Fact, action: RouteAction = RouteAction.WRITE_NEW) -> RouteDecision:
    return RouteDecision(
        fact_id=fact.id,
        action=action,
        stage=RouteStage.SMALL,
        p_non_write=0.1,
        p_write_new=0.8,
        p_write_update=0.1,
        expected_gain=0.75,
        storage_price=0.25,
        escalation_price=0.1,
        router_version="test",
        generation=0,
        reason=f"{action.value}: the small model is sure of it",
    )


@contextmanager
def writer(directory: Path) -> Iterator[ExternalMemory]:
    with ExternalMemory.open(directory, load_embedder("hashing"), writer=True) as memory:
        yield memory


def fill(directory: Path) -> None:
    """Make a store with a fact in every state but forgotten, and a generation that has learnt one."""
    with writer(directory) as memory:
        memory.observe(ALL, "morning")
        actions = {KNOWN.id: RouteAction.NON_WRITE}
        memory.route([decide(fact, actions.get(fact.id, RouteAction.WRITE_NEW)) for fact in ALL], "morning")
        number, folder = memory.generations.create_shadow(0, "base", [LEARNT.id])
        (folder / "adapter.bin").write_bytes(b"weights")
        memory.generations.seal(number, adapter_digest(folder), {"internalised_rate": 1.0})
        memory.promote(number, evict=[LEARNT.id], proven=[LEARNT.id], trained=[LEARNT.id], run_id="night")


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("filled") / "store"
    fill(directory)
    return directory


@pytest.fixture
def store(filled, tmp_path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "store"))


def whole_life(directory: Path) -> list[Any]:
    with open_ledger(directory) as ledger:
        return list(ledger.export())


# ------------------------------------------------------------------------------------------ status


def test_status_counts_and_weighs(store):
    status = data(run(store, "status", "--json"))
    assert status["counts"] == {
        "observed": 0,
        "known": 1,
        "hot": 4,
        "internalised": 1,
        "superseded": 1,
        "forgotten": 0,
    }
    assert status["observed"] == len(ALL)
    assert status["storage_ratio"] == pytest.approx(4 / len(ALL))
    assert status["current"]["number"] == 1
    assert [item["number"] for item in status["generations"]] == [0, 1]
    assert status["indexed"] == 4
    assert status["writer"] is None
    with ExternalMemory.open(store, load_embedder("hashing")) as memory:
        assert status["bytes"] == measure_bytes(memory)
    assert status["bytes"]["adapters"] == len(b"weights")


def test_status_of_one_namespace(store):
    status = data(run(store, "status", "--namespace", "others", "--json"))
    assert status["observed"] == 1


def test_status_page(store):
    page = run(store, "status").stdout
    assert re.search(r"internalised +1 +proven in the weights", page)
    assert re.search(r"1 \(current\) +promoted +kept +1 ", page)
    assert "7 facts, 57.1% of them stored" in page
    assert "index: 4 vectors" in page


def test_status_names_the_writer_and_works_beside_it(store):
    with writer(store) as memory:
        memory.observe([Fact(text="Just arriving.")], "now")
        status = data(run(store, "status", "--json"))
        page = run(store, "status").stdout
    assert re.match(r"process \d+ on ", status["writer"])
    assert status["counts"]["observed"] == 1
    assert "being written by process" in page
    assert data(run(store, "status", "--json"))["writer"] is None


def test_status_tells_a_running_consolidation_from_an_interrupted_one(store):
    plan = NightPlan(run_id="night-1", parent=1, base_fingerprint="base", targets=())
    NightFolder(store, "night-1").write(PLAN, plan)
    interrupted = run(store, "status")
    assert "interrupted consolidations: night-1" in interrupted.stderr
    with night_lease(store):
        running = run(store, "status")
    assert "a consolidation is running: night-1" in running.stdout
    assert running.stderr == ""


def test_status_survives_a_broken_index(store):
    (store / "index" / "chroma.sqlite3").write_bytes(b"no database")
    status = data(run(store, "status", "--json"))
    assert status["indexed"] is None
    assert status["bytes"]["vectors"] is None
    assert "unreadable just now" in run(store, "status").stdout


def test_status_changes_nothing(store):
    before = {
        path: path.read_bytes() for path in store.rglob("*") if path.is_file() and "-" not in path.suffix
    }
    read_status(store)
    assert {path: path.read_bytes() for path in before} == before


def test_status_and_history_load_no_model_and_no_index(store):
    code = (
        "import sys\n"
        "from sharpwave.cli.main import app\n"
        f"app(['status', '--store', {str(store)!r}], standalone_mode=False)\n"
        f"app(['history', {NEW.id!r}, '--store', {str(store)!r}], standalone_mode=False)\n"
        "heavy = {'torch', 'chromadb', 'transformers', 'prefect', 'mlflow'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, check=True)


# ----------------------------------------------------------------------------------------- history


def test_history_by_the_beginning_of_an_id(store):
    life = data(run(store, "history", LEARNT.id[:10].upper(), "--json"))
    assert life["fact"]["id"] == LEARNT.id
    kinds = [event["kind"] for event in life["events"]]
    assert kinds == ["observed", "routed", "stored", "trained", "proven", "evicted"]
    reasons = {event["kind"]: event["reason"] for event in life["events"]}
    assert reasons["routed"] == "write_new: the small model is sure of it"
    assert reasons["evicted"].startswith("generation 1: ")
    assert all(reasons.values())


def test_history_tells_a_repeat_from_the_first_time(store):
    with writer(store) as memory:
        memory.observe([NEW], "evening")
    events = data(run(store, "history", NEW.id, "--json"))["events"]
    reasons = [event["reason"] for event in events if event["kind"] == "observed"]
    assert reasons == ["recorded word for word", "it came again"]


def test_history_page(store):
    page = run(store, "history", OLD_VALUE.id).stdout
    assert page.startswith(f"{OLD_VALUE.id}  superseded\nAda lives in Rome.\n")
    assert re.search(rf"superseded +fact {NEW_VALUE.id[:12]} holds its slot from 2024-01-01 on", page)


def test_history_shows_foreign_text_harmlessly(store):
    page = run(store, "history", STRANGE.id).stdout
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "⟨U+001B⟩[31mRed" in page
    assert "中文, español ñ" in page


def test_an_ambiguous_beginning_lists_the_facts(store):
    with writer(store) as memory:
        memory.observe([Fact(text=f"Note {number}.") for number in range(10)], "more")
        everything = {fact.id for fact in memory.ledger.iter_facts()}
    shared = next(  # more than 16 facts, so two begin alike
        letter for letter in "0123456789abcdef" if sum(item.startswith(letter) for item in everything) > 1
    )
    result = run(store, "history", shared)
    assert result.exit_code == 1
    assert "several facts have an id that begins with" in result.stderr
    for fact_id in everything:
        assert (fact_id in result.stderr) is fact_id.startswith(shared)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("f" * 32, "no fact has an id that begins with"),
        ("%", "or holds these words"),
        ("_", "or holds these words"),
        ("  ", "or holds these words"),
    ],
)
def test_an_unknown_id_is_an_error(store, given, words):
    result = run(store, "history", given)
    assert result.exit_code == 1
    assert words in result.stderr


def test_history_by_words_of_the_text(store):
    assert OLD_VALUE.id in run(store, "history", "lives in rome").stdout
    several = run(store, "history", "Ada lives")
    assert several.exit_code == 1
    for fact in (OLD_VALUE, NEW_VALUE):
        assert f"{fact.id[:12]}  {fact.text}" in several.stderr
    hidden = run(store, "history", "secret", "--namespace", "default")
    assert "of namespace 'default'" in hidden.stderr


def test_a_namespace_limits_which_facts_are_found(store):
    assert run(store, "history", OTHERS.id, "--namespace", "others").exit_code == 0
    hidden = run(store, "history", OTHERS.id, "--namespace", "default")
    assert hidden.exit_code == 1
    assert "of namespace 'default'" in hidden.stderr


# ------------------------------------------------------------------------------------------ forget


def test_forget_asks_first(store):
    result = run(store, "forget", NEW.id[:12], input="n\n")
    assert result.exit_code == 1
    assert NEW.text in result.stderr
    assert "nothing was changed" in result.stderr
    assert data(run(store, "status", "--json"))["counts"]["forgotten"] == 0


def test_forget_leaves_the_words_in_no_file(store):
    target = FactTargets(
        fact_id=NEW.id,
        text=NEW.text,
        train_questions=NEW.questions,
        paraphrase="Her job?",
        answers=NEW.answers,
    )
    plan = NightPlan(run_id="night-1", parent=0, base_fingerprint="base", targets=(target,))
    NightFolder(store, "night-1").write(PLAN, plan)
    result = run(store, "forget", NEW.id[:12], input="y\n")
    assert result.exit_code == 0, result.output
    assert "1 of 1 fact forgotten" in result.stdout
    files = [path for path in store.rglob("*") if path.is_file()]
    assert [path for path in files if b"Solbakken" in path.read_bytes()] == []
    assert "only the tombstone is left" in run(store, "history", NEW.id).stdout
    assert "the others were before" in run(store, "forget", NEW.id, "--yes").stdout


def test_forget_says_when_the_weights_have_learnt_it(store):
    result = data(run(store, "forget", LEARNT.id, NEW.id, "--yes", "--json"))
    assert result == {"forgotten": 2, "ids": [LEARNT.id, NEW.id], "in_weights": [LEARNT.id]}


def test_forget_warns_of_the_weights(store):
    result = run(store, "forget", LEARNT.id, "--yes")
    assert "generation 1 and later were trained on 1 of them" in result.stderr


def test_forget_of_an_unknown_id_forgets_none(store):
    result = run(store, "forget", NEW.id, "f" * 32, "--yes")
    assert result.exit_code == 1
    assert data(run(store, "status", "--json"))["counts"]["forgotten"] == 0


# ------------------------------------------------------------------------------------------ doctor


def test_doctor_finds_and_mends(store):
    assert run(store, "doctor").exit_code == 0
    shutil.rmtree(store / "index")
    sick = run(store, "doctor")
    assert sick.exit_code == 1
    assert "fault   the index is missing" in sick.stdout
    assert "sharpwave doctor --repair" in sick.stdout
    mended = run(store, "doctor", "--repair")
    assert mended.exit_code == 0, mended.output
    assert "everything was mended" in mended.stdout
    report = data(run(store, "doctor", "--json"))
    assert report["clean"] is True
    assert data(run(store, "status", "--json"))["indexed"] == 4


def test_doctor_reembeds_for_another_embedder(store, tmp_path):
    other = ["--store", str(store), "--set", f"models.embedder={tmp_path / 'none'}"]
    assert runner.invoke(app, ["doctor", *other]).exit_code == 2
    result = run(store, "doctor", "--reembed")
    assert result.exit_code == 0, result.output
    assert "the store is sound" in run(store, "doctor").stdout


# ---------------------------------------------------------------------------------------- rollback


def test_rollback_goes_to_the_parent_and_forward_again(store):
    receipt = data(run(store, "rollback", "--json"))
    assert (receipt["from_number"], receipt["to_number"], receipt["readmitted"]) == (1, 0, 1)
    assert data(run(store, "status", "--json"))["indexed"] == 5
    again = run(store, "rollback")
    assert again.exit_code == 1
    assert "nothing before it" in again.stderr
    forward = run(store, "rollback", "1")
    assert forward.exit_code == 0
    assert "generation 1 is current now, before it was 0" in forward.stdout
    assert data(run(store, "status", "--json"))["indexed"] == 4


@pytest.mark.parametrize(
    ("number", "words"), [("1", "is current already"), ("7", "there is no generation 7")]
)
def test_rollback_refuses(store, number, words):
    result = run(store, "rollback", number)
    assert result.exit_code == 1
    assert words in result.stderr


def test_rollback_waits_for_no_running_consolidation(store):
    with night_lease(store):
        result = run(store, "rollback")
    assert result.exit_code == 1
    assert "another consolidation is running" in result.stderr
    assert data(run(store, "status", "--json"))["current"]["number"] == 1


def test_a_second_writer_is_told_who_writes(store):
    with writer(store):
        result = run(store, "rollback", "--set", "store.lock_timeout_seconds=0")
    assert result.exit_code == 1
    assert "is being written by process" in result.stderr


# ------------------------------------------------------------------------------- export and import


def test_a_round_trip_with_weights_is_equal(store, tmp_path):
    data(run(store, "forget", OLD_VALUE.id, "--yes", "--json"))
    file, copy = tmp_path / "out" / "memory.jsonl", tmp_path / "copy"
    assert data(run(store, "export", str(file), "--json")) == {"file": str(file), "facts": len(ALL)}
    receipt = data(run(copy, "import", str(file), "--weights", str(store), "--json"))
    assert receipt == {"read": len(ALL), "new": len(ALL), "same_weights": True, "generations": 1}
    assert whole_life(copy) == whole_life(store)
    with open_ledger(copy) as new, open_ledger(store) as old:
        theirs, ours = open_generations(copy, new), open_generations(store, old)
        assert theirs.get(1) == ours.get(1)
        assert theirs.current().number == 1
        assert theirs.adapter_folder(1) is not None
    assert run(copy, "doctor").exit_code == 0
    second = tmp_path / "second.jsonl"
    run(copy, "export", str(second))
    assert second.read_bytes().split(b"\n")[1:] == file.read_bytes().split(b"\n")[1:]


def test_without_weights_what_an_adapter_knew_becomes_hot(store, tmp_path):
    file, copy = tmp_path / "memory.jsonl", tmp_path / "copy"
    run(store, "export", str(file))
    result = run(copy, "import", str(file))
    assert result.exit_code == 0, result.output
    assert "what only they knew is hot here" in result.stderr
    counts = data(run(copy, "status", "--json"))["counts"]
    assert (counts["hot"], counts["internalised"], counts["known"]) == (5, 0, 1)
    assert run(copy, "doctor").exit_code == 0


def test_importing_twice_adds_nothing(store, tmp_path):
    file = tmp_path / "memory.jsonl"
    run(store, "export", str(file))
    before = whole_life(store)
    assert data(run(store, "import", str(file), "--json"))["new"] == 0
    assert whole_life(store) == before


def test_export_of_one_namespace_to_standard_output_and_back(store, tmp_path):
    exported = run(store, "export", "-", "--namespace", "others")
    lines = [json.loads(line) for line in exported.stdout_bytes.splitlines()]
    assert lines[0]["sharpwave_export"] == 1
    assert lines[0]["ledger_schema"] >= 1
    assert [line["fact"]["id"] for line in lines[1:-1]] == [OTHERS.id]
    assert lines[-1] == {"sharpwave_export_end": 1}
    result = run(tmp_path / "copy", "import", "-", "--json", input=exported.stdout_bytes)
    assert data(result)["new"] == 1


def test_export_replaces_no_file_unasked(store, tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("precious", encoding="utf-8")
    refused = run(store, "export", str(file))
    assert refused.exit_code == 2
    assert "--force replaces it" in refused.stderr
    assert file.read_text(encoding="utf-8") == "precious"
    assert run(store, "export", str(file), "--force").exit_code == 0
    assert file.read_bytes().startswith(b'{"sharpwave_export":1')
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".mine")] == []


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda lines: [b'{"text": "A fact."}'], "for a file of facts use `sharpwave ingest`"),
        (lambda lines: [], "it is empty"),
        (lambda lines: lines[:-1], "is cut short: it has 7 of an unknown number of facts"),
        (lambda lines: [*lines[:2], *lines[3:]], "is cut short: it has 6 of 7 facts"),
        (lambda lines: [*lines[:2], lines[2][:-20], *lines[3:]], "line 3: is no line of an export"),
        (
            lambda lines: [*lines[:2], lines[2].replace(b'"status"', b'"state"'), *lines[3:]],
            "line 3: damaged fact",
        ),
        (lambda lines: [lines[0].replace(b'_export":1', b'_export":99'), *lines[1:]], "this version reads 1"),
        (lambda lines: [lines[0].replace(b'"number":1', b'"number":"x"'), *lines[1:]], "damaged header"),
    ],
)
def test_a_damaged_export_is_refused_whole(store, tmp_path, damage, words):
    file, copy = tmp_path / "memory.jsonl", tmp_path / "copy"
    run(store, "export", str(file))
    lines = damage(file.read_bytes().splitlines())
    file.write_bytes(b"\n".join(lines))
    result = run(copy, "import", str(file))
    assert result.exit_code == 1, result.output
    assert words in result.stderr
    assert whole_life(copy) == []


def test_a_changed_adapter_is_not_taken_over(store, tmp_path):
    file, copy = tmp_path / "memory.jsonl", tmp_path / "copy"
    run(store, "export", str(file))
    next(store.glob("generations/*/adapter/adapter.bin")).write_bytes(b"poison")
    result = run(copy, "import", str(file), "--weights", str(store))
    assert result.exit_code == 1
    assert "was changed" in result.stderr
    assert whole_life(copy) == []
    assert list(copy.glob("generations/*")) == []


def test_ingesting_an_export_names_the_right_command(store, tmp_path):
    file = tmp_path / "memory.jsonl"
    run(store, "export", str(file))
    result = run(tmp_path / "copy", "ingest", str(file))
    assert result.exit_code == 1
    assert "use `sharpwave import`" in result.stderr
    assert not (tmp_path / "copy").exists()
