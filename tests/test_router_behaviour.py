"""Observing, labelling and deciding with a tiny random language model: no weights are needed, every path is real."""

import json

import numpy as np
import pytest

from carriers.language_model import LanguageModel
from carriers.prompts import CLOSED_BOOK_PREFIX, OPEN_BOOK_PREFIX
from routers import labels
from routers.cascade import CascadeRouter, repeat_decision
from routers.examples import RoutingExample, collect_examples
from routers.features import PROBE_FEATURES, Evidence
from routers.labels import (
    BehaviourLabel,
    behaviour_key,
    label_action,
    label_cache_path,
    label_facts,
)
from routers.observation import answer_place, observation_flops, observe, usable_evidence
from routers.training import RouterTraining, train_router
from routers.wordings import labelling_questions, probed_questions
from sharpwave.errors import InputError
from sharpwave.records import Fact, RouteAction, RouteStage

SETTINGS = RouterTraining(folds=3, hidden_components=3, resplits=2)


def tiny_model(seed, width=16):
    """A random Llama of four layers that reads the prompts in tokens of a few letters."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        show_progress=False,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    raw.train_from_iterator([CLOSED_BOOK_PREFIX, OPEN_BOOK_PREFIX] * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|endoftext|>", pad_token="<|endoftext|>", unk_token="<|endoftext|>"
    )
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=1024,
    )
    return LanguageModel(LlamaForCausalLM(config).eval(), tokenizer, name="tiny", fingerprint=f"tiny{seed}")


def a_fact(place, **changes):
    answer = ["Oslo", "Lima", "Bern", "Riga"][place % 4]
    values = {
        "text": f"The seat of office {place} is {answer}.",
        "questions": (f"Where is office {place}?", f"Which town has office {place}?"),
        "answers": (answer, answer.upper()),
    }
    return Fact(**{**values, **changes})


@pytest.fixture(scope="module")
def small():
    return tiny_model(1)


@pytest.fixture(scope="module")
def large():
    return tiny_model(2, width=32)


@pytest.fixture(scope="module")
def facts():
    return [a_fact(place) for place in range(24)]


@pytest.fixture(scope="module")
def heads(small, large, facts):
    """Heads for the tiny models; the truth is a rule on the text, since a random model knows nothing."""
    bare = [a_fact(place, questions=(), answers=()) for place in range(24, 36)]
    pool = [*facts, *bare]
    seen = list(zip(pool, observe(small, pool), observe(large, pool), strict=True))
    examples = []
    for place, (fact, one, other) in enumerate(seen):
        known, prob = place % 4 == 0, 0.9 if place % 4 == 1 else 0.1
        label = BehaviourLabel(fact.id, (known,), (True,), ("x",), (prob,))
        examples.append(RoutingExample(one, other, label, fact.id))
    sets = [examples[start::3] for start in range(3)]
    return train_router(
        *sets, SETTINGS, small_fingerprint=small.fingerprint, large_fingerprint=large.fingerprint
    ).heads


# --- observing


def test_each_fact_offers_what_it_carries():
    bare = a_fact(0, questions=(), answers=())
    answered = a_fact(0, questions=())
    elsewhere = a_fact(0, text="Nothing is said here.", questions=())
    kinds = [usable_evidence(fact) for fact in (bare, answered, elsewhere, a_fact(0))]
    assert kinds == [Evidence.TEXT, Evidence.SPAN, Evidence.TEXT, Evidence.PROBE]
    assert usable_evidence(a_fact(0), Evidence.SPAN) is Evidence.SPAN
    assert usable_evidence(a_fact(0), Evidence.TEXT) is Evidence.TEXT


@pytest.mark.parametrize("longer", ["questions", "answers"])
def test_a_question_or_answer_of_pages_is_not_probed(longer):
    fact = a_fact(0)
    pages = fact.model_copy(update={longer: ("words " * 1000,)})
    assert usable_evidence(fact) is Evidence.PROBE
    assert usable_evidence(pages) is not Evidence.PROBE
    model = tiny_model(0)
    [seen] = observe(model, [pages])
    assert seen.probe_flops == 0
    assert observation_flops(model, pages) == seen.flops()


@pytest.mark.parametrize(
    "change",
    [{"key": [1]}, {"prob_without": 10**400}, {"prob_without": float("nan")}, {"without": None}, {"with": 3}],
)
def test_a_damaged_line_of_the_label_cache_is_asked_again(change):
    sound = {"key": "k", "without": "a", "prob_without": 0.5, "with": "b"}
    assert labels._entry(json.dumps(sound)) is not None
    assert labels._entry(json.dumps(sound | change)) is None
    assert labels._entry("[" * 200_000) is None


def test_answer_place_takes_the_canonical_answer_where_it_stands_last():
    fact = a_fact(0, text="Oslo lies in Norway; the seat is Oslo.", answers=("Oslo", "Norway"))
    assert answer_place(fact) == (33, 37)
    assert answer_place(a_fact(0, answers=("Paris", "seat"))) == (4, 8)
    assert answer_place(a_fact(0, answers=("Paris",))) is None


def test_span_tokens_are_those_of_the_answer(small):
    fact = a_fact(0)
    start, end = answer_place(fact)
    seen = observe(small, [fact])[0]
    nll = small.forward_features([fact.text])[0].nll
    ids = small.tokenizer(fact.text, add_special_tokens=False)["input_ids"]
    ends = [len(small.tokenizer.decode(ids[: place + 1])) for place in range(len(ids))]
    inside = [
        place for place, upto in enumerate(ends) if upto > start and (place == 0 or ends[place - 1] < end)
    ]
    assert "".join(small.tokenizer.decode(ids[place]) for place in inside).strip() == "Oslo"
    assert seen.groups["span"][1] == pytest.approx(nll[inside].mean(), rel=1e-4)


def test_observations_keep_order_and_do_not_depend_on_the_batch(small, facts):
    mixed = [a_fact(9, text="ok"), *facts[:5], a_fact(3, questions=(), answers=()), facts[7]]
    together = observe(small, mixed)
    assert [item.fact_id for item in together] == [fact.id for fact in mixed]
    for fact, seen in zip(mixed, together, strict=True):
        alone = observe(small, [fact])[0]
        for name, values in alone.groups.items():
            assert np.allclose(values, seen.groups[name], atol=2e-4), name
        assert seen.flops() == alone.flops()
    assert observe(small, []) == []


def test_one_character_text_and_unknown_script(small):
    for text in ("a", "水", "🙂" * 300):
        seen = observe(small, [Fact(text=text)])[0]
        assert seen.evidence() is Evidence.TEXT
        assert all(np.isfinite(values).all() for values in seen.groups.values())


def test_a_limit_spares_the_probe_and_its_cost(small, facts):
    full, spared = observe(small, facts[:2]), observe(small, facts[:2], Evidence.SPAN)
    assert spared[0].evidence() is Evidence.SPAN
    assert spared[0].probe_flops == 0
    assert spared[0].flops() == full[0].flops(Evidence.SPAN) < full[0].flops()
    assert dict(zip(PROBE_FEATURES, full[0].groups["probe"], strict=True))["has_probe"] == 1


def test_cost_is_known_without_a_pass_and_counts_every_alias(small, facts):
    for limit in Evidence:
        assert observation_flops(small, facts[0], limit) == observe(small, facts[:1], limit)[0].flops()
    one_answer = a_fact(0, answers=("Oslo",))
    many = a_fact(0, answers=("Oslo", "OSLO", "oslo", "Oslo city"))
    assert observation_flops(small, many) > observation_flops(small, one_answer)
    assert observation_flops(small, many) == observation_flops(small, a_fact(0, answers=("Oslo", "OSLO")))


def test_progress_is_counted(small, facts):
    told = []
    observe(small, facts, Evidence.TEXT, lambda done, total: told.append((done, total)))
    assert told[-1] == (24, 24)


# --- labels


@pytest.mark.parametrize(
    ("right", "probs", "action"),
    [
        ([True], [0.1], RouteAction.NON_WRITE),
        ([False], [0.5], RouteAction.WRITE_UPDATE),
        ([False], [0.49], RouteAction.WRITE_NEW),
        ([True, True], [0.9, 0.1], RouteAction.NON_WRITE),
        ([True, False], [0.9, 0.1], RouteAction.WRITE_NEW),
        ([True, False], [0.1, 0.9], RouteAction.WRITE_UPDATE),
        ([False, False], [0.1, 0.9], RouteAction.WRITE_UPDATE),
    ],
)
def test_classes_follow_from_behaviour_in_every_wording(right, probs, action):
    assert label_action(right, probs) is action
    label = BehaviourLabel("f", tuple(right), (True,) * len(right), ("",) * len(right), tuple(probs))
    assert label.action is action
    assert label.is_known is (action is RouteAction.NON_WRITE)


def test_gain_is_with_minus_without():
    values = [
        BehaviourLabel("f", without, with_it, ("", ""), (0.0, 0.0)).gain
        for without, with_it in (
            ((True, True), (True, True)),
            ((False, False), (True, True)),
            ((True, False), (True, True)),
            ((True, True), (False, True)),
        )
    ]
    assert values == [0, 1, 0.5, -0.5]


def test_the_drawn_question_is_one_of_those_asked_and_depends_on_the_fact_alone():
    drawn = {}
    for place in range(40):
        label = BehaviourLabel(f"fact {place}", (True, False), (False, True), ("", ""), (0.0, 0.0))
        drawn.setdefault(label.drawn, []).append(place)
        assert label.drawn == label.drawn
    assert set(drawn) == {(True, False), (False, True)}
    assert min(map(len, drawn.values())) > 10


@pytest.mark.parametrize(
    ("count", "probed", "labelled"),
    [(0, "", ""), (1, "a", "a"), (2, "a", "b"), (3, "ab", "c"), (4, "ab", "cd"), (6, "ab", "ef")],
)
def test_questions_are_probed_or_kept_for_labels_never_both(count, probed, labelled):
    fact = a_fact(0, questions=tuple("abcdef"[:count]), answers=("Oslo",) if count else ())
    assert "".join(probed_questions(fact)) == probed
    assert "".join(labelling_questions(fact)) == labelled


class Counting:
    """Passes everything on to a real model and counts the prompts decoded."""

    def __init__(self, model, *, stop_after=10**9):
        self.fingerprint = model.fingerprint
        self.model = model
        self.prompts = 0
        self.stop_after = stop_after

    def answer(self, prompts, prefix):
        if self.prompts + len(prompts) > self.stop_after:
            raise KeyboardInterrupt
        self.prompts += len(prompts)
        return self.model.answer(prompts, prefix)


def test_labels_are_kept_and_a_changed_alias_changes_them_without_asking(small, tmp_path):
    model = Counting(small)
    first = label_facts(model, [a_fact(0), a_fact(1), a_fact(0)], cache_folder=tmp_path)
    assert model.prompts == 4  # two different facts, without and with
    assert first[0] == first[2]
    assert not first[0].em_without
    given = first[0].answers_without[0]
    again = label_facts(model, [a_fact(0, answers=("Oslo", given or "?"))], cache_folder=tmp_path)
    assert model.prompts == 4
    assert again[0].is_known is bool(given)
    assert label_facts(model, [a_fact(0)], variant="adapter1", cache_folder=tmp_path)
    assert model.prompts == 6
    assert {path.stem for path in tmp_path.iterdir()} == {"tiny1", "tiny1-adapter1"}


def test_a_killed_labelling_goes_on_where_it_stopped(small, tmp_path, monkeypatch):
    monkeypatch.setattr("routers.labels._FACTS_PER_CHUNK", 2)
    facts = [a_fact(place) for place in range(6)]
    with pytest.raises(KeyboardInterrupt):
        label_facts(Counting(small, stop_after=9), facts, cache_folder=tmp_path)
    path = label_cache_path(small.fingerprint, folder=tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4
    path.write_text("\n".join(lines)[:-9], encoding="utf-8")  # and the last line was cut
    rest, told = Counting(small), []
    labels = label_facts(
        rest, facts, cache_folder=tmp_path, on_count=lambda done, total: told.append((done, total))
    )
    assert rest.prompts == 6
    assert told[0] == (3, 6)
    assert told[-1] == (6, 6)
    assert labels == label_facts(Counting(small), facts, cache_folder=tmp_path / "fresh")
    for line in path.read_text(encoding="utf-8").splitlines()[-3:]:
        json.loads(line)


def test_key_depends_on_question_and_wording(monkeypatch):
    key = behaviour_key(a_fact(0), "Where?")
    assert behaviour_key(a_fact(0, answers=("Oslo",)), "Where?") == key
    assert behaviour_key(a_fact(0), "Where is office 0?") != key
    monkeypatch.setattr("routers.labels.CLOSED_BOOK_PREFIX", "Other words.\n")
    assert behaviour_key(a_fact(0), "Where?") != key


def test_labels_need_a_question_and_training_two(small, large, tmp_path):
    with pytest.raises(InputError, match="has no question"):
        label_facts(small, [a_fact(0, questions=())], cache_folder=tmp_path)
    single = a_fact(0, questions=("Where is office 0?",))
    with pytest.raises(InputError, match=r"1 question\(s\)"):
        collect_examples(small, large, large, [single], ["office"])


def test_examples_join_both_models_and_the_label(small, large, facts, tmp_path):
    steps = set()
    made = collect_examples(
        small, large, large, facts[:3], ["a", "b", "c"], on_step=lambda step, done, total: steps.add(step)
    )
    assert steps == {"label", "observe small", "observe large"}
    for fact, item in zip(facts, made, strict=False):
        assert item.small.fact_id == item.large.fact_id == item.label.fact_id == fact.id
        assert item.small.flops() < item.large.flops()


def test_answers_do_not_depend_on_the_company_a_prompt_is_decoded_in():
    prompts = [
        "Q: Where?\nA:",
        "Q: Which of the many towns in the land has the office of the seventh district?\nA:",
    ]
    for prefix in ("", CLOSED_BOOK_PREFIX):
        together = tiny_model(3).answer(prompts, prefix, 6)
        for prompt, expected in zip(prompts, together, strict=True):
            [alone] = tiny_model(3).answer([prompt], prefix, 6)
            assert (alone.text, alone.token_count) == (expected.text, expected.token_count)
            assert alone.lowest_prob == pytest.approx(expected.lowest_prob, rel=1e-3)


# --- deciding


def test_decisions_are_complete_and_in_order(small, large, heads, facts):
    router = CascadeRouter(small, large, heads)
    decisions = router.decide(facts, 3)
    assert [decision.fact_id for decision in decisions] == [fact.id for fact in facts]
    for decision in decisions:
        total = decision.p_non_write + decision.p_write_new + decision.p_write_update
        assert total == pytest.approx(1)
        assert decision.generation == 3
        assert decision.router_version == heads.version
        assert "\n" not in decision.reason
        has_gain = decision.expected_gain > decision.storage_price
        may_be_update = decision.p_write_update > decision.update_price
        assert decision.action.is_write == (has_gain or may_be_update)
        expected_stage = (
            RouteStage.LARGE if decision.gate_value > decision.escalation_price else RouteStage.SMALL
        )
        assert decision.stage is expected_stage
    assert router.decide(facts, 3) == decisions
    assert router.decide([], 3) == []


def test_extreme_prices(small, large, heads, facts):
    everything = CascadeRouter(small, large, heads, storage_price=0.0, escalation_price=1e9).decide(facts, 0)
    assert all(decision.action.is_write for decision in everything)
    assert {decision.stage for decision in everything} == {RouteStage.SMALL}
    dear = {"storage_price": 1.0, "escalation_price": -1e9}
    nothing = CascadeRouter(small, large, heads, **dear, update_price=1.0).decide(facts, 0)
    assert {decision.action for decision in nothing} == {RouteAction.NON_WRITE}
    assert {decision.stage for decision in nothing} == {RouteStage.LARGE}
    for cheap, dear in zip(everything, nothing, strict=True):
        assert dear.flops > cheap.flops > 0
        assert dear.model_validate_json(dear.model_dump_json()) == dear


def test_a_possible_update_is_stored_and_the_reason_says_so(small, large, heads, facts):
    router = CascadeRouter(small, large, heads, storage_price=1.0, escalation_price=1e9, update_price=0.0)
    for decision in router.decide(facts, 0):
        assert decision.action.is_write
        assert decision.update_price == 0.0
        assert "but an update with probability" in decision.reason


def test_written_facts_get_the_likelier_class(small, large, heads, facts):
    for decision in CascadeRouter(small, large, heads, storage_price=0.0).decide(facts, 0):
        likelier = decision.p_write_update > decision.p_write_new
        assert decision.action is (RouteAction.WRITE_UPDATE if likelier else RouteAction.WRITE_NEW)


def test_a_slot_conflict_is_never_dropped_and_costs_no_escalation(small, large, heads, facts):
    router = CascadeRouter(small, large, heads, storage_price=1.0, escalation_price=-1e9, update_price=1.0)
    conflict = facts[4].id
    decisions = router.decide(facts, 1, conflicting_ids={conflict})
    assert decisions[4].action is RouteAction.WRITE_UPDATE
    assert decisions[4].stage is RouteStage.SMALL
    assert "another live value" in decisions[4].reason
    assert {decision.action for place, decision in enumerate(decisions) if place != 4} == {
        RouteAction.NON_WRITE
    }


def test_the_large_model_is_asked_about_what_it_was_trained_on_whatever_the_gate_says(
    small, large, heads, facts
):
    never = CascadeRouter(small, large, heads, escalation_price=1e9)
    decisions = never.decide(facts, 1, learnt_ids={facts[2].id}, conflicting_ids={facts[4].id})
    assert [decision.stage is RouteStage.LARGE for decision in decisions] == [
        place == 2 for place in range(len(facts))
    ]
    always = CascadeRouter(small, large, heads, escalation_price=-1e9).decide(facts, 1)
    assert decisions[2].expected_gain == pytest.approx(always[2].expected_gain, abs=1e-3)


def test_decisions_do_not_depend_on_company(small, large, heads, facts):
    router = CascadeRouter(small, large, heads)
    alone = router.decide([facts[5]], 0)[0]
    among = router.decide(facts, 0)[5]
    assert (alone.action, alone.stage, alone.flops) == (among.action, among.stage, among.flops)
    assert alone.expected_gain == pytest.approx(among.expected_gain, abs=1e-3)


def test_bare_texts_use_the_text_prices_and_no_probe(small, large, heads, facts):
    bare = Fact(text="The seat of office 77 is Oslo.")
    router = CascadeRouter(small, large, heads)
    decision = router.decide([bare, facts[0]], 0)[0]
    assert decision.storage_price == heads.prices[Evidence.TEXT].storage
    assert decision.flops in (
        pytest.approx(observation_flops(small, bare)),
        pytest.approx(observation_flops(small, bare) + observation_flops(large, bare)),
    )
    unasked = CascadeRouter(small, large, heads, use_self_probe=False, escalation_price=-1e9)
    asked = CascadeRouter(small, large, heads, escalation_price=-1e9)
    assert unasked.decide(facts[:1], 0)[0].flops < asked.decide(facts[:1], 0)[0].flops
    assert unasked.large_only_flops(facts[:1]) < asked.large_only_flops(facts[:1])


def test_cost_ratio_adds_up(small, large, heads, facts):
    router = CascadeRouter(small, large, heads, escalation_price=-1e9)
    spent = sum(decision.flops for decision in router.decide(facts, 0))
    alone = sum(router.large_only_flops(facts))
    screening = sum(observation_flops(small, fact, heads.small_limit) for fact in facts)
    assert spent == pytest.approx(alone + screening)


def test_repeats_write_nothing_and_cost_nothing():
    decision = repeat_decision("f" * 32, 4, "v1")
    assert (decision.action, decision.stage) == (RouteAction.NON_WRITE, RouteStage.REPEAT)
    assert (decision.flops, decision.generation, decision.router_version) == (0.0, 4, "v1")


def test_one_model_alone_decides_and_is_charged_alone(small, large, heads, facts):
    both, small_alone, large_alone = (
        CascadeRouter(small, large, heads, stages=stages) for stages in ("both", "small", "large")
    )
    learnt = {facts[2].id}
    assert {item.stage for item in small_alone.decide(facts, 0, learnt_ids=learnt)} == {RouteStage.SMALL}
    decisions = large_alone.decide(facts, 0, conflicting_ids={facts[4].id})
    assert {item.stage for item in decisions} == {RouteStage.LARGE}
    assert [item.flops for item in decisions] == pytest.approx(both.large_only_flops(facts))
    assert decisions[4].action is RouteAction.WRITE_UPDATE
    always = CascadeRouter(small, large, heads, escalation_price=-1e9).decide(facts, 0)
    assert [item.expected_gain for item in decisions] == pytest.approx(
        [item.expected_gain for item in always], abs=1e-3
    )
