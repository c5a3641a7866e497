"""Which generations keep their adapter. Facts and records of generations are never deleted, adapters are large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sharpwave.records import Generation, Record

if TYPE_CHECKING:
    from carriers.generations import GenerationStore


class RetentionPlan(Record):
    """Generations that keep their adapter and those that are retired, by number."""

    keep: tuple[int, ...]
    retire: tuple[int, ...]


def plan_retention(generations: Sequence[Generation], lineage: Sequence[int], limit: int) -> RetentionPlan:
    """Choose which generations keep their adapter: what the current one was built on goes before side branches.

    Among equals the newer is kept. The current generation always is, and what was never promoted is left alone: it
    is discarded, or the shadow of a night that goes on or waits.

    Args:
        generations: All of a store.
        lineage: The current generation and all it was built on, ascending.
        limit: How many adapters are kept; 0 keeps all.
    """
    reachable = [item.number for item in generations if item.number and item.is_reachable]
    ranked = sorted(reachable, key=lambda number: (number in lineage, number), reverse=True)
    kept = ranked[:limit] if limit else ranked
    return RetentionPlan(keep=tuple(sorted(kept)), retire=tuple(sorted(set(ranked) - set(kept))))


def retire_generations(generations: GenerationStore, limit: int) -> RetentionPlan:
    """Delete the adapters that are not to be kept, and what a killed deletion has left; return the plan.

    Needs the night lease: a night under way reads the adapter of its parent.
    """
    plan = plan_retention(generations.all(), generations.lineage(), limit)
    generations.retire(plan.retire)
    return plan
