"""The order of a training: what each optimiser step sees, and which facts may sit out since they are learnt."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consolidation.packing import Segment
    from sharpwave.settings import WriteBackSettings


def most_steps(wordings: Iterable[int], anchors: int, settings: WriteBackSettings) -> int:
    """Return how many steps a training takes if no fact ever sits out.

    Args:
        wordings: How many wordings each fact has.
        anchors: How many anchors there are.
        settings: Their shares of an epoch, its steps and how many epochs there are.
    """
    facts = sum(min(settings.wordings_per_epoch, count) for count in wordings)
    per_epoch = facts + min(settings.anchors_per_epoch, anchors)
    return math.ceil(per_epoch / settings.batch_size) * settings.epochs


@dataclass
class _Progress:
    """How a fact stands: its lowest token probability of this epoch, if noted yet, and how long it sits out."""

    lowest: float | None = None
    sure_in_a_row: int = 0
    resting: int = 0
    next_wording: int = 0


class Curriculum:
    """Deals segments into steps, epoch by epoch, seeded.

    Each epoch takes the next wordings of every fact, in turn, and draws anchors anew, so that all wordings and all of
    a large bank are seen while an epoch costs little. Up to half of an epoch's anchors are replayed facts. A fact whose
    answer tokens were all surer than `sure_prob` sits out the next epoch; if it is still sure when it returns, the next
    two, and so on.
    """

    def __init__(self, segments: Sequence[Segment], settings: WriteBackSettings, seed: int) -> None:
        self._settings = settings
        self._draw = random.Random(seed)
        self._wordings: dict[int, list[int]] = {}
        self._bank: list[int] = []
        self._replayed: list[int] = []
        for number, segment in enumerate(segments):
            if segment.replayed:
                self._replayed.append(number)
            elif segment.fact < 0:
                self._bank.append(number)
            else:
                self._wordings.setdefault(segment.fact, []).append(number)
        self._facts = {fact: _Progress() for fact in self._wordings}
        self.done = 0.0
        self._steps = self._deal()

    @property
    def most_steps(self) -> int:
        """How many steps it takes if no fact ever sits out."""
        wordings = (len(numbers) for numbers in self._wordings.values())
        return most_steps(wordings, len(self._bank) + len(self._replayed), self._settings)

    def next_step(self) -> list[int] | None:
        """Return the numbers of the segments of the next step; None at the end."""
        return next(self._steps, None)

    def note(self, lowest_probs: Mapping[int, float]) -> None:
        """Take in, for each fact of a step, the lowest probability among its answer tokens."""
        for fact, prob in lowest_probs.items():
            state = self._facts[fact]
            state.lowest = prob if state.lowest is None else min(state.lowest, prob)

    def _deal(self) -> Iterator[list[int]]:
        settings = self._settings
        for epoch in range(settings.epochs):
            segments = [number for fact in self._facts for number in self._take(fact)]
            segments += self._draw_anchors()
            self._draw.shuffle(segments)
            for start in range(0, len(segments), settings.batch_size):
                self.done = (epoch + start / len(segments)) / settings.epochs
                yield segments[start : start + settings.batch_size]
            for state in self._facts.values():
                self._judge(state)
        self.done = 1.0

    def _draw_anchors(self) -> list[int]:
        wanted = self._settings.anchors_per_epoch
        replayed = min(len(self._replayed), max(wanted // 2, wanted - len(self._bank)))
        drawn = self._draw.sample(self._replayed, replayed)
        return drawn + self._draw.sample(self._bank, min(wanted - replayed, len(self._bank)))

    def _take(self, fact: int) -> list[int]:
        state, numbers = self._facts[fact], self._wordings[fact]
        if state.resting:
            return []
        first, count = state.next_wording, min(self._settings.wordings_per_epoch, len(numbers))
        state.next_wording += count
        return [numbers[(first + k) % len(numbers)] for k in range(count)]

    def _judge(self, state: _Progress) -> None:
        if state.resting:
            state.resting -= 1
            return
        # The trainer fetches a step ahead, so a fact of an epoch's last step may not be noted: it comes again.
        is_sure = state.lowest is not None and state.lowest > self._settings.sure_prob
        state.sure_in_a_row = state.sure_in_a_row + 1 if is_sure else 0
        state.resting, state.lowest = state.sure_in_a_row, None
