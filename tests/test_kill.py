"""A kill at any moment: the crash test in a short form, and proof that its checks see what they are there to see."""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from carriers.adapter_files import adapter_digest
from carriers.embedder import HashingEmbedder
from carriers.external_memory import ExternalMemory
from sharpwave.records import Fact, FactStatus, Slot
from sharpwave.settings import PROJECT_ROOT, load_settings
from tests.decisions import given_decision

BENCHMARKS = PROJECT_ROOT / "benchmarks"
EMBEDDER = HashingEmbedder(64)
PLACE = Slot(subject="Mira", relation="city")
FACTS = [
    Fact(text="Mira lives in Graz.", slot=PLACE, questions=("Where does Mira live?",), answers=("Graz",)),
    Fact(text="Mira lives in Linz.", slot=PLACE, questions=("Where does Mira live?",), answers=("Linz",)),
    Fact(text="The mill burnt down."),
]
LINES = Counter(fact.id for fact in FACTS)


@pytest.fixture(scope="module")
def checks() -> ModuleType:
    """The module of checks; benchmarks are scripts and no package."""
    spec = importlib.util.spec_from_file_location("store_checks", BENCHMARKS / "store_checks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["store_checks"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def store(tmp_path) -> Path:
    """A store with three facts, one of them superseded and one in the weights of generation 1."""
    with ExternalMemory.open(tmp_path / "store", EMBEDDER, writer=True) as memory:
        memory.observe(FACTS, "run")
        memory.route([given_decision(fact.id) for fact in FACTS], "run")
        number, folder = memory.generations.create_shadow(0, "base", [FACTS[2].id])
        (folder / "adapter.bin").write_bytes(b"weights")
        memory.generations.seal(number, adapter_digest(folder), {})
        learnt = [FACTS[2].id]
        memory.promote(number, evict=learnt, proven=learnt, trained=learnt, run_id="night")
        assert memory.ledger.counts()[FactStatus.INTERNALISED] == 1
    return tmp_path / "store"


def spoil(store: Path, *statements: str) -> None:
    """Change a ledger in a way that its own code never would."""
    with closing(sqlite3.connect(store / "ledger.db")) as database, database:
        for trigger in ("update", "delete"):
            database.execute(f"DROP TRIGGER IF EXISTS events_refuse_{trigger}")
        for statement in statements:
            database.execute(statement)


def test_a_sound_store_passes_every_check(checks, store):
    picture = checks.look_after_kill(store)
    assert picture.having("internalised") == {FACTS[2].id}
    assert picture == checks.look(store)
    assert checks.find_lost(picture, picture) == []
    assert checks.find_doubled(picture, LINES, ["run"]) == []
    assert checks.find_incomplete(picture, FACTS) == []
    assert checks.find_bad_generation(store, picture) == []
    assert checks.find_index_difference(picture, {FACTS[1].id}) == []


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        ("DELETE FROM facts WHERE id = '{0}'", "gone"),
        ("UPDATE facts SET text = 'Mira lives in Wels.' WHERE id = '{0}'", "other words"),
        ("UPDATE facts SET answers = '[]' WHERE id = '{0}'", "other words"),
        ("DELETE FROM events WHERE fact_id = '{0}' AND kind = 'stored'", "journal"),
    ],
)
def test_what_is_lost_is_found(checks, store, damage, word):
    before = checks.look_after_kill(store)
    spoil(store, damage.format(FACTS[1].id))
    (problem,) = checks.find_lost(before, checks.look_after_kill(store))
    assert word in problem


@pytest.mark.parametrize("kind", ["observed", "stored", "trained", "evicted"])
def test_what_is_doubled_is_found(checks, store, kind):
    copy = (
        "INSERT INTO events (fact_id, kind, at, run_id, payload, generation) SELECT fact_id, kind, at, run_id, "
        f"payload, generation FROM events WHERE kind = '{kind}' ORDER BY seq DESC LIMIT 1"
    )
    spoil(store, copy)
    assert checks.find_doubled(checks.look_after_kill(store), LINES)


def test_a_state_that_the_events_do_not_tell_is_found(checks, store):
    spoil(store, f"UPDATE states SET status = 'known' WHERE fact_id = '{FACTS[1].id}'")
    assert checks.find_broken_lives(checks.look_after_kill(store)) == [
        f"fact {FACTS[1].id} is known; its events say hot"
    ]


def test_an_unfinished_file_is_found(checks, store):
    picture = checks.look_after_kill(store)
    more = Fact(text="The mill was built again.")
    assert f"fact {more.id} of the file is not there" in checks.find_incomplete(picture, [*FACTS, more])
    assert checks.find_doubled(picture, LINES + Counter([more.id]), ["run"])
    assert "is in no file" in checks.find_incomplete(picture, FACTS[:2])[0]
    assert (
        len(checks.find_incomplete(picture, [FACTS[1], FACTS[0], FACTS[2]])) == 2
    )  # the other value is current


def test_a_damaged_generation_and_index_are_found(checks, store):
    picture = checks.look_after_kill(store)
    spoil(store, f"UPDATE states SET proven_generation = 7 WHERE fact_id = '{FACTS[2].id}'")
    assert "outside the lineage" in checks.find_bad_generation(store, checks.look_after_kill(store))[0]
    (store / "generations" / "0001" / "adapter" / "adapter.bin").write_bytes(b"other")
    assert "digest" in checks.find_bad_generation(store, picture)[0]
    spoil(store, "DELETE FROM generations")
    assert "no record" in checks.find_bad_generation(store, checks.look_after_kill(store))[0]
    assert len(checks.find_index_difference(picture, {FACTS[0].id})) == 2


@pytest.mark.models
def test_a_run_started_again_observes_and_stores_nothing_twice(tmp_path, checks, embedded_models):
    from serving.ingestion import decisions_path, ingest_file

    settings = load_settings(
        "embedded", [f"store.path={tmp_path / 'store'}", f"runs_dir={tmp_path / 'runs'}"]
    )
    rows = [
        {"text": fact.text, "subject": "Mira" if fact.slot else "mill", "relation": "state"}
        for fact in [*FACTS, FACTS[0]]  # the first value of the slot comes back
    ]
    file = tmp_path / "facts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    ingest_file(settings, file, "run")
    before = checks.look_after_kill(tmp_path / "store")
    decisions = decisions_path(settings, "run")
    with decisions.open("a", encoding="utf-8") as stream:
        stream.write('{"fact_id": "cut off by a ki')
    again = ingest_file(settings, file, "run")
    assert checks.look_after_kill(tmp_path / "store") == before
    assert again.new == 0
    ids = [json.loads(line)["fact_id"] for line in decisions.read_text(encoding="utf-8").splitlines()]
    assert set(ids) == set(before.words)


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_nothing_is_lost_when_processes_are_killed(tmp_path, embedded_models):
    command = [
        sys.executable,
        str(BENCHMARKS / "kill_test.py"),
        "--kills",
        "2",
        "--lines",
        "40",
        "--seed",
        "1",
    ]
    environment = os.environ | {"SHARPWAVE_HOME": str(embedded_models["large"].parents[1])}
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "kills.json"), "--store", str(tmp_path / "work")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    figures = json.loads((tmp_path / "kills.json").read_text(encoding="utf-8"))
    assert figures["by_phase"] == {"ingest": 1, "consolidate": 1}
    assert figures["violations"] == []
    assert figures["nights"].get("promoted") or figures["nights"].get("discarded")
