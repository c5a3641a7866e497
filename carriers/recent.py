"""A bounded memory of results: what was added last is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def remember(kept: dict[K, V], new: Mapping[K, V], limit: int) -> None:
    """Add results to those kept and drop the oldest beyond the limit; callers on several threads may do so at once."""
    kept.update(new)
    for key in list(kept)[: max(0, len(kept) - limit)]:
        kept.pop(key, None)
