"""Streams: their make-up, the order of values, repeats, questions, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.corpora.corpus import CorpusFact
from eval.corpora.splits import split_of
from eval.corpora.world import load_world_corpus
from eval.streams import Arrival, StreamShares, StreamStep, build_stream, summary
from sharpwave.errors import InputError
from sharpwave.records import Slot


@pytest.fixture(scope="module")
def known_ids() -> frozenset[str]:
    """Every fourth fact: a stand-in for labels, since here only the make-up of streams matters."""
    return frozenset(item.id for item in load_world_corpus() if int(item.id, 16) % 4 == 0)


@pytest.fixture(scope="module")
def stream(known_ids: frozenset[str]) -> list[StreamStep]:
    return build_stream(3, known_ids=known_ids)


def arrivals(stream: list[StreamStep]) -> list[tuple[int, CorpusFact, Arrival]]:
    return [(step.index, entry.item, entry.arrival) for step in stream for entry in step.arrivals]


def test_make_up(stream: list[StreamStep], known_ids: frozenset[str]) -> None:
    counts = summary(stream)
    assert counts["n_facts"] == 300
    assert counts["n_distinct"] == 250
    assert [counts[f"arrival_{kind}"] for kind in ("known", "new", "update", "repeat")] == [100, 100, 50, 50]
    assert counts["kind_counterfactual"] >= 20
    assert counts["language_es"] >= 5
    assert [len(step.arrivals) for step in stream] == [50] * 6
    for _, item, why in arrivals(stream):
        if why is Arrival.KNOWN:
            assert item.id in known_ids
        if why is Arrival.NEW:
            assert item.id not in known_ids


def test_everything_comes_from_one_split(stream: list[StreamStep], known_ids: frozenset[str]) -> None:
    assert {split_of(item.group) for _, item, _ in arrivals(stream)} == {"report"}
    other = build_stream(3, 120, 4, known_ids=known_ids, split="train")
    assert {split_of(item.group) for _, item, _ in arrivals(other)} == {"train"}


def test_a_changed_value_comes_in_a_later_step_than_the_one_it_replaces(stream: list[StreamStep]) -> None:
    seen: dict[Slot, int] = {}
    changes = 0
    for step, item, why in arrivals(stream):
        if why is Arrival.UPDATE:
            assert seen[item.slot] < step
            changes += 1
        elif why is not Arrival.REPEAT:
            assert item.slot not in seen
            seen[item.slot] = step
    assert changes == 50


def test_repeats_are_the_same_facts_again_and_never_outdated(stream: list[StreamStep]) -> None:
    first: dict[str, int] = {}
    changed = {item.slot for _, item, why in arrivals(stream) if why is Arrival.UPDATE}
    repeated = []
    for step, item, why in arrivals(stream):
        if why is Arrival.REPEAT:
            assert first[item.id] < step
            assert step >= 3
            assert item.slot not in changed
            repeated.append(item.id)
        first.setdefault(item.id, step)
    assert len(set(repeated)) == len(repeated) == 50
    new = {item.id for _, item, why in arrivals(stream) if why is Arrival.NEW}
    assert len(new & set(repeated)) > 25


def test_moments_run_forward(stream: list[StreamStep]) -> None:
    moments = [fact.observed_at for step in stream for fact in step.facts]
    assert moments == sorted(moments)
    assert len(set(moments)) == len(moments)


def test_nothing_arrives_that_has_ended_since_its_question_asks_for_the_present(
    stream: list[StreamStep],
) -> None:
    arriving = [fact for step in stream for fact in step.facts]
    assert [fact for fact in arriving if fact.valid_to is not None] == []
    assert any(fact.valid_from is not None for fact in arriving)


def test_the_newer_value_also_starts_later(stream: list[StreamStep]) -> None:
    first: dict[Slot, CorpusFact] = {}
    stamped = {(step.index, entry.item.id): entry.fact for step in stream for entry in step.arrivals}
    start: dict[Slot, int] = {}
    for step, item, why in arrivals(stream):
        if why is Arrival.UPDATE:
            old = stamped[start[item.slot], first[item.slot].id]
            assert old.starts_at < stamped[step, item.id].starts_at
        first.setdefault(item.slot, item)
        start.setdefault(item.slot, step)


def test_questions_ask_for_the_present_value_in_unseen_words(stream: list[StreamStep]) -> None:
    present: dict[Slot, CorpusFact] = {}
    shown: set[str] = set()
    by_question: dict[str, Slot] = {}
    for step in stream:
        for entry in step.arrivals:
            present[entry.item.slot] = entry.item
            by_question[entry.item.heldout_question] = entry.item.slot
            shown |= set(entry.fact.questions)
        assert len(step.questions) == min(60, len(present))
        assert len({question.question for question in step.questions}) == len(step.questions)
        for question in step.questions:
            item = present[by_question[question.question]]
            assert question.fact_id == item.id
            assert question.answers == item.fact.answers
            assert question.question not in shown


def test_same_seed_same_stream(stream: list[StreamStep], known_ids: frozenset[str]) -> None:
    assert build_stream(3, known_ids=set(known_ids)) == stream
    assert build_stream(4, known_ids=known_ids) != stream


@pytest.mark.parametrize(
    ("seed", "n_facts", "steps"), [(0, 24, 2), (1, 101, 2), (2, 60, 3), (3, 97, 5), (4, 119, 7), (5, 120, 8)]
)
def test_any_size_keeps_the_shares(known_ids: frozenset[str], seed: int, n_facts: int, steps: int) -> None:
    stream = build_stream(seed, n_facts, steps, known_ids=known_ids, questions_per_step=5)
    expected = StreamShares().counts(n_facts)
    counts = summary(stream)
    assert counts["n_facts"] == n_facts
    assert {kind: counts[f"arrival_{kind.value}"] for kind in Arrival} == expected
    assert all(step.arrivals for step in stream)


@given(n_facts=st.integers(min_value=12, max_value=10_000))
def test_shares_always_add_up(n_facts: int) -> None:
    counts = StreamShares().counts(n_facts)
    assert sum(counts.values()) == n_facts
    assert min(counts.values()) > 0


def test_other_shares() -> None:
    counts = StreamShares(known=0.5, new=0.3, update=0.1, repeat=0.1).counts(101)
    assert sum(counts.values()) == 101
    assert counts[Arrival.KNOWN] == 50


def test_too_few_known_facts_are_named(known_ids: frozenset[str]) -> None:
    with pytest.raises(InputError, match="known facts"):
        build_stream(1, known_ids=sorted(known_ids)[:40])
    with pytest.raises(InputError, match="at least 2 steps"):
        build_stream(1, steps=1, known_ids=known_ids)
