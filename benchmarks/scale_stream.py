"""The stand-ins of `scale.py`: a stream of invented facts, the decisions about them, and an embedder without a model.

All are pure functions of seed and number, so nothing is kept in memory and every run sees the same stream.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from eval.corpora.stable_draw import StableDraw
from sharpwave.records import Fact, RouteAction, RouteDecision, RouteStage, Slot

if TYPE_CHECKING:
    from numpy.typing import NDArray

NON_WRITE_SHARE, UPDATE_SHARE = 0.45, 0.08  # of the decisions; the rest is new
LARGE_SHARE = 0.35  # of the decisions are taken by the large model
DIMENSION = 384  # as the default embedder's
LATENT = 48  # directions the vectors really use: sentence embeddings fill few of theirs
SHORTEST_WORD = 5  # letters; shorter words carry no meaning here
START = datetime(2020, 1, 1, tzinfo=UTC)
_RELATIONS, _FACTS_PER_SUBJECT = 200, 4


class SyntheticEmbedder:
    """Gives each long word a seeded direction; a text's unit vector is their sum.

    A question lies near its fact (cosine about 0.8) because they share subject and relation.
    """

    dimension = DIMENSION

    def __init__(self, seed: int) -> None:
        self.seed = seed
        square = np.random.default_rng(seed).standard_normal((DIMENSION, LATENT))
        self._axes: NDArray[np.float32] = np.linalg.qr(square)[0].T.astype(np.float32)

    @property
    def fingerprint(self) -> str:
        """Identity of the vectors."""
        return f"synthetic-words;revision=1;dimension={DIMENSION};latent={LATENT};seed={self.seed}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per text, shape [n, dimension], float32."""
        sums = np.stack([self._latent(text) for text in texts])
        vectors = sums @ self._axes
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)

    def _latent(self, text: str) -> NDArray[np.float32]:
        words = [word for word in re.findall(r"\w+", text) if len(word) >= SHORTEST_WORD]
        digests = b"".join(
            hashlib.blake2b(f"{self.seed}:{word}".encode(), digest_size=LATENT).digest() for word in words
        )
        # bytes are uniform: centred, their sum over the words is as good as normal
        directions = np.frombuffer(digests, np.uint8).reshape(len(words), LATENT).astype(np.float32) - 127.5
        total: NDArray[np.float32] = directions.sum(axis=0)
        return total


@dataclass(frozen=True)
class Stream:
    """Facts and decisions by number. An update gives a new value to the slot of an earlier fact."""

    seed: int

    @property
    def _draw(self) -> StableDraw:
        return StableDraw(self.seed, "scale")

    def action(self, number: int) -> RouteAction:
        """Return what the router decides about a fact."""
        place = self._draw.share("action", number)
        if place < NON_WRITE_SHARE:
            return RouteAction.NON_WRITE
        if place < NON_WRITE_SHARE + UPDATE_SHARE and number:
            return RouteAction.WRITE_UPDATE
        return RouteAction.WRITE_NEW

    def fact(self, number: int) -> Fact:
        """Return a fact with a slot, a question and a value that no other fact has; a second after the one before."""
        place = self._first_on_slot(number)
        subject = f"person{place // _FACTS_PER_SUBJECT:07d}"
        relation = f"relation{self._draw.number('relation', place) % _RELATIONS:03d}"
        return Fact(
            text=f"The {relation} of {subject} is value{number:07d}.",
            slot=Slot(subject=subject, relation=f"{relation} {place % _FACTS_PER_SUBJECT}"),
            questions=(f"What is the {relation} of {subject}?",),
            answers=(f"value{number:07d}",),
            observed_at=START + timedelta(seconds=number),
        )

    def decision(self, number: int, fact_id: str, generation: int) -> RouteDecision:
        """Return the decision about a fact as a cascade would have recorded it."""
        action = self.action(number)
        sure = 0.5 + 0.48 * self._draw.share("sure", number)
        rest = (1 - sure) / 2
        is_large = self._draw.share("stage", number) < LARGE_SHARE
        return RouteDecision(
            fact_id=fact_id,
            action=action,
            stage=RouteStage.LARGE if is_large else RouteStage.SMALL,
            p_non_write=sure if action is RouteAction.NON_WRITE else rest,
            p_write_new=sure if action is RouteAction.WRITE_NEW else rest,
            p_write_update=sure if action is RouteAction.WRITE_UPDATE else rest,
            expected_gain=sure if action.is_write else rest,
            gate_value=sure if is_large else rest,
            storage_price=0.3,
            escalation_price=0.3,
            evidence="probe",
            router_version="replayed",
            generation=generation,
            flops=1e9,
            reason="replayed",
        )

    def _first_on_slot(self, number: int) -> int:
        """Return the number of the fact whose slot this one is about: its own unless it is an update."""
        while self.action(number) is RouteAction.WRITE_UPDATE:
            number = self._draw.number("target", number) % number
        return number
