"""Streams: facts that arrive in steps, known, new, changed and repeated, with questions after each step.

Which facts are known is told by the caller, from the model's own behaviour; nothing here guesses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from eval.corpora.agent_world import agent_world
from eval.corpora.splits import split_of
from eval.corpora.stable_draw import StableDraw
from eval.corpora.updates import UpdatePair, agent_updates, counterfactual_updates, real_updates
from eval.corpora.world import load_world_corpus
from sharpwave.errors import InputError
from sharpwave.records import Fact, Slot

if TYPE_CHECKING:
    from eval.corpora.corpus import CorpusFact

STREAM_START = datetime(2026, 2, 1, tzinfo=UTC)
_SECONDS_BETWEEN_FACTS = 60
# Of the changes: known world facts given another value, and the agent's own; the rest is real.
_COUNTERFACTUAL_SHARE, _AGENT_SHARE = 0.5, 0.3
_AGENT_SHARE_OF_NEW = 0.5
_REPEATS_OF_NEW_SHARE = 0.7


class Arrival(StrEnum):
    """Why a fact is in the stream."""

    KNOWN = "known"
    NEW = "new"
    UPDATE = "update"
    REPEAT = "repeat"


@dataclass(frozen=True, slots=True)
class StreamShares:
    """Shares of the four kinds of arrivals; they sum to one."""

    known: float = 1 / 3
    new: float = 1 / 3
    update: float = 1 / 6
    repeat: float = 1 / 6

    def counts(self, n_facts: int) -> dict[Arrival, int]:
        """Return how many arrivals of each kind make `n_facts`; new facts take up the rounding."""
        known, update, repeat = (round(n_facts * share) for share in (self.known, self.update, self.repeat))
        return {
            Arrival.KNOWN: known,
            Arrival.NEW: n_facts - known - update - repeat,
            Arrival.UPDATE: update,
            Arrival.REPEAT: repeat,
        }


@dataclass(frozen=True, slots=True)
class StreamFact:
    """One arrival: the corpus fact, stamped with its moment, and why it is here."""

    item: CorpusFact
    fact: Fact
    arrival: Arrival


@dataclass(frozen=True, slots=True)
class StreamQuestion:
    """A question about the present value of a slot, in a wording that the memory has never seen."""

    fact_id: str
    question: str
    answers: tuple[str, ...]
    arrival: Arrival
    kind: str
    language: str


@dataclass(frozen=True, slots=True)
class StreamStep:
    """What arrives in one step, in order, and what is asked after it."""

    index: int
    arrivals: tuple[StreamFact, ...]
    questions: tuple[StreamQuestion, ...]

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts as the memory receives them."""
        return tuple(arrival.fact for arrival in self.arrivals)


def build_stream(
    seed: int,
    n_facts: int = 300,
    steps: int = 6,
    *,
    known_ids: Collection[str],
    split: str = "report",
    shares: StreamShares | None = None,
    questions_per_step: int = 60,
) -> list[StreamStep]:
    """Build a stream of `n_facts` arrivals in `steps` steps.

    The first third of the steps brings facts for the first time only. Changes come later than the value they
    replace. Repeats come in the second half and bring back a fact of an earlier step that was not changed,
    mostly a new one, so that facts learnt in between arrive again. After each step, questions ask for the
    present value of slots seen so far.

    Args:
        seed: Another seed gives another stream of the same make-up.
        n_facts: Arrivals in all, at least 12.
        steps: At least 2.
        known_ids: Ids of corpus facts that the answering model knows by behaviour.
        split: Which split by subject the facts come from.
        shares: Shares of known, new, changed and repeated arrivals.
        questions_per_step: Questions after each step, or as many slots as were seen.

    Raises:
        InputError: The sizes do not fit, or the split has too few facts of a kind.
    """
    if steps < 2 or n_facts < max(12, 2 * steps):
        raise InputError(f"a stream needs at least 2 steps and 12 facts, not {steps} and {n_facts}")
    draw = StableDraw(seed, f"stream/{split}")
    counts = (shares or StreamShares()).counts(n_facts)
    known, new, pairs = _choose(draw, counts, frozenset(known_ids), split)
    firsts = [(item, Arrival.KNOWN) for item in known] + [(item, Arrival.NEW) for item in new]
    ordered = _arrange(draw, firsts, pairs, counts[Arrival.REPEAT], steps)
    return _into_steps(draw, ordered, steps, questions_per_step)


def summary(stream: Sequence[StreamStep]) -> dict[str, int]:
    """Count arrivals in all, by why they came and by kind of fact, distinct facts, and questions."""
    arrivals = [arrival for step in stream for arrival in step.arrivals]
    counts = {
        "steps": len(stream),
        "n_facts": len(arrivals),
        "n_distinct": len({arrival.fact.id for arrival in arrivals}),
        "questions": sum(len(step.questions) for step in stream),
    }
    counts |= {f"arrival_{name}": n for name, n in sorted(Counter(a.arrival.value for a in arrivals).items())}
    counts |= {f"kind_{name}": n for name, n in sorted(Counter(a.item.kind for a in arrivals).items())}
    return counts | {
        f"language_{name}": n for name, n in sorted(Counter(a.item.language for a in arrivals).items())
    }


def _choose(
    draw: StableDraw, counts: dict[Arrival, int], known_ids: frozenset[str], split: str
) -> tuple[list[CorpusFact], list[CorpusFact], list[UpdatePair]]:
    world = [item for item in load_world_corpus() if split_of(item.group) == split]
    pairs = _choose_changes(draw, counts, [item for item in world if item.id in known_ids], split)
    old_known = [pair.old for pair in pairs if pair.old.id in known_ids]
    old_new = [pair.old for pair in pairs if pair.old.id not in known_ids]
    taken = {pair.old.slot for pair in pairs}
    free = draw.shuffled([item for item in world if item.slot not in taken], "world")
    known = old_known + _first(free, counts[Arrival.KNOWN] - len(old_known), known_ids, wanted=True)
    missing = counts[Arrival.NEW] - len(old_new)
    from_agent = round(missing * _AGENT_SHARE_OF_NEW)
    new = (
        old_new
        + _first(free, missing - from_agent, known_ids, wanted=False)
        + _agents(draw, from_agent, split)
    )
    for items, arrival in ((known, Arrival.KNOWN), (new, Arrival.NEW)):
        if len(items) != counts[arrival]:
            raise InputError(
                f"the split {split!r} gives {len(items)} {arrival.value} facts, not {counts[arrival]}; "
                f"{len(known_ids)} facts are given as known"
            )
    return known, new, pairs


def _first(
    items: list[CorpusFact], count: int, known_ids: frozenset[str], *, wanted: bool
) -> list[CorpusFact]:
    return [item for item in items if (item.id in known_ids) is wanted][: max(count, 0)]


def _agents(draw: StableDraw, count: int, split: str) -> list[CorpusFact]:
    # The smallest split holds a tenth of the subjects: invent enough for each, then keep those of this split.
    invented = agent_world(min(4000, 20 * count + 100), draw.seed)
    return [item for item in invented if split_of(item.group) == split][:count]


def _choose_changes(
    draw: StableDraw, counts: dict[Arrival, int], known: list[CorpusFact], split: str
) -> list[UpdatePair]:
    count = counts[Arrival.UPDATE]
    agent_count = round(count * _AGENT_SHARE)
    real = [pair for pair in real_updates() if split_of(pair.old.group) == split]
    real_count = min(len(real), count - agent_count - round(count * _COUNTERFACTUAL_SHARE))
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


def _arrange(
    draw: StableDraw,
    firsts: list[tuple[CorpusFact, Arrival]],
    pairs: list[UpdatePair],
    repeats: int,
    steps: int,
) -> list[tuple[CorpusFact, Arrival]]:
    total = len(firsts) + len(pairs) + repeats
    opening = _first_position(max(1, steps // 3), steps, total)
    replaced: dict[str, UpdatePair] = {pair.old.id: pair for pair in pairs}
    mixed = draw.shuffled(firsts, "firsts")
    olds = [first for first in mixed if first[0].id in replaced]
    others = [first for first in mixed if first[0].id not in replaced]
    room = opening - len(olds)
    if room < 0:
        raise InputError(
            "too many changes for the steps: the replaced values do not fit into the opening steps"
        )
    start, rest = draw.shuffled(olds + others[:room], "opening"), others[room:]
    later: list[tuple[CorpusFact, Arrival] | None] = [*rest, *((pair.new, Arrival.UPDATE) for pair in pairs)]
    early_count = _first_position((steps + 1) // 2, steps, total) - opening
    later = draw.shuffled(later, "later")
    tail = draw.shuffled([*later[early_count:], *[None] * repeats], "tail")
    ordered: list[tuple[CorpusFact, Arrival] | None] = [*start, *later[:early_count], *tail]
    return _fill_repeats(draw, ordered, frozenset(replaced), steps)


def _first_position(step: int, steps: int, total: int) -> int:
    # The inverse of `position * steps // total`: where the step begins.
    return -(-step * total // steps)


def _fill_repeats(
    draw: StableDraw,
    ordered: list[tuple[CorpusFact, Arrival] | None],
    replaced: frozenset[str],
    steps: int,
) -> list[tuple[CorpusFact, Arrival]]:
    filled: list[tuple[CorpusFact, Arrival]] = []
    repeated: set[str] = set()
    for position, arrival in enumerate(ordered):
        if arrival is not None:
            filled.append(arrival)
            continue
        step = position * steps // len(ordered)
        earlier = [
            (item, why)
            for index, (item, why) in enumerate(filled)
            if index * steps // len(ordered) < step
            and why in {Arrival.KNOWN, Arrival.NEW}
            and item.id not in replaced | repeated
        ]
        wanted = Arrival.NEW if draw.share("repeat", position) < _REPEATS_OF_NEW_SHARE else Arrival.KNOWN
        candidates = [item for item, why in earlier if why is wanted] or [item for item, _ in earlier]
        if not candidates:
            raise InputError(
                "there are not enough facts in earlier steps to repeat; take more facts or more steps"
            )
        item = draw.choice(candidates, "repeated", position)
        repeated.add(item.id)
        filled.append((item, Arrival.REPEAT))
    return filled


def _into_steps(
    draw: StableDraw, ordered: list[tuple[CorpusFact, Arrival]], steps: int, questions_per_step: int
) -> list[StreamStep]:
    stream, present = [], dict[Slot, StreamFact]()
    for index in range(steps):
        arrivals = []
        for position in range(len(ordered)):
            if position * steps // len(ordered) != index:
                continue
            item, why = ordered[position]
            moment = STREAM_START + timedelta(seconds=position * _SECONDS_BETWEEN_FACTS)
            arrival = StreamFact(item, item.fact.model_copy(update={"observed_at": moment}), why)
            arrivals.append(arrival)
            present[item.slot] = arrival
        asked = draw.shuffled(list(present.values()), "questions", index)[:questions_per_step]
        stream.append(StreamStep(index, tuple(arrivals), tuple(_question(arrival) for arrival in asked)))
    return stream


def _question(arrival: StreamFact) -> StreamQuestion:
    item = arrival.item
    return StreamQuestion(
        fact_id=arrival.fact.id,
        question=item.heldout_question,
        answers=arrival.fact.answers,
        arrival=arrival.arrival,
        kind=item.kind,
        language=item.language,
    )
