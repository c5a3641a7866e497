"""Whole nights on a real store with a tiny model: promotion, discard, crashes between stages, going on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from carriers.adapters import merge_adapter
from carriers.embedder import HashingEmbedder
from carriers.external_memory import ExternalMemory
from carriers.prompts import closed_book
from carriers.scope import Scope, ScopedFact
from carriers.scoped_model import ScopedLanguageModel
from consolidation.anchors import AnchorQuestion
from consolidation.confirmation import awaiting_proof
from consolidation.in_weights import known_in_weights, replayed_anchors, risk_of, risk_to_known
from consolidation.night import (
    apply_verdict,
    judge_shadow,
    night_lease,
    plan_night,
    train_shadow,
)
from consolidation.night_folder import (
    PLAN,
    REPORT,
    TRAINING,
    VERDICT,
    NightFolder,
    forget_words,
    generated_wordings,
    unfinished_nights,
    waiting_night,
)
from consolidation.records import FactTargets, NightPlan, NightReport, Rejection, ReviewDecision
from consolidation.reviewing import mark_in_review, request_review, settle_review
from consolidation.write_back import TrainingTarget, train_update
from sharpwave.errors import IntegrityError, StoreBusyError, TrainingError
from sharpwave.records import (
    EventKind,
    Fact,
    FactStatus,
    GenerationStatus,
    RouteAction,
    Slot,
)
from sharpwave.settings import (
    ConsolidationSettings,
    PromotionSettings,
    SelectionSettings,
    WriteBackSettings,
)
from tests.decisions import given_decision
from tests.tiny_models import one_thread, tiny_language_model  # noqa: F401 -- a fixture for all tests here

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")

EMBEDDER = HashingEmbedder(64)
BASE = "tiny-llama-0"
WRITE_BACK = WriteBackSettings(
    lora_rank=4,
    lora_alpha=8,
    epochs=20,
    batch_size=6,
    learning_rate=1e-2,
    aim_ridge=0.0,  # plain LoRA learns most, and damages most
    sure_prob=1.0,
    distill_weight=0.0,
    anchor_count=0,
    prose_count=0,
    modules="all",
)
SETTINGS = ConsolidationSettings(
    selection=SelectionSettings(max_facts=20, min_facts=2),
    write_back=WRITE_BACK,
    promotion=PromotionSettings(
        min_internalised_rate=0.5,
        max_damage_rate=0.2,
        max_perplexity_ratio=100.0,  # prose is nothing to a model of five words
        min_gate_facts=0,
        scales=(1.0, 0.5),
    ),
    shrink_limit=1.0,
    scope_similarity=0.0,  # so that a training can damage what it was not about
    evict_now=True,
)
BOXES = [
    Fact(
        text=f"Box {number} holds blue.",
        slot=Slot(subject=f"box {number}", relation="content"),
        questions=(
            f"What is in box {number}?",
            f"What does box {number} hold?",
            f"What lies in box {number}?",
            f"What does box {number} hold now?",
        ),
        answers=("blue",),
        valid_from="2020",
    )
    for number in range(4)
]
KNOWN = Fact(text="The flag is red.", questions=("What colour is the flag?",), answers=("red",))
MISJUDGED = Fact(text="The moss is green.", questions=("What colour is the moss?",), answers=("green",))
GATE = [
    AnchorQuestion(
        question=f"What colour is the {thing}?",
        answer="red",
        role="gate",
        subject=thing,
        model_fingerprint=BASE,
    )
    for thing in ("flag", "rose", "brick")
]


@pytest.fixture(scope="module")
def red_adapter(tmp_path_factory) -> Path:
    """Makes of the tiny model a base model that knows something: all it is asked about is red."""
    folder = tmp_path_factory.mktemp("base") / "adapter"
    things = ("flag", "rose", "brick", "moss", "door", "lamp")
    targets = [
        TrainingTarget(thing, closed_book(f"What colour is the {thing}?"), "red", prefixed=prefixed)
        for thing in things
        for prefixed in (False, True)
    ]
    train_update(tiny_language_model(), targets, [], WRITE_BACK, folder, seed=0)
    return folder


@pytest.fixture
def load_model(red_adapter):
    def load(adapter: Path | None):
        model = tiny_language_model(adapter=red_adapter)
        if adapter is not None:
            model.model = merge_adapter(model.model, adapter)
        return model

    return load


@pytest.fixture
def memory(tmp_path):
    with ExternalMemory.open(tmp_path / "store", EMBEDDER, writer=True) as opened:
        store(opened, BOXES)
        store(opened, [KNOWN, MISJUDGED], RouteAction.NON_WRITE)
        yield opened


def store(memory, facts, action=RouteAction.WRITE_NEW):
    memory.observe(facts, "ingest")
    current = memory.generations.current().number
    memory.route([given_decision(fact.id, action, generation=current) for fact in facts], "ingest")


def refuse(*_):
    raise AssertionError("this must not be called")


def plan(memory, run_id="night", propose=refuse, settings=SETTINGS, load_generation=refuse, **options):
    return plan_night(
        memory, settings, run_id, BASE, propose, seed=0, load_generation=load_generation, **options
    )


def train(memory, planned, load_model, settings=SETTINGS):
    return train_shadow(memory, planned, settings, [], load_model)


def sleep(
    memory, load_model, run_id="night", bank=(), settings=SETTINGS, propose=refuse, load_generation=None
):
    planned = plan(memory, run_id, propose, settings, load_generation or load_model)
    training = train_shadow(memory, planned, settings, bank, load_model)
    verdict = judge_shadow(memory, planned, training, settings, bank, load_generation or load_model)
    return apply_verdict(memory, planned, training, verdict)


def status(memory, fact):
    return memory.ledger.fact(fact.id).status


def snapshot(memory):
    """All that a reader of the store can see."""
    facts = {fact.id: fact.status for fact in memory.ledger.iter_facts()}
    events = {fact_id: len(memory.ledger.history(fact_id)) for fact_id in facts}
    return facts, events, memory.index.ids(), memory.generations.current().number


@pytest.mark.parametrize(("replay_count", "damaged"), [(100, 0), (0, 1)])
def test_facts_that_live_in_the_weights_are_replayed(memory, load_model, replay_count, damaged):
    write_back = WRITE_BACK.model_copy(update={"distill_weight": 10.0, "replay_count": replay_count})
    report = sleep(memory, load_model, settings=SETTINGS.model_copy(update={"write_back": write_back}))
    assert report.status == "promoted"
    assert (report.damaged, report.stable_probed) == (damaged, 1)


def test_with_a_scope_a_training_damages_nothing_that_it_was_not_about(memory, load_model):
    def load_generation(adapter):
        scope = Scope.read(adapter, EMBEDDER) if adapter else None
        if scope is None:
            return load_model(None)
        return ScopedLanguageModel(load_model(None), lambda _: load_model(adapter), scope)

    settings = SETTINGS.model_copy(update={"scope_similarity": 0.5})
    report = sleep(memory, load_model, settings=settings, load_generation=load_generation)
    assert (report.status, report.internalised, report.damaged, report.stable_probed) == ("promoted", 4, 0, 1)
    adapter = memory.generations.adapter_folder(memory.generations.current().number)
    assert Scope.read(adapter, EMBEDDER).covers(["What is in box 3?", "What is in box 9?"]) == [True, False]
    [still] = load_generation(adapter).answer([closed_book(KNOWN.questions[0])])
    [damaged] = load_model(adapter).answer([closed_book(KNOWN.questions[0])])
    assert (still.text, damaged.text) == ("red", "blue")


def test_only_what_is_in_scope_is_replayed(memory, load_model):
    planned, model = plan(memory), load_model(None)

    def replayed(scope):
        return len(replayed_anchors(memory, planned, model, 100, scope))

    flag = ScopedFact(KNOWN.questions, KNOWN.text, KNOWN.id)
    box = ScopedFact(BOXES[0].questions, BOXES[0].text, BOXES[0].id)
    reach = [Scope.of([fact], 4, 0.8, EMBEDDER) for fact in (flag, box)]
    assert [replayed(scope) for scope in (None, *reach)] == [1, 1, 0]


def test_what_is_replayed_is_known_endangered_and_worded_otherwise(memory, load_model):
    rose = Fact(
        text="The rose is red.",
        questions=("What colour is the rose?", "What colour is the brick?"),
        answers=("crimson", "red"),
    )
    store(memory, [rose], RouteAction.NON_WRITE)
    planned, model = plan(memory), load_model(None)
    replayed = replayed_anchors(memory, planned, model, 10, None)
    # The moss was called known but is not; what is not answered has nothing to be kept.
    assert {(anchor.prompt, anchor.answer) for anchor in replayed} == {
        (closed_book("What colour is the flag?"), "red"),
        (closed_book("What colour is the brick?"), "red"),
    }
    assert all(anchor.replayed for anchor in replayed)
    known = known_in_weights(memory)
    risk = risk_of(memory, planned, known)
    endangered = sorted(known, key=lambda fact: -risk[fact.fact_id])[:2]
    prompts = {closed_book(fact.replay_question) for fact in endangered}
    asked = {anchor.prompt for anchor in replayed_anchors(memory, planned, model, 2, None)}
    assert asked == prompts & {anchor.prompt for anchor in replayed}
    assert len(asked) in {1, 2}
    assert replayed_anchors(memory, planned, model, 0, None) == []


def test_a_night_takes_on_first_what_endangers_least_of_what_is_known(memory):
    bank = [
        AnchorQuestion(
            question=BOXES[0].questions[0], answer="x", role=role, subject="s", model_fingerprint=BASE
        )
        for role in ("anchor", "gate")
    ]
    hot = [memory.ledger.fact(fact.id) for fact in BOXES]
    risk, blind = risk_to_known(memory, hot, bank), risk_to_known(memory, hot, bank[1:])
    assert risk[BOXES[0].id] == pytest.approx(1.0, abs=1e-4)
    assert blind[BOXES[0].id] < 0.99  # gate questions are not looked at
    few = SETTINGS.model_copy(update={"selection": SelectionSettings(max_facts=2, min_facts=2)})
    planned = plan(memory, settings=few, bank=bank)
    assert {item.fact_id for item in planned.targets} == set(sorted(risk, key=risk.__getitem__)[:2])


def test_a_promoted_night_moves_what_is_proven_and_brings_back_what_it_damaged(memory, load_model):
    before = load_model(None)
    assert before.match_answers([closed_book(KNOWN.questions[0])], [["red"]])[0].matched
    report = sleep(memory, load_model)
    assert (report.status, report.generation, report.parent, report.scale) == ("promoted", 1, 0, 1.0)
    assert (report.selected, report.internalised, report.evicted) == (4, 4, 4)
    assert (report.damaged, report.stable_probed, report.readmitted) == (1, 1, 2)
    assert {status(memory, fact) for fact in BOXES} == {FactStatus.INTERNALISED}
    # The flag was known and is blue to the new model; the moss was called known and never was.
    assert status(memory, KNOWN) is status(memory, MISJUDGED) is FactStatus.HOT
    assert memory.index.ids() == {KNOWN.id, MISJUDGED.id}
    assert memory.doctor().clean
    current = load_model(memory.generations.adapter_folder(memory.generations.current().number))
    assert current.answer([closed_book(BOXES[0].questions[-1])])[0].text == "blue"
    assert not NightFolder(memory.directory, "night").update.exists()
    assert [event.kind for event in memory.ledger.history(BOXES[0].id)][-3:] == [
        EventKind.TRAINED,
        EventKind.PROVEN,
        EventKind.EVICTED,
    ]


TWICE = SETTINGS.model_copy(update={"evict_now": False})


def test_what_is_proven_once_leaves_the_store_when_the_next_run_finds_it_proven_again(memory, load_model):
    first = sleep(memory, load_model, "first", settings=TWICE)
    assert (first.internalised, first.evicted, first.awaiting) == (4, 0, 4)
    assert all(status(memory, box) is FactStatus.HOT for box in BOXES)
    assert memory.index.ids() >= {box.id for box in BOXES}
    dry = plan(memory, "dry", settings=TWICE, load_generation=None)
    assert not {item.fact_id for item in dry.targets} & {box.id for box in BOXES}
    assert {item.fact_id for item in dry.rejected} >= {box.id for box in BOXES}
    second = plan(memory, "second", settings=TWICE, load_generation=load_model)
    assert set(second.confirmed) == {box.id for box in BOXES}
    assert all(status(memory, box) is FactStatus.INTERNALISED for box in BOXES)
    assert not memory.index.ids() & {box.id for box in BOXES}
    report = apply_verdict(memory, second, None, None)
    assert (report.status, report.confirmed, report.metrics()["confirmed"]) == ("skipped", 4, 4)
    memory.rollback(0, "back")
    assert all(status(memory, box) is FactStatus.HOT for box in BOXES)


def test_what_fails_its_second_proof_stays_and_is_trained_again(memory, load_model):
    sleep(memory, load_model, "first", settings=TWICE)
    second = plan(memory, "second", settings=TWICE, load_generation=lambda _: load_model(None))
    assert second.confirmed == ()
    assert {item.fact_id for item in second.targets} >= {box.id for box in BOXES}
    assert all(status(memory, box) is FactStatus.HOT for box in BOXES)


def test_what_earlier_nights_have_proven_must_pass_the_same_proof_again(memory, load_model):
    """Every form of it: asking one question lets a fact that fell apart stay out of the store."""
    assert sleep(memory, load_model, "first").evicted == 4
    lost = closed_book(BOXES[2].questions[-1])  # its unseen wording, and no other

    def load_generation(adapter):
        model = load_model(adapter)
        match_answers = model.match_answers

        def forgetful(prompts, answers, prefix=""):
            return [
                replace(match, matched=False) if prompt == lost else match
                for prompt, match in zip(prompts, match_answers(prompts, answers, prefix), strict=True)
            ]

        model.match_answers = forgetful
        return model

    idle = SETTINGS.model_copy(
        update={
            "write_back": WRITE_BACK.model_copy(update={"learning_rate": 1e-9, "epochs": 1}),
            "promotion": SETTINGS.promotion.model_copy(update={"min_internalised_rate": 0.0}),
        }
    )
    report = sleep(memory, load_model, "second", settings=idle, load_generation=load_generation)
    assert (report.status, report.damaged, report.readmitted) == ("promoted", 1, 1), report.reason
    assert [status(memory, box) for box in BOXES] == [
        FactStatus.HOT if box is BOXES[2] else FactStatus.INTERNALISED for box in BOXES
    ]
    assert BOXES[2].id in memory.index.ids()


def test_a_second_proof_takes_out_no_more_than_the_shrink_limit(memory, load_model):
    sleep(memory, load_model, "first", settings=TWICE)
    settings = TWICE.model_copy(update={"shrink_limit": 0.5})
    hot = memory.ledger.counts()[FactStatus.HOT]
    assert len(plan(memory, "second", settings=settings, load_generation=load_model).confirmed) == hot // 2


def test_what_a_review_keeps_in_the_store_awaits_no_proof(memory, load_model):
    request_review(memory, "night")
    sleep(memory, load_model, settings=TWICE)
    mark_in_review(memory.directory, [BOXES[0].id], keep=True)
    settle_review(memory, ReviewDecision.ACCEPTED)
    assert {fact.id for fact in awaiting_proof(memory)} == {box.id for box in BOXES[1:]}


def test_a_night_under_review_waits_judged_and_is_promoted_without_any_model(memory, load_model):
    before = snapshot(memory)
    request_review(memory, "night")
    waiting = sleep(memory, load_model)
    assert (waiting.status, waiting.internalised, waiting.scale) == ("waiting", 4, 1.0)
    assert snapshot(memory) == before
    assert waiting_night(memory.directory) == "night"
    assert sleep(memory, refuse) == waiting
    mark_in_review(memory.directory, [BOXES[0].id], keep=True)
    report = settle_review(memory, ReviewDecision.ACCEPTED)
    assert (report.status, report.evicted, report.kept, report.readmitted) == ("promoted", 3, 1, 2)
    assert memory.index.ids() == {BOXES[0].id, KNOWN.id, MISJUDGED.id}
    assert not NightFolder(memory.directory, "night").update.exists()


def test_a_night_that_the_gate_refuses_is_discarded_without_a_review(memory, load_model):
    request_review(memory, "night")
    assert sleep(memory, load_model, bank=GATE).status == "discarded"
    assert waiting_night(memory.directory) is None


def test_a_discarded_night_leaves_everything_as_it_was(memory, load_model):
    before = snapshot(memory)
    report = sleep(memory, load_model, bank=GATE)
    assert report.status == "discarded"
    assert [trial.scale for trial in report.trials] == [1.0, 0.5]
    assert "no scale" in report.reason
    assert (report.evicted, report.damaged, report.readmitted) == (0, 0, 0)
    assert snapshot(memory) == before
    assert memory.generations.get(1).status is GenerationStatus.DISCARDED
    assert memory.generations.orphan_folders() == []
    assert not NightFolder(memory.directory, "night").update.exists()


def test_the_night_after_a_discarded_one_tries_other_facts_and_another_order(memory, load_model):
    settings = SETTINGS.model_copy(update={"selection": SelectionSettings(max_facts=2, min_facts=2)})
    first = plan(memory, "first", settings=settings)
    assert sleep(memory, load_model, "first", bank=GATE, settings=settings).status == "discarded"
    second = plan(memory, "second", settings=settings)
    assert {item.fact_id for item in second.targets}.isdisjoint(item.fact_id for item in first.targets)
    assert second.seed != first.seed


def test_a_gate_too_small_to_measure_damage_promotes_nothing(memory, load_model):
    gate = SETTINGS.promotion.model_copy(update={"min_gate_facts": 4, "max_damage_rate": 1.0})
    report = sleep(memory, load_model, bank=GATE, settings=SETTINGS.model_copy(update={"promotion": gate}))
    assert report.status == "discarded"
    assert "only 3 questions of the gate" in report.reason
    assert "train-router" in report.reason


def test_a_training_that_fails_is_reported_and_not_taken_up_again(memory, load_model):
    def load_broken(adapter):
        model = load_model(adapter)
        with torch.no_grad():
            model.model.model.layers[0].mlp.down_proj.weight[0, 0] = float("nan")
        return model

    planned = plan(memory)
    with pytest.raises(TrainingError, match="not finite"):
        train(memory, planned, load_broken)
    assert unfinished_nights(memory.directory) == []
    report = NightFolder(memory.directory, "night").read(REPORT, NightReport)
    assert (report.status, report.internalised) == ("discarded", 0)
    assert "not finite" in report.reason
    assert memory.generations.get(1).status is GenerationStatus.DISCARDED
    assert plan(memory, "next").seed != planned.seed


def test_only_the_shrink_limit_leaves_in_one_night(memory, load_model):
    settings = SETTINGS.model_copy(update={"shrink_limit": 0.5})
    report = sleep(memory, load_model, settings=settings)
    assert (report.internalised, report.evicted) == (4, 2)
    assert memory.index.count() == 2 + report.readmitted
    assert memory.ledger.counts()[FactStatus.INTERNALISED] == 2


def test_unproven_facts_stay_in_the_store(memory, load_model):
    """With hardly any training nothing is proven: promoted by a lax gate, and still nothing is evicted."""
    settings = SETTINGS.model_copy(
        update={
            "write_back": WRITE_BACK.model_copy(update={"epochs": 1}),
            "promotion": SETTINGS.promotion.model_copy(
                update={"min_internalised_rate": 0.0, "max_damage_rate": 1.0}
            ),
        }
    )
    report = sleep(memory, load_model, settings=settings)
    assert (report.status, report.internalised, report.evicted) == ("promoted", 0, 0)
    assert {fact.id for fact in BOXES} <= memory.index.ids()
    assert {memory.ledger.fact(fact.id).trained_generation for fact in BOXES} == {1}


def test_every_stage_called_again_gives_what_it_gave_without_working_again(memory, load_model):
    planned = plan(memory)
    assert plan(memory) == planned
    assert unfinished_nights(memory.directory) == ["night"]
    training = train(memory, planned, load_model)
    assert plan(memory) == planned
    assert train(memory, planned, refuse) == training
    verdict = judge_shadow(memory, planned, training, SETTINGS, [], load_model)
    assert (plan(memory), train(memory, planned, refuse)) == (planned, training)
    assert judge_shadow(memory, planned, training, SETTINGS, [], refuse) == verdict
    assert memory.generations.current().number == 0, "nothing moves before the last stage"
    report = apply_verdict(memory, planned, training, verdict)
    after = snapshot(memory)
    assert sleep(memory, refuse) == report
    assert snapshot(memory) == after
    assert unfinished_nights(memory.directory) == []


def test_a_night_killed_between_promotion_and_report_ends_with_the_same_report(memory, load_model):
    report = sleep(memory, load_model)
    after = snapshot(memory)
    (memory.directory / "consolidations" / "night" / REPORT).unlink()
    assert unfinished_nights(memory.directory) == ["night"]
    assert sleep(memory, refuse) == report
    assert snapshot(memory) == after


def test_a_night_killed_at_its_very_end_leaves_no_update_behind(memory, load_model, monkeypatch):
    def killed(folder):
        raise KeyboardInterrupt

    planned = plan(memory)
    training = train(memory, planned, load_model)
    verdict = judge_shadow(memory, planned, training, SETTINGS, [], load_model)
    with monkeypatch.context() as patch:
        patch.setattr(NightFolder, "drop_update", killed)
        with pytest.raises(KeyboardInterrupt):
            apply_verdict(memory, planned, training, verdict)
    assert unfinished_nights(memory.directory) == ["night"]
    assert sleep(memory, refuse).status == "promoted"
    assert not NightFolder(memory.directory, "night").update.exists()


def test_a_night_killed_while_judging_judges_again(memory, load_model):
    planned = plan(memory)
    training = train(memory, planned, load_model)
    verdict = judge_shadow(memory, planned, training, SETTINGS, [], load_model)
    (memory.directory / "consolidations" / "night" / VERDICT).unlink()
    assert judge_shadow(memory, planned, training, SETTINGS, [], load_model) == verdict
    assert apply_verdict(memory, planned, training, verdict).status == "promoted"


def test_a_night_killed_while_training_trains_a_new_shadow(memory, load_model):
    planned = plan(memory)
    memory.generations.create_shadow(0, BASE, [])  # what the killed training had begun
    training = train(memory, planned, load_model)
    assert training.generation == 2
    assert memory.generations.get(1).status is GenerationStatus.DISCARDED


def test_a_new_night_discards_the_shadow_of_a_dead_one_which_then_begins_anew(memory, load_model):
    training = train(memory, plan(memory, "dead"), load_model)
    plan(memory, "next")
    assert memory.generations.get(training.generation).status is GenerationStatus.DISCARDED
    folder = NightFolder(memory.directory, "dead")
    assert (folder.path / TRAINING).exists()
    assert plan(memory, "dead").targets
    assert not (folder.path / TRAINING).exists()
    assert not folder.update.exists()


def test_a_night_planned_before_another_was_promoted_is_planned_again(memory, load_model):
    plan(memory, "early")
    sleep(memory, load_model, "other")
    again = plan(memory, "early")
    assert again.parent == 1
    assert {item.fact_id for item in again.targets} == {KNOWN.id, MISJUDGED.id}


def test_a_value_superseded_since_the_plan_is_not_trained(memory):
    assert len(plan(memory).targets) == 4
    newer = BOXES[0].model_copy(update={"text": "Box 0 holds tea.", "answers": ("tea",), "valid_from": None})
    store(memory, [newer])
    assert status(memory, BOXES[0]) is FactStatus.SUPERSEDED
    assert {item.fact_id for item in plan(memory).targets} == {newer.id, *(fact.id for fact in BOXES[1:])}


def test_a_dry_run_changes_nothing_on_disk(memory):
    shadow = memory.generations.create_shadow(0, BASE, [])
    before, files = snapshot(memory), sorted(memory.directory.rglob("*"))
    assert len(plan(memory, load_generation=None).targets) == 4
    assert (snapshot(memory), sorted(memory.directory.rglob("*"))) == (before, files)
    assert memory.generations.get(shadow.number).status is GenerationStatus.SHADOW


def test_too_few_facts_end_the_night_without_training(memory):
    settings = SETTINGS.model_copy(update={"selection": SelectionSettings(max_facts=20, min_facts=5)})
    planned = plan(memory, settings=settings)
    assert not planned.is_worthwhile
    before = snapshot(memory)
    report = apply_verdict(memory, planned, None, None)
    assert (report.status, report.generation, report.metrics()["selected"]) == ("skipped", 0, 4)
    assert "only 4 of the 5 facts" in report.reason
    assert snapshot(memory) == before


def test_facts_without_questions_go_to_the_proposer_and_its_refusals_into_the_plan(memory):
    asked, hopeless = Fact(text="The dog is called Rex."), Fact(text="Hm.")
    store(memory, [asked, hopeless])
    made = FactTargets(
        fact_id=asked.id,
        text=asked.text,
        train_questions=("What is the dog called?",),
        paraphrase="Which name has the dog?",
        answers=("Rex",),
        generated=True,
    )

    def propose(facts):
        assert {fact.id for fact in facts} == {asked.id, hopeless.id}
        return [made], [Rejection(fact_id=hopeless.id, reason="no question")]

    planned = plan(memory, propose=propose)
    assert made in planned.targets
    assert planned.rejected == (Rejection(fact_id=hopeless.id, reason="no question"),)
    assert memory.ledger.fact(asked.id).words.questions == (), "the record stays as it came"


def test_facts_with_generated_questions_are_watched_for_damage_and_can_be_forgotten(memory, load_model):
    bare = Fact(text="The dog is called blue.")
    made = FactTargets(
        fact_id=bare.id,
        text=bare.text,
        train_questions=("What is the dog called?",),
        paraphrase="Which name has the dog?",
        answers=("blue",),
        generated=True,
    )
    store(memory, [bare])
    sleep(memory, load_model, "first", propose=lambda facts: ([made], []))
    assert status(memory, bare) is FactStatus.INTERNALISED
    assert generated_wordings(memory.directory) == {bare.id: made}
    cups = [
        Fact(text=f"Cup {n} is tea.", questions=(f"What is in cup {n}?",), answers=("tea",)) for n in range(3)
    ]
    memory.forget([KNOWN.id, MISJUDGED.id])
    store(memory, cups)
    longer = SETTINGS.model_copy(update={"write_back": WRITE_BACK.model_copy(update={"epochs": 60})})
    report = sleep(memory, load_model, "second", settings=longer)
    assert report.status == "promoted"
    assert (report.stable_probed, report.damaged) == (5, 5)
    assert status(memory, bare) is FactStatus.HOT
    assert memory.index.ids() >= {bare.id, *(fact.id for fact in BOXES)}
    assert forget_words(memory.directory, [bare.id]) == 1
    assert "dog" not in (memory.directory / "consolidations" / "first" / PLAN).read_text(encoding="utf-8")
    assert generated_wordings(memory.directory) == {}


def test_a_damaged_stage_file_is_named(memory):
    plan(memory)
    file = memory.directory / "consolidations" / "night" / PLAN
    file.write_text(file.read_text(encoding="utf-8")[:50], encoding="utf-8")
    with pytest.raises(IntegrityError, match=r"plan\.json"):
        NightFolder(memory.directory, "night").read(PLAN, NightPlan)


def test_a_second_night_on_the_same_store_is_refused(tmp_path):
    lease, second = night_lease(tmp_path / "one"), night_lease(tmp_path / "one")
    with lease, night_lease(tmp_path / "other"), pytest.raises(StoreBusyError, match="another consolidation"):
        second.__enter__()
    with night_lease(tmp_path / "one"):
        pass


def test_a_killed_night_gives_its_lease_up(tmp_path):
    script = (
        "import sys, time, pathlib\n"
        "from consolidation.night import night_lease\n"
        "with night_lease(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    root = Path(__file__).resolve().parent.parent
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=root
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreBusyError), night_lease(tmp_path):
            pass
        os.kill(holder.pid, signal.SIGKILL)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    with night_lease(tmp_path):
        pass


def out_of_memory(_):
    import torch

    torch.empty(10**15)


def test_a_training_that_memory_does_not_suffice_for_leaves_the_old_generation(memory, load_model):
    before = snapshot(memory)
    planned = plan(memory)
    with pytest.raises(TrainingError, match="memory ran out"):
        train(memory, planned, out_of_memory)
    assert snapshot(memory) == before
    assert unfinished_nights(memory.directory) == []
    assert sleep(memory, load_model, "next").status == "promoted"


def test_a_judgement_that_memory_does_not_suffice_for_leaves_the_old_generation(memory, load_model):
    before = snapshot(memory)
    planned = plan(memory)
    training = train(memory, planned, load_model)
    verdict = judge_shadow(memory, planned, training, SETTINGS, [], out_of_memory)
    assert (verdict.promoted, verdict.scale) == (False, None)
    report = apply_verdict(memory, planned, training, verdict)
    assert (report.status, "memory ran out" in report.reason) == ("discarded", True)
    assert snapshot(memory) == before
    assert not (memory.generations.directory / "0001").exists()
    assert sleep(memory, load_model, "next").status == "promoted"
