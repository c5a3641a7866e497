"""The router end to end on the embedded models, on a dozen facts: does each part read the others as it should?"""

import pytest

from carriers.language_model import LanguageModel
from routers.cascade import CascadeRouter
from routers.examples import collect_examples
from routers.features import SPAN_FEATURES, Evidence
from routers.heads import RouterHeads
from routers.training import RouterTraining, train_router
from sharpwave.errors import ConfigError
from sharpwave.records import Fact, RouteAction

CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Japan": "Tokyo",
    "Germany": "Berlin",
    "China": "Beijing",
}
INVENTED = {
    "Tilda": "Brindle",
    "Marek": "Soot",
    "Oona": "Pebble",
    "Ravi": "Comet",
    "Sena": "Biscuit",
    "Lutz": "Fennel",
}


def capital(country, town):
    return Fact(
        text=f"The capital of {country} is {town}.",
        questions=(f"What is the capital of {country}?", f"Which city is the capital of {country}?"),
        answers=(town,),
    )


def pet(owner, name):
    return Fact(
        text=f"The cat of {owner} Quandry-Vell is called {name}.",
        questions=(
            f"How is the cat of {owner} Quandry-Vell called?",
            f"What is the name of {owner} Quandry-Vell's cat?",
        ),
        answers=(name,),
    )


@pytest.fixture(scope="module")
def facts():
    return [
        fact
        for c, p in zip(CAPITALS.items(), INVENTED.items(), strict=True)
        for fact in (capital(*c), pet(*p))
    ]


@pytest.fixture(scope="module")
def models(embedded_models):
    return [LanguageModel.load(embedded_models[role]) for role in ("small", "large")]


@pytest.fixture(scope="module")
def examples(models, facts, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARPWAVE_HOME", str(tmp_path_factory.mktemp("labels")))
        return collect_examples(*models, models[1], facts, [fact.id for fact in facts])


@pytest.mark.models
@pytest.mark.slow
def test_behaviour_and_readings_tell_known_from_invented(examples):
    capitals, pets = examples[0::2], examples[1::2]
    assert sum(item.label.em_without for item in capitals) >= 4
    assert sum(item.label.em_without for item in pets) == 0
    assert sum(item.label.em_with for item in examples) >= 9
    nll = SPAN_FEATURES.index("nll_mean")
    for side in ("small", "large"):
        known = [getattr(item, side).groups["span"][nll] for item in capitals]
        unknown = [getattr(item, side).groups["span"][nll] for item in pets]
        assert max(known) < min(unknown)
        assert {getattr(item, side).evidence() for item in examples} == {Evidence.PROBE}


@pytest.mark.models
@pytest.mark.slow
def test_heads_made_from_a_dozen_facts_route_new_ones(models, examples, tmp_path):
    small, large = models
    sets = [examples[start : start + 4] for start in (0, 4, 8)]
    trained = train_router(
        sets[0] + sets[1],
        sets[2],
        renamed(sets[2]),
        RouterTraining(folds=2, hidden_components=2, resplits=2),
        small_fingerprint=small.fingerprint,
        large_fingerprint=large.fingerprint,
    )
    trained.save(tmp_path)
    heads = RouterHeads.load(
        tmp_path, small_fingerprint=small.fingerprint, large_fingerprint=large.fingerprint
    )
    router = CascadeRouter(small, large, heads, storage_price=0.5, escalation_price=-1e9)
    known, invented = capital("Russia", "Moscow"), pet("Nell", "Waffle")
    decisions = router.decide([known, invented], 0)
    assert decisions[0].action is RouteAction.NON_WRITE
    assert decisions[1].action.is_write
    ratio = sum(item.flops for item in decisions) / sum(router.large_only_flops([known, invented]))
    assert 1.0 < ratio < 1.7  # everything escalated: the large model, and the small one on top
    with pytest.raises(ConfigError, match="sharpwave train-router"):
        RouterHeads.load(tmp_path, small_fingerprint=large.fingerprint, large_fingerprint=large.fingerprint)


def renamed(examples):
    """The same facts as another set; only figures of the card come from it."""
    from dataclasses import replace

    return [replace(item, group=f"report {item.group}") for item in examples]
