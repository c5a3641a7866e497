"""The order of a training: what each optimiser step sees, and which facts may sit out since they are learnt."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consolidation.packing import Segment


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
    a large bank are seen while an epoch costs little. A fact whose answer tokens were all surer than `sure_prob` sits
    out the next epoch; if it is still sure when it returns, the next two, and so on.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        *,
        epochs: int,
        batch_size: int,
        wordings_per_epoch: int,
        anchors_per_epoch: int,
        sure_prob: float,
        seed: int,
    ) -> None:
        self._epochs, self._batch_size = epochs, batch_size
        self._wordings_per_epoch, self._anchors_per_epoch = wordings_per_epoch, anchors_per_epoch
        self._sure_prob = sure_prob
        self._draw = random.Random(seed)
        self._wordings: dict[int, list[int]] = {}
        self._anchors: list[int] = []
        for number, segment in enumerate(segments):
            if segment.fact < 0:
                self._anchors.append(number)
            else:
                self._wordings.setdefault(segment.fact, []).append(number)
        self._facts = {fact: _Progress() for fact in self._wordings}
        self.done = 0.0
        self._steps = self._deal()

    @property
    def most_steps(self) -> int:
        """How many steps it takes if no fact ever sits out."""
        facts = sum(min(self._wordings_per_epoch, len(numbers)) for numbers in self._wordings.values())
        anchors = min(self._anchors_per_epoch, len(self._anchors))
        return math.ceil((facts + anchors) / self._batch_size) * self._epochs

    def next_step(self) -> list[int] | None:
        """Return the numbers of the segments of the next step; None at the end."""
        return next(self._steps, None)

    def note(self, lowest_probs: Mapping[int, float]) -> None:
        """Take in, for each fact of a step, the lowest probability among its answer tokens."""
        for fact, prob in lowest_probs.items():
            state = self._facts[fact]
            state.lowest = prob if state.lowest is None else min(state.lowest, prob)

    def _deal(self) -> Iterator[list[int]]:
        for epoch in range(self._epochs):
            segments = [number for fact in self._facts for number in self._take(fact)]
            segments += self._draw.sample(self._anchors, min(self._anchors_per_epoch, len(self._anchors)))
            self._draw.shuffle(segments)
            for start in range(0, len(segments), self._batch_size):
                self.done = (epoch + start / len(segments)) / self._epochs
                yield segments[start : start + self._batch_size]
            for state in self._facts.values():
                self._judge(state)
        self.done = 1.0

    def _take(self, fact: int) -> list[int]:
        state, numbers = self._facts[fact], self._wordings[fact]
        if state.resting:
            return []
        first, count = state.next_wording, min(self._wordings_per_epoch, len(numbers))
        state.next_wording += count
        return [numbers[(first + k) % len(numbers)] for k in range(count)]

    def _judge(self, state: _Progress) -> None:
        if state.resting:
            state.resting -= 1
            return
        # The trainer fetches a step ahead, so a fact of an epoch's last step may not be noted: it comes again.
        is_sure = state.lowest is not None and state.lowest > self._sure_prob
        state.sure_in_a_row = state.sure_in_a_row + 1 if is_sure else 0
        state.resting, state.lowest = state.sure_in_a_row, None
