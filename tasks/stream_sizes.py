"""How long the streams of demo, benchmark and tests are, and after which steps the memory sleeps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StreamSize:
    """A stream's measures; `nights_after` are step numbers, from 0, after which a consolidation runs.

    `overrides` are settings that belong to the size; the user's own go before them.
    """

    n_facts: int
    steps: int
    questions_per_step: int
    nights_after: tuple[int, ...]
    overrides: tuple[str, ...] = ()


STREAM_SIZES = {
    "tiny": StreamSize(n_facts=48, steps=3, questions_per_step=16, nights_after=(1,)),
    "demo": StreamSize(n_facts=300, steps=6, questions_per_step=40, nights_after=(3,)),
    "small": StreamSize(n_facts=600, steps=9, questions_per_step=60, nights_after=(3, 6)),
}
