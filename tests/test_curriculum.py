"""The order of a training: every wording gets its turn, learnt facts sit out, and nothing else changes it."""

from __future__ import annotations

from collections import Counter

import pytest

from consolidation.curriculum import Curriculum
from consolidation.packing import Segment
from sharpwave.settings import WriteBackSettings

FACTS, WORDINGS, ANCHORS = 5, 3, 10


def segments() -> list[Segment]:
    taught = [
        Segment(prompt_ids=(fact,), completion_ids=(1,), prefixed=False, fact=fact)
        for fact in range(FACTS)
        for _ in range(WORDINGS)
    ]
    kept = [
        Segment(prompt_ids=(9,), completion_ids=(1,), prefixed=False, anchor=number)
        for number in range(ANCHORS)
    ]
    return taught + kept


def curriculum(seed: int = 0, **changes) -> Curriculum:
    options = {
        "epochs": 6,
        "batch_size": 4,
        "wordings_per_epoch": 2,
        "anchors_per_epoch": 3,
        "sure_prob": 0.9,
    }
    return Curriculum(segments(), WriteBackSettings(**(options | changes)), seed)


def run(dealt: Curriculum, prob_of) -> list[list[int]]:
    """Deal all steps; `prob_of(fact)` says how sure the model is of it."""
    steps = []
    while (step := dealt.next_step()) is not None:
        steps.append(step)
        dealt.note({number // WORDINGS: prob_of(number // WORDINGS) for number in step if _is_fact(number)})
    return steps


def _is_fact(number: int) -> bool:
    return number < FACTS * WORDINGS


def replaying(own: int, bank: int, wanted: int) -> list[Counter[int]]:
    """Return how often each anchor comes in each of three epochs; the first `own` are replayed."""
    kept = [
        Segment(prompt_ids=(9,), completion_ids=(1,), prefixed=False, anchor=number, replayed=number < own)
        for number in range(own + bank)
    ]
    fact = Segment(prompt_ids=(0,), completion_ids=(1,), prefixed=False, fact=0)
    settings = WriteBackSettings(epochs=3, batch_size=500, anchors_per_epoch=wanted)
    dealt = Curriculum([*kept, fact], settings, 0)
    assert dealt.most_steps == 3
    steps = []
    while (step := dealt.next_step()) is not None:
        steps.append(Counter(number for number in step if number < own + bank))
    return steps


@pytest.mark.parametrize(
    ("own", "bank", "wanted", "replayed"),
    [(4, 50, 20, 4), (30, 50, 20, 10), (30, 5, 20, 15), (30, 0, 20, 20), (3, 2, 20, 3), (0, 50, 20, 0)],
)
def test_replayed_facts_fill_up_to_half_of_an_epochs_anchors(own, bank, wanted, replayed):
    for epoch in replaying(own, bank, wanted):
        assert max(epoch.values()) == 1
        assert sum(number < own for number in epoch) == replayed
        assert len(epoch) == min(wanted, own + bank)


def counts(steps: list[list[int]]) -> Counter[int]:
    return Counter(number for step in steps for number in step)


def test_an_unsure_fact_comes_every_epoch_and_its_wordings_take_turns():
    steps = run(curriculum(), lambda fact: 0.1)
    assert {counts(steps)[number] for number in range(FACTS * WORDINGS)} == {
        4
    }  # 6 epochs of 2 over 3 wordings
    assert len(steps) == curriculum().most_steps


def test_a_sure_fact_sits_out_longer_and_longer():
    steps = run(curriculum(epochs=10), lambda fact: 0.95 if fact == 0 else 0.1)
    seen = counts(steps)
    # Epochs 0, 2, 5 and 9: it rests one, two, then three epochs.
    assert sum(seen[number] for number in range(WORDINGS)) == 4 * 2
    assert sum(seen[number] for number in range(WORDINGS, 2 * WORDINGS)) == 10 * 2


def test_one_unsure_wording_keeps_a_fact_in():
    dealt = curriculum(epochs=4)
    visits = 0
    while (step := dealt.next_step()) is not None:
        for number in step:
            if number < WORDINGS:
                visits += 1
                dealt.note({0: 0.5 if number == 0 else 0.99})
    # Wordings 0 and 1 in epoch 0, 2 and 0 in epoch 1; then 1 and 2 are sure, and it sits out the last epoch.
    assert visits == 6


def test_a_fact_that_was_not_noted_in_time_comes_again():
    dealt, steps = curriculum(), []
    while (step := dealt.next_step()) is not None:
        steps.append(step)
    assert len(steps) == curriculum().most_steps


def test_a_limit_of_one_never_lets_a_fact_sit_out():
    assert len(run(curriculum(sure_prob=1.0), lambda fact: 1.0)) == curriculum().most_steps


def test_anchors_are_drawn_anew_and_none_twice_in_an_epoch():
    steps = run(curriculum(epochs=1, anchors_per_epoch=8, batch_size=100), lambda fact: 0.1)
    drawn = [number for number in steps[0] if not _is_fact(number)]
    assert len(drawn) == len(set(drawn)) == 8
    many = counts(run(curriculum(epochs=30), lambda fact: 0.1))
    assert all(many[FACTS * WORDINGS + number] for number in range(ANCHORS))


def test_more_anchors_than_there_are_takes_all():
    steps = run(curriculum(epochs=1, anchors_per_epoch=99), lambda fact: 0.1)
    assert sum(counts(steps)[FACTS * WORDINGS + number] for number in range(ANCHORS)) == ANCHORS


def test_the_same_seed_deals_the_same_steps_and_another_does_not():
    first, again = (run(curriculum(), lambda fact: 0.1) for _ in range(2))
    assert first == again
    assert run(curriculum(seed=1), lambda fact: 0.1) != first


@pytest.mark.parametrize("prob", [0.1, 0.99])
def test_the_share_done_rises_from_nothing_to_one(prob):
    dealt, shares = curriculum(), []
    while (step := dealt.next_step()) is not None:
        shares.append(dealt.done)
        dealt.note({number // WORDINGS: prob for number in step if _is_fact(number)})
    assert shares[0] == 0.0
    assert shares == sorted(set(shares))
    assert dealt.done == 1.0
