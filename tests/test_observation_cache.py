"""Observations kept on disk: the same as fresh ones, made once, whole after a kill, apart for other models."""

import numpy as np
import pytest

import routers.observation_cache as cache
from carriers.language_model import LanguageModel
from routers.observation import observe
from routers.observation_cache import observation_key, observe_once
from sharpwave.records import Fact
from tests.tiny_models import tiny_llama, tiny_tokenizer


def a_fact(place, **changes):
    values = {"text": f"Office {place} is in Oslo.", "questions": ("Where is it?",), "answers": ("Oslo",)}
    return Fact(**{**values, **changes})


def model(fingerprint="one"):
    return LanguageModel(tiny_llama(), tiny_tokenizer(), name="tiny", fingerprint=fingerprint)


@pytest.fixture
def looks(monkeypatch):
    """How many facts each pass looked at."""
    counts = []

    def counting(model, facts):
        counts.append(len(facts))
        return observe(model, facts)

    monkeypatch.setattr(cache, "observe", counting)
    monkeypatch.setattr(cache, "_FACTS_PER_FILE", 4)
    return counts


def test_what_was_seen_is_read_back_as_it_was(tmp_path, looks):
    facts = [a_fact(0), a_fact(1, questions=(), answers=()), a_fact(2), a_fact(0)]
    first = observe_once(model(), facts, cache_folder=tmp_path)
    again = observe_once(model(), facts[::-1], cache_folder=tmp_path)[::-1]
    assert looks == [3]
    for fact, kept, fresh in zip(facts, again, first, strict=True):
        assert kept.fact_id == fresh.fact_id == fact.id
        assert (kept.text_flops, kept.probe_flops) == (fresh.text_flops, fresh.probe_flops)
        assert kept.groups.keys() == fresh.groups.keys()
        assert all(np.array_equal(kept.groups[name], fresh.groups[name]) for name in kept.groups)
        assert kept.evidence() is fresh.evidence()
    direct = observe(model(), facts)
    assert np.allclose(direct[2].groups["hidden"], first[2].groups["hidden"], atol=1e-5)
    assert direct[2].text_flops == first[2].text_flops


def test_only_what_is_new_is_looked_at_and_progress_counts_all(tmp_path, looks):
    told = []
    observe_once(model(), [a_fact(n) for n in range(5)], cache_folder=tmp_path)
    observe_once(
        model(),
        [a_fact(n) for n in range(7)],
        cache_folder=tmp_path,
        on_count=lambda done, total: told.append((done, total)),
    )
    assert looks == [4, 1, 2]
    assert told == [(5, 7), (7, 7)]


def test_a_killed_run_goes_on_where_it_stopped(tmp_path, looks, monkeypatch):
    facts = [a_fact(n) for n in range(10)]
    counting = cache.observe

    def killed_at_the_third_chunk(model, facts):
        if len(looks) == 2:
            raise KeyboardInterrupt
        return counting(model, facts)

    monkeypatch.setattr(cache, "observe", killed_at_the_third_chunk)
    with pytest.raises(KeyboardInterrupt):
        observe_once(model(), facts, cache_folder=tmp_path)
    monkeypatch.setattr(cache, "observe", counting)
    for stray in tmp_path.iterdir():
        (stray / "0000.part").write_bytes(b"cut short")
    assert len(observe_once(model(), facts, cache_folder=tmp_path)) == 10
    assert looks == [4, 4, 2]


def test_models_and_questions_are_kept_apart(tmp_path, looks):
    observe_once(model(), [a_fact(0)], cache_folder=tmp_path)
    observe_once(model("other"), [a_fact(0)], cache_folder=tmp_path)
    assert looks == [1, 1]
    keys = {
        observation_key(fact)
        for fact in (
            a_fact(0),
            a_fact(0, questions=("Where?",)),
            a_fact(0, answers=("Lima",)),
            a_fact(1),
        )
    }
    assert len(keys) == 4


@pytest.mark.parametrize("content", [b"", b"garbage", None])
def test_a_damaged_file_is_passed_over_and_its_facts_are_looked_at_again(tmp_path, looks, content):
    facts = [a_fact(n) for n in range(6)]
    before = observe_once(model(), facts, cache_folder=tmp_path)
    damaged = sorted(tmp_path.rglob("*.safetensors"))[0]
    damaged.write_bytes(damaged.read_bytes()[:100] if content is None else content)
    after = observe_once(model(), facts, cache_folder=tmp_path)
    assert looks[:2] == [4, 2]
    assert looks[2:] in ([4], [2])
    for old, new in zip(before, after, strict=True):
        assert np.allclose(old.groups["hidden"], new.groups["hidden"], atol=1e-5)
    observe_once(model(), facts, cache_folder=tmp_path)
    assert len(looks) == 3
