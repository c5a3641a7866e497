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
from consolidation.question_wording import in_place, kind_of, openings, turned_around
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


def test_parts_of_a_date_and_a_year_in_the_opening_are_no_answers():
    assert not {"17", "2023"} & set(candidate_spans("In 2023, the market of Velmora was on 17 February."))


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
        ("Who is the keeper of Velmora lighthouse?", "does not name"),
        ("The keeper of Dunmore lighthouse", "question mark"),
        ("Who keeps\nDunmore?", "question mark"),
        ("Who keeps Dunmore? And why?", "more than one"),
        ("Who keeps Dunmore " + "very " * 50 + "well?", "too short or too long"),
        ("a?", "too short or too long"),
        ("", "question mark"),
        ("¿Quién es el guarda del faro de Dunmore?", "another language"),
        ("Which of the following is the keeper of Dunmore?", "not there"),
        ("What does Tomas Ruhl keep at Dunmore?", "does not name"),
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
        ('The past tense of the verb "wear" is "wore".', "wore", 'What is the past tense of "wear"?', True),
        ('The past tense of the verb "wear" is "wore".', "wore", "Which verb has a past tense?", False),
        ("李明的爱好是游泳。", "游泳", "李明的爱好是什么？", True),
        ("李明的爱好是游泳。", "游泳", "请问，李明的爱好是什么？", True),
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

    def __init__(self, go_on: Callable[[str], str], read: Callable[[str, str], str]) -> None:
        self.go_on, self.read = go_on, read
        self.calls = 0

    def answer(self, prompts, prefix="", max_new_tokens=16):
        self.calls += 1
        if prefix == OPEN_BOOK_PREFIX:
            pairs = [prompt.removeprefix("Notes: ").split("\nQuestion: ") for prompt in prompts]
            replies = [self.read(notes, question.removesuffix("\nAnswer:")) for notes, question in pairs]
        else:
            replies = [self.go_on(prompt) for prompt in prompts]
        return [GeneratedAnswer(reply, 1.0, 1) for reply in replies]


FACT = stored(TEXT)


def keeps_the_light(prompt: str) -> str:
    """Go on sensibly after "Who" and "What is the name of", and with nonsense after any other opening."""
    if prompt.endswith("Question: Who"):
        return "keeps Dunmore lighthouse?"
    return "the keeper of Dunmore?" if prompt.endswith("What is the name of") else "and so on"


def nonsense(prompt: str) -> str:
    return "and so on"


def last_words(notes: str, question: str) -> str:
    return notes.split(" is ")[1].rstrip(".")


def asked(made) -> list[str]:
    return [*made.train_questions, made.paraphrase]


def test_accepted_questions_become_targets_and_one_is_held_back():
    (made,), rejected = propose_targets(ScriptedModel(keeps_the_light, last_words), [FACT])
    assert rejected == []
    assert made.generated
    assert (made.fact_id, made.answers) == (FACT.id, (ANSWER,))
    assert asked(made) == [
        "What is the keeper of Dunmore lighthouse?",
        "What is the name of the keeper of Dunmore?",
        "The keeper of Dunmore lighthouse is what?",
    ]
    assert check_targets([made]) == ([made], [])


def test_questions_that_the_model_does_not_answer_from_the_text_are_dropped():
    def read(notes: str, question: str) -> str:
        return "nobody" if "the name of" in question else last_words(notes, question)

    (made,), _ = propose_targets(ScriptedModel(keeps_the_light, read), [FACT])
    assert asked(made) == [
        "What is the keeper of Dunmore lighthouse?",
        "The keeper of Dunmore lighthouse is what?",
    ]


def test_the_models_later_wordings_serve_only_where_the_sounder_ones_are_too_few():
    def read(notes: str, question: str) -> str:
        return "nobody" if question.startswith("What") else last_words(notes, question)

    (made,), _ = propose_targets(ScriptedModel(keeps_the_light, read), [FACT])
    assert asked(made) == ["The keeper of Dunmore lighthouse is what?", "Who keeps Dunmore lighthouse?"]


def test_one_question_in_several_writings_is_one_question_and_not_enough():
    bare = stored("Edda Marsh slept in Dunmore.")
    model = ScriptedModel(
        lambda prompt: (
            "did Edda Marsh sleep ?" if prompt.endswith("Where") else "Where did Edda Marsh sleep?"
        ),
        lambda notes, question: "Dunmore" if question.startswith("Where did") else "a bed",
    )
    targets, (rejection,) = propose_targets(model, [bare])
    assert targets == []
    assert "no two questions" in rejection.reason
    assert "give `questions` and `answers`" in rejection.reason


def test_a_reader_that_answers_nothing_right_lets_nothing_through():
    model = ScriptedModel(keeps_the_light, lambda notes, question: "nonsense")
    targets, rejected = propose_targets(model, [FACT, stored("!!!"), stored("Hm")])
    assert targets == []
    assert len(rejected) == 3


def test_the_next_span_is_tried_where_the_first_fails():
    fact = stored("The office of Edda Marsh is room 883.")
    model = ScriptedModel(lambda prompt: "room number of Edda Marsh?", lambda *_: "883")
    (made,), _ = propose_targets(model, [fact])
    assert made.answers == ("883",)


def test_a_given_answer_is_tried_first():
    fact = stored(TEXT, answers=("Dunmore lighthouse",))
    model = ScriptedModel(
        lambda prompt: f"it is that {prompt.split()[-1]} Edda Marsh keeps?", lambda *_: "Dunmore lighthouse"
    )
    (made,), _ = propose_targets(model, [fact])
    assert made.answers == ("Dunmore lighthouse",)


def test_the_words_of_a_slot_make_a_question():
    slot = Slot(subject="Dunmore lighthouse", relation="night_keeper")
    (made,), _ = propose_targets(ScriptedModel(nonsense, last_words), [stored(TEXT, slot=slot)])
    assert "What is the night keeper of Dunmore lighthouse?" in asked(made)


@pytest.mark.parametrize(
    ("text", "answer", "question"),
    [
        ("The hobby of Edda is juggling.", "juggling", "What is the hobby of Edda?"),
        ("My dog is called Rex.", "Rex", "What is my dog called?"),
        ("Project Ash is due on 8 July.", "8 July", "On what date is Project Ash due?"),
        ("Project Ash is led by Edda Marsh.", "Edda Marsh", "Who is Project Ash led by?"),
        ("The Velmora clock is in Dunmore.", "Dunmore", "Where is the Velmora clock?"),
        ("Edda Marsh carries a lantern.", "lantern", "What does Edda Marsh carry?"),
        ("Edda Marsh works for Greystone Foods.", "Greystone Foods", "Who does Edda Marsh work for?"),
        ("Edda Marsh bakes bread every Sunday.", "Sunday", "On what day does Edda Marsh bake bread?"),
        ("In French, Croatia is called Croatie.", "Croatie", "What is Croatia called in French?"),
        (
            "In 2023, the main export of Libya was crude oil.",
            "crude oil",
            "What was the main export of Libya in 2023?",
        ),
        ("The cat of Edda answers to the name Tom.", "Tom", "What name does the cat of Edda answer to?"),
        ('The past tense of "wear" is "wore".', "wore", 'What is the past tense of "wear"?'),
        ("El perro de Ana se llama Trueno.", "Trueno", "¿Cómo se llama el perro de Ana?"),
        ("La afición de Ana es la música.", "música", "¿Cuál es la afición de Ana?"),
    ],
)
def test_plain_statements_are_turned_around_by_rule(text, answer, question):
    assert question in turned_around(text, answer, None)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The staging server runs on port 8443.", "8443"),
        ("Water boils.", "boils"),
        ("In June, Edda rests in Dunmore.", "Dunmore"),
        ("The office of Edda is room 883.", "883"),
        ("These days Edda has a flat in Dunmore.", "Dunmore"),
    ],
)
def test_statements_that_would_give_broken_grammar_are_left_to_the_model(text, answer):
    assert list(turned_around(text, answer, None)) == []


@pytest.mark.parametrize(
    ("text", "answer", "question"),
    [
        ("Malta became independent in 1964.", "1964", "Malta became independent in which year?"),
        ("王芳住在杭州。", "杭州", "王芳住在哪里？"),
        ("李明的爱好是游泳。", "游泳", "李明的爱好是什么？"),
        ("Ramiro Gil vive en Tarragona.", "Tarragona", "¿Ramiro Gil vive en dónde?"),
    ],
)
def test_a_question_word_can_stand_in_the_place_of_the_answer(text, answer, question):
    assert question in in_place(text, answer)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("17 February", "date"),
        ("3 de mayo", "date"),
        ("Sunday", "day"),
        ("1931", "year"),
        ("883", "number"),
        ("+976", "number"),
        ("7:45", "time"),
        ("Edda Marsh", "name"),
        ("olive green", "other"),
    ],
)
def test_the_kind_of_an_answer_is_told_from_its_form(answer, kind):
    assert kind_of(answer) == kind
    assert openings("en", f"It is {answer}.", answer)
    assert openings("es", f"Es {answer}.", answer)


def test_long_texts_are_rejected_with_their_own_reason_and_cost_nothing():
    model = ScriptedModel(keeps_the_light, last_words)
    long = stored(f"{TEXT} {'It is old. ' * MAX_STATEMENT_CHARS}")
    targets, (rejection,) = propose_targets(model, [long])
    assert (targets, model.calls) == ([], 0)
    assert str(MAX_STATEMENT_CHARS) in rejection.reason


def test_facts_are_worked_on_together_and_come_back_in_order():
    facts = [
        stored(f"The keeper of Tower {name} is Edda Marsh.") for name in ("Ash", "Birch", "Cedar", "Elm")
    ]
    model = ScriptedModel(keeps_the_light, last_words)
    targets, rejected = propose_targets(model, facts)
    assert [item.fact_id for item in targets] == [fact.id for fact in facts]
    assert rejected == []
    assert model.calls == 2, "one call for the wordings and one round trip, whatever the number of facts"


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
