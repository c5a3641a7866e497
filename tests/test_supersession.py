"""One slot, many values: which is current, when each ended, and who must never touch whom."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count, permutations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from carriers.ledger import Ledger
from carriers.supersession import normalise_key, slot_key
from sharpwave.records import EventKind, Fact, FactStatus, RouteAction, RouteDecision, RouteStage, Slot

DAY = timedelta(days=1)
START = datetime(2020, 1, 1, tzinfo=UTC)
CITY = Slot(subject="Ana", relation="city")


def day(number: float) -> datetime:
    return START + number * DAY


def value(text, starts=None, observed=100.0, *, ends=None, slot=CITY, namespace="default") -> Fact:
    return Fact(
        text=text,
        slot=slot,
        namespace=namespace,
        valid_from=None if starts is None else day(starts),
        valid_to=None if ends is None else day(ends),
        observed_at=day(observed),
    )


def decision(fact, action=RouteAction.WRITE_NEW, stage=RouteStage.SMALL, generation=0) -> RouteDecision:
    return RouteDecision(
        fact_id=fact.id,
        action=action,
        stage=stage,
        p_non_write=0.2,
        p_write_new=0.5,
        p_write_update=0.3,
        expected_gain=0.4,
        storage_price=0.1,
        escalation_price=0.1,
        router_version="test",
        generation=generation,
        reason="test",
    )


def tell(ledger, *facts, action=RouteAction.WRITE_NEW, run="run"):
    """Observe and route facts one after the other, as separate arrivals."""
    for fact in facts:
        [seen] = ledger.observe([fact], run)
        if seen.needs_routing:
            ledger.apply_routes([decision(fact, action)], run)


def outcome(ledger, facts):
    """Everything that supersession decides about each fact."""
    names = {fact.id: fact.text for fact in facts}
    return {
        s.fact.text: (s.status, s.valid_to, names.get(s.superseded_by, s.superseded_by))
        for s in ledger.facts(list(names))
    }


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "ledger.db") as opened:
        yield opened


def status(ledger, fact):
    return ledger.fact(fact.id).status


def test_later_value_retires_earlier_one(ledger):
    rome, oslo = value("Rome", 1), value("Oslo", 5)
    tell(ledger, rome, oslo)
    old, new = ledger.facts([rome.id, oslo.id])
    assert (old.status, old.valid_to, old.superseded_by) == (FactStatus.SUPERSEDED, day(5), oslo.id)
    assert (new.status, new.valid_to, new.superseded_by) == (FactStatus.HOT, None, None)
    assert old.fact == rome, "the words and dates given must stay as they came"
    assert [(row.fact_id, row.op) for row in ledger.outbox()] == [
        (rome.id, "upsert"),
        (oslo.id, "upsert"),
        (rome.id, "delete"),
    ]


def test_late_arrival_of_an_old_value_never_becomes_current(ledger):
    rome, oslo, bern = value("Rome", 1), value("Oslo", 9), value("Bern", 5)
    tell(ledger, oslo, rome, bern)
    assert outcome(ledger, [rome, bern, oslo]) == {
        "Rome": (FactStatus.SUPERSEDED, day(5), "Bern"),
        "Bern": (FactStatus.SUPERSEDED, day(9), "Oslo"),
        "Oslo": (FactStatus.HOT, None, None),
    }
    assert EventKind.STORED not in {event.kind for event in ledger.history(bern.id)}


@pytest.mark.parametrize("action", list(RouteAction))
def test_supersession_happens_whatever_the_action(ledger, action):
    rome, oslo = value("Rome", 1), value("Oslo", 5)
    tell(ledger, rome)
    tell(ledger, oslo, action=action)
    assert status(ledger, rome) is FactStatus.SUPERSEDED
    assert status(ledger, oslo) is (FactStatus.HOT if action.is_write else FactStatus.KNOWN)
    assert ledger.fact(oslo.id).last_action is action


def test_own_end_before_the_successor_is_kept(ledger):
    rome, oslo = value("Rome", 1, ends=3), value("Oslo", 5)
    tell(ledger, rome, oslo)
    assert outcome(ledger, [rome])["Rome"] == (FactStatus.SUPERSEDED, day(3), oslo.id)
    assert ledger.as_of("default", CITY, day(4)) is None
    assert ledger.as_of("default", CITY, day(2)).id == rome.id


def test_equal_times_are_decided_by_id_whatever_the_order_of_arrival(tmp_path):
    first, second = value("Rome", 3), value("Oslo", 3)
    winner = max(first, second, key=lambda fact: fact.id)
    for number, order in enumerate(permutations([first, second])):
        with Ledger.open(tmp_path / f"{number}.db") as ledger:
            tell(ledger, *order)
            live = [s.id for s in ledger.iter_facts() if s.is_live]
            assert live == [winner.id]


def test_equal_start_is_decided_by_observation(tmp_path):
    told, corrected = value("Rome", 3, observed=10), value("Oslo", 3, observed=11)
    for number, order in enumerate(permutations([told, corrected])):
        with Ledger.open(tmp_path / f"{number}.db") as ledger:
            tell(ledger, *order)
            assert status(ledger, corrected) is FactStatus.HOT
            assert status(ledger, told) is FactStatus.SUPERSEDED


_names = count()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    starts=st.lists(st.integers(0, 50), min_size=2, max_size=7, unique=True),
    ends=st.lists(st.none() | st.integers(0, 9), min_size=7, max_size=7),
    actions=st.lists(st.sampled_from(list(RouteAction)), min_size=7, max_size=7),
    data=st.data(),
)
def test_any_order_of_arrival_gives_the_same_present(ledger, starts, ends, actions, data):
    def arrivals(namespace):
        return [
            value(f"v{n}", n, 100 + place, ends=None if end is None else n + end, namespace=namespace)
            for place, (n, end) in enumerate(zip(starts, ends, strict=False))
        ]

    plan = dict(zip([f"v{start}" for start in starts], actions, strict=False))
    sorted_space, mixed_space = f"sorted {next(_names)}", f"mixed {next(_names)}"
    in_order, mixed = arrivals(sorted_space), arrivals(mixed_space)
    for fact in sorted(in_order, key=lambda fact: fact.starts_at):
        tell(ledger, fact, action=plan[fact.text])
    rest = list(data.draw(st.permutations(mixed)))
    for size in data.draw(st.lists(st.integers(1, 3), min_size=7, max_size=7)):
        part, rest = rest[:size], rest[size:]
        ledger.observe(part, "run")
        ledger.apply_routes([decision(fact, plan[fact.text]) for fact in part], "run")
    assert outcome(ledger, mixed) == outcome(ledger, in_order)
    live = [s for s in ledger.iter_facts(mixed_space) if s.is_live]
    assert [s.fact.starts_at for s in live] == [max(fact.starts_at for fact in mixed)]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    story=st.lists(
        st.tuples(st.sampled_from("ABC"), st.integers(0, 30)),
        min_size=2,
        max_size=8,
        unique_by=lambda telling: telling[1],
    ),
    data=st.data(),
)
def test_values_that_come_back_in_any_order_give_the_same_present(ledger, story, data):
    """Facts without valid_from, told again and again, told out of order: the last telling wins."""
    sorted_space, mixed_space = f"sorted {next(_names)}", f"mixed {next(_names)}"
    in_order = [
        value(text, observed=moment, namespace=sorted_space) for text, moment in sorted(story, key=_moment)
    ]
    mixed = [value(text, observed=moment, namespace=mixed_space) for text, moment in story]
    tell(ledger, *in_order)
    tell(ledger, *data.draw(st.permutations(mixed)))
    assert outcome(ledger, mixed) == outcome(ledger, in_order)
    assert [s.fact.text for s in ledger.iter_facts(mixed_space) if s.is_live] == [max(story, key=_moment)[0]]
    for text, moment in story:
        assert ledger.as_of(mixed_space, CITY, day(moment)).fact.text == text


def _moment(telling):
    return telling[1]


def test_a_value_that_came_back_is_routed_anew(ledger):
    rome, oslo = value("Rome", observed=1), value("Oslo", observed=5)
    tell(ledger, rome, oslo)
    again = value("Rome", observed=9)
    [seen] = ledger.observe([again], "run")
    assert (seen.is_new, seen.needs_routing) == (False, True)
    assert ledger.unfinished() == [rome.id]
    assert status(ledger, oslo) is FactStatus.HOT, "the present value holds until the newcomer is routed"
    with pytest.raises(ValueError, match="waits for its first route"):
        ledger.apply_routes([decision(rome, RouteAction.NON_WRITE, RouteStage.REPEAT)], "run")
    ledger.apply_routes([decision(rome)], "run")
    assert outcome(ledger, [rome, oslo]) == {
        "Rome": (FactStatus.HOT, None, None),
        "Oslo": (FactStatus.SUPERSEDED, day(9), "Rome"),
    }
    moments = {number: ledger.as_of("default", CITY, day(number)).fact.text for number in (1, 4, 5, 8, 9, 20)}
    assert moments == {1: "Rome", 4: "Rome", 5: "Oslo", 8: "Oslo", 9: "Rome", 20: "Rome"}


def test_a_dated_value_does_not_come_back_by_repetition(ledger):
    rome, oslo = value("Rome", 1, observed=1), value("Oslo", 5, observed=5)
    tell(ledger, rome, oslo)
    tell(ledger, value("Rome", 1, observed=9))
    assert status(ledger, rome) is FactStatus.SUPERSEDED
    assert status(ledger, oslo) is FactStatus.HOT


def test_a_repeat_of_the_current_value_guards_it_against_a_late_older_one(ledger):
    tell(ledger, value("Rome", observed=1), value("Rome", observed=9), value("Oslo", observed=5))
    assert [s.fact.text for s in ledger.iter_facts() if s.is_live] == ["Rome"]
    assert ledger.as_of("default", CITY, day(6)).fact.text == "Oslo"


def test_namespaces_never_touch_each_other(ledger):
    mine, yours = value("Rome", 1, namespace="me"), value("Oslo", 5, namespace="you")
    tell(ledger, mine, yours)
    assert status(ledger, mine) is status(ledger, yours) is FactStatus.HOT
    assert ledger.as_of("me", CITY, day(9)).id == mine.id
    assert [s.id for s in ledger.on_slot("you", CITY)] == [yours.id]


def test_facts_without_a_slot_never_retire_each_other(ledger):
    facts = [value(f"note {number}", number, slot=None) for number in range(5)]
    blank = Slot(subject="  ", relation="city")
    facts += [value(f"blank {number}", number, slot=blank) for number in range(3)]
    tell(ledger, *facts)
    assert ledger.counts()[FactStatus.HOT] == 8
    assert len(ledger.valid_at("default", day(10))) == 8


@pytest.mark.parametrize(
    ("subject", "relation"),
    [
        ("ana", "CITY"),
        (" Ana\t", "city\n"),
        ("\uff21na", "city"),
        ("ANA", "c\u0131ty".replace("\u0131", "i")),
    ],
)
def test_spelling_of_a_slot_does_not_matter(ledger, subject, relation):
    rome, oslo = value("Rome", 1), value("Oslo", 5, slot=Slot(subject=subject, relation=relation))
    tell(ledger, rome, oslo)
    assert status(ledger, rome) is FactStatus.SUPERSEDED
    assert ledger.fact(oslo.id).fact.slot.subject == subject, "original words are kept"


def test_different_slots_never_retire_each_other(ledger):
    slots = [
        ("Ana", "city"),
        ("Ana", "pet"),
        ("Anna", "city"),
        ("Aña", "city"),
        ("A", "na city"),
        ("Ana city", "x"),
    ]
    facts = [
        value(f"v{n}", n, slot=Slot(subject=subject, relation=relation))
        for n, (subject, relation) in enumerate(slots)
    ]
    tell(ledger, *facts)
    assert ledger.counts()[FactStatus.HOT] == len(facts)


def test_normalised_keys():
    assert normalise_key("  Straße\u00a0 \n 1 ") == "strasse 1"
    assert normalise_key("ﬁn") == normalise_key("FIN")
    assert slot_key("a", Slot(subject='x","y', relation="z")) != slot_key(
        "a", Slot(subject="x", relation='y","z')
    )
    assert slot_key("a", None) is None


def test_forgetting_the_successor_does_not_resurrect(ledger):
    rome, oslo, bern = value("Rome", 1), value("Oslo", 9), value("Bern", 5)
    tell(ledger, rome, oslo)
    ledger.forget([oslo.id])
    assert outcome(ledger, [rome])["Rome"] == (FactStatus.SUPERSEDED, day(9), oslo.id)
    assert ledger.as_of("default", CITY, day(10)) is None
    assert ledger.as_of("default", CITY, day(4)).id == rome.id
    tell(ledger, bern)
    assert outcome(ledger, [rome, bern]) == {
        "Rome": (FactStatus.SUPERSEDED, day(5), "Bern"),
        "Bern": (FactStatus.SUPERSEDED, day(9), oslo.id),
    }


def test_what_was_known_at_a_moment(ledger):
    tell(ledger, value("Rome", 1, observed=1), value("Oslo", 5, observed=20), value("Bern", 3, observed=30))
    seen = {
        (valid, known): ledger.as_of("default", CITY, day(valid), known_at=day(known))
        for valid in (2, 4, 6)
        for known in (0, 10, 25, 40)
    }
    texts = {key: found.fact.text if found else None for key, found in seen.items()}
    assert texts == {
        (2, 0): None, (2, 10): "Rome", (2, 25): "Rome", (2, 40): "Rome",
        (4, 0): None, (4, 10): "Rome", (4, 25): "Rome", (4, 40): "Bern",
        (6, 0): None, (6, 10): "Rome", (6, 25): "Oslo", (6, 40): "Oslo",
    }  # fmt: skip


def test_one_arrival_costs_the_same_on_a_long_slot(ledger):
    """Neighbours only: the number of database steps must not grow with the slot."""

    def steps(facts) -> int:
        counted = 0

        def progress() -> int:
            nonlocal counted
            counted += 1
            return 0

        with ledger.transaction() as connection:
            connection.connection.dbapi_connection.set_progress_handler(progress, 20)
            tell(ledger, *facts)
            connection.connection.dbapi_connection.set_progress_handler(None, 0)
        return counted

    def history(first, last):
        return [value(f"v{n}", n) for n in range(first, last)]

    def told(facts):
        ledger.observe(facts, "run")
        ledger.apply_routes([decision(fact) for fact in facts], "run")

    told(history(0, 20))
    few = steps([value("early", 9.5)])
    told(history(20, 1000))
    many = steps([value("late", 500.5)])
    assert many < 2 * few + 20
    assert ledger.counts()[FactStatus.HOT] == 1
