"""The doctor: every kind of damage is found, named with its remedy, and mended where it can be."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from carriers.doctor import DoctorReport, run_doctor
from carriers.embedder import HashingEmbedder
from carriers.external_memory import ExternalMemory
from carriers.generations import adapter_digest
from carriers.memory_index import MemoryIndex
from carriers.write_lock import WriteLock
from consolidation.night import night_lease
from sharpwave.errors import IntegrityError, StoreBusyError, StoreError
from sharpwave.records import Fact, GenerationStatus
from tests.decisions import given_decision

EMBEDDER = HashingEmbedder(64)


def badge(number: int) -> Fact:
    return Fact(text=f"The badge of worker {number} is {number * 7919}.")


def store(memory: ExternalMemory, facts: Sequence[Fact]) -> None:
    memory.observe(facts, "run")
    memory.route(
        [given_decision(fact.id) for fact in facts],
        "run",
    )


FACTS = [badge(number) for number in range(30)]
IDS = {fact.id for fact in FACTS}


@pytest.fixture
def directory(tmp_path) -> Path:
    """A sound store of thirty hot facts that nobody has open."""
    with ExternalMemory.open(tmp_path / "store", EMBEDDER, writer=True) as memory:
        store(memory, FACTS)
    return tmp_path / "store"


def hits(directory: Path, embedder: HashingEmbedder = EMBEDDER) -> list[list[tuple[str, float]]]:
    with ExternalMemory.open(directory, embedder) as memory:
        found = memory.query("default", [fact.text for fact in FACTS], 5)
    return [[(hit.fact_id, hit.similarity) for hit in answer] for answer in found]


def problems(report: DoctorReport) -> str:
    return "\n".join(map(str, report.findings))


def test_a_sound_store_is_clean_and_left_alone(directory):
    report = run_doctor(directory, EMBEDDER)
    assert report.clean
    assert report.findings == ()
    assert report.hot_facts == 30
    assert not report.repaired


def test_differences_between_the_stores_are_found_and_mended(directory):
    extra, stale, missing = badge(99), FACTS[3], FACTS[4]
    with MemoryIndex.open(directory / "index", EMBEDDER) as index:
        index.upsert([extra])
        index.delete([missing.id])
        with index._session(write=True) as collection:
            collection.update(ids=[stale.id], metadatas=[{"namespace": "other"}])
    report = run_doctor(directory, EMBEDDER, repair=True)
    assert report.missing_in_index == (missing.id,)
    assert report.extra_in_index == (extra.id,)
    assert report.stale_metadata == (stale.id,)
    assert not report.clean
    assert report.repaired
    assert report.remaining == ()
    assert problems(report).count("sharpwave doctor --repair") == 3
    assert "1 hot fact is not in the index" in problems(report)
    with MemoryIndex.open(directory / "index", EMBEDDER) as index:
        assert index.ids() == IDS
        assert index.entries([stale.id])[stale.id].namespace == "default"


def test_a_deleted_index_is_rebuilt_with_the_same_ids_and_hits(directory):
    before = hits(directory)
    shutil.rmtree(directory / "index")
    found = run_doctor(directory, EMBEDDER)
    assert "the index is missing" in problems(found)
    assert set(found.missing_in_index) == IDS
    assert not found.repaired
    assert run_doctor(directory, EMBEDDER, repair=True).repaired
    assert hits(directory) == before


@pytest.mark.parametrize("damage", ["database", "torn vectors", "lost vectors"])
def test_a_damaged_index_is_found_without_crashing_and_rebuilt(tmp_path, damage):
    facts = [badge(number) for number in range(1100)]  # above the 1000 at which Chroma writes vector files
    with ExternalMemory.open(tmp_path, EMBEDDER, writer=True) as memory:
        store(memory, facts)
    vector_folder = next(path for path in (tmp_path / "index").iterdir() if path.is_dir())
    if damage == "database":
        (tmp_path / "index" / "chroma.sqlite3").write_bytes(b"\x07" * 9000)
    elif damage == "torn vectors":
        content = (vector_folder / "data_level0.bin").read_bytes()
        (vector_folder / "data_level0.bin").write_bytes(content[:5000])
    else:
        shutil.rmtree(vector_folder)
    report = run_doctor(tmp_path, EMBEDDER, repair=True)
    assert "the index is damaged" in problems(report)
    assert report.repaired
    with ExternalMemory.open(tmp_path, EMBEDDER) as memory:
        assert memory.index.ids() == {fact.id for fact in facts}
        assert memory.query("default", [facts[5].text], 1)[0][0].fact_id == facts[5].id


def test_a_writer_killed_over_torn_files_is_noticed_when_the_index_is_next_used(tmp_path):
    with ExternalMemory.open(tmp_path, EMBEDDER, writer=True) as memory:
        store(memory, [badge(number) for number in range(1100)])
    vector_folder = next(path for path in (tmp_path / "index").iterdir() if path.is_dir())
    (vector_folder / "data_level0.bin").write_bytes(b"\x01" * 5000)
    (tmp_path / "index" / "revision").write_text("writing 0", encoding="utf-8")
    with pytest.raises(IntegrityError, match="doctor --repair"):
        ExternalMemory.open(tmp_path, EMBEDDER)


def test_a_killed_writer_with_sound_files_is_no_problem(directory):
    (directory / "index" / "revision").write_text("writing 0", encoding="utf-8")
    assert len(hits(directory)) == 30
    assert not (directory / "index" / "revision").read_text(encoding="utf-8").startswith("writing")


def test_another_embedder_is_reported_and_only_reembed_mends_it(directory):
    other = HashingEmbedder(32)
    report = run_doctor(directory, other, repair=True)
    assert "sharpwave doctor --reembed" in problems(report)
    assert not report.repaired
    assert hits(directory), "a repair does not touch the vectors"
    assert run_doctor(directory, other, reembed=True).repaired
    assert hits(directory, other)[0][0][0] == FACTS[0].id
    with pytest.raises(StoreError, match="--reembed"):
        hits(directory)


def test_reembed_of_a_sound_store_rebuilds_it_too(directory):
    revision = (directory / "index" / "revision").read_text(encoding="utf-8")
    assert run_doctor(directory, EMBEDDER, reembed=True).clean
    assert (directory / "index" / "revision").read_text(encoding="utf-8") != revision
    assert {answer[0][0] for answer in hits(directory)} == IDS


def test_an_undrained_outbox_is_reported_and_drained(directory):
    with ExternalMemory.open(directory, EMBEDDER, writer=True) as memory:
        memory.ledger.forget([FACTS[0].id])
    report = run_doctor(directory, EMBEDDER, repair=True)
    assert report.undrained
    assert report.extra_in_index == (FACTS[0].id,)
    assert report.repaired
    assert FACTS[0].text.encode() not in b"".join(
        path.read_bytes() for path in (directory / "index").rglob("*") if path.is_file()
    )


def test_the_write_back_of_a_running_night_is_left_alone(directory):
    with ExternalMemory.open(directory, EMBEDDER, writer=True) as memory:
        shadow = memory.generations.create_shadow(0, "base", [])
    with night_lease(directory):  # it trains for minutes without the write lock
        assert run_doctor(directory, EMBEDDER).clean
        run_doctor(directory, EMBEDDER, repair=True)
        with ExternalMemory.open(directory, EMBEDDER) as memory:
            assert memory.generations.get(shadow.number).status is GenerationStatus.SHADOW
        assert shadow.folder.exists()
    assert run_doctor(directory, EMBEDDER).interrupted_generations == (shadow.number,)


def test_interrupted_write_backs_and_orphan_folders_are_cleared_away(directory):
    with ExternalMemory.open(directory, EMBEDDER, writer=True) as memory:
        shadow = memory.generations.create_shadow(0, "base", [FACTS[0].id])
    orphan = directory / "generations" / "0077"
    orphan.mkdir()
    report = run_doctor(directory, EMBEDDER, repair=True)
    assert report.interrupted_generations == (shadow.number,)
    assert report.orphan_adapters == (str(orphan),)
    assert report.repaired
    assert not orphan.exists()
    assert not shadow.folder.exists()


def test_a_changed_adapter_is_reported_with_the_way_back(directory):
    with ExternalMemory.open(directory, EMBEDDER, writer=True) as memory:
        number, folder = memory.generations.create_shadow(0, "base", [FACTS[0].id])
        (folder / "adapter.bin").write_bytes(b"weights")
        memory.generations.seal(number, adapter_digest(folder), {})
        memory.promote(number, evict=[], proven=[], trained=[FACTS[0].id], run_id="night")
    (folder / "adapter.bin").write_bytes(b"other weights")
    report = run_doctor(directory, EMBEDDER, repair=True)
    assert report.adapter_problem
    assert "sharpwave rollback 0" in problems(report)
    assert not report.repaired
    assert [finding.remedy for finding in report.remaining] == ["run `sharpwave rollback 0`"]


def test_facts_waiting_for_their_route_are_a_notice_and_no_fault(directory):
    with ExternalMemory.open(directory, EMBEDDER, writer=True) as memory:
        memory.observe([badge(77)], "run")
    report = run_doctor(directory, EMBEDDER)
    assert report.unrouted == (badge(77).id,)
    assert "1 fact is recorded but not routed yet" in problems(report)
    assert report.clean


def test_a_damaged_ledger_is_reported(directory):
    with sqlite3.connect(directory / "ledger.db") as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("DELETE FROM facts WHERE id = ?", (FACTS[0].id,))
    connection.close()
    report = run_doctor(directory, EMBEDDER)
    assert "the ledger is damaged" in problems(report)
    assert not report.clean


def test_looking_needs_no_lock_but_says_who_writes_and_repairing_does(directory):
    with WriteLock(directory):
        report = run_doctor(directory, EMBEDDER)
        assert report.clean
        assert "was writing meanwhile" in problems(report)
        with pytest.raises(StoreBusyError):
            run_doctor(directory, EMBEDDER, repair=True, lock_timeout_seconds=0.1)


def test_no_store_is_an_error_and_nothing_is_created(tmp_path):
    with pytest.raises(StoreError, match="no ledger"):
        run_doctor(tmp_path / "nowhere", EMBEDDER)
    assert not (tmp_path / "nowhere").exists()


def test_an_open_store_can_be_examined_and_the_report_is_plain_data(directory):
    with ExternalMemory.open(directory, EMBEDDER, writer=True) as memory:
        memory.index.delete([FACTS[0].id])
        report = memory.doctor(repair=True)
        assert report.repaired
        assert memory.index.ids() == IDS
        plain = report.to_dict()
    assert plain["missing_in_index"] == (FACTS[0].id,)
    assert plain["clean"] is False
    assert plain["findings"][0]["remedy"] == "run `sharpwave doctor --repair`"
