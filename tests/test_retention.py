"""Old adapters are deleted by plan, never what is needed, and never a fact."""

from __future__ import annotations

import pytest

from carriers.adapter_files import numbers_on_disk
from carriers.generations import GenerationStore
from carriers.ledger import Ledger
from carriers.retention import plan_retention, retire_generations
from sharpwave.errors import StoreError
from sharpwave.records import GenerationStatus
from tests.generation_steps import fact, learn, shadow, statuses, tell


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "ledger.db") as opened:
        yield opened


@pytest.fixture
def store(ledger, tmp_path):
    return GenerationStore(ledger, tmp_path / "generations")


@pytest.fixture
def nights(ledger, store):
    """Four nights in a row, each with a fact of its own."""
    ids = [tell(ledger, fact(f"fact {number}"))[0] for number in range(4)]
    for fact_id in ids:
        learn(store, [fact_id])
    return ids


def test_the_newest_are_kept_and_no_fact_changes(ledger, store, nights):
    before = statuses(ledger, nights)
    plan = retire_generations(store, 2)
    assert (plan.keep, plan.retire) == ((3, 4), (1, 2))
    assert set(numbers_on_disk(store.directory)) == {3, 4}
    assert statuses(ledger, nights) == before
    assert store.adapter_folder(4).is_dir()
    assert retire_generations(store, 2).retire == ()


@pytest.mark.parametrize(("limit", "kept"), [(0, {1, 2, 3, 4}), (1, {4}), (9, {1, 2, 3, 4})])
def test_the_limit(store, nights, limit, kept):
    retire_generations(store, limit)
    assert set(numbers_on_disk(store.directory)) == kept


def test_going_back_to_a_retired_one_says_where_one_can_go(store, nights):
    retire_generations(store, 2)
    with pytest.raises(StoreError, match=r"generation 1 was deleted.*can go to 0, 3, 4"):
        store.rollback(1, "back")
    assert store.current().number == 4
    assert store.rollback(3, "back").to_number == 3


def test_the_lineage_goes_before_a_side_branch(store, nights):
    store.rollback(2, "back")
    plan = plan_retention(store.all(), store.lineage(), 2)
    assert (plan.keep, plan.retire) == ((1, 2), (3, 4))


def test_a_shadow_is_left_alone_and_the_current_one_cannot_be_retired(store, nights):
    number = shadow(store)
    retire_generations(store, 1)
    assert set(numbers_on_disk(store.directory)) == {4, number}
    assert store.get(number).status is GenerationStatus.SHADOW
    for needed in (4, 0, number):
        with pytest.raises(StoreError, match="cannot be retired"):
            store.retire([needed])


def test_what_a_killed_deletion_left_is_removed_by_the_next(store, nights):
    leftover = store.directory / "0001"
    kept = leftover.rename(store.directory.parent / "kept")
    retire_generations(store, 2)
    kept.rename(leftover)
    assert leftover in store.orphan_folders()
    retire_generations(store, 2)
    assert not leftover.exists()
