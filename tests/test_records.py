"""Records: identity, moments, refusals."""

from __future__ import annotations

import doctest
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from sharpwave import errors, records
from sharpwave.records import Fact, RouteAction, Slot


def a_fact(**changes: Any) -> Fact:
    return Fact.model_validate({"text": "Ada's cat is called Tom.", "observed_at": "2024-05-01", **changes})


def test_id_is_stable_across_versions() -> None:
    fact = a_fact(slot=Slot(subject="Ada", relation="cat"), valid_from=2020)
    assert fact.id == "3218a79b80b2a59297e46ae987fc7e50"


@pytest.mark.parametrize(
    "changes",
    [
        {"observed_at": "2025-01-01"},
        {"source": "a chat"},
        {"metadata": {"page": 3}},
        {"questions": ("What is Ada's cat called?",), "answers": ("Tom",)},
    ],
)
def test_what_is_known_about_a_fact_does_not_change_its_id(changes: dict[str, Any]) -> None:
    assert a_fact(**changes).id == a_fact().id


def test_what_a_fact_says_changes_its_id() -> None:
    variants = [
        a_fact(),
        a_fact(text="Ada's cat is called Tim."),
        a_fact(namespace="other"),
        a_fact(slot={"subject": "Ada", "relation": "cat"}),
        a_fact(slot={"subject": "Ada", "relation": "dog"}),
        a_fact(valid_from="2020"),
        a_fact(valid_to="2030"),
    ]
    assert len({fact.id for fact in variants}) == len(variants)


def test_parts_of_a_slot_do_not_run_together() -> None:
    one = a_fact(slot={"subject": "a b", "relation": "c"})
    two = a_fact(slot={"subject": "a", "relation": "b c"})
    assert one.id != two.id


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (1999, datetime(1999, 1, 1, tzinfo=UTC)),
        ("1999", datetime(1999, 1, 1, tzinfo=UTC)),
        (" 2001-02-03 ", datetime(2001, 2, 3, tzinfo=UTC)),
        (date(2001, 2, 3), datetime(2001, 2, 3, tzinfo=UTC)),
        ("2001-02-03T04:05:06+02:00", datetime(2001, 2, 3, 2, 5, 6, tzinfo=UTC)),
        (datetime(2001, 2, 3), datetime(2001, 2, 3, tzinfo=UTC)),
        (476, datetime(476, 1, 1, tzinfo=UTC)),
    ],
)
def test_moments_become_utc(given: Any, expected: datetime) -> None:
    assert a_fact(valid_from=given).valid_from == expected


@pytest.mark.parametrize("given", ["soon", True, 0, 12345, "2001-13-01", "0001-01-01T00:00:00+05:00", [2001]])
def test_wrong_moments_are_refused(given: Any) -> None:
    with pytest.raises(ValidationError):
        a_fact(valid_from=given)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"text": ""}, "text"),
        ({"text": " \n"}, "visible"),
        ({"questions": ("Why?",)}, "at least one answer"),
        ({"valid_from": 2020, "valid_to": 2019}, "lies before"),
        ({"namespace": ""}, "namespace"),
        ({"slot": {"subject": "", "relation": "x"}}, "subject"),
        ({"colour": "red"}, "colour"),
        ({"metadata": {"deep": {"er": 1}}}, "metadata"),
    ],
)
def test_wrong_facts_are_refused(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(ValidationError, match=part):
        a_fact(**changes)


def test_facts_are_immutable() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        a_fact().text = "other"  # type: ignore[misc]


def test_a_fact_survives_json() -> None:
    fact = a_fact(
        text="东京是日本的首都。",
        slot={"subject": "日本", "relation": "首都"},
        valid_from=1868,
        metadata={"n": 1, "x": 1.5, "ok": True, "s": "é"},
    )
    again = Fact.model_validate_json(fact.model_dump_json())
    assert again == fact
    assert again.id == fact.id
    assert [type(value) for value in again.metadata.values()] == [int, float, bool, str]


def test_start_is_validity_then_observation() -> None:
    assert a_fact().starts_at == datetime(2024, 5, 1, tzinfo=UTC)
    assert a_fact(valid_from=1990).starts_at == datetime(1990, 1, 1, tzinfo=UTC)


def test_only_two_actions_write() -> None:
    assert {action for action in RouteAction if action.is_write} == {
        RouteAction.WRITE_NEW,
        RouteAction.WRITE_UPDATE,
    }


def test_input_error_names_the_place() -> None:
    error = errors.InputError("is empty", file="a.jsonl", line=3, field="text")
    assert str(error) == "a.jsonl, line 3, field 'text': is empty"
    assert str(errors.InputError("is empty")) == "is empty"


def test_only_transient_errors_may_be_retried() -> None:
    tree = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    transient = {kind.__name__ for kind in tree if issubclass(kind, errors.TransientError)}
    assert transient == {"TransientError", "StoreBusyError"}
    assert all(issubclass(kind, errors.SharpwaveError) for kind in tree)


def test_examples_in_docstrings_hold() -> None:
    result = doctest.testmod(records)
    assert result.attempted >= 1
    assert result.failed == 0
