"""The write path over real SQLite and Chroma: order, crashes, stale hits, second processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from carriers.doctor import run_doctor
from carriers.embedder import HashingEmbedder
from carriers.external_memory import ExternalMemory
from carriers.generations import adapter_digest
from carriers.memory_index import MemoryIndex
from carriers.write_lock import WriteLock
from sharpwave.errors import StoreBusyError, StoreError
from sharpwave.records import Fact, FactStatus, RouteAction, RouteDecision, Slot, utc_now
from tests.decisions import given_decision

EMBEDDER = HashingEmbedder(64)


def decide(fact: Fact, action: RouteAction = RouteAction.WRITE_NEW) -> RouteDecision:
    return given_decision(fact.id, action)


def store(memory: ExternalMemory, facts: Sequence[Fact], run_id: str = "run") -> None:
    memory.observe(facts, run_id)
    memory.route([decide(fact) for fact in facts], run_id)


def badge(number: int, **fields) -> Fact:
    return Fact(text=f"The badge of worker {number} is {number * 7919}.", **fields)


def open_writer(directory: Path, **options) -> ExternalMemory:
    return ExternalMemory.open(directory, EMBEDDER, writer=True, **options)


@pytest.fixture
def memory(tmp_path):
    with open_writer(tmp_path / "store") as opened:
        yield opened


def found_ids(memory: ExternalMemory, question: str, top_k: int = 3, namespace: str = "default") -> list[str]:
    return [hit.fact_id for hit in memory.query(namespace, [question], top_k)[0]]


def test_a_new_store_is_empty_and_answers_with_nothing(memory):
    assert memory.query("default", ["Who?", "What?"], 3) == [[], []]
    assert memory.query("default", [], 3) == []


def test_only_admitted_facts_reach_the_index(memory):
    hot, known, waiting = badge(1), badge(2), badge(3)
    memory.observe([hot, known, waiting], "run")
    assert memory.index.count() == 0
    memory.route([decide(hot), decide(known, RouteAction.NON_WRITE)], "run")
    assert memory.index.ids() == {hot.id}
    assert found_ids(memory, "badge of worker") == [hot.id]
    assert memory.ledger.outbox() == []


def test_the_newer_value_of_a_slot_replaces_the_older_in_the_index(memory):
    slot = Slot(subject="Ana", relation="employer")
    older = Fact(text="Ana works at Acme.", slot=slot, valid_from="2010")
    newer = Fact(text="Ana works at Bolt.", slot=slot, valid_from="2015")
    store(memory, [newer])
    store(memory, [older])
    assert memory.index.ids() == {newer.id}
    assert memory.ledger.fact(older.id).status is FactStatus.SUPERSEDED


def test_a_repeated_call_changes_nothing(memory):
    facts = [badge(number, observed_at="2024-05-01") for number in range(5)]
    store(memory, facts)
    store(memory, facts)
    assert memory.index.ids() == {fact.id for fact in facts}
    assert memory.ledger.counts()[FactStatus.HOT] == 5


def test_forgotten_words_leave_every_file(memory):
    secret = Fact(text="The vault code is XYZZYPLUGH.", questions=("XYZZYPLUGH?",), answers=("XYZZYPLUGH",))
    store(memory, [secret, *(badge(number) for number in range(30))])
    assert memory.forget([secret.id]) == 1
    assert secret.id not in found_ids(memory, secret.text, 50)
    assert len(found_ids(memory, secret.text, 50)) == 30
    files = [path for path in memory.directory.rglob("*") if path.is_file()]
    assert len(files) > 3
    assert [path.name for path in files if b"XYZZYPLUGH" in path.read_bytes()] == []


def test_promotion_and_rollback_move_facts_out_of_and_into_the_index(memory):
    learnt, kept = badge(1), badge(2)
    store(memory, [learnt, kept])
    number, folder = memory.generations.create_shadow(0, "base", [learnt.id])
    (folder / "adapter.bin").write_bytes(b"weights")
    memory.generations.seal(number, adapter_digest(folder), {"internalised": 1.0})
    receipt = memory.promote(
        number, evict=[learnt.id], proven=[learnt.id], trained=[learnt.id], run_id="night"
    )
    assert receipt.evicted == 1
    assert memory.index.ids() == {kept.id}
    memory.rollback(0, "undo")
    assert memory.index.ids() == {learnt.id, kept.id}
    memory.rollback(number, "redo")
    assert memory.index.ids() == {kept.id}
    assert memory.doctor().clean


def test_export_and_restore_fill_the_index_of_another_store(memory, tmp_path):
    facts = [badge(number) for number in range(10)]
    store(memory, facts)
    with open_writer(tmp_path / "copy") as copy:
        assert copy.restore(memory.ledger.export(), same_weights=False) == 10
        assert copy.index.ids() == {fact.id for fact in facts}


class TestCrashes:
    def test_what_was_committed_but_not_indexed_is_drained_at_the_next_opening(self, tmp_path):
        facts = [badge(number) for number in range(700)]
        with open_writer(tmp_path) as memory:
            store(memory, facts[:2])
            # as if killed right after the ledger's commit
            memory.ledger.observe(facts, "run")
            memory.ledger.apply_routes([decide(fact) for fact in facts], "run")
            memory.ledger.forget([facts[0].id])
        with open_writer(tmp_path) as memory:
            assert memory.ledger.outbox() == []
            assert memory.index.ids() == {fact.id for fact in facts[1:]}

    def test_rows_that_were_carried_out_but_not_struck_off_do_no_harm(self, memory):
        fact = badge(1)
        store(memory, [fact])
        memory.ledger.forget([fact.id])
        rows = memory.ledger.outbox()
        memory.index.delete([fact.id])
        assert memory.drain_outbox() == len(rows) > 0
        assert memory.index.count() == 0

    def test_a_kill_in_the_middle_of_writing_loses_and_doubles_nothing(self, tmp_path):
        code = (
            "import sys; sys.path.insert(0, sys.argv[2]);"
            "from pathlib import Path; from test_external_memory import *;"
            "memory = open_writer(Path(sys.argv[1]));"
            "print('ready', flush=True);"
            "[store(memory, [badge(n) for n in range(s, s + 40)], f'run-{s}') for s in range(0, 100_000, 40)]"
        )
        directory = tmp_path / "store"
        for delay in (0.1, 0.7):
            command = [sys.executable, "-c", code, str(directory), str(Path(__file__).parent)]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
                assert child.stdout.readline() == "ready\n"
                time.sleep(delay)
                child.send_signal(signal.SIGKILL)
            with open_writer(directory) as memory:
                hot = {fact.id for fact in memory.ledger.iter_facts(status=FactStatus.HOT)}
                assert memory.index.ids() == hot
        assert hot
        assert run_doctor(directory, EMBEDDER).clean

    @pytest.mark.parametrize("writer", [True, False])
    def test_a_missing_index_is_never_answered_from(self, tmp_path, writer):
        with open_writer(tmp_path) as memory:
            store(memory, [badge(1)])
        shutil.rmtree(tmp_path / "index")
        with pytest.raises(StoreError, match="doctor --repair"):
            ExternalMemory.open(tmp_path, EMBEDDER, writer=writer)
        assert not (tmp_path / "index").exists()

    def test_an_index_emptied_under_an_open_reader_is_noticed(self, memory):
        store(memory, [badge(1)])
        with ExternalMemory.open(memory.directory, EMBEDDER) as reader:
            memory.index.reset()
            with pytest.raises(StoreError, match=r"empty .* doctor --repair"):
                reader.query("default", ["Who?"], 1)

    def test_an_empty_index_is_refused_at_opening(self, tmp_path):
        with open_writer(tmp_path) as memory:
            store(memory, [badge(1)])
            memory.index.reset()
        with pytest.raises(StoreError, match="doctor --repair"):
            open_writer(tmp_path)
        with WriteLock(tmp_path, 0):
            pass  # the failed opening gave the lock back


class TestStaleHits:
    def test_facts_that_left_the_store_are_skipped_and_the_search_widened(self, memory):
        gone = [Fact(text=f"Zoe's parrot is Kiwi, note {n}.") for n in range(20)]
        kept = [badge(number) for number in range(5)]
        store(memory, [*gone, *kept])
        # forgotten in the ledger, not yet in the index: what a reader sees in the middle of a write
        memory.ledger.forget([fact.id for fact in gone])
        with ExternalMemory.open(memory.directory, EMBEDDER) as reader:
            assert set(found_ids(reader, "Zoe's parrot is Kiwi", 5)) == {fact.id for fact in kept}
            assert reader.index.count() == 25

    def test_a_lone_index_row_of_another_namespace_is_not_returned(self, memory):
        mine, foreign = badge(1), badge(2, namespace="other")
        store(memory, [mine, foreign])
        assert found_ids(memory, foreign.text, 10) == [mine.id]
        assert found_ids(memory, foreign.text, 10, namespace="other") == [foreign.id]

    def test_validity_is_asked_of_the_index(self, memory):
        ended = badge(1, valid_from="2010", valid_to=utc_now() - timedelta(days=1))
        store(memory, [ended, badge(2)])
        assert found_ids(memory, ended.text, 10) == [badge(2).id]
        then = memory.query("default", [ended.text], 10, as_of=utc_now() - timedelta(days=100))
        assert [hit.fact_id for hit in then[0]] == [ended.id]


class TestOneWriter:
    def test_a_reader_needs_no_lock_and_cannot_write(self, memory):
        store(memory, [badge(1)])
        with ExternalMemory.open(memory.directory, EMBEDDER) as reader:
            assert not reader.is_writer
            assert found_ids(reader, badge(1).text) == [badge(1).id]
            store(memory, [badge(2)])
            assert set(found_ids(reader, "badge")) == {badge(1).id, badge(2).id}
            for change in (
                lambda: reader.observe([badge(3)], "run"),
                lambda: reader.forget([badge(1).id]),
                lambda: reader.drain_outbox(),
                lambda: reader.doctor(repair=True),
            ):
                with pytest.raises(StoreError, match="for reading"):
                    change()

    def test_a_reader_of_no_store_is_told_so_and_creates_nothing(self, tmp_path):
        with pytest.raises(StoreError, match="no ledger"):
            ExternalMemory.open(tmp_path / "nowhere", EMBEDDER)
        assert not (tmp_path / "nowhere").exists()

    def test_a_second_writer_learns_who_holds_the_store(self, memory):
        with pytest.raises(StoreBusyError, match=f"process {os.getpid()} on .* since"):
            open_writer(memory.directory, lock_timeout_seconds=0.1)
        holder = json.loads((memory.directory / "write.lock").read_text(encoding="utf-8"))
        assert holder["command"]

    def test_a_waiting_writer_gets_the_store_when_it_is_free(self, tmp_path):
        code = (
            "import sys, time; from pathlib import Path; from carriers.write_lock import WriteLock;"
            "lock = WriteLock(Path(sys.argv[1])).acquire(); print('held', flush=True);"
            "time.sleep(1); lock.release()"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-c", code, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
            assert child.stdout.readline() == "held\n"
            with pytest.raises(StoreBusyError, match=f"process {child.pid} on"):
                open_writer(tmp_path, lock_timeout_seconds=0)
            with open_writer(tmp_path, lock_timeout_seconds=20) as memory:
                assert memory.is_writer

    def test_a_killed_holder_blocks_nobody(self, tmp_path):
        code = (
            "import sys, time; from pathlib import Path; from carriers.write_lock import WriteLock;"
            "lock = WriteLock(Path(sys.argv[1])).acquire(); print('held', flush=True); time.sleep(60)"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-c", code, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
            assert child.stdout.readline() == "held\n"
            child.kill()
        with open_writer(tmp_path, lock_timeout_seconds=1) as memory:
            assert memory.is_writer

    def test_another_embedder_is_refused_and_the_lock_given_back(self, tmp_path):
        with open_writer(tmp_path) as memory:
            store(memory, [badge(1)])
        with pytest.raises(StoreError, match="doctor --reembed"):
            ExternalMemory.open(tmp_path, HashingEmbedder(32), writer=True)
        with open_writer(tmp_path, lock_timeout_seconds=0) as memory:
            assert found_ids(memory, badge(1).text) == [badge(1).id]


def test_reading_goes_on_while_another_process_writes(tmp_path):
    with open_writer(tmp_path) as memory:
        store(memory, [badge(number) for number in range(10_000, 10_020)])
    code = (
        "import sys; sys.path.insert(0, sys.argv[2]);"
        "from pathlib import Path; from test_external_memory import *;"
        "memory = open_writer(Path(sys.argv[1]));"
        "[store(memory, [badge(n) for n in range(s, s + 50)], f'run-{s}') for s in range(0, 600, 50)];"
        "memory.close()"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(tmp_path), str(Path(__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with ExternalMemory.open(tmp_path, EMBEDDER) as reader:
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as child:
            rounds = 0
            while child.poll() is None:
                assert found_ids(reader, badge(10_007).text, 1) == [badge(10_007).id]
                rounds += 1
            assert child.returncode == 0, child.stderr.read()
        assert rounds > 5
        assert found_ids(reader, badge(567).text, 1) == [badge(567).id]


def test_the_index_is_closed_with_the_store(memory):
    index: MemoryIndex = memory.index
    memory.close()
    memory.close()
    with pytest.raises(StoreError, match="closed"):
        index.count()
    with pytest.raises(StoreError, match="for reading"):
        memory.observe([badge(1)], "run")
