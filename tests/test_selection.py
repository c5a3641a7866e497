"""Which stored facts a night takes on, and why the others are left out."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from carriers.ledger_records import StoredFact
from consolidation.selection import MAX_ANSWER_CHARS, select_facts
from sharpwave.records import Fact, FactStatus
from sharpwave.settings import SelectionSettings

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def stored(name: str, *, seq: int = 0, answer: str = "blue", **fields) -> StoredFact:
    words = Fact(
        text=f"The colour of {name} is {answer}.", questions=(f"Colour of {name}?",), answers=(answer,)
    )
    return StoredFact(
        **{"id": name, "namespace": "default", "seq": seq, "words": words, "status": FactStatus.HOT} | fields
    )


def select(facts, max_facts=80):
    chosen, rejected = select_facts(facts, SelectionSettings(max_facts=max_facts, min_facts=1), NOW)
    return [fact.id for fact in chosen], {item.fact_id: item.reason for item in rejected}


def test_often_seen_facts_come_first_then_the_longest_stored():
    facts = [stored("late", seq=9), stored("early", seq=1), stored("often", seq=5, observed_count=3)]
    assert select(facts)[0] == ["often", "early", "late"]


def test_facts_trained_without_proof_wait_behind_those_never_tried():
    facts = [
        stored("twice", observed_count=9, trained_generation=2),
        stored("once", trained_generation=1),
        stored("new", seq=5),
    ]
    assert select(facts)[0] == ["new", "once", "twice"]


def test_facts_of_discarded_nights_wait_behind_all_others():
    facts = [stored("failed", observed_count=9), stored("once", trained_generation=1), stored("new", seq=5)]
    chosen, _ = select_facts(
        facts, SelectionSettings(max_facts=9, min_facts=1), NOW, failed_nights={"failed": 1}
    )
    assert [fact.id for fact in chosen] == ["new", "once", "failed"]


def test_updates_of_what_the_weights_hold_come_before_other_facts_that_were_never_tried():
    facts = [
        stored("tried", trained_generation=1),
        stored("often", observed_count=9),
        stored("update", seq=9),
    ]
    settings = SelectionSettings(max_facts=9, min_facts=1)
    chosen, _ = select_facts(facts, settings, NOW, urgent={"update"})
    assert [fact.id for fact in chosen] == ["update", "often", "tried"]


def test_among_equals_those_come_first_that_endanger_least():
    facts = [stored(f"f{seq}", seq=seq) for seq in range(6)] + [stored("often", seq=9, observed_count=2)]
    risk = {"f0": 0.9, "f1": 0.2, "f2": 0.2, "f3": 0.7, "f4": 0.1, "f5": 0.3, "often": 1.0}
    settings = SelectionSettings(max_facts=4, min_facts=1)
    chosen, later = select_facts(facts, settings, NOW, risk_of=lambda candidates: risk)
    assert [fact.id for fact in chosen] == ["often", "f4", "f1", "f2"]
    assert {item.fact_id for item in later} == {"f0", "f3", "f5"}


def test_only_the_longest_stored_are_compared_and_only_if_there_is_a_choice():
    facts = [stored(f"f{seq}", seq=seq) for seq in range(20)]
    asked = []

    def risk_of(candidates):
        asked.append([fact.id for fact in candidates])
        return {fact.id: -float(fact.seq) for fact in candidates}

    settings = SelectionSettings(max_facts=2, min_facts=1)
    chosen, later = select_facts(facts, settings, NOW, risk_of=risk_of)
    assert [fact.id for fact in chosen] == ["f7", "f6"]
    assert len(later) == 18
    select_facts(facts[:2], settings, NOW, risk_of=risk_of)
    assert asked == [[f"f{seq}" for seq in range(8)]]


def test_no_more_than_the_limit_and_the_rest_is_named():
    chosen, rejected = select([stored(f"f{seq}", seq=seq) for seq in range(5)], max_facts=3)
    assert chosen == ["f0", "f1", "f2"]
    assert rejected == {"f3": "left for a later night", "f4": "left for a later night"}


@pytest.mark.parametrize("status", [status for status in FactStatus if status is not FactStatus.HOT])
def test_only_facts_in_the_store_are_taken(status):
    """Above all: a superseded value is never trained again."""
    assert select([stored("other", status=status)]) == ([], {"other": "not in the store"})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"words": None}, "not in the store"),
        ({"valid_to": NOW}, "no longer valid"),
        ({"valid_to": datetime(2020, 1, 1, tzinfo=UTC)}, "no longer valid"),
        ({"valid_from": datetime(2030, 1, 1, tzinfo=UTC)}, "not yet valid"),
    ],
)
def test_facts_that_do_not_hold_now_are_left_out(fields, reason):
    assert select([stored("x", **fields)]) == ([], {"x": reason})


def test_facts_that_hold_now_are_taken():
    fact = stored("x", valid_from=datetime(2020, 1, 1, tzinfo=UTC), valid_to=datetime(2030, 1, 1, tzinfo=UTC))
    assert select([fact]) == (["x"], {})


def test_answers_are_learnt_up_to_a_length():
    fits, too_long = (
        stored("fits", answer="x" * MAX_ANSWER_CHARS),
        stored("long", answer="x" * (MAX_ANSWER_CHARS + 1)),
    )
    chosen, rejected = select([fits, too_long])
    assert chosen == ["fits"]
    assert str(MAX_ANSWER_CHARS) in rejected["long"]


def test_a_fact_without_questions_is_no_reason_to_leave_it_out():
    assert select([stored("bare", words=Fact(text="The dog of Edda is called Rex."))])[0] == ["bare"]


def test_every_fact_is_either_chosen_or_rejected_once():
    facts = [stored(f"f{seq}", seq=seq, status=list(FactStatus)[seq % 6]) for seq in range(30)]
    chosen, rejected = select(facts, max_facts=2)
    assert sorted([*chosen, *rejected]) == sorted(fact.id for fact in facts)
