"""Proof, gate, eviction and damage: each rule, and the case that breaks it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from carriers.ledger_records import StoredFact
from consolidation.damage import find_damage, known_facts, plan_damage_probes
from consolidation.eviction import plan_evictions
from consolidation.general_text import perplexity
from consolidation.probes import TARGET_FORMS, probe_known, probe_targets, proven_ids
from consolidation.promotion import decide, learns_too_little, passes
from consolidation.records import FactTargets, KnownFact, ScaleTrial
from sharpwave.records import Fact, FactStatus, ProbeResult
from sharpwave.settings import DamageSettings, PromotionSettings
from tests.tiny_models import one_thread, tiny_language_model  # noqa: F401 -- a fixture for all tests here

GATE = PromotionSettings(min_internalised_rate=0.5, max_damage_rate=0.1)


def probe(fact_id: str, form: str = "known_few_shot", matched: bool = True, prob: float = 0.9) -> ProbeResult:
    return ProbeResult(
        fact_id=fact_id,
        generation=1,
        prompt_form=form,
        matched=matched,
        lowest_answer_prob=prob,
        margin=1.0 if matched else -1.0,
    )


def trial(scale: float, learnt: float, damage: float, perplexity: float = 1.0) -> ScaleTrial:
    return ScaleTrial(
        scale=scale,
        internalised_rate=learnt,
        gate_damage_rate=damage,
        gate_probed=100,
        perplexity_ratio=perplexity,
    )


# --- proof


def test_a_fact_is_proven_only_if_every_form_is_answered():
    probes = [probe("good", form) for form in TARGET_FORMS] + [probe("bad", form) for form in TARGET_FORMS]
    assert proven_ids(probes, 0.5) == ["good", "bad"]
    for broken, form in enumerate(TARGET_FORMS):
        changed = list(probes)
        changed[4 + broken] = probe("bad", form, matched=False)
        assert proven_ids(changed, 0.5) == ["good"], form


def test_one_unsure_token_in_one_form_is_no_proof():
    probes = [probe("x", form) for form in TARGET_FORMS[:-1]] + [probe("x", TARGET_FORMS[-1], prob=0.5)]
    assert proven_ids(probes, 0.5) == []
    assert proven_ids(probes, 0.49) == ["x"]


def test_targets_are_asked_in_four_forms_and_the_paraphrase_is_among_them():
    model = tiny_language_model()
    asked = []
    real = model.match_answers

    def listening(prompts, answers, prefix=""):
        asked.append((prompts[0], bool(prefix)))
        return real(prompts, answers, prefix)

    model.match_answers = listening
    target = FactTargets(
        fact_id="a", text="t", train_questions=("One?", "Two?"), paraphrase="Three?", answers=("x",)
    )
    results = probe_targets(model, [target], 3)
    assert [result.prompt_form for result in results] == list(TARGET_FORMS)
    assert {result.generation for result in results} == {3}
    assert asked == [
        (f"Question: {question}\nAnswer:", led) for question in ("One?", "Three?") for led in (False, True)
    ]


def test_a_known_fact_is_answered_if_greedy_decoding_gives_an_alias():
    """The teacher-forced probe agrees with what the model really decodes."""
    model = tiny_language_model(seed=3)
    facts = [
        KnownFact(fact_id=str(n), question=f"What is {n}?", answers=("never", "nowhere")) for n in range(4)
    ]
    assert not any(result.matched for result in probe_known(model, facts, 0))
    assert probe_known(model, [], 0) == []


# --- the gate


@pytest.mark.parametrize(
    ("learnt", "damage", "expected"),
    [
        (0.5, 0.1, True),
        (0.49, 0.0, False),
        (1.0, 0.11, False),
        (float("nan"), 0.0, False),
        (1.0, float("nan"), False),
    ],
)
def test_a_scale_passes_if_it_learns_enough_and_damages_little(learnt, damage, expected):
    assert passes(trial(1.0, learnt, damage), GATE) is expected


def test_smaller_scales_are_hopeless_once_too_little_is_learnt():
    assert not learns_too_little(trial(1.0, 0.5, 0.9), GATE)
    assert learns_too_little(trial(1.0, 0.49, 0.9), GATE)
    assert learns_too_little(trial(1.0, float("nan"), 0.9), GATE)


def test_too_few_gate_facts_promote_nothing():
    few = trial(1.0, 0.9, 0.0).model_copy(update={"gate_probed": GATE.min_gate_facts - 1})
    assert decide([trial(1.0, 0.9, 0.0)], GATE).scale == 1.0
    assert decide([few], GATE).scale is None


def test_the_largest_passing_scale_wins():
    trials = [trial(1.0, 0.99, 0.3), trial(0.75, 0.9, 0.1), trial(0.5, 0.88, 0.02), trial(0.25, 0.3, 0.0)]
    choice = decide(trials, GATE)
    assert choice.scale == 0.75
    assert "90.0%" in choice.reason


def test_nothing_that_fails_the_gate_is_ever_chosen():
    rates = [0.0, 0.3, 0.5, 0.9]
    for first, second in itertools.product(itertools.product(rates, rates), repeat=2):
        trials = [trial(1.0, *first), trial(0.5, *second)]
        chosen = decide(trials, GATE).scale
        allowed = {item.scale for item in trials if passes(item, GATE)}
        assert chosen in allowed if allowed else chosen is None


def test_a_discard_names_what_was_tried():
    choice = decide([trial(1.0, 0.9, 0.4), trial(0.5, 0.2, 0.05)], GATE)
    assert choice.scale is None
    assert "scale 1: 90.0% internalised, 40.0% damaged" in choice.reason
    assert "scale 0.5" in choice.reason


# --- eviction


def test_only_proven_facts_that_are_still_stored_are_evicted():
    assert plan_evictions(["a", "gone", "b"], {"a", "b", "unproven"}, 10, 1.0) == ["a", "b"]


def test_no_more_than_the_shrink_limit_leaves():
    proven = [f"f{number}" for number in range(10)]
    for limit in (0.05, 0.1, 0.35, 0.5, 0.9, 1.0):
        evicted = plan_evictions(proven, set(proven), 10, limit)
        assert len(evicted) <= 10 * limit
        assert evicted == proven[: len(evicted)]
    assert plan_evictions(proven, set(proven), 10, 1.0) == proven


def test_a_fact_named_twice_is_evicted_once():
    assert plan_evictions(["a", "a"], {"a"}, 2, 1.0) == ["a"]


# --- damage


def test_damage_is_what_was_known_before_and_is_not_after():
    before = [probe("kept"), probe("lost"), probe("never", matched=False), probe("gained", matched=False)]
    after = [probe("kept"), probe("lost", matched=False), probe("never", matched=False), probe("gained")]
    findings = find_damage(before, after)
    assert findings.damaged == ["lost"]
    assert findings.never_known == ["never"]
    assert findings.stable_probed == 2


def test_facts_not_probed_again_do_not_count_as_stable():
    assert find_damage([probe("a"), probe("b")], [probe("a")]).stable_probed == 1


def _known(count: int) -> list[KnownFact]:
    return [KnownFact(fact_id=f"k{number:02}", question="?", answers=("x",)) for number in range(count)]


def test_all_known_facts_are_probed_if_the_budget_allows():
    settings = DamageSettings(max_probes=10, sample_size=4)
    assert plan_damage_probes(_known(10), {}, settings, 0) == _known(10)


def test_beyond_the_budget_a_random_sample_and_the_most_endangered_are_probed():
    settings = DamageSettings(max_probes=10, sample_size=4)
    risk = {f"k{number:02}": number / 100 for number in range(50)}
    plan = plan_damage_probes(_known(50), risk, settings, seed=1)
    ids = [fact.fact_id for fact in plan]
    assert len(ids) == len(set(ids)) == 10
    endangered = [f"k{number:02}" for number in range(49, -1, -1) if f"k{number:02}" not in ids[:4]]
    assert ids[4:] == endangered[:6]
    assert plan == plan_damage_probes(_known(50), risk, settings, seed=1)
    assert ids[:4] != [fact.fact_id for fact in plan_damage_probes(_known(50), risk, settings, seed=2)][:4]


def test_the_sample_does_not_look_at_the_risk():
    """Otherwise the damage rate's interval would be worth nothing."""
    settings = DamageSettings(max_probes=10, sample_size=4)
    flat = plan_damage_probes(_known(50), {}, settings, seed=1)
    steep = plan_damage_probes(_known(50), {"k07": 1.0}, settings, seed=1)
    assert flat[:4] == steep[:4]


def _stored(text: str, **fields) -> StoredFact:
    fact = Fact(text=text, **fields)
    return StoredFact(id=fact.id, namespace="default", seq=1, words=fact, status=FactStatus.INTERNALISED)


def test_known_facts_are_asked_their_own_question_or_the_one_a_night_made_for_them():
    asked = _stored("It is green.", questions=("Colour?", "Which?"), answers=("green",))
    bare, unknown = _stored("The dog is called Rex."), _stored("The cat is called Tom.")
    wordings = {
        bare.id: FactTargets(
            fact_id=bare.id,
            text="",
            train_questions=("Name of the dog?", "Dog?"),
            paraphrase="Who?",
            answers=("Rex",),
            generated=True,
        )
    }
    found = known_facts([asked, bare, unknown], wordings)
    assert [(fact.fact_id, fact.question, fact.answers) for fact in found] == [
        (asked.id, "Colour?", ("green",)),
        (bare.id, "Name of the dog?", ("Rex",)),
    ]


# --- general text


def test_a_model_that_forgets_how_to_speak_is_refused():
    ruined = trial(1.0, 0.9, 0.0, perplexity=1.2)
    assert not passes(ruined, GATE)
    choice = decide([ruined, trial(0.5, 0.8, 0.0, perplexity=1.01)], GATE)
    assert choice.scale == 0.5
    assert "perplexity times 1.200" in decide([ruined], GATE).reason


def test_general_text_is_read_to_the_last_paragraph(tmp_path):
    model, prose = tiny_language_model(), tmp_path / "prose.txt"
    prose.write_text("blue is red\n\nred is blue blue\n", encoding="utf-8")
    features = model.forward_features(["blue is red", "red is blue blue"])
    expected = np.exp(np.concatenate([item.nll for item in features]).mean())
    assert perplexity(model, prose) == pytest.approx(expected, rel=1e-5)
    assert perplexity(model) > 1
