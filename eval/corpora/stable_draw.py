"""Seeded choices that are the same on every machine and Python version, and do not depend on one another."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class StableDraw:
    """A source of choices addressed by words: the same seed and key always give the same choice."""

    seed: int
    purpose: str

    def number(self, *key: object) -> int:
        """Return a 64-bit number for the key."""
        text = "/".join(str(part) for part in (self.purpose, self.seed, *key))
        return int.from_bytes(hashlib.sha256(text.encode("utf-8")).digest()[:8], "big")

    def share(self, *key: object) -> float:
        """Return a number in [0, 1) for the key."""
        return self.number(*key) / 2**64

    def choice(self, items: Sequence[Item], *key: object) -> Item:
        """Return one of the items."""
        return items[self.number(*key) % len(items)]

    def shuffled(self, items: Sequence[Item], *key: object) -> list[Item]:
        """Return the items in an order that depends on the key and on their number only."""
        order = sorted(range(len(items)), key=lambda index: self.number(*key, index))
        return [items[index] for index in order]

    def permuted(self, index: int, size: int, *key: object) -> int:
        """Return the image of `index` under a permutation of range(size), without building it."""
        step = self.number("step", size, *key) % size or 1
        while math.gcd(step, size) != 1:
            step = step % size + 1
        return (index * step + self.number("shift", size, *key)) % size
