"""Generations: shadows, promotion in one step, rollback and forward again."""

from __future__ import annotations

import multiprocessing
import os
import signal

import pytest
from pydantic import ValidationError
from sqlalchemy import event

from carriers.generations import GenerationStore, adapter_digest
from carriers.ledger import Ledger
from sharpwave.errors import IntegrityError, StoreError
from sharpwave.records import (
    EventKind,
    FactStatus,
    GenerationStatus,
    RouteAction,
)
from tests.generation_steps import CITY, decision, fact, learn, shadow, statuses, tell


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "ledger.db") as opened:
        yield opened


@pytest.fixture
def store(ledger, tmp_path):
    return GenerationStore(ledger, tmp_path / "generations")


def drain(ledger):
    rows = ledger.outbox()
    ledger.clear_outbox(rows)
    return [(row.op, row.fact_id) for row in rows]


def test_the_base_model_is_current_at_first(store):
    base = store.current()
    assert (base.number, base.parent, base.status) == (0, None, GenerationStatus.PROMOTED)
    assert store.all() == [base] == [store.get(0)]
    assert store.lineage() == [0]
    assert store.adapter_folder(0) is None


def test_promotion_moves_pointer_facts_and_index_together(ledger, store):
    a, b, c = tell(ledger, fact("a"), fact("b"), fact("c"))
    [known] = tell(ledger, fact("known"), action=RouteAction.NON_WRITE)
    drain(ledger)
    number = shadow(store, [a, b, c])
    receipt = store.promote(
        number, evict=[a], proven=[a, b], trained=[a, b, c], damaged=[known], readmit=[known], run_id="sleep"
    )
    assert receipt.model_dump() == {
        "number": 1, "parent": 0, "trained": 3, "proven": 2, "evicted": 1, "damaged": 1, "readmitted": 1,
        "overridden": 0, "kept": 0, "skipped": (),
    }  # fmt: skip
    with pytest.raises(ValidationError):
        receipt.evicted = 9
    assert store.current().number == 1
    assert store.current().status is GenerationStatus.PROMOTED
    assert store.current().trained_fact_ids == (a, b, c)
    assert statuses(ledger, [a, b, c, known]) == [
        FactStatus.INTERNALISED, FactStatus.HOT, FactStatus.HOT, FactStatus.HOT,
    ]  # fmt: skip
    assert sorted(drain(ledger)) == sorted([("delete", a), ("upsert", known)])
    assert [e.kind for e in ledger.history(a)][3:] == [EventKind.TRAINED, EventKind.PROVEN, EventKind.EVICTED]
    assert [e.kind for e in ledger.history(known)][2:] == [EventKind.DAMAGED, EventKind.READMITTED]
    assert ledger.fact(a).proven_generation == ledger.fact(c).trained_generation == 1


def test_the_same_promotion_again_changes_nothing(ledger, store):
    ids = tell(ledger, fact("a"), fact("b"))
    number = shadow(store, ids)
    arguments = {"evict": ids, "proven": ids, "trained": ids}
    first = store.promote(number, **arguments, run_id="sleep")
    before = list(ledger.export()), ledger.outbox()
    assert store.promote(number, **arguments, run_id="sleep") == first
    assert (list(ledger.export()), ledger.outbox()) == before
    with pytest.raises(StoreError, match="only a shadow"):
        store.promote(number, **arguments, run_id="another run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"proven": []}, "not proven"),
        ({"readmit": ["a"]}, "not damaged"),
        ({"damaged": ["a"]}, "both proven and damaged"),
    ],
)
def test_contradictory_promotions_are_refused(ledger, store, change, message):
    [a] = tell(ledger, fact("a"))
    arguments = {"evict": [a], "proven": [a], "trained": [a], "damaged": [], "readmit": []}
    arguments |= {name: [a] * len(ids) for name, ids in change.items()}
    number = shadow(store)
    with pytest.raises(ValueError, match=message):
        store.promote(number, **arguments, run_id="sleep")
    assert store.current().number == 0
    assert statuses(ledger, [a]) == [FactStatus.HOT]


def test_facts_that_changed_meanwhile_are_skipped_not_evicted(ledger, store):
    rome, oslo = fact("Rome", 1, CITY), fact("Oslo", 5, CITY)
    a, b = tell(ledger, rome, fact("b"))
    number = shadow(store, [a, b])
    tell(ledger, oslo)
    ledger.forget([b])
    receipt = store.promote(number, evict=[a, b], proven=[a, b], trained=[a, b], run_id="sleep")
    assert (receipt.evicted, receipt.skipped) == (0, (a, b))
    assert statuses(ledger, [a, b, oslo.id]) == [FactStatus.SUPERSEDED, FactStatus.FORGOTTEN, FactStatus.HOT]


def test_an_unknown_id_undoes_the_whole_promotion(ledger, store):
    [a] = tell(ledger, fact("a"))
    number = shadow(store)
    before = list(ledger.export())
    with pytest.raises(StoreError, match="no fact"):
        store.promote(number, evict=[a, "f" * 32], proven=[a, "f" * 32], trained=[a], run_id="sleep")
    assert list(ledger.export()) == before
    assert (store.current().number, store.get(number).status) == (0, GenerationStatus.SHADOW)


def test_unsealed_and_damaged_shadows_are_refused(ledger, store):
    number, folder = store.create_shadow(0, "base-1", [])
    with pytest.raises(IntegrityError, match="never sealed"):
        store.promote(number, evict=[], proven=[], trained=[], run_id="sleep")
    with pytest.raises(IntegrityError, match="no adapter files"):
        store.seal(number, "0" * 64, {})
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(b"weights")
    with pytest.raises(IntegrityError, match="was changed"):
        store.seal(number, "0" * 64, {})
    store.seal(number, adapter_digest(folder), {})
    assert store.adapter_folder(number) == folder
    weights.write_bytes(b"weightz")
    with pytest.raises(IntegrityError, match="sharpwave rollback 0"):
        store.promote(number, evict=[], proven=[], trained=[], run_id="sleep")
    assert store.current().number == 0
    weights.rename(folder / "adapter_model.bin")
    with pytest.raises(IntegrityError):
        store.adapter_folder(number)


def test_shadows_build_only_on_the_current_generation_and_base(ledger, store):
    first, second = shadow(store), shadow(store)
    store.promote(first, evict=[], proven=[], trained=[], run_id="sleep")
    with pytest.raises(StoreError, match="not current any more"):
        store.promote(second, evict=[], proven=[], trained=[], run_id="sleep2")
    with pytest.raises(StoreError, match="not current"):
        store.create_shadow(0, "base-1", [])
    with pytest.raises(StoreError, match="sharpwave rollback 0"):
        store.create_shadow(first, "base-2", [])


def test_interrupted_shadows_are_discarded_and_their_numbers_not_used_again(store, tmp_path):
    first, folder = store.create_shadow(0, "base-1", [])
    (folder / "half").write_bytes(b"half")
    assert store.discard_interrupted() == [first]
    assert store.discard_interrupted() == []
    assert (store.get(first).status, store.get(first).reason) == (GenerationStatus.DISCARDED, "interrupted")
    assert not folder.exists()
    stray = tmp_path / "generations" / "0007"
    stray.mkdir()
    assert store.orphan_folders() == [stray]
    assert store.create_shadow(0, "base-1", []).number == 8


def test_a_promoted_generation_cannot_be_discarded(ledger, store):
    number = learn(store, tell(ledger, fact("a")))
    for bad in (number, 0):
        with pytest.raises(StoreError, match="only a shadow"):
            store.discard(bad, "no")
    assert store.adapter_folder(number) is not None
    with pytest.raises(StoreError, match="no generation 99"):
        store.get(99)


def test_rollback_restores_what_only_later_generations_knew(ledger, store):
    a, b, c = tell(ledger, fact("a"), fact("b"), fact("c"))
    learn(store, [a])
    learn(store, [b])
    [judged] = tell(ledger, fact("judged by 2"), action=RouteAction.NON_WRITE, generation=2)
    [always] = tell(ledger, fact("judged by 0"), action=RouteAction.NON_WRITE, generation=0)
    drain(ledger)
    receipt = store.rollback(1, "back")
    assert (receipt.readmitted, receipt.left, receipt.entered) == (2, (2,), ())
    assert statuses(ledger, [a, b, c, judged, always]) == [
        FactStatus.INTERNALISED, FactStatus.HOT, FactStatus.HOT, FactStatus.HOT, FactStatus.KNOWN,
    ]  # fmt: skip
    assert sorted(drain(ledger)) == sorted([("upsert", b), ("upsert", judged)])
    assert [g.status for g in store.all()] == [
        GenerationStatus.PROMOTED, GenerationStatus.PROMOTED, GenerationStatus.ROLLED_BACK,
    ]  # fmt: skip
    assert store.rollback(1, "back").readmitted == 0
    assert drain(ledger) == []


def test_forward_again_after_a_rollback(ledger, store):
    a, b, c, d = tell(ledger, fact("a"), fact("b"), fact("c"), fact("d"))
    learn(store, [a])
    learn(store, [b, c], damaged=[a])
    store.rollback(0, "back")
    assert statuses(ledger, [a, b, c, d]) == [FactStatus.HOT] * 4
    ledger.forget([c])
    drain(ledger)
    receipt = store.rollback(2, "forward")
    assert (receipt.entered, receipt.internalised, receipt.readmitted) == ((1, 2), 2, 1)
    assert statuses(ledger, [a, b, c, d]) == [
        FactStatus.HOT, FactStatus.INTERNALISED, FactStatus.FORGOTTEN, FactStatus.HOT,
    ]  # fmt: skip
    assert ("delete", b) in drain(ledger)
    assert store.lineage() == [0, 1, 2]
    assert {g.status for g in store.all()} == {GenerationStatus.PROMOTED}


def test_rollback_knows_the_lineage(ledger, store):
    a, b = tell(ledger, fact("a"), fact("b"))
    learn(store, [a])
    store.rollback(0, "back")
    learn(store, [b])
    assert store.lineage() == [0, 2]
    receipt = store.rollback(1, "over")
    assert (receipt.left, receipt.entered) == ((2,), (1,))
    assert statuses(ledger, [a, b]) == [FactStatus.INTERNALISED, FactStatus.HOT]


def test_a_fact_proven_twice_survives_the_rollback_to_its_first_proof(ledger, store):
    a, b = tell(ledger, fact("a"), fact("b"))
    learn(store, [a])
    number = shadow(store)
    store.promote(number, evict=[b], proven=[a, b], trained=[b], run_id="sleep2")
    store.rollback(1, "back")
    assert statuses(ledger, [a, b]) == [FactStatus.INTERNALISED, FactStatus.HOT]


def test_rollback_goes_only_to_promoted_generations(ledger, store):
    number = shadow(store)
    with pytest.raises(StoreError, match="never promoted"):
        store.rollback(number, "back")
    store.discard(number, "gate")
    with pytest.raises(StoreError, match="never promoted"):
        store.rollback(number, "back")


def test_rollback_to_a_damaged_adapter_changes_nothing(ledger, store):
    [a] = tell(ledger, fact("a"))
    learn(store, [a])
    store.rollback(0, "back")
    (store.directory / "0001" / "adapter" / "adapter_model.safetensors").write_bytes(b"?")
    with pytest.raises(IntegrityError):
        store.rollback(1, "forward")
    assert (store.current().number, statuses(ledger, [a])) == (0, [FactStatus.HOT])


def test_a_known_newcomer_is_stored_while_the_weights_hold_an_older_value(ledger, store):
    rome, oslo, bern = fact("Rome", 1, CITY), fact("Oslo", 5, CITY), fact("Bern", 9, CITY)
    learn(store, tell(ledger, rome))
    tell(ledger, oslo, action=RouteAction.NON_WRITE, generation=1)
    assert statuses(ledger, [rome.id, oslo.id]) == [FactStatus.SUPERSEDED, FactStatus.HOT]
    assert ledger.fact(oslo.id).last_action is RouteAction.NON_WRITE
    assert [e.payload for e in ledger.history(oslo.id) if e.kind is EventKind.STORED] == [
        {"reason": "override"}
    ]
    # The older value is two steps back by now, but the weights still hold it.
    tell(ledger, bern, action=RouteAction.NON_WRITE, generation=1)
    assert statuses(ledger, [oslo.id, bern.id]) == [FactStatus.SUPERSEDED, FactStatus.HOT]
    learn(store, [bern.id])
    assert statuses(ledger, [bern.id]) == [FactStatus.INTERNALISED]


def test_no_override_once_the_weights_hold_the_value_itself(ledger, store):
    rome, oslo = fact("Rome", 1, CITY), fact("Oslo", 5, CITY)
    learn(store, tell(ledger, rome))
    tell(ledger, oslo)
    tell(ledger, fact("Rome", 9, CITY), action=RouteAction.NON_WRITE, generation=1)
    assert statuses(ledger, [rome.id, oslo.id]) == [FactStatus.KNOWN, FactStatus.SUPERSEDED]


def test_no_override_by_weights_that_were_rolled_back(ledger, store):
    rome, oslo = fact("Rome", 1, CITY), fact("Oslo", 5, CITY)
    learn(store, tell(ledger, rome))
    store.rollback(0, "back")
    tell(ledger, oslo, action=RouteAction.NON_WRITE)
    assert statuses(ledger, [oslo.id]) == [FactStatus.KNOWN]
    receipt = store.rollback(1, "forward")
    assert receipt.readmitted == 1, (
        "forward again, the weights hold the old value, so the new one must be stored"
    )
    assert statuses(ledger, [rome.id, oslo.id]) == [FactStatus.SUPERSEDED, FactStatus.HOT]


def test_a_decision_older_than_a_rollback_does_not_count_on_the_weights_left(ledger, store):
    learn(store, tell(ledger, fact("a")))
    store.rollback(0, "back")
    [late] = tell(ledger, fact("judged by 1"), action=RouteAction.NON_WRITE, generation=1)
    assert statuses(ledger, [late]) == [FactStatus.HOT]
    assert ledger.history(late)[-1].payload == {"reason": "rolled_back"}


def test_a_known_arrival_while_rolled_back_is_stored_on_the_way_forward(ledger, store):
    learn(store, tell(ledger, fact("a")))
    [before] = tell(ledger, fact("probed by 2"), action=RouteAction.NON_WRITE, generation=1)
    learn(store, tell(ledger, fact("b")))
    store.rollback(1, "back")
    [arrival] = tell(ledger, fact("never probed by 2"), action=RouteAction.NON_WRITE, generation=1)
    assert store.rollback(2, "forward").readmitted == 1
    assert statuses(ledger, [before, arrival]) == [FactStatus.KNOWN, FactStatus.HOT]


def test_a_fact_stored_during_a_night_is_not_evicted_on_the_way_to_its_generation(ledger, store):
    a, b, c = tell(ledger, fact("a"), fact("b"), fact("c"))
    learn(store, [a])
    learn(store, [b], damaged=[a])
    store.rollback(1, "back")
    learn(store, [c])  # a is hot meanwhile: nobody has asked generation 3 for it
    store.rollback(0, "back")
    store.rollback(1, "forward")
    assert statuses(ledger, [a]) == [FactStatus.INTERNALISED]
    store.rollback(3, "forward")
    assert statuses(ledger, [a, b, c]) == [FactStatus.HOT, FactStatus.HOT, FactStatus.INTERNALISED]


def test_what_the_router_found_unknown_is_not_evicted_again(ledger, store):
    a, b = tell(ledger, fact("a"), fact("b"))
    learn(store, [a, b])
    ledger.apply_routes([decision(ledger.fact(a), RouteAction.WRITE_NEW, 1)], "again")
    store.rollback(0, "back")
    assert store.rollback(1, "forward").internalised == 1
    assert statuses(ledger, [a, b]) == [FactStatus.HOT, FactStatus.INTERNALISED]


def test_a_rollback_remembers_what_the_generation_left_had_damaged(ledger, store):
    rome, oslo = fact("Rome", 1, CITY), fact("Oslo", 5, CITY)
    tell(ledger, rome)
    learn(store, [rome.id])
    learn(store, tell(ledger, fact("b")), damaged=[rome.id])
    assert ledger.fact(rome.id).proven_generation is None
    store.rollback(1, "back")
    assert (statuses(ledger, [rome.id]), ledger.fact(rome.id).proven_generation) == ([FactStatus.HOT], 1)
    tell(ledger, oslo, action=RouteAction.NON_WRITE, generation=1)
    assert statuses(ledger, [rome.id, oslo.id]) == [FactStatus.SUPERSEDED, FactStatus.HOT]
    store.rollback(2, "forward")
    assert ledger.fact(rome.id).proven_generation is None


def test_a_promotion_that_teaches_an_outdated_value_stores_the_present_one(ledger, store):
    rome, oslo = fact("Rome", 1, CITY), fact("Oslo", 5, CITY)
    [old] = tell(ledger, rome)
    number = shadow(store, [old])
    tell(ledger, oslo, action=RouteAction.NON_WRITE)
    assert statuses(ledger, [oslo.id]) == [FactStatus.KNOWN]
    receipt = store.promote(number, evict=[old], proven=[old], trained=[old], run_id="sleep")
    assert (receipt.overridden, receipt.skipped) == (1, (old,))
    assert statuses(ledger, [oslo.id]) == [FactStatus.HOT]


def test_digest_sees_names_and_contents(tmp_path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    with pytest.raises(IntegrityError, match="sharpwave doctor"):
        adapter_digest(folder)
    (folder / "a").write_bytes(b"1")
    first = adapter_digest(folder)
    assert len(first) == 64
    (folder / "b").write_bytes(b"")
    assert adapter_digest(folder) != first
    (folder / "b").unlink()
    assert adapter_digest(folder) == first


def test_generations_survive_export_and_import(ledger, store, tmp_path):
    a, b = tell(ledger, fact("a"), fact("b"))
    learn(store, [a])
    learn(store, [b])
    store.rollback(1, "back")
    with Ledger.open(tmp_path / "copy.db") as copy:
        other = GenerationStore(copy, store.directory)
        other.restore(store.all(), store.current().number)
        copy.restore(ledger.export(), same_weights=True)
        assert other.all()[1:] == store.all()[1:]
        assert other.current() == store.current()
        assert list(copy.export()) == list(ledger.export())
        assert other.rollback(2, "forward").internalised == 1
        with pytest.raises(StoreError, match="generations of its own"):
            other.restore(store.all(), 0)


def _promote_and_die(folder, ids, steps):
    """Run in a child process: promote, and be killed before the given database step."""
    ledger = Ledger.open(folder / "ledger.db")
    left = steps

    def die_between_steps(*_):
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(ledger.engine, "before_cursor_execute", die_between_steps)
    event.listen(ledger.engine, "commit", die_between_steps)
    GenerationStore(ledger, folder / "generations").promote(
        1, evict=ids, proven=ids, trained=ids, run_id="sleep"
    )


def test_a_kill_at_any_step_of_a_promotion_leaves_all_or_nothing(tmp_path):
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ids = tell(ledger, fact("a"), fact("b"))
        shadow(GenerationStore(ledger, tmp_path / "generations"), ids)
        before = list(ledger.export()), ledger.outbox()
    steps, exit_code = -1, -signal.SIGKILL
    while exit_code == -signal.SIGKILL:
        steps += 1
        child = multiprocessing.get_context("fork").Process(
            target=_promote_and_die, args=(tmp_path, ids, steps)
        )
        child.start()
        child.join()
        exit_code = child.exitcode
        with Ledger.open(tmp_path / "ledger.db") as ledger:
            if exit_code != 0:
                assert (list(ledger.export()), ledger.outbox()) == before
                assert GenerationStore(ledger, tmp_path / "generations").current().number == 0
    assert exit_code == 0
    assert steps >= 8, "the kills must have hit every step up to the commit"
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert statuses(ledger, ids) == [FactStatus.INTERNALISED] * 2
        assert GenerationStore(ledger, tmp_path / "generations").current().number == 1
        assert [len([e for e in ledger.history(i) if e.kind is EventKind.EVICTED]) for i in ids] == [1, 1]
