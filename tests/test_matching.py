"""Answer matching: SQuAD's rules, and other scripts."""

from __future__ import annotations

import doctest

import pytest

from sharpwave import matching
from sharpwave.matching import exact_match, normalise_answer, token_f1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  U.S. Dollar!", "us dollar"),
        ("an apple, a day", "apple day"),
        ("Theatre", "theatre"),
        ("¿Dónde está?", "dónde está"),
        ("ＡＢＣ１２３", "abc123"),
        ("「东京」。", "东京"),
        ("Straße", "strasse"),
        ("$1,500", "1500"),
        ("a", ""),
    ],
)
def test_normal_form(text: str, expected: str) -> None:
    assert normalise_answer(text) == expected


def test_normalising_twice_changes_nothing() -> None:
    for text in ("The a the b", "¡Olé, the U.K.!", "a-b-the", "ﬁne “print”"):
        assert normalise_answer(normalise_answer(text)) == normalise_answer(text)


def test_match_takes_any_alias_and_nothing_less_than_all_of_it() -> None:
    assert exact_match("Paris.", ["Lutetia", "paris"])
    assert exact_match("the euro", ["Euro"])
    assert not exact_match("Paris France", ["Paris"])
    assert not exact_match("Paris", [])


def test_accents_distinguish() -> None:
    assert not exact_match("si", ["sí"])
    assert exact_match("si\u0301", ["s\u00ed"])  # the same letter, written in two ways


@pytest.mark.parametrize(
    ("prediction", "answers", "expected"),
    [
        ("red big dog", ["big dog"], 0.8),
        ("cat", ["dog"], 0.0),
        ("x", ["y", "x"], 1.0),
        ("dog dog", ["dog"], 2 / 3),
        ("", ["dog"], 0.0),
        ("the", ["a"], 1.0),
        ("x", [], 0.0),
    ],
)
def test_token_f1(prediction: str, answers: list[str], expected: float) -> None:
    assert token_f1(prediction, answers) == pytest.approx(expected)


def test_examples_in_docstrings_hold() -> None:
    result = doctest.testmod(matching)
    assert result.attempted >= 2
    assert result.failed == 0
