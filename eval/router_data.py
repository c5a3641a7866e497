"""The facts a router is trained, calibrated and reported on: one fixed mix per split, by subject."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from eval.corpora.agent_world import agent_world
from eval.corpora.splits import SPLITS, split_of
from eval.corpora.stable_draw import StableDraw
from eval.corpora.updates import counterfactual_updates
from eval.corpora.world import load_world_corpus
from eval.known_facts import likely_relations

if TYPE_CHECKING:
    from eval.corpora.corpus import CorpusFact

_AGENT_COUNT = 4000
AGENT_SHARE, CHANGED_SHARE = 0.15, 0.15
_LIKELY_IN_FOUR = 3


def router_facts(
    limit_per_split: dict[str, int], seed: int = 0, *, known_questions: Collection[str] = ()
) -> dict[str, list[CorpusFact]]:
    """Return for each split the facts to label: world facts, an agent's own facts, and changed world facts.

    A smaller limit gives a part of a larger one, so labels that were made once are used again. Small models know few
    facts of most relations. So that known facts and beliefs are not too rare to learn from, three of four world facts
    and all changed ones come, while there are any, from relations of which the model knows a fair share. Which
    relations these are says nothing about a single fact, and is found on questions of the anchor bank, whose subjects
    lie in the training and gate splits.

    Args:
        limit_per_split: Most facts per split; a split left out gets none.
        seed: Another seed draws other facts; the splits themselves do not move.
        known_questions: Probe questions that the model answers, as the anchor bank holds them.

    Returns:
        Facts by split, fewer than the limit where the corpus has no more.
    """
    draw = StableDraw(seed, "router-data")
    likely = likely_relations(known_questions)
    world = draw.shuffled(load_world_corpus(), "world")
    pools = {
        "agent": agent_world(_AGENT_COUNT, seed),
        "changed": [
            *_changed([item for item in world if item.relation in likely], seed),
            *_changed([item for item in world if item.relation not in likely], seed),
        ],
        "world": world,
    }
    chosen: dict[str, list[CorpusFact]] = {}
    for split in SPLITS:
        limit = limit_per_split.get(split, 0)
        own = {name: [item for item in pool if split_of(item.group) == split] for name, pool in pools.items()}
        own["world"] = list(_interleaved(own["world"], likely))
        counts = {"agent": round(limit * AGENT_SHARE), "changed": round(limit * CHANGED_SHARE)}
        counts["world"] = limit - sum(counts.values())
        chosen[split] = [item for name, count in counts.items() for item in own[name][:count]]
    return chosen


def _changed(items: Sequence[CorpusFact], seed: int) -> list[CorpusFact]:
    return [pair.new for pair in counterfactual_updates(None, seed, items)]


def _interleaved(items: Sequence[CorpusFact], likely: Collection[str]) -> Iterator[CorpusFact]:
    """Yield three items of likely relations for each other one, then what is left over."""
    rich = [item for item in items if item.relation in likely]
    others = [item for item in items if item.relation not in likely]
    while rich and others:
        yield from rich[:_LIKELY_IN_FOUR]
        yield others[0]
        rich, others = rich[_LIKELY_IN_FOUR:], others[1:]
    yield from [*rich, *others]
