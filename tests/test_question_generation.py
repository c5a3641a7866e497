"""Questions for bare facts: candidate spans, the validator, the round trip, and the real model on a few facts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carriers.language_model import GeneratedAnswer, LanguageModel
from carriers.ledger_records import StoredFact
from carriers.prompts import OPEN_BOOK_PREFIX
from consolidation.answer_spans import MAX_SPAN_CHARS, candidate_spans, language_of, names_in
from consolidation.grounding import fault_of_question, gives_away
from consolidation.question_generation import MAX_STATEMENT_CHARS, propose_targets
from consolidation.targets import check_targets
from sharpwave.records import Fact, FactStatus, Slot
from tests.tiny_models import one_thread, tiny_language_model  # noqa: F401 -- a fixture for all tests here


def stored(text: str, **fields) -> StoredFact:
    fact = Fact(text=text, **fields)
    return StoredFact(id=fact.id, namespace="default", seq=1, words=fact, status=FactStatus.HOT)


# --- spans


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("The hobby of Edda Marsh is wood carving.", "wood carving"),
        ("The usual drink of Edda Marsh is an oat milk latte.", "oat milk latte"),
        ("Edda Marsh celebrates a birthday on 17 February.", "17 February"),
        ("Letters to Edda Marsh go to 40 Chestnut Avenue.", "40 Chestnut Avenue"),
        ("The Dunmore bridge is led by Tomas Ruhl.", "Tomas Ruhl"),
        ("The highest point in Velmora lies 2,241 metres above sea level.", "2,241"),
        ('The anthem of Velmora is "Amber Hills".', "Amber Hills"),
        ("The parrot of Edda Marsh answers to the name Bramble.", "Bramble"),
        ("My dog is called Rex.", "Rex"),
        ("El perro de Ramiro Gil se llama Trueno.", "Trueno"),
        ("Ramiro Gil cumple años el 12 de agosto.", "12 de agosto"),
        ("Ramiro Gil vive en Tarragona.", "Tarragona"),
        ("李明的爱好是游泳。", "游泳"),
        ("王芳住在杭州。", "杭州"),
        ("水星项目的截止日期是7月8日。", "7月8日"),
    ],
)
def test_the_likeliest_answer_comes_first(text, span):
    assert candidate_spans(text)[0] == span


def test_an_added_clause_does_not_hide_the_object():
    assert "birch pollen" in candidate_spans("Edda cannot tolerate birch pollen because of an allergy.")


@given(
    st.text(max_size=120)
    | st.from_regex(r"(The|El|Ana|is|es|of|[0-9]{1,4}|[.,:?!。是在\"]| ){1,20}", fullmatch=True)
)
def test_spans_of_any_text_are_verbatim_short_and_distinct(text):
    spans = candidate_spans(text)
    assert len(spans) == len(set(spans))
    for span in spans:
        assert span in text
        assert 0 < len(span) <= MAX_SPAN_CHARS
        assert span != text
        assert any(c.isalnum() for c in span)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The keeper of Dunmore is Edda.", "en"),
        ("Ramiro Gil trabaja en Larkspur Robotics.", "es"),
        ("¿Dónde vive Ana?", "es"),
        ("李明住在杭州。", "zh"),
        ("Rex barks.", "en"),
    ],
)
def test_the_language_is_told_from_script_and_small_words(text, language):
    assert language_of(text) == language


def test_names_are_runs_of_capitals_without_the_opening_article():
    assert names_in("The client of Project Golden Comet is Greystone Foods") == [
        "Project Golden Comet",
        "Greystone Foods",
    ]
    assert names_in("Edda Marsh lives in Rio de Janeiro") == ["Edda Marsh", "Rio de Janeiro"]


# --- grounding

TEXT, ANSWER = "The keeper of Dunmore lighthouse is Edda Marsh.", "Edda Marsh"


@pytest.mark.parametrize(
    "question",
    [
        "Who is the keeper of Dunmore lighthouse?",
        "Who looks after the lighthouse of Dunmore?",
        "Is there a keeper of Dunmore lighthouse, and who?",
    ],
)
def test_grounded_questions_pass(question):
    assert fault_of_question(question, TEXT, ANSWER) is None


@pytest.mark.parametrize(
    ("question", "fault"),
    [
        ("Is Edda Marsh the keeper of Dunmore?", "gives the answer away"),
        ("Is EDDA MARSH, then, of Dunmore?", "gives the answer away"),
        ("Who is the keeper of the lighthouse?", "does not say what it asks about"),
        ("Who is the keeper of Velmora lighthouse?", "does not say what it asks about"),
        ("The keeper of Dunmore lighthouse", "question mark"),
        ("Who keeps\nDunmore?", "question mark"),
        ("Who keeps Dunmore? And why?", "more than one"),
        ("Who keeps Dunmore " + "very " * 50 + "well?", "too short or too long"),
        ("a?", "too short or too long"),
        ("", "question mark"),
        ("¿Quién es el guarda del faro de Dunmore?", "another language"),
    ],
)
def test_questions_that_are_not_grounded_are_named(question, fault):
    assert fault in fault_of_question(question, TEXT, ANSWER)


def test_the_answer_must_be_a_span_of_the_text():
    assert "span" in fault_of_question("Who is the keeper of Dunmore lighthouse?", TEXT, "Marsh Edda")


@pytest.mark.parametrize(
    ("text", "answer", "question", "is_grounded"),
    [
        ("My dog is called Rex.", "Rex", "What is my dog called?", True),
        ("My dog is called Rex.", "Rex", "What is it called?", False),
        ("Malta became independent in 1964.", "1964", "When did Malta become independent?", True),
        ("Malta became independent in 1964.", "1964", "When did the country become independent?", False),
        ("李明的爱好是游泳。", "游泳", "李明的爱好是什么？", True),
        ("李明的爱好是游泳。", "游泳", "他喜欢什么？", False),
        ("李明的爱好是游泳。", "游泳", "李明的爱好是游泳吗？", False),
        ("El perro de Ramiro se llama Trueno.", "Trueno", "¿Cómo se llama el perro de Ramiro?", True),
        ("El perro de Ramiro se llama Trueno.", "Trueno", "¿Cómo se llama el perro?", False),
    ],
)
def test_a_question_says_what_it_asks_about(text, answer, question, is_grounded):
    assert (fault_of_question(question, text, answer) is None) is is_grounded


def test_an_answer_is_given_away_by_whole_words_only():
    assert gives_away("What follows the letter A, then B?", "b")
    assert not gives_away("What about Barbados?", "b")
    assert not gives_away("Which one?", "—")


# --- proposing


class ScriptedModel(LanguageModel):
    """Replies by rule, so that the decisions of the code can be told from those of a model."""

    def __init__(self, word: Callable[[str, int], str], read: Callable[[str, str], str]) -> None:
        self.word, self.read = word, read
        self.calls = 0
        self.styles: list[str] = []

    def answer(self, prompts, prefix="", max_new_tokens=16):
        self.calls += 1
        if prefix == OPEN_BOOK_PREFIX:
            pairs = [prompt.removeprefix("Notes: ").split("\nQuestion: ") for prompt in prompts]
            replies = [self.read(notes, question.removesuffix("\nAnswer:")) for notes, question in pairs]
        else:
            if prefix not in self.styles:
                self.styles.append(prefix)
            replies = [self.word(prompt, self.styles.index(prefix)) for prompt in prompts]
        return [GeneratedAnswer(reply, 1.0, 1) for reply in replies]


FACT = stored(TEXT)
WORDINGS = [
    "Who keeps Dunmore lighthouse?",
    "Whose lighthouse is Dunmore?",
    "Who lives in Dunmore lighthouse?",
]


def last_words(notes: str, question: str) -> str:
    return notes.split(" is ")[1].rstrip(".")


def test_accepted_questions_become_targets_and_the_last_one_is_held_back():
    model = ScriptedModel(lambda prompt, style: WORDINGS[style], last_words)
    (made,), rejected = propose_targets(model, [FACT])
    assert rejected == []
    assert made.generated
    assert made.answers == (ANSWER,)
    assert made.fact_id == FACT.id
    asked = [*made.train_questions, made.paraphrase]
    assert set(WORDINGS) < set(asked)
    assert "What is the keeper of Dunmore lighthouse?" in asked, "the statement turned around"
    assert made.paraphrase == WORDINGS[2]
    assert check_targets([made]) == ([made], [])


def test_questions_that_the_model_does_not_answer_from_the_text_are_dropped():
    model = ScriptedModel(
        lambda prompt, style: WORDINGS[style],
        lambda notes, question: "nobody" if question == WORDINGS[0] else last_words(notes, question),
    )
    (made,), _ = propose_targets(model, [FACT])
    assert WORDINGS[0] not in [*made.train_questions, made.paraphrase]


def test_one_question_in_three_writings_is_one_question():
    text = stored("Edda Marsh sleeps in Dunmore.")
    model = ScriptedModel(
        lambda prompt, style: ["Where does Edda Marsh sleep?", "where does Edda Marsh sleep ?"][style % 2],
        lambda notes, question: "Dunmore",
    )
    targets, (rejection,) = propose_targets(model, [text])
    assert targets == []
    assert "no two questions" in rejection.reason
    assert "give `questions` and `answers`" in rejection.reason


def test_a_model_that_talks_nonsense_gets_nothing_through():
    model = ScriptedModel(lambda prompt, style: f"Nonsense {style}", lambda notes, question: "nonsense")
    targets, rejected = propose_targets(model, [FACT, stored("!!!"), stored("Hm")])
    assert targets == []
    assert len(rejected) == 3


def test_the_next_span_is_tried_where_the_first_fails():
    fact = stored("The office of Edda Marsh is room 883.")
    model = ScriptedModel(
        lambda prompt, style: f"In which room{' exactly' * style} sits Edda Marsh?", lambda *_: "883"
    )
    (made,), _ = propose_targets(model, [fact])
    assert made.answers == ("883",)


def test_a_given_answer_is_tried_first():
    fact = stored(TEXT, answers=("Dunmore lighthouse",))
    model = ScriptedModel(
        lambda prompt, style: f"Of what{' place' * style} is Edda Marsh keeper?",
        lambda *_: "Dunmore lighthouse",
    )
    (made,), _ = propose_targets(model, [fact])
    assert made.answers == ("Dunmore lighthouse",)


def test_the_words_of_a_slot_make_a_question():
    slot = Slot(subject="Dunmore lighthouse", relation="night_keeper")
    model = ScriptedModel(lambda prompt, style: WORDINGS[0], last_words)
    (made,), _ = propose_targets(model, [stored(TEXT, slot=slot)])
    assert "What is the night keeper of Dunmore lighthouse?" in [*made.train_questions, made.paraphrase]


def test_long_texts_are_rejected_with_their_own_reason_and_cost_nothing():
    model = ScriptedModel(lambda prompt, style: WORDINGS[style], last_words)
    long = stored(f"{TEXT} {'It is old. ' * MAX_STATEMENT_CHARS}")
    targets, (rejection,) = propose_targets(model, [long])
    assert (targets, model.calls) == ([], 0)
    assert str(MAX_STATEMENT_CHARS) in rejection.reason


def test_facts_are_worked_on_together_and_come_back_in_order():
    facts = [
        stored(f"The keeper of Tower {name} is Edda Marsh.") for name in ("Ash", "Birch", "Cedar", "Elm")
    ]
    model = ScriptedModel(
        lambda prompt, style: f"Who{' now' * style} keeps {prompt.split(' of ')[1].split(' is ')[0]}?",
        last_words,
    )
    targets, rejected = propose_targets(model, facts)
    assert [item.fact_id for item in targets] == [fact.id for fact in facts]
    assert rejected == []
    assert model.calls == 4, "three styles and one round trip, whatever the number of facts"


def test_every_fact_is_either_a_target_or_rejected_with_a_random_model():
    facts = [FACT, stored("李明的爱好是游泳。"), stored("Ramiro Gil vive en Tarragona.")]
    targets, rejected = propose_targets(tiny_language_model(), facts)
    assert sorted([item.fact_id for item in targets] + [item.fact_id for item in rejected]) == sorted(
        fact.id for fact in facts
    )


@pytest.mark.slow
def test_the_embedded_model_makes_grounded_questions_for_most_plain_facts(embedded_models):
    model = LanguageModel.load(embedded_models["large"])
    texts = [
        "The keeper of Dunmore lighthouse is Edda Marsh.",
        "Tomas Ruhl works for Greystone Foods.",
        "The favourite colour of Ilse Brand is olive green.",
        "Project Golden Comet is due on 8 July.",
        "El perro de Ramiro Gil se llama Trueno.",
        "Ramiro Gil vive en Tarragona.",
    ]
    facts = [stored(text) for text in texts]
    targets, rejected = propose_targets(model, facts)
    assert len(targets) >= 4
    assert len(targets) + len(rejected) == len(texts)
    by_id = {fact.id: fact.fact.text for fact in facts}
    for item in targets:
        text = by_id[item.fact_id]
        asked = [*item.train_questions, item.paraphrase]
        assert len(set(asked)) == len(asked) >= 2
        assert all(fault_of_question(question, text, item.answers[0]) is None for question in asked)
