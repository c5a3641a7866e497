"""Which proven facts leave the store: a plan, bounded by the shrink limit. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def plan_evictions(
    proven: Sequence[str], hot_ids: set[str], hot_count: int, shrink_limit: float
) -> list[str]:
    """Return the proven facts to evict, in the order given.

    Args:
        proven: Facts that the saved and reloaded model answered in every form.
        hot_ids: Those of the selected facts that are still in the store.
        hot_count: Facts in the store before the night.
        shrink_limit: Largest share of `hot_count` that may leave in one night, in (0, 1].
    """
    allowed = int(hot_count * shrink_limit)
    return [fact_id for fact_id in dict.fromkeys(proven) if fact_id in hot_ids][:allowed]
