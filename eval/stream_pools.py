"""What a stream is made of: known, new and changed facts, from the embedded corpora or from a set that was read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from eval.corpora.agent_world import agent_world
from eval.corpora.splits import split_of
from eval.corpora.updates import UpdatePair, agent_updates, counterfactual_updates, real_updates
from eval.corpora.world import load_world_corpus
from sharpwave.errors import InputError

if TYPE_CHECKING:
    from eval.corpora.corpus import CorpusFact
    from eval.corpora.stable_draw import StableDraw
    from eval.public_sets.harvest import PublicSet


class Arrival(StrEnum):
    """Why a fact is in the stream."""

    KNOWN = "known"
    NEW = "new"
    UPDATE = "update"
    REPEAT = "repeat"


@dataclass(frozen=True, slots=True)
class StreamShares:
    """Shares of the four kinds of arrivals, which sum to one, and of where changes and new facts come from.

    Of the changes, `counterfactual_of_update` give known world facts another value and `agent_of_update` are the
    agent's own; the rest is real, as far as there are real ones. Of the new facts, `agent_of_new` are the agent's own.
    """

    known: float = 1 / 3
    new: float = 1 / 3
    update: float = 1 / 6
    repeat: float = 1 / 6
    counterfactual_of_update: float = 0.5
    agent_of_update: float = 0.3
    agent_of_new: float = 0.5

    def counts(self, n_facts: int) -> dict[Arrival, int]:
        """Return how many arrivals of each kind make `n_facts`; new facts take up the rounding."""
        known, update, repeat = (round(n_facts * share) for share in (self.known, self.update, self.repeat))
        return {
            Arrival.KNOWN: known,
            Arrival.NEW: n_facts - known - update - repeat,
            Arrival.UPDATE: update,
            Arrival.REPEAT: repeat,
        }


@dataclass(frozen=True)
class StreamPool:
    """The distinct facts of a stream, and new ones that stay out of it.

    Attributes:
        known: Facts that the answering model knows; the older values of some changes are among them.
        new: Facts that it does not know; the older values of the other changes are among them.
        changes: Older and newer value of a slot.
        absent: Facts unlike any of the stream, which never arrive.
    """

    known: list[CorpusFact]
    new: list[CorpusFact]
    changes: list[UpdatePair]
    absent: list[CorpusFact]


def embedded_pool(
    draw: StableDraw,
    counts: dict[Arrival, int],
    shares: StreamShares,
    known_ids: frozenset[str],
    split: str,
) -> StreamPool:
    """Choose from the embedded corpora.

    Raises:
        InputError: The split has too few facts of a kind.
    """
    world = [item for item in load_world_corpus() if split_of(item.group) == split]
    pairs = _embedded_changes(draw, counts, shares, [item for item in world if item.id in known_ids], split)
    old_known = [pair.old for pair in pairs if pair.old.id in known_ids]
    old_new = [pair.old for pair in pairs if pair.old.id not in known_ids]
    taken = {pair.old.slot for pair in pairs}
    free = draw.shuffled([item for item in world if item.slot not in taken], "world")
    known = (
        old_known
        + [item for item in free if item.id in known_ids][: max(counts[Arrival.KNOWN] - len(old_known), 0)]
    )
    missing = counts[Arrival.NEW] - len(old_new)
    from_agent = round(missing * shares.agent_of_new)
    unknown = [item for item in free if item.id not in known_ids]
    from_world = max(missing - from_agent, 0)
    invented = _agents(draw, from_agent, split)
    new = old_new + unknown[:from_world] + invented[:from_agent]
    for items, arrival in ((known, Arrival.KNOWN), (new, Arrival.NEW)):
        if len(items) != counts[arrival]:
            raise InputError(
                f"the split {split!r} gives {len(items)} {arrival.value} facts, not {counts[arrival]}; "
                f"{len(known_ids)} facts are given as known"
            )
    return StreamPool(known, new, pairs, unknown[from_world:] + invented[from_agent:])


def given_pool(
    draw: StableDraw, counts: dict[Arrival, int], known_ids: frozenset[str], found: PublicSet
) -> StreamPool:
    """Choose from a set of facts as it was read; where it has too few of a kind there are fewer.

    Of a slot that changed more than once, the last change arrives.

    Raises:
        InputError: The set gives too few facts for any stream.
    """
    last_change = {pair.old.slot: pair for pair in found.updates}
    changes = draw.shuffled(list(last_change.values()), "changes")[: counts[Arrival.UPDATE]]
    free = draw.shuffled([item for item in found.facts if item.slot not in last_change], "given")
    olds = [_with_open_end(pair).old for pair in changes]
    groups: dict[Arrival, list[CorpusFact]] = {}
    rest: list[CorpusFact] = []
    for arrival, wanted in ((Arrival.KNOWN, True), (Arrival.NEW, False)):
        own = [item for item in [*olds, *free] if (item.id in known_ids) is wanted]
        room = max(counts[arrival], sum((item.id in known_ids) is wanted for item in olds))
        groups[arrival] = own[:room]
        rest += own[room:] if not wanted else []
    known, new = groups[Arrival.KNOWN], groups[Arrival.NEW]
    if len(known) + len(new) + len(changes) < 12:
        raise InputError(
            f"the set {found.name!r} gives {len(known) + len(new) + len(changes)} facts with slot, questions and "
            "answers; a stream needs at least 12"
        )
    return StreamPool(known, new, list(map(_with_open_end, changes)), rest)


def _agents(draw: StableDraw, count: int, split: str) -> list[CorpusFact]:
    # The smallest split holds a tenth of the subjects: invent enough for each, then keep those of this split.
    invented = agent_world(min(4000, 20 * max(count, 0) + 100), draw.seed)
    return [item for item in invented if split_of(item.group) == split]


def _embedded_changes(
    draw: StableDraw, counts: dict[Arrival, int], shares: StreamShares, known: list[CorpusFact], split: str
) -> list[UpdatePair]:
    count = counts[Arrival.UPDATE]
    agent_count = round(count * shares.agent_of_update)
    real = [pair for pair in real_updates() if split_of(pair.old.group) == split]
    real_count = min(len(real), count - agent_count - round(count * shares.counterfactual_of_update))
    chosen_real = draw.shuffled(real, "real")[:real_count]
    taken = {pair.old.slot for pair in chosen_real}
    open_slots = [item for item in known if item.slot not in taken]
    false_count = count - agent_count - real_count
    try:
        false = counterfactual_updates(false_count, draw.seed, open_slots)
    except InputError as error:
        raise InputError(f"the split {split!r} has too few known facts that can change: {error}") from error
    invented = agent_updates(min(1500, 20 * agent_count + 100), draw.seed)
    agent = [pair for pair in invented if split_of(pair.old.group) == split][:agent_count]
    return [*map(_with_open_end, chosen_real), *false, *agent]


def _with_open_end(pair: UpdatePair) -> UpdatePair:
    """Let the old value arrive as it did in its day, when nobody knew until when it would hold."""
    open_end = pair.old.fact.model_copy(update={"valid_to": None})
    return replace(pair, old=replace(pair.old, fact=open_end))
