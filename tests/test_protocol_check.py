"""An arm that has seen the answers is caught; honest arms, lucky ones included, are not."""

from __future__ import annotations

import pytest

from eval.protocol_check import check_protocol
from eval.run_records import ABSENT, FULL_STORE_ARM, NO_MEMORY_ARM, SHARPWAVE_ARM, AnswerRow
from sharpwave.errors import InputError
from sharpwave.records import AnswerOrigin


def absent_rows(arm: str, right: int, n: int = 40, kind: str = ABSENT) -> list[AnswerRow]:
    return [
        AnswerRow(
            arm=arm,
            step=number % 4,
            fact_id=f"{number:032x}",
            question=f"Who keeps lighthouse {number}?",
            answer=f"Ada {number}",
            given=f"Ada {number}" if number < right else "nobody",
            correct=number < right,
            origin=AnswerOrigin.WEIGHTS,
            kind=kind,
        )
        for number in range(n)
    ]


def controls(none: int = 1, full: int = 2) -> list[AnswerRow]:
    return absent_rows(NO_MEMORY_ARM, none) + absent_rows(FULL_STORE_ARM, full)


def test_an_arm_that_sees_the_answers_is_named():
    with pytest.raises(InputError, match=r"'sharpwave' answers 95% of 40 .* base model answers 2%"):
        check_protocol(controls() + absent_rows(SHARPWAVE_ARM, 38))


@pytest.mark.parametrize("right", [0, 1, 6])
def test_luck_is_no_cheating(right: int):
    check_protocol(controls() + absent_rows(SHARPWAVE_ARM, right))


def test_what_the_full_store_answers_too_is_no_secret():
    check_protocol(controls(none=1, full=36) + absent_rows(SHARPWAVE_ARM, 38))


def test_good_answers_about_facts_that_arrived_are_no_cheating():
    check_protocol(controls() + absent_rows(SHARPWAVE_ARM, 40, kind="new"))


def test_streams_without_absent_facts_pass():
    check_protocol([])
