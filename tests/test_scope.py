"""The scope of an adapter: what it reaches, what it leaves to the base model, and that it travels with the adapter."""

from __future__ import annotations

import numpy as np
import pytest

from carriers.adapter_files import adapter_digest
from carriers.adapters import UpdateStack, stack_adapters
from carriers.doctor import run_doctor
from carriers.embedder import HashingEmbedder
from carriers.external_memory import ExternalMemory
from carriers.prompts import CLOSED_BOOK_PREFIX, closed_book
from carriers.scope import SCOPE_FILE, Scope, ScopedFact, stack_scopes
from carriers.scoped_model import ScopedLanguageModel
from carriers.updated_model import updated_models
from consolidation.scopes import rescope_generations
from consolidation.scopes import scope_of as scope_of_targets
from consolidation.targets import known_targets
from serving.agent_memory import in_scope
from sharpwave.errors import IntegrityError, WeightsError
from sharpwave.records import Fact, RouteAction, Slot
from tests.decisions import given_decision
from tests.tiny_models import (
    one_thread,  # noqa: F401 -- a fixture for all tests here
    save_random_adapter,
    tiny_language_model,
)

EMBEDDER = HashingEmbedder(256)
MIRA = ScopedFact(
    ("Where does Mira live?", "In which city does Mira live?"), "Mira lives in Porto.", "Mira home"
)
TOMAS = ScopedFact(
    ("Where does Tomás live?", "In which city does Tomás live?"), "Tomás lives in Graz.", "Tomás home"
)


RANK = 2  # of a random adapter


def scope_of(*facts, similarity=0.6):
    return Scope.of(facts, RANK, similarity, EMBEDDER)


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ("Where does Mira live?", True),
        (closed_book("Where does Mira live?"), True),
        ("In what city does Mira live now?", True),
        ("Mira lives in Porto.", True),
        ("Where does Tilda live?", False),  # as near as can be, but about somebody else
        ("Where does Mira work, and with whom does she share an office?", False),
        ("The moss under the old oak is green.", False),
        ("", False),
    ],
)
def test_what_a_scope_covers(text, covered):
    assert scope_of(MIRA).covers([text]) == [covered]


def test_questions_without_names_are_told_by_their_likeness_alone():
    lower = ScopedFact(("what is the melting point of gallium?",), "gallium melts at 30 degrees.", "gallium")
    found = scope_of(lower, similarity=0.8).covers([
        "what is the melting point of gallium?",
        "who painted the ceiling?",
    ])
    assert found == [True, False]


def test_accents_may_be_left_out():
    assert scope_of(TOMAS).covers(["Where does Tomas live?"]) == [True]


def test_a_scope_is_the_same_after_writing_and_holds_no_word(tmp_path):
    scope_of(MIRA, TOMAS).write(tmp_path)
    again = Scope.read(tmp_path, EMBEDDER)
    texts = [*MIRA.questions, *TOMAS.questions, "Where does Tilda live?"]
    assert again.covers(texts) == scope_of(MIRA, TOMAS).covers(texts) == [True] * 4 + [False]
    content = (tmp_path / SCOPE_FILE).read_bytes()
    assert not any(word.encode() in content for word in ("Mira", "mira", "Porto", "porto"))


def test_an_adapter_without_a_scope_has_none(tmp_path):
    assert Scope.read(tmp_path, EMBEDDER) is None


def test_a_scope_of_nothing_covers_nothing_and_can_be_stacked(tmp_path):
    scope_of().write(tmp_path)
    empty = Scope.read(tmp_path, EMBEDDER)
    assert empty.covers([MIRA.questions[0], "who painted the ceiling?"]) == [False, False]
    assert empty.joined(scope_of(MIRA)).covers([MIRA.questions[0], "Where does Tilda live?"]) == [True, False]


def test_a_scope_of_another_embedder_and_a_damaged_one_are_refused(tmp_path):
    scope_of(MIRA).write(tmp_path)
    with pytest.raises(WeightsError, match="another embedder"):
        Scope.read(tmp_path, HashingEmbedder(64))
    file = tmp_path / SCOPE_FILE
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(WeightsError, match="damaged"):
        Scope.read(tmp_path, EMBEDDER)


def test_a_stacked_adapter_reaches_what_both_parts_reach(tmp_path):
    first, second, both = (tmp_path / name for name in ("first", "second", "both"))
    scope_of(MIRA).write(first)
    scope_of(TOMAS).write(second)
    stack_scopes(first, second, both, EMBEDDER)
    stacked = Scope.read(both, EMBEDDER)
    assert stacked.covers([MIRA.questions[0], TOMAS.questions[0]]) == [True, True]
    assert stacked.ranks == (RANK, RANK)
    stack_scopes(None, second, both, EMBEDDER)
    assert Scope.read(both, EMBEDDER).covers([MIRA.questions[0], TOMAS.questions[0]]) == [False, True]


def test_a_fact_is_answered_by_the_update_that_taught_it_whatever_comes_later():
    scope = scope_of(MIRA).joined(scope_of(TOMAS)).joined(scope_of())
    asked = [TOMAS.questions[1], MIRA.questions[0], "Where does Tilda live?", MIRA.text]
    assert scope.updates_for(asked) == [1, 0, None, 0]


def test_the_update_that_taught_a_slot_anew_answers_and_no_earlier_one():
    moved = MIRA._replace(questions=("To which city has Mira moved?",), text="Mira has moved to Faro.")
    scope = scope_of(MIRA).joined(scope_of(TOMAS)).joined(scope_of(moved))
    asked = [*moved.questions, moved.text, TOMAS.questions[0]]
    assert scope.updates_for(asked) == [2, 2, 1]
    assert set(scope.updates_for([*MIRA.questions, MIRA.text])) <= {2, None}


def test_of_facts_asked_alike_the_one_taught_later_answers():
    other = MIRA._replace(text="Mira lives in Faro.", key="no slot was told")
    scope = scope_of(MIRA).joined(scope_of(other))
    assert scope.updates_for(MIRA.questions) == [1, 1]


def test_another_question_about_the_same_subject_keeps_its_own_update():
    job = ScopedFact(
        ("What is the job of Mira?", "As what does Mira work?"), "Mira works as a baker.", "Mira job"
    )
    scope = scope_of(MIRA).joined(scope_of(job))
    assert scope.updates_for([MIRA.questions[0], job.questions[0]]) == [0, 1]


def test_stacked_on_an_adapter_that_answers_everything_there_is_no_scope(tmp_path):
    everything, update, both = (tmp_path / name for name in ("everything", "update", "both"))
    everything.mkdir()
    scope_of(MIRA).write(update)
    scope_of(MIRA).write(both)
    stack_scopes(everything, update, both, EMBEDDER)
    assert Scope.read(both, EMBEDDER) is None


@pytest.fixture
def generation(tmp_path):
    """A tiny model with an adapter that changes everything it says, in scope for Mira alone."""
    save_random_adapter(tmp_path / "update")
    stack_adapters(None, tmp_path / "update", tmp_path / "adapter", 20.0)
    base, stack = tiny_language_model(), UpdateStack(tmp_path / "adapter", [RANK])
    return ScopedLanguageModel(base, updated_models(base, stack), scope_of(MIRA))


def test_in_scope_the_adapter_speaks_elsewhere_the_base_model(generation):
    questions = [
        closed_book(question)
        for question in ("Where does Tilda live?", MIRA.questions[0], "Where does Ugo live?")
    ]
    parts = (generation.base, generation.updated(0))
    base, adapted = (model.answer(questions, CLOSED_BOOK_PREFIX) for model in parts)
    assert generation.answer(questions, CLOSED_BOOK_PREFIX) == [base[0], adapted[1], base[2]]
    assert base[1] != adapted[1]
    assert base[0] != adapted[0]


def test_probes_and_features_go_where_answers_go(generation):
    prompts, answers = (
        [closed_book("Where does Tilda live?"), closed_book(MIRA.questions[0])],
        [["Graz"], ["Porto"]],
    )
    parts = (generation.base, generation.updated(0))
    base, adapted = (model.match_answers(prompts, answers, CLOSED_BOOK_PREFIX) for model in parts)
    found = generation.match_answers(prompts, answers, CLOSED_BOOK_PREFIX)
    assert [item.lowest_prob for item in found] == pytest.approx(
        [base[0].lowest_prob, adapted[1].lowest_prob], 1e-4
    )
    texts = ["Tilda lives in Graz.", MIRA.text]
    base, adapted = (model.forward_features(texts) for model in parts)
    found = generation.forward_features(texts)
    np.testing.assert_allclose(found[0].nll, base[0].nll, rtol=1e-4)
    np.testing.assert_allclose(found[1].nll, adapted[1].nll, rtol=1e-4)
    assert np.abs(base[0].nll - adapted[0].nll).max() > 0.01


def test_a_returning_fact_is_in_scope_by_its_statement_or_its_question(generation):
    facts = [
        Fact(text=MIRA.text),
        Fact(text="Porto it is.", questions=MIRA.questions, answers=("Porto",)),
        Fact(text="Tilda lives in Graz."),
    ]
    assert in_scope(generation, facts) == {fact.id for fact in facts[:2]}
    assert in_scope(generation.updated(0), facts) == set()


def test_a_damaged_adapter_is_not_sealed_anew(tmp_path):
    with ExternalMemory.open(tmp_path, EMBEDDER, writer=True) as memory:
        number, folder = memory.generations.create_shadow(0, "base", [])
        scope_of(MIRA).write(folder)
        (folder / "weights").write_text("right")
        memory.generations.seal(number, adapter_digest(folder), {})
        memory.promote(number, evict=[], proven=[], trained=[], run_id="night")
        (folder / "weights").write_text("wrong")
        with pytest.raises(IntegrityError, match="was changed"):
            rescope_generations(memory, 0.6)
        with pytest.raises(IntegrityError, match="was changed"):
            memory.generations.adapter_folder(number)


def test_another_embedder_gets_scopes_made_anew_from_the_ledger(tmp_path):
    mira = Fact(text=MIRA.text, questions=(*MIRA.questions, "Where is the home of Mira?"), answers=("Porto",))
    forgotten = Fact(
        text=TOMAS.text, questions=(*TOMAS.questions, "Where is the home of Tomás?"), answers=("Graz",)
    )
    with ExternalMemory.open(tmp_path, EMBEDDER, writer=True) as memory:
        facts = [mira, forgotten]
        memory.observe(facts, "ingest")
        memory.route(
            [given_decision(fact.id, RouteAction.WRITE_NEW, generation=0) for fact in facts], "ingest"
        )
        number, folder = memory.generations.create_shadow(0, "base", [fact.id for fact in facts])
        scope_of(MIRA, TOMAS).write(folder)
        memory.generations.seal(number, adapter_digest(folder), {})
        memory.promote(number, evict=[], proven=[], trained=[fact.id for fact in facts], run_id="night")
        memory.forget([forgotten.id])
    other = HashingEmbedder(64)
    run_doctor(tmp_path, other, reembed=True)
    with ExternalMemory.open(tmp_path, other, writer=True) as memory:
        with pytest.raises(WeightsError, match="doctor --reembed"):
            Scope.read(memory.generations.adapter_folder(number), other)
        assert rescope_generations(memory, 0.6) == [number]
        again = Scope.read(memory.generations.adapter_folder(number), other)
    assert again.covers([MIRA.questions[0], TOMAS.questions[0]]) == [True, False]


def test_values_of_one_slot_share_a_key_and_facts_without_a_slot_do_not(tmp_path):
    slot = Slot(subject="Mira", relation="home")
    lived, moved = (
        Fact(text=text, slot=slot, questions=MIRA.questions, answers=(city,), observed_at=f"{day}T00:00:00Z")
        for text, city, day in (
            ("Mira lives in Porto.", "Porto", "2026-01-01"),
            ("Mira has moved to Faro.", "Faro", "2026-01-02"),
        )
    )
    loose = [
        Fact(text=text, questions=TOMAS.questions, answers=("Graz",)) for text in ("In Graz.", "Graz it is.")
    ]
    with ExternalMemory.open(tmp_path, EMBEDDER, writer=True) as memory:
        memory.observe([lived, moved, *loose], "ingest")

        def scope(fact):
            return scope_of_targets(memory, known_targets(memory.ledger.facts([fact.id]), {}), RANK, 0.6)

        assert scope(lived).joined(scope(moved)).updates_for([lived.text, moved.text]) == [None, 1]
        assert scope(loose[0]).joined(scope(loose[1])).updates_for([loose[0].text, loose[1].text]) == [0, 1]
