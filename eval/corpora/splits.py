"""Splits by subject: a group of facts lands in one set as a whole, whatever else is in the corpus."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sharpwave.errors import InputError

if TYPE_CHECKING:
    from eval.corpora.corpus import CorpusFact

SPLITS = ("train", "calibration", "gate", "report")
DEFAULT_SHARES: Mapping[str, float] = {"train": 0.4, "calibration": 0.2, "gate": 0.1, "report": 0.3}


def group_position(group: str, seed: int = 0) -> float:
    """Return the group's place in [0, 1): a salted SHA-256, the same on every machine."""
    digest = hashlib.sha256(f"sharpwave-split/{seed}/{group}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def split_of(group: str, seed: int = 0, shares: Mapping[str, float] = DEFAULT_SHARES) -> str:
    """Return the set that a group belongs to.

    Raises:
        InputError: The shares do not name the four sets or do not sum to one.
    """
    if set(shares) != set(SPLITS) or abs(sum(shares.values()) - 1) > 1e-9 or min(shares.values()) < 0:
        raise InputError(f"shares must be given for {', '.join(SPLITS)} and sum to 1, not {dict(shares)}")
    position, edge = group_position(group, seed), 0.0
    for name in SPLITS:
        edge += shares[name]
        if position < edge:
            return name
    return SPLITS[-1]


def split_by_subject(
    items: Iterable[CorpusFact], seed: int = 0, shares: Mapping[str, float] = DEFAULT_SHARES
) -> dict[str, list[CorpusFact]]:
    """Divide a corpus into head-training, calibration, gate and report sets that share no group.

    A group's set depends on its name and the seed only, so adding or reordering facts moves nothing. The
    shares hold for groups; of facts they hold approximately, since groups differ in size.
    """
    parts: dict[str, list[CorpusFact]] = {name: [] for name in SPLITS}
    places: dict[str, str] = {}
    for item in items:
        if item.group not in places:
            places[item.group] = split_of(item.group, seed, shares)
        parts[places[item.group]].append(item)
    return parts
