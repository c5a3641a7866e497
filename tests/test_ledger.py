"""The ledger: what was said stays, what changes is derived, and a kill or a crowd does no harm."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_mock_engine, text
from sqlalchemy.exc import DBAPIError

from carriers.ledger import Ledger
from carriers.ledger_database import database_url
from carriers.ledger_schema import create_tables
from sharpwave.errors import IntegrityError, StoreBusyError, StoreError
from sharpwave.records import EventKind, Fact, FactStatus, RouteAction, RouteDecision, RouteStage, Slot

START = datetime(2020, 1, 1, tzinfo=UTC)
ROOT = Path(__file__).parents[1]


def fact(words, day=0, **fields) -> Fact:
    return Fact(text=words, observed_at=START + timedelta(days=day), **fields)


def decision(item, action=RouteAction.WRITE_NEW, stage=RouteStage.SMALL, reason="because") -> RouteDecision:
    return RouteDecision(
        fact_id=item.id,
        action=action,
        stage=stage,
        p_non_write=0.2,
        p_write_new=0.5,
        p_write_update=0.3,
        expected_gain=0.4,
        storage_price=0.1,
        escalation_price=0.1,
        router_version="test",
        generation=0,
        reason=reason,
    )


def tell(ledger, *items, action=RouteAction.WRITE_NEW, run="run"):
    ledger.observe(items, run)
    ledger.apply_routes([decision(item, action) for item in items], run)


def kinds(ledger, item):
    return [event.kind for event in ledger.history(item.id)]


def drain(ledger):
    rows = ledger.outbox()
    ledger.clear_outbox(rows)
    return [(row.op, row.fact_id) for row in rows]


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "ledger.db") as opened:
        yield opened


RICH = Fact(
    text="Ana's cat is\u00a0called “Mío”\n— 猫 \x00 ok",
    namespace="agent 7",
    slot=Slot(subject="Ana", relation="pet"),
    questions=("What is Ana's cat called?", "¿Cómo se llama el gato?"),
    answers=("Mío", "Mio"),
    valid_from="1999",
    valid_to="2031-05-01T12:00:00.000001+02:00",
    observed_at="2024-02-29T23:59:59.999999Z",
    source="chat 1",
    metadata={"turn": 3, "sure": True, "weight": 0.5, "who": "Ana"},
)


def test_a_fact_comes_back_word_for_word(ledger):
    [seen] = ledger.observe([RICH], "run")
    assert (seen.fact_id, seen.is_new, seen.status) == (RICH.id, True, FactStatus.OBSERVED)
    stored = ledger.fact(RICH.id)
    assert stored.fact == RICH
    assert stored.id == stored.fact.id
    assert ledger.fact("0" * 32) is None
    assert ledger.history("0" * 32) == []


def test_routing_stores_or_trusts_the_model(ledger):
    new, known = fact("new"), fact("known")
    ledger.observe([new, known], "run")
    assert ledger.unfinished() == [new.id, known.id]
    ledger.apply_routes([decision(new), decision(known, RouteAction.NON_WRITE)], "run")
    assert ledger.unfinished() == []
    assert ledger.fact(new.id).status is FactStatus.HOT
    assert ledger.fact(known.id).status is FactStatus.KNOWN
    assert kinds(ledger, new) == [EventKind.OBSERVED, EventKind.ROUTED, EventKind.STORED]
    assert kinds(ledger, known) == [EventKind.OBSERVED, EventKind.ROUTED]
    assert drain(ledger) == [("upsert", new.id)]
    assert ledger.fact(new.id).last_decision == decision(new)


def test_a_repeat_is_counted_and_changes_nothing_else(ledger):
    first = fact("a", questions=("Q?",), answers=("A",))
    tell(ledger, first)
    drain(ledger)
    again = fact("a", day=3, questions=("Other?",), answers=("B",))
    assert again.id == first.id
    [seen] = ledger.observe([again], "run 2")
    assert (seen.is_new, seen.needs_routing) == (False, False)
    ledger.apply_routes([decision(again, RouteAction.NON_WRITE, RouteStage.REPEAT)], "run 2")
    stored = ledger.fact(first.id)
    assert (stored.fact, stored.status, stored.observed_count) == (first, FactStatus.HOT, 2)
    assert stored.last_action is RouteAction.WRITE_NEW
    assert kinds(ledger, first)[3:] == [EventKind.OBSERVED, EventKind.ROUTED]
    assert drain(ledger) == []


def test_ten_thousand_duplicates_make_one_fact(ledger):
    items = [fact("again", day=number / 1000) for number in range(10_000)]
    seen = ledger.observe(items, "run")
    assert [observation.is_new for observation in seen] == [True] + [False] * 9_999
    assert sum(ledger.counts().values()) == 1
    assert ledger.fact(items[0].id).observed_count == 10_000


@pytest.mark.parametrize("repeats", [2, 3])
def test_the_same_calls_in_the_same_run_double_nothing(ledger, repeats):
    slot = Slot(subject="Ana", relation="city")
    items = [
        fact("Rome", 1, slot=slot),
        fact("Oslo", 2, slot=slot),
        fact("Rome", 3, slot=slot),
        fact("note", 4),
    ]
    decisions = [decision(item) for item in items]
    ledger.observe(items, "run")
    ledger.apply_routes(decisions, "run")
    before = list(ledger.export()), ledger.outbox()
    for _ in range(repeats):
        assert not any(seen.is_new for seen in ledger.observe(items, "run"))
        ledger.apply_routes(decisions, "run")
        assert (list(ledger.export()), ledger.outbox()) == before


def test_a_later_route_may_store_but_never_takes_out_of_the_store(ledger):
    stored, known = fact("stored"), fact("known")
    tell(ledger, stored)
    tell(ledger, known, action=RouteAction.NON_WRITE)
    ledger.apply_routes([decision(stored, RouteAction.NON_WRITE), decision(known)], "run 2")
    assert [s.status for s in ledger.facts([stored.id, known.id])] == [FactStatus.HOT, FactStatus.HOT]


def test_unknown_ids_are_refused_and_nothing_of_the_batch_stays(ledger):
    item = fact("a")
    ledger.observe([item], "run")
    with pytest.raises(StoreError, match="no fact"):
        ledger.apply_routes([decision(item), decision(fact("never observed"))], "run")
    assert ledger.unfinished() == [item.id]
    with pytest.raises(StoreError, match="no fact"):
        ledger.forget([item.id, "0" * 32])
    assert ledger.fact(item.id).fact == item


def test_events_can_be_neither_changed_nor_deleted(ledger, tmp_path):
    tell(ledger, fact("a"))
    for statement in (
        "UPDATE events SET run_id = 'forged'",
        "DELETE FROM events",
        "INSERT OR REPLACE INTO events (seq, fact_id, kind, at, run_id, payload) "
        "SELECT seq, fact_id, 'forgotten', at, run_id, payload FROM events LIMIT 1",
    ):
        with pytest.raises(DBAPIError, match="append-only"), ledger.transaction() as connection:
            connection.execute(text(statement))
    raw = sqlite3.connect(tmp_path / "ledger.db")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        raw.execute("DELETE FROM events")
    raw.close()
    assert len(ledger.history(fact("a").id)) == 3


def test_the_journal_carries_no_words(ledger):
    item = fact("Zanzibarine", slot=Slot(subject="Quokkafox", relation="Wobbleplum"), answers=("Xylograph",))
    ledger.observe([item], "run")
    ledger.apply_routes([decision(item, reason="the model did not say Xylograph")], "run")
    with ledger.reading() as connection:
        journal = str(connection.execute(text("SELECT * FROM events")).all())
    for word in ("Zanzibarine", "Quokkafox", "Wobbleplum", "Xylograph"):
        assert word.casefold() not in journal.casefold()


def test_forgetting_leaves_a_tombstone_and_no_words_on_disk(ledger, tmp_path):
    secret = fact(
        "Zanzibarine secret",
        slot=Slot(subject="Quokkafox", relation="wobbleplum"),
        questions=("Which xylograph?",),
        answers=("Yttermount",),
        source="Kraterfile",
        metadata={"who": "Jubilant"},
    )
    words = [
        b"Zanzibarine",
        b"okkafox",
        b"obbleplum",
        b"xylograph",
        b"Yttermount",
        b"Kraterfile",
        b"Jubilant",
    ]
    ledger.observe([secret], "run")
    ledger.apply_routes([decision(secret, reason="Yttermount was not said")], "run")
    drain(ledger)

    def on_disk():
        content = b"".join(path.read_bytes() for path in tmp_path.glob("ledger.db*"))
        return [word for word in words if word in content]

    assert on_disk() == words
    assert ledger.forget([secret.id]) == 1
    assert on_disk() == []
    tombstone = ledger.fact(secret.id)
    assert (tombstone.status, tombstone.words, tombstone.last_decision) == (FactStatus.FORGOTTEN, None, None)
    with pytest.raises(StoreError, match="forgotten"):
        _ = tombstone.fact
    assert kinds(ledger, secret)[-1] is EventKind.FORGOTTEN
    assert drain(ledger) == [("delete", secret.id)]
    assert list(ledger.iter_facts()) == []
    assert [s.id for s in ledger.iter_facts(status=FactStatus.FORGOTTEN)] == [secret.id]
    assert ledger.forget([secret.id]) == 0


def test_a_forgotten_fact_comes_back_only_by_a_new_observation(ledger):
    item = fact("a")
    tell(ledger, item)
    ledger.forget([item.id])
    tell(ledger, item)
    assert ledger.fact(item.id).status is FactStatus.FORGOTTEN, "the same run again is not a new observation"
    ledger.apply_routes([decision(item)], "late decision")
    assert ledger.fact(item.id).status is FactStatus.FORGOTTEN
    tell(ledger, fact("a", day=5), run="run 2")
    assert ledger.fact(item.id).status is FactStatus.HOT
    assert ledger.fact(item.id).fact.text == "a"


def test_facts_stream_in_order_of_arrival_whatever_the_page(ledger):
    items = [fact(f"fact {number}", namespace="ab"[number % 2]) for number in range(25)]
    tell(ledger, *items)
    ledger.forget([items[4].id])
    expected = [item.id for item in items if item is not items[4]]
    for size in (1, 7, 24, 25, 500):
        assert [s.id for s in ledger.iter_facts(page_size=size)] == expected
    assert [s.id for s in ledger.iter_facts("b", FactStatus.HOT, page_size=3)] == [
        item.id for item in items[1::2]
    ]
    assert ledger.counts("a") == {**dict.fromkeys(FactStatus, 0), FactStatus.HOT: 12, FactStatus.FORGOTTEN: 1}
    asked = [items[9].id, "0" * 32, items[2].id]
    assert [s.id for s in ledger.facts(asked)] == [items[9].id, items[2].id]


def test_batches_longer_than_one_statement_may_hold(ledger):
    items = [fact(f"fact {number}") for number in range(1_203)]
    tell(ledger, *items)
    assert len(ledger.facts([item.id for item in items])) == 1_203
    rows = ledger.outbox(5_000)
    assert len(rows) == 1_203
    ledger.clear_outbox(rows)
    assert ledger.outbox() == []
    assert ledger.forget([item.id for item in items]) == 1_203


def test_one_fact_costs_the_same_in_a_large_ledger(ledger):
    def steps(item) -> int:
        counted = 0

        def progress() -> int:
            nonlocal counted
            counted += 1
            return 0

        with ledger.transaction() as connection:
            connection.connection.dbapi_connection.set_progress_handler(progress, 20)
            tell(ledger, item)
            ledger.forget([item.id])
            connection.connection.dbapi_connection.set_progress_handler(None, 0)
        return counted

    few = steps(fact("early"))
    tell(
        ledger,
        *(fact(f"fact {number}", slot=Slot(subject=str(number), relation="x")) for number in range(400)),
    )
    assert steps(fact("late")) < 2 * few + 20


def test_outer_transaction_is_all_or_nothing(ledger):
    def write_and_fail():
        with ledger.transaction():
            tell(ledger, fact("a"))
            assert ledger.counts()[FactStatus.HOT] == 1, "inside, one sees what one wrote"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert sum(ledger.counts().values()) == 0
    assert ledger.outbox() == []


def test_one_reads_while_another_writes(ledger, tmp_path):
    tell(ledger, fact("a"))
    with Ledger.open(tmp_path / "ledger.db", lock_timeout_seconds=0.2) as other:
        with ledger.transaction():
            tell(ledger, fact("b"))
            assert other.counts()[FactStatus.HOT] == 1, "only what was committed is seen"
            with pytest.raises(StoreBusyError, match="try again later"):
                other.observe([fact("c")], "run")
        assert other.counts()[FactStatus.HOT] == 2
        other.observe([fact("c")], "run")


def test_a_reader_keeps_one_view_while_a_writer_goes_on(ledger, tmp_path):
    tell(ledger, *(fact(f"fact {number}") for number in range(600)))
    with Ledger.open(tmp_path / "ledger.db") as reader:
        lives = reader.export()
        seen = [next(lives)]
        tell(ledger, fact("later"))
        seen += lives
    assert len(seen) == 600


def test_threads_share_one_ledger_without_losing_facts(ledger):
    def work(name):
        for number in range(8):
            tell(ledger, fact(f"{name} {number}"), run=name)

    threads = [threading.Thread(target=work, args=(f"thread {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.counts()[FactStatus.HOT] == 32
    assert len({s.seq for s in ledger.iter_facts()}) == 32


def test_opening_says_what_is_wrong(tmp_path):
    with pytest.raises(StoreError, match="no ledger"):
        Ledger.open(tmp_path / "missing.db", create=False)
    assert not (tmp_path / "missing.db").exists()
    (tmp_path / "text.db").write_text("this is no database, however long it may be" * 50, encoding="utf-8")
    with pytest.raises(IntegrityError, match="damaged"):
        Ledger.open(tmp_path / "text.db")
    raw = sqlite3.connect(tmp_path / "other.db")
    raw.execute("CREATE TABLE recipes (name TEXT)")
    raw.close()
    with pytest.raises(StoreError, match="recipes"):
        Ledger.open(tmp_path / "other.db")
    with pytest.raises(StoreError, match="memory"):
        Ledger.open("sqlite://")
    with pytest.raises(StoreError, match="cannot be opened"):
        Ledger.open(tmp_path)


def test_another_schema_version_is_refused(tmp_path):
    Ledger.open(tmp_path / "ledger.db").close()
    raw = sqlite3.connect(tmp_path / "ledger.db")
    raw.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    raw.commit()
    raw.close()
    with pytest.raises(StoreError, match="schema version 99") as caught:
        Ledger.open(tmp_path / "ledger.db")
    assert "sharpwave export" in str(caught.value)


def test_a_ledger_opens_by_path_or_url(tmp_path):
    item = fact("a")
    with Ledger.open(tmp_path / "deep" / "ledger.db") as ledger:
        tell(ledger, item)
    with Ledger.open(f"sqlite:///{tmp_path}/deep/ledger.db", create=False) as ledger:
        assert ledger.fact(item.id).fact == item
        with ledger.reading() as connection:
            pragmas = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("journal_mode", "busy_timeout", "foreign_keys", "secure_delete")
            }
    assert pragmas == {"journal_mode": "wal", "busy_timeout": 10_000, "foreign_keys": 1, "secure_delete": 1}


def test_the_schema_compiles_for_postgres():
    statements = []
    engine = create_mock_engine("postgresql+psycopg://", lambda sql, *_, **__: statements.append(str(sql)))
    engine.exec_driver_sql = statements.append
    create_tables(engine)
    assert any("BEFORE UPDATE OR DELETE OR TRUNCATE ON events" in statement for statement in statements)
    assert database_url("postgresql+psycopg://me:pw@host/db").get_backend_name() == "postgresql"


_ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["observe", "route", "forget"]),
        st.integers(0, 5),
        st.integers(0, 20),
        st.sampled_from(list(RouteAction)),
    ),
    max_size=25,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=_ACTIONS)
def test_invariants_hold_after_any_story(ledger, actions):
    """Intents replayed give exactly the hot facts; a slot has at most one live value; nothing vanishes."""
    slots = [Slot(subject="Ana", relation="city"), Slot(subject="Bo", relation="city"), None]
    told = set()
    for step, (verb, name, day, action) in enumerate(actions):
        item = fact(f"fact {name}", day, slot=slots[name % 3])
        if verb == "observe":
            ledger.observe([item], f"run {step}")
            told.add(item.id)
        elif verb == "route":
            waiting = [s.fact for s in ledger.facts(ledger.unfinished())]
            ledger.apply_routes([decision(each, action) for each in waiting], f"run {step}")
        elif item.id in told:
            ledger.forget([item.id])
    index = set()
    for row in ledger.outbox(10_000):
        (index.add if row.op == "upsert" else index.discard)(row.fact_id)
    assert index == {s.id for s in ledger.iter_facts(status=FactStatus.HOT)}
    live = [s.slot_number for s in ledger.iter_facts() if s.is_live and s.slot_number is not None]
    assert len(live) == len(set(live))
    lives = list(ledger.export())
    assert told <= {life.stored.id for life in lives}
    for life in lives:
        assert sum(e.kind is EventKind.OBSERVED for e in life.events) == life.stored.observed_count
        assert [e.seq for e in life.events] == sorted({e.seq for e in life.events})


_WRITER = """
    import sys
    from datetime import UTC, datetime, timedelta
    from carriers.ledger import Ledger
    from sharpwave.records import Fact, RouteAction, RouteDecision, RouteStage, Slot

    ledger = Ledger.open(sys.argv[1])
    print("open", flush=True)
    for number in range(30):
        slot = Slot(subject=str(number % 7), relation="x")
        moment = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=number)
        item = Fact(text=f"fact {number}", slot=slot, observed_at=moment)
        ledger.observe([item], "run")
        waiting = ledger.unfinished()
        ledger.apply_routes(
            [
                RouteDecision(
                    fact_id=fact_id, action=RouteAction.WRITE_NEW, stage=RouteStage.SMALL, p_non_write=0,
                    p_write_new=1, p_write_update=0, expected_gain=1, storage_price=0, escalation_price=0,
                    router_version="t", generation=0, reason="",
                )
                for fact_id in waiting
            ],
            "run",
        )
    print("done", flush=True)
"""


def test_kills_while_writing_lose_and_double_nothing(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(_WRITER)]
    with Ledger.open(tmp_path / "whole.db") as whole:
        subprocess.run(
            [*command, str(tmp_path / "whole.db")], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
        )
        expected = [(s.id, s.status, s.valid_to, s.superseded_by) for s in whole.iter_facts()]
    assert len(expected) == 30
    killed = 0
    for attempt in range(6):
        child = subprocess.Popen([*command, str(tmp_path / "killed.db")], cwd=ROOT, stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"open\n"
        time.sleep(0.01 * (attempt + 1))
        child.send_signal(signal.SIGKILL)
        killed += child.wait() == -signal.SIGKILL
        child.stdout.close()
        with Ledger.open(tmp_path / "killed.db") as ledger:
            assert ledger.counts()[FactStatus.OBSERVED] <= 1
    assert killed >= 2
    subprocess.run([*command, str(tmp_path / "killed.db")], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    with Ledger.open(tmp_path / "killed.db") as ledger:
        assert [(s.id, s.status, s.valid_to, s.superseded_by) for s in ledger.iter_facts()] == expected
        assert all(s.observed_count == 1 for s in ledger.iter_facts())
        assert ledger.unfinished() == []
        raw = sqlite3.connect(tmp_path / "killed.db")
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
        raw.close()
