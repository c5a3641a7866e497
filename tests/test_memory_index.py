"""The vector index on real Chroma: namespaces, time, restarts, other processes, damage."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from carriers.embedder import HashingEmbedder
from carriers.memory_index import MemoryIndex
from sharpwave.errors import IntegrityError, StoreError
from sharpwave.records import Fact, utc_now

EMBEDDER = HashingEmbedder(64)


def badge(number: int, namespace: str = "default", **fields) -> Fact:
    return Fact(text=f"The badge of worker {number} is {number * 7919}.", namespace=namespace, **fields)


@pytest.fixture
def index(tmp_path):
    with MemoryIndex.open(tmp_path / "index", EMBEDDER) as opened:
        yield opened


def found_ids(index: MemoryIndex, question: str, top_k: int = 3, **options) -> list[str]:
    namespace = options.pop("namespace", "default")
    return [hit.fact_id for hit in index.query(namespace, [question], top_k, **options)[0]]


def test_an_empty_index_answers_with_nothing(index):
    assert index.query("default", ["Anything?", "More?"], 5) == [[], []]
    assert index.query("default", [], 5) == []
    assert index.count() == 0
    assert index.ids() == set()
    assert index.vector_bytes() == 0


def test_finds_the_nearest_fact_with_text_and_similarity(index):
    facts = [badge(number) for number in range(20)]
    index.upsert(facts)
    hits = index.query("default", [facts[7].text, "Unrelated zebra?"], 3)
    assert [len(found) for found in hits] == [3, 3]
    assert hits[0][0].fact_id == facts[7].id
    assert hits[0][0].text == facts[7].text
    assert hits[0][0].similarity == pytest.approx(1.0, abs=1e-4)
    assert hits[0][0].similarity >= hits[0][1].similarity >= hits[0][2].similarity
    assert index.vector_bytes() == 20 * 64 * 4


def test_an_upsert_twice_keeps_one_row_and_the_newest_metadata(index):
    fact = badge(1)
    index.upsert([fact, fact])
    index.upsert([fact])
    assert index.count() == 1
    ended = fact.model_copy(update={"valid_to": utc_now() - timedelta(days=1)})
    assert ended.id != fact.id, "an end that the user gives is part of the identity"
    index.upsert([ended])
    assert found_ids(index, fact.text) == [fact.id]


def test_delete_takes_out_and_ignores_what_is_not_there(index):
    facts = [badge(number) for number in range(5)]
    index.upsert(facts)
    index.delete([facts[0].id, facts[0].id, "0" * 32])
    index.delete([facts[0].id])
    assert index.ids() == {fact.id for fact in facts[1:]}


def test_namespaces_never_mix_even_when_the_other_one_is_nearer(index):
    strangers = [Fact(text=f"Zoe's parrot is Kiwi, note {n}.", namespace="other") for n in range(60)]
    mine = Fact(text="A distant sentence about trains.", namespace="mine")
    index.upsert([*strangers, mine])
    for top_k in (1, 3, 100):
        assert found_ids(index, "Zoe's parrot is Kiwi", top_k, namespace="mine") == [mine.id]
    assert found_ids(index, "Zoe's parrot", 100, namespace="nobody") == []
    assert len(found_ids(index, "Zoe's parrot", 100, namespace="other")) == 60


@pytest.mark.parametrize("namespace", ["ünïcødé 名前", "a/b'c\"d$", "x" * 500])
def test_any_string_can_be_a_namespace(index, namespace):
    fact = badge(1, namespace)
    index.upsert([fact, badge(1)])
    assert found_ids(index, fact.text, namespace=namespace) == [fact.id]


def test_only_what_holds_at_the_moment_is_found(index):
    past = Fact(text="Ana works at Acme.", valid_from="2010", valid_to="2015")
    present = Fact(text="Ana works at Bolt.", valid_from="2015")
    future = Fact(text="Ana works at Core.", valid_from=utc_now() + timedelta(days=30))
    crowd = [Fact(text=f"Ana works at Acme, {n}.", valid_from="2010", valid_to="2015") for n in range(60)]
    index.upsert([past, present, future, *crowd])
    assert found_ids(index, "Where does Ana work?") == [present.id]
    in_2012 = found_ids(index, "Where does Ana work?", 100, as_of=datetime(2012, 1, 1, tzinfo=UTC))
    assert set(in_2012) == {past.id, *(fact.id for fact in crowd)}
    start = datetime(2015, 1, 1, tzinfo=UTC)
    assert found_ids(index, "Ana", 100, as_of=start) == [present.id], (
        "begins at its start, ends before its end"
    )


def test_many_hits_can_be_asked_for(index):
    facts = [badge(number) for number in range(300)]
    index.upsert(facts)
    assert set(found_ids(index, "Which badge?", 10_000)) == {fact.id for fact in facts}
    assert found_ids(index, "Which badge?", 0) == []


@pytest.mark.parametrize("count", [999, 1000, 1001])
def test_a_restart_around_the_sync_threshold_loses_nothing(tmp_path, count):
    facts = [badge(number) for number in range(count)]
    with MemoryIndex.open(tmp_path / "index", EMBEDDER) as index:
        index.upsert(facts)
        index.delete([facts[0].id])
    with MemoryIndex.open(tmp_path / "index", EMBEDDER) as index:
        assert index.ids() == {fact.id for fact in facts[1:]}
        sample = facts[1 :: max(count // 50, 1)]
        hits = index.query("default", [fact.text for fact in sample], 1)
        assert [found[0].fact_id for found in hits] == [fact.id for fact in sample]
        index.upsert([facts[0]])
        assert found_ids(index, facts[0].text, 1) == [facts[0].id]


def test_handles_on_one_folder_are_independent(tmp_path):
    first = MemoryIndex.open(tmp_path / "index", EMBEDDER)
    second = MemoryIndex.open(tmp_path / "index", EMBEDDER)
    first.upsert([badge(1)])
    first.close()
    first.close()
    assert found_ids(second, badge(1).text) == [badge(1).id]
    with pytest.raises(StoreError, match="closed"):
        first.count()
    second.close()


def test_the_folder_can_be_deleted_and_built_again_in_one_process(tmp_path):
    folder = tmp_path / "index"
    index = MemoryIndex.open(folder, EMBEDDER)
    index.upsert([badge(1), badge(2)])
    shutil.rmtree(folder)
    with pytest.raises(StoreError, match="doctor --repair"):
        index.count()
    index.close()
    with MemoryIndex.open(folder, EMBEDDER) as again:
        assert again.count() == 0
        again.upsert([badge(3)])
        assert found_ids(again, badge(3).text) == [badge(3).id]


def test_reset_empties_and_the_index_goes_on(index):
    index.upsert([badge(1)])
    index.reset()
    assert index.count() == 0
    index.upsert([badge(2)])
    assert index.ids() == {badge(2).id}


def test_another_embedder_is_refused_by_name_of_the_cure(tmp_path):
    with MemoryIndex.open(tmp_path / "index", EMBEDDER) as index:
        index.upsert([badge(1)])
        with pytest.raises(StoreError, match="sharpwave doctor --reembed"):
            MemoryIndex.open(tmp_path / "index", HashingEmbedder(32))
        with MemoryIndex.create(tmp_path / "index", HashingEmbedder(32)) as anew:
            anew.upsert([badge(2)])
        with pytest.raises(StoreError, match="sharpwave doctor --reembed"):
            index.query("default", ["Who?"], 1)


def test_deleted_words_leave_the_disk_with_compact(index):
    secret = Fact(text="The vault code is XYZZYPLUGH.")
    kept = [badge(number) for number in range(1200)]
    index.upsert([secret, *kept])
    index.delete([secret.id])
    index.compact()
    files = [path for path in index.path.parent.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"XYZZYPLUGH" in path.read_bytes()]
    assert index.ids() == {fact.id for fact in kept}
    assert found_ids(index, kept[600].text, 1) == [kept[600].id]
    assert [path.name for path in index.path.parent.iterdir() if path.is_dir()] == ["index"]


def test_vector_files_hold_no_leftovers_of_the_process_memory(index):
    """Chroma reserves room for 100 vectors and would write it out as malloc gave it."""
    index.upsert([badge(number) for number in range(5)])
    index.query("default", ["Who?"], 1)
    file = next(index.path.glob("*/data_level0.bin"))
    assert file.stat().st_size > 10_000
    assert not any(file.read_bytes())
    with MemoryIndex.open(index.path, EMBEDDER) as again:
        assert found_ids(again, badge(3).text, 1) == [badge(3).id]


def test_a_compaction_killed_between_the_renames_is_undone(tmp_path):
    with MemoryIndex.open(tmp_path / "index", EMBEDDER) as index:
        index.upsert([badge(1)])
    (tmp_path / "index").rename(tmp_path / "index.old")
    with MemoryIndex.open(tmp_path / "index", EMBEDDER) as index:
        assert index.ids() == {badge(1).id}
    assert not (tmp_path / "index.old").exists()


@pytest.mark.parametrize("damage", ["garbage", "truncated"])
def test_a_damaged_database_is_reported_and_can_be_replaced(tmp_path, damage):
    folder = tmp_path / "index"
    with MemoryIndex.open(folder, EMBEDDER) as index:
        index.upsert([badge(number) for number in range(50)])
    file = folder / "chroma.sqlite3"
    content = file.read_bytes()
    file.write_bytes(b"\x07" * 5000 if damage == "garbage" else content[: len(content) // 3])
    with pytest.raises(IntegrityError, match="doctor --repair"), MemoryIndex.open(folder, EMBEDDER) as index:
        index.query("default", ["Who?"], 1)
    with MemoryIndex.create(folder, EMBEDDER) as index:
        index.upsert([badge(1)])
        assert found_ids(index, badge(1).text) == [badge(1).id]


def test_threads_share_one_index(index):
    batches = [[badge(100 * part + number) for number in range(20)] for part in range(6)]

    def work(batch: list[Fact]) -> list[str]:
        index.upsert(batch)
        return [found_ids(index, fact.text, 1)[0] for fact in batch]

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(work, batches))
    assert results == [[fact.id for fact in batch] for batch in batches]
    assert index.count() == 120


WRITER = """
import sys
from pathlib import Path
from carriers.embedder import HashingEmbedder
from carriers.memory_index import MemoryIndex
from sharpwave.records import Fact

with MemoryIndex.open(Path(sys.argv[1]), HashingEmbedder(64)) as index:
    for start in range(int(sys.argv[2]), int(sys.argv[3]), 300):
        stop = min(start + 300, int(sys.argv[3]))
        index.upsert([Fact(text=f"The badge of worker {n} is {n * 7919}.") for n in range(start, stop)])
"""


def write_elsewhere(folder: Path, start: int, stop: int) -> None:
    command = [sys.executable, "-W", "error", "-c", WRITER, str(folder), str(start), str(stop)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ})
    assert done.stdout == ""
    assert done.stderr == "", "telemetry and log noise"


def test_what_another_process_wrote_is_found_and_not_undone(index):
    """A client that stays open neither misses newer vectors nor destroys them by its own next write."""
    index.upsert([badge(number) for number in range(10)])
    write_elsewhere(index.path, 10, 1210)
    assert index.count() == 1210
    assert found_ids(index, badge(900).text, 1) == [badge(900).id]
    index.upsert([badge(number) for number in range(1210, 1300)])
    write_elsewhere(index.path, 1300, 1310)
    for number in (0, 500, 1209, 1299, 1305):
        assert found_ids(index, badge(number).text, 1) == [badge(number).id]
