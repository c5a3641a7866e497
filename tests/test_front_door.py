"""Single facts from many threads, over a real store and a real router on tiny models."""

import threading
from collections import Counter
from types import SimpleNamespace

import pytest

from carriers.embedder import HashingEmbedder
from carriers.external_memory import ExternalMemory
from routers.examples import RoutingExample
from routers.labels import BehaviourLabel
from routers.observation import observe
from routers.training import RouterTraining, train_router
from serving.agent_memory import AgentMemory
from serving.front_door import FrontDoor
from sharpwave.errors import StoreError
from sharpwave.records import Fact, RouteStage
from sharpwave.settings import load_settings
from tests.tiny_models import one_thread, tiny_language_model  # noqa: F401 -- a fixture for all tests here


def badge(number):
    return Fact(text=f"The badge of worker {number} is {number * 7919}.")


@pytest.fixture(scope="module")
def models():
    small, large = tiny_language_model("llama", 1), tiny_language_model("llama", 2)
    return SimpleNamespace(
        small=small, reader=large, embedder=HashingEmbedder(64), large_screen=lambda adapter: large
    )


@pytest.fixture(scope="module")
def heads_folder(models, tmp_path_factory):
    facts = [badge(number) for number in range(1000, 1024)]
    seen = zip(facts, observe(models.small, facts), observe(models.reader, facts), strict=True)
    examples = [
        RoutingExample(
            one,
            other,
            BehaviourLabel(fact.id, (place % 3 == 0,), (True,), ("",), (0.1,)),
            fact.id,
        )
        for place, (fact, one, other) in enumerate(seen)
    ]
    trained = train_router(
        *(examples[start::3] for start in range(3)),
        RouterTraining(folds=2, hidden_components=2, resplits=2),
        small_fingerprint=models.small.fingerprint,
        large_fingerprint=models.reader.fingerprint,
    )
    folder = tmp_path_factory.mktemp("heads")
    trained.save(folder)
    return folder


@pytest.fixture
def memory(models, heads_folder, tmp_path):
    settings = load_settings("embedded", overrides=[f"router.heads={heads_folder}"])
    store = ExternalMemory.open(tmp_path / "store", models.embedder, writer=True)
    with AgentMemory(settings, store, models) as opened:
        yield opened


def counted(memory, monkeypatch):
    """Note the size of every group that is taken in."""
    sizes, ingest = [], memory.ingest

    def counting(facts, *rest):
        sizes.append(len(facts))
        return ingest(facts, *rest)

    monkeypatch.setattr(memory, "ingest", counting)
    return sizes


def test_facts_of_many_threads_are_grouped_and_each_gets_its_own_outcome(memory, monkeypatch):
    sizes = counted(memory, monkeypatch)
    found = {}
    with FrontDoor(memory, "run", within_seconds=0.05) as door:

        def hand_in(start):
            for number in range(start, start + 8):
                found[number] = door.submit(badge(number)).result(timeout=60)

        threads = [threading.Thread(target=hand_in, args=(start,)) for start in range(0, 48, 8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 48 == sum(sizes)
    assert len(sizes) < 30
    for number, outcome in found.items():
        assert outcome.fact_id == badge(number).id
        assert outcome.is_new
        assert outcome.decision.fact_id == outcome.fact_id
    stored = memory.memory.ledger.facts([badge(number).id for number in found])
    assert len(stored) == 48


def test_a_decision_is_the_one_that_routing_alone_gives(memory):
    with FrontDoor(memory, "run") as door:
        futures = [door.submit(badge(number)) for number in range(5)]
        decisions = [future.result(timeout=60).decision for future in futures]
    alone = [memory.router.decide([badge(number)], 0)[0] for number in range(5)]
    assert [(one.action, one.stage) for one in decisions] == [(other.action, other.stage) for other in alone]
    assert {one.stage for one in decisions} <= {RouteStage.SMALL, RouteStage.LARGE}


def test_a_repeat_is_told_as_such(memory):
    with FrontDoor(memory, "run") as door:
        first = door.submit(badge(1)).result(timeout=60)
        again = door.submit(badge(1)).result(timeout=60)
    assert first.is_new
    assert first.decision is not None
    assert not again.is_new
    assert again.decision is None
    assert again.fact_id == first.fact_id


def test_no_group_is_larger_than_allowed(memory, monkeypatch):
    sizes = counted(memory, monkeypatch)
    with FrontDoor(memory, "run", within_seconds=0.2, most=4) as door:
        futures = [door.submit(badge(number)) for number in range(10)]
        assert len({future.result(timeout=60).fact_id for future in futures}) == 10
    assert max(sizes) == 4


def test_closing_takes_in_what_was_handed_in_and_refuses_more(memory):
    door = FrontDoor(memory, "run", within_seconds=5.0)
    futures = [door.submit(badge(number)) for number in range(3)]
    door.close()
    assert all(future.done() for future in futures)
    with pytest.raises(StoreError, match="closed"):
        door.submit(badge(9))
    door.close()


def test_a_failure_reaches_everyone_who_waits_and_the_door_stays_open(memory, monkeypatch):
    ingest = memory.ingest
    failures = Counter()

    def failing(facts, *rest):
        failures["seen"] += 1
        if failures["seen"] == 1:
            raise OSError("the disk is full")
        return ingest(facts, *rest)

    monkeypatch.setattr(memory, "ingest", failing)
    with FrontDoor(memory, "run", within_seconds=0.1) as door:
        futures = [door.submit(badge(number)) for number in range(3)]
        for future in futures:
            with pytest.raises(OSError, match="full"):
                future.result(timeout=60)
        assert door.submit(badge(0)).result(timeout=60).is_new


def test_a_cancelled_fact_is_not_taken_in(memory):
    with FrontDoor(memory, "run", within_seconds=0.3) as door:
        kept, dropped = door.submit(badge(1)), door.submit(badge(2))
        assert dropped.cancel()
        assert kept.result(timeout=60).is_new
    assert not memory.memory.ledger.facts([badge(2).id])
