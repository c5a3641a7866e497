"""The facts a router is trained, calibrated and reported on: one fixed mix per split, by subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eval.corpora.agent_world import agent_world
from eval.corpora.splits import SPLITS, split_of
from eval.corpora.stable_draw import StableDraw
from eval.corpora.updates import counterfactual_updates
from eval.corpora.world import load_world_corpus

if TYPE_CHECKING:
    from eval.corpora.corpus import CorpusFact

_AGENT_COUNT, _COUNTERFACTUAL_COUNT = 1200, 800
AGENT_SHARE, COUNTERFACTUAL_SHARE = 0.15, 0.1


def router_facts(limit_per_split: dict[str, int], seed: int = 0) -> dict[str, list[CorpusFact]]:
    """Return for each split the facts to label: world facts, an agent's own facts, and changed world facts.

    A smaller limit gives a prefix of a larger one, so labels that were made once are used again.

    Args:
        limit_per_split: Most facts per split; a split left out gets none.
        seed: Another seed draws other facts; the splits themselves do not move.
    """
    draw = StableDraw(seed, "router-data")
    pools = {
        "world": draw.shuffled(load_world_corpus(), "world"),
        "agent": agent_world(_AGENT_COUNT, seed),
        "changed": [pair.new for pair in counterfactual_updates(_COUNTERFACTUAL_COUNT, seed)],
    }
    chosen: dict[str, list[CorpusFact]] = {}
    for split in SPLITS:
        limit = limit_per_split.get(split, 0)
        counts = {"agent": round(limit * AGENT_SHARE), "changed": round(limit * COUNTERFACTUAL_SHARE)}
        counts["world"] = limit - sum(counts.values())
        chosen[split] = [
            item
            for name, count in counts.items()
            for item in [item for item in pools[name] if split_of(item.group) == split][:count]
        ]
    return chosen
