"""Targets: which wording is trained, which is only probed, and which targets would teach the wrong thing."""

from __future__ import annotations

import pytest

from carriers.ledger_records import StoredFact
from carriers.prompts import closed_book
from consolidation.records import FactTargets
from consolidation.targets import (
    MAX_TRAIN_QUESTIONS,
    check_targets,
    generated_targets,
    given_targets,
    training_targets,
)
from sharpwave.records import Fact, FactStatus


def stored(*questions: str, answers=("green", "leaf green")) -> StoredFact:
    fact = Fact(text="Ilse's bicycle is green.", questions=questions, answers=answers if questions else ())
    return StoredFact(id=fact.id, namespace="default", seq=1, words=fact, status=FactStatus.HOT)


def targets(fact_id="a", *, train=("What colour is it?",), paraphrase="Which colour?", answers=("green",)):
    return FactTargets(
        fact_id=fact_id, text="It is green.", train_questions=train, paraphrase=paraphrase, answers=answers
    )


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_the_last_wording_is_never_trained(count):
    questions = [f"Wording {number}?" for number in range(count)]
    made = given_targets(stored(*questions))
    assert made.paraphrase == questions[-1]
    assert made.train_questions == tuple(questions[: min(count - 1, MAX_TRAIN_QUESTIONS)])
    assert made.answers == ("green", "leaf green")
    assert not made.generated


def test_a_single_wording_is_probed_in_another_frame():
    made = given_targets(stored("What colour is Ilse's bicycle?"))
    assert made.train_questions[0] == "What colour is Ilse's bicycle?"
    assert made.paraphrase not in made.train_questions
    assert "What colour is Ilse's bicycle?" in made.paraphrase


def test_a_fact_without_questions_has_no_given_targets():
    assert given_targets(stored()) is None


def test_generated_targets_say_so_and_hold_one_wording_back():
    made = generated_targets(stored(), ["What colour is it?", "Which colour has it?"], "green")
    assert made.generated
    assert (made.train_questions, made.paraphrase) == (("What colour is it?",), "Which colour has it?")
    assert made.answers == ("green",)


def test_training_pairs_ask_closed_book_in_both_forms_and_never_the_paraphrase():
    pairs = training_targets([targets("a", train=("One?", "Two?", "Three?")), targets("b", train=("Four?",))])
    assert [(pair.fact_id, pair.prompt) for pair in pairs] == [
        *[("a", closed_book(question)) for question in ("One?", "Two?", "Three?") * 2],
        *[("b", closed_book("Four?"))] * 2,
    ]
    assert [pair.prefixed for pair in pairs] == [False, True, False, True, False, True, False, True]
    assert {pair.completion for pair in pairs} == {"green"}


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (targets(answers=("—",)), "no visible word"),
        (targets(answers=("the",)), "no visible word"),
        (targets(train=("Is it green?",)), "gives the answer away"),
        (targets(train=("What colour?", "Is it Green, then?")), "gives the answer away"),
        (targets(paraphrase="Is it green?"), "gives the answer away"),
        (
            targets(train=("小猫小白叫什么？",), paraphrase="叫什么？", answers=("小白",)),
            "gives the answer away",
        ),
    ],
)
def test_targets_that_teach_nothing_are_rejected_with_a_reason(made, reason):
    kept, rejected = check_targets([made])
    assert kept == []
    assert [item.fact_id for item in rejected] == ["a"]
    assert reason in rejected[0].reason


def test_an_answer_within_a_longer_word_is_not_given_away():
    made = targets(train=("What is the Greenwich line?",))
    assert check_targets([made]) == ([made], [])


def test_two_facts_that_answer_one_question_differently_are_both_rejected():
    same = {"train": ("What colour is it?",)}
    a, b = targets("a", **same), targets("b", train=("what colour is it",), answers=("blue",))
    innocent = targets("c", train=("Which size?",), answers=("large",))
    kept, rejected = check_targets([a, b, innocent])
    assert kept == [innocent]
    assert {item.fact_id for item in rejected} == {"a", "b"}
    assert all("differently" in item.reason for item in rejected)


def test_two_facts_that_agree_are_both_kept():
    pair = [targets("a"), targets("b", answers=("Green.",))]
    assert check_targets(pair) == (pair, [])
