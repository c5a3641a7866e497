"""Export and import: a life comes back whole, or is fitted into a ledger that has lives of its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from carriers.ledger import Ledger, StoredFact
from sharpwave.errors import InputError
from sharpwave.records import EventKind, Fact, FactStatus, RouteAction, RouteDecision, RouteStage, Slot

START = datetime(2020, 1, 1, tzinfo=UTC)


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


def _live_a_full_life(ledger):
    slot = Slot(subject="Ana", relation="city")
    tell(ledger, RICH, fact("plain"), fact("known later", 1))
    tell(ledger, fact("Rome", 1, slot=slot), fact("Oslo", 5, slot=slot), fact("Bern", 3, slot=slot))
    tell(ledger, fact("Rome", 9, slot=slot))
    tell(
        ledger,
        fact("hidden", 2, slot=Slot(subject="Bo", relation="x")),
        fact("shown", 1, slot=Slot(subject="bo", relation="x")),
    )
    tell(ledger, fact("lonely secret", 2, slot=Slot(subject="Cy", relation="x")))
    ledger.forget([fact("hidden", slot=Slot(subject="Bo", relation="x")).id])
    ledger.forget([fact("lonely secret", slot=Slot(subject="Cy", relation="x")).id])
    ledger.observe([fact("waits")], "interrupted")


def test_export_and_import_round_trip(ledger, tmp_path):
    _live_a_full_life(ledger)
    with Ledger.open(tmp_path / "copy.db") as copy:
        assert copy.restore(ledger.export(), same_weights=True) == sum(ledger.counts().values())
        assert list(copy.export()) == list(ledger.export())
        assert copy.counts() == ledger.counts()
        assert copy.unfinished() == ledger.unfinished()
        assert {row.fact_id for row in copy.outbox()} == {
            s.id for s in ledger.iter_facts(status=FactStatus.HOT)
        }
        again = list(copy.export())
        assert copy.restore(ledger.export(), same_weights=True) == 0
        assert list(copy.export()) == again
        # Both go on alike: the places on the slots, and what an earlier run has done, came along.
        for one in (ledger, copy):
            _live_a_full_life(one)
            tell(one, fact("shown late", 1.5, slot=Slot(subject="bo", relation="x")), run="run 3")
            tell(one, fact("Oslo", 12, slot=Slot(subject="Ana", relation="city")), run="run 3")
        mine, theirs = ({s.id: s for s in one.iter_facts()} for one in (ledger, copy))
        assert mine == theirs


def test_import_into_a_lived_in_ledger_decides_slots_anew(ledger, tmp_path):
    slot = Slot(subject="Ana", relation="city")
    rome, oslo, bern = (fact(name, day, slot=slot) for name, day in (("Rome", 1), ("Oslo", 5), ("Bern", 9)))
    tell(ledger, rome, bern)
    with Ledger.open(tmp_path / "other.db") as other:
        tell(other, fact("something"), fact("else"))
        tell(other, oslo)
        assert other.restore(ledger.export(), same_weights=False) == 2
        found = {s.fact.text: (s.status, s.superseded_by) for s in other.on_slot("default", slot)}
        assert found == {
            "Rome": (FactStatus.SUPERSEDED, oslo.id),
            "Oslo": (FactStatus.SUPERSEDED, bern.id),
            "Bern": (FactStatus.HOT, None),
        }


def test_import_without_the_weights_stores_what_was_internalised(ledger, tmp_path):
    item = fact("a")
    tell(ledger, item)
    [life] = ledger.export()
    internalised = life.stored.model_copy(update={"status": FactStatus.INTERNALISED, "proven_generation": 1})
    with Ledger.open(tmp_path / "copy.db") as copy:
        copy.restore([life._replace(stored=internalised)], same_weights=False)
        assert (copy.fact(item.id).status, copy.fact(item.id).proven_generation) == (FactStatus.HOT, None)
        assert [(row.op, row.fact_id) for row in copy.outbox()] == [("upsert", item.id)]
        assert copy.history(item.id)[-1].kind is EventKind.READMITTED


def test_import_refuses_words_that_are_not_the_facts(ledger, tmp_path):
    tell(ledger, fact("a"))
    [life] = ledger.export()
    forged = StoredFact(**{**dict(life.stored), "words": fact("b")})
    with Ledger.open(tmp_path / "copy.db") as copy:
        with pytest.raises(InputError, match="do not belong"):
            copy.restore([life._replace(stored=forged)], same_weights=True)
        with pytest.raises(InputError, match="observed"):
            copy.restore([life._replace(events=[])], same_weights=True)
        assert sum(copy.counts().values()) == 0
