"""Streams of other make-ups: replaced values as of a day, facts that never come, many repeats, given facts."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from eval.corpora.splits import split_of
from eval.corpora.world import load_world_corpus
from eval.public_sets.harvest import PublicSet
from eval.public_sets.reading import read_public_set
from eval.run_records import ABSENT, SUPERSEDED
from eval.stream_pools import Arrival, StreamShares
from eval.streams import StreamStep, build_stream, summary
from sharpwave.errors import InputError

_LONG = {
    "shares": StreamShares(known=0.15, new=0.25, update=0.1, repeat=0.5),
    "opening_steps": 1,
    "repeats_from": 1,
    "dated_share": 0.2,
    "absent_per_step": 3,
    "questions_per_step": 20,
}


@pytest.fixture(scope="module")
def known_ids() -> frozenset[str]:
    return frozenset(item.id for item in load_world_corpus() if int(item.id, 16) % 4 == 0)


@pytest.fixture(scope="module")
def stream(known_ids: frozenset[str]) -> list[StreamStep]:
    return build_stream(1, 600, 6, known_ids=known_ids, **_LONG)


def test_replaced_values_are_asked_for_at_a_moment_when_they_held(stream: list[StreamStep]) -> None:
    starts = {}
    replaced_at = {}
    dated = 0
    for step in stream:
        for arrival in step.arrivals:
            if arrival.arrival is Arrival.UPDATE:
                replaced_at[arrival.item.slot] = arrival.fact.starts_at
            elif arrival.fact.id not in starts:
                starts[arrival.fact.id] = (arrival.item.slot, arrival.fact.starts_at, arrival.fact.answers)
        for question in step.questions:
            assert (question.as_of is not None) == (question.sort == SUPERSEDED)
            if question.as_of is not None:
                slot, start, answers = starts[question.fact_id]
                assert start <= question.as_of < replaced_at[slot]
                assert question.answers == answers
                dated += 1
    assert dated > 10


def test_absent_facts_never_arrive_and_are_not_known(
    stream: list[StreamStep], known_ids: frozenset[str]
) -> None:
    slots = {arrival.item.slot for step in stream for arrival in step.arrivals}
    ids = {arrival.fact.id for step in stream for arrival in step.arrivals}
    world = {item.id: item for item in load_world_corpus()}
    absent = [question for step in stream for question in step.questions if question.sort == ABSENT]
    assert [sum(question.sort == ABSENT for question in step.questions) for step in stream] == [3] * 6
    for question in absent:
        assert question.fact_id not in ids | known_ids
        assert split_of(question.group) == "report"
        if question.fact_id in world:
            assert world[question.fact_id].slot not in slots


def test_a_question_keeps_the_reason_why_its_fact_first_came(stream: list[StreamStep]) -> None:
    first: dict[str, str] = {}
    for step in stream:
        for arrival in step.arrivals:
            first.setdefault(arrival.fact.id, arrival.arrival.value)
        for question in step.questions:
            if question.sort not in (SUPERSEDED, ABSENT):
                assert question.sort == first[question.fact_id]


def test_facts_return_evenly_once_repeats_outnumber_them(known_ids: frozenset[str]) -> None:
    shares = StreamShares(known=0.25, new=0.2, update=0.05, repeat=0.5)
    stream = build_stream(1, 300, 3, known_ids=known_ids, shares=shares, opening_steps=1, repeats_from=1)
    times = Counter(
        arrival.fact.id for step in stream for arrival in step.arrivals if arrival.arrival is Arrival.REPEAT
    )
    assert sum(times.values()) == 150
    assert max(times.values()) > 1
    changed = {
        arrival.item.slot for step in stream for arrival in step.arrivals if arrival.arrival == "update"
    }
    assert not [
        a for step in stream for a in step.arrivals if a.arrival == "repeat" and a.item.slot in changed
    ]


def test_further_questions_leave_facts_and_other_questions_alone(known_ids: frozenset[str]) -> None:
    plain = build_stream(2, 120, 4, known_ids=known_ids, questions_per_step=20)
    asked_more = build_stream(
        2, 120, 4, known_ids=known_ids, questions_per_step=20, dated_share=0.2, absent_per_step=3
    )
    for before, after in zip(plain, asked_more, strict=True):
        assert before.arrivals == after.arrivals
        assert before.questions == after.questions[: len(before.questions)]


def test_the_streams_of_the_demo_are_what_its_published_figures_were_measured_on() -> None:
    report = [item.id for item in load_world_corpus() if split_of(item.group) == "report"]
    digest = hashlib.sha256()
    for step in build_stream(0, 300, 6, known_ids=report[::4], questions_per_step=40):
        for arrival in step.arrivals:
            digest.update((arrival.fact.model_dump_json() + arrival.arrival).encode())
        for asked in step.questions:
            told = [asked.fact_id, asked.question, asked.answers, asked.kind, asked.language]
            digest.update(json.dumps(told).encode())
    assert digest.hexdigest() == "a8b7516477c64c4563a6e87a2c57d1e87829eb3e82ba214b004e1366e1bb571d"


@pytest.fixture
def given(tmp_path: Path) -> PublicSet:
    lines = [
        {
            "text": f"The keeper of lighthouse {number} is {name} {number}.",
            "subject": f"lighthouse {number}",
            "relation": "keeper",
            "question": f"Who keeps lighthouse {number}?",
            "answer": f"{name} {number}",
            "valid_from": f"20{year}-01-01T00:00:00Z",
        }
        for number in range(30)
        for name, year in [("Ada", 10), *([("Bo", 20)] if number < 6 else [])]
    ]
    path = tmp_path / "keepers.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    found = read_public_set("own", path)
    assert (len(found.facts), len(found.updates), found.rejects) == (36, 6, ())
    return found


def test_a_stream_of_given_facts_has_as_many_as_there_are(given: PublicSet) -> None:
    known = [item.id for item in given.facts[12:20]]
    stream = build_stream(0, 120, 4, known_ids=known, dated_share=0.1, facts=given)
    counts = summary(stream)
    assert (counts["arrival_known"], counts["arrival_new"], counts["arrival_update"]) == (8, 22, 6)
    assert counts["n_distinct"] == 36
    assert counts["arrival_repeat"] == round(20 * 36 / 100)
    assert {arrival.fact.id for step in stream for arrival in step.arrivals} == {
        arrival.item.fact.id for step in stream for arrival in step.arrivals
    }


def test_too_few_given_facts_are_refused(given: PublicSet) -> None:
    few = PublicSet("own", given.facts[12:20], (), (), 0)
    with pytest.raises(InputError, match="8 facts"):
        build_stream(0, 48, 3, known_ids=(), facts=few)
