"""Recall: which of the two carriers is believed, and what is told about it. The models' answers are given."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from carriers.language_model import GeneratedAnswer
from carriers.prompts import is_from_examples, open_book
from carriers.question_names import missing_names
from carriers.recall import Note, Recall
from sharpwave.records import AnswerOrigin
from sharpwave.settings import RecallSettings

QUESTION = "Where does Mira live?"


class Notes:
    """A store that finds the same facts for every question."""

    def __init__(self, *notes: Note, replaces: bool = False) -> None:
        self._notes, self._replaces = list(notes), replaces

    def find(self, namespace, questions, top_k, as_of):
        return [self._notes[:top_k] for _ in questions]

    def replaces_learnt(self, fact_id):
        return self._replaces


class Speaker:
    """A model that always says the same, and counts how often it is asked."""

    def __init__(self, text: str, prob: float) -> None:
        self._answer, self.asked = GeneratedAnswer(text, prob, 1), 0

    def answer(self, prompts, prefix):
        self.asked += len(prompts)
        return [self._answer] * len(prompts)


def recall(source, *, read="Porto", read_prob=0.9, known="Lisbon", known_prob=0.9) -> Recall:
    return Recall(
        source,
        reader=Speaker(read, read_prob),
        weights=Speaker(known, known_prob),
        settings=RecallSettings(),
        generation=3,
    )


def note(similarity: float, fact_id: str = "a", text: str = "Mira lives in Porto.") -> Note:
    return Note(fact_id, text, similarity)


def test_without_notes_the_weights_answer_and_no_fact_is_named():
    [answer] = recall(Notes()).answer([QUESTION])
    assert (answer.text, answer.origin, answer.fact_ids) == ("Lisbon", AnswerOrigin.WEIGHTS, ())
    assert (answer.generation, answer.similarity) == (3, None)


def test_a_very_near_fact_is_read_and_the_weights_are_not_asked():
    both = recall(Notes(note(0.99)))
    [answer] = both.answer([QUESTION])
    assert (answer.text, answer.origin, answer.fact_ids) == ("Porto", AnswerOrigin.STORE, ("a",))
    assert both.weights.asked == 0


@pytest.mark.parametrize(("read_prob", "known_prob", "text"), [(0.9, 0.1, "Porto"), (0.01, 0.99, "Lisbon")])
def test_of_two_answers_the_arbiter_weighs_nearness_and_sureness(read_prob, known_prob, text):
    [answer] = recall(Notes(note(0.45)), read_prob=read_prob, known_prob=known_prob).answer([QUESTION])
    assert answer.text == text


@pytest.mark.parametrize(("about", "text"), [("Mira", "Porto"), ("Tilda", "Lisbon")])
def test_a_note_about_somebody_else_is_believed_less(about, text):
    found = Note("a", f"{about} lives in Porto.", 0.6)
    [answer] = recall(Notes(found), read_prob=0.3, known_prob=0.35).answer(["Where does Mira live?"])
    assert answer.text == text


@pytest.mark.parametrize(
    ("question", "note", "share"),
    [
        ("Where does Mira Solbakken live?", "Mira lives in Porto.", 0.5),
        ("Which is Mongolia's official language?", "The Mongolian language is official.", 0.0),
        ("What happened in 1931?", "In 1932 the dam broke.", 1.0),
        ("¿Dónde vive Álvaro?", "Alvaro vive aquí. ÁLVARO.", 0.0),
        ("where does mira live?", "Tilda lives in Porto.", 0.0),
        ("李明的猫叫什么?", "小豆子", 0.0),
        ("", "", 0.0),
    ],
)
def test_names_of_a_question_that_a_note_lacks(question, note, share):
    assert missing_names(question, note) == share


def test_a_fact_that_replaces_what_the_weights_learnt_always_wins():
    [answer] = recall(Notes(note(0.45), replaces=True), read_prob=0.01, known_prob=0.99).answer([QUESTION])
    assert answer.text == "Porto"


def test_facts_far_behind_the_best_are_not_read():
    settings = RecallSettings()
    far = note(0.9 - settings.spread - 0.01, "far")
    [answer] = recall(Notes(note(0.9), note(0.9 - settings.spread + 0.01, "near"), far)).answer([QUESTION])
    assert answer.fact_ids == ("a", "near")


def test_a_past_date_is_answered_from_the_store():
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    [answer] = recall(Notes(note(0.45)), read_prob=0.01, known_prob=0.99).answer([QUESTION], as_of=moment)
    assert answer.text == "Porto"


def test_an_answer_out_of_the_worked_examples_is_never_the_stores():
    [answer] = recall(Notes(note(0.99)), read="In the old mill of Velmora").answer([QUESTION])
    assert (answer.text, answer.origin, answer.fact_ids) == ("Lisbon", AnswerOrigin.WEIGHTS, ())


@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        ("the old mill of Velmora", "Mira lives in Porto.", True),
        ("the old mill of Velmora", "Mira lives in the old mill of Velmora.", False),
        ("Porto", "Mira lives in Porto.", False),
        ("in Velmora, Porto", "Mira lives in Porto.", True),
        ("with Edda in Graz", "Mira lives in Porto.", False),
        ("4", "Mira lives in Porto.", False),
        ("", "Mira lives in Porto.", False),
    ],
)
def test_words_of_the_worked_examples_are_told_from_words_of_the_notes(answer, text, expected):
    assert is_from_examples(answer, open_book(QUESTION, [text])) is expected
