"""Streams: facts that arrive in steps, known, new, changed and repeated, with questions after each step.

Which facts are known is told by the caller, from the model's own behaviour; nothing here guesses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from eval.corpora.stable_draw import StableDraw
from eval.run_records import ABSENT, SUPERSEDED
from eval.stream_pools import Arrival, StreamPool, StreamShares, embedded_pool, given_pool
from sharpwave.errors import InputError
from sharpwave.records import Fact, Slot

if TYPE_CHECKING:
    from eval.corpora.corpus import CorpusFact
    from eval.corpora.updates import UpdatePair
    from eval.public_sets.harvest import PublicSet

STREAM_START = datetime(2026, 2, 1, tzinfo=UTC)
_SECONDS_BETWEEN_FACTS = 60
_REPEATS_OF_NEW_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class StreamFact:
    """One arrival: the corpus fact, stamped with its moment, and why it is here."""

    item: CorpusFact
    fact: Fact
    arrival: Arrival


@dataclass(frozen=True, slots=True)
class StreamQuestion:
    """A question in a wording that the memory has never seen.

    Attributes:
        fact_id: The fact asked about.
        question: The held-out wording.
        answers: What counts as right.
        sort: Why the fact first arrived (known, new, update); superseded where a day is asked about at which a value
            held that has been replaced since; absent where the fact never arrives.
        group: The subject, the unit of splits and intervals.
        kind: Kind of fact.
        language: Of question and fact.
        as_of: The moment asked about; None = now.
    """

    fact_id: str
    question: str
    answers: tuple[str, ...]
    sort: str
    group: str
    kind: str
    language: str
    as_of: datetime | None = None


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
    opening_steps: int | None = None,
    repeats_from: int | None = None,
    dated_share: float = 0.0,
    absent_per_step: int = 0,
    facts: PublicSet | None = None,
) -> list[StreamStep]:
    """Build a stream of `n_facts` arrivals in `steps` steps.

    The opening steps bring facts for the first time only. Changes come later than the value they replace. Repeats
    bring back a fact of an earlier step that was not changed, mostly a new one, so that facts learnt in between arrive
    again; a fact returns once more only when all others that could have returned. After each step, questions ask for
    the present value of slots seen so far.

    Args:
        seed: Another seed gives another stream of the same make-up.
        n_facts: Arrivals in all, at least 12.
        steps: At least 2.
        known_ids: Ids of corpus facts that the answering model knows by behaviour.
        split: Which split by subject the facts come from.
        shares: Shares of known, new, changed and repeated arrivals.
        questions_per_step: Questions after each step about what holds now, or as many slots as were seen.
        opening_steps: How many steps bring first arrivals only; a third by default.
        repeats_from: Index of the step from which on facts may return; the middle by default.
        dated_share: How many questions ask with a date for a replaced value, as a share of `questions_per_step`.
        absent_per_step: Questions after each step about facts that never arrive.
        facts: A set to make the stream of in place of the embedded corpora. Where it has too few facts of a kind,
            fewer arrive.

    Raises:
        InputError: The sizes do not fit, or the split or the set has too few facts of a kind.
    """
    if steps < 2 or n_facts < max(12, 2 * steps):
        raise InputError(f"a stream needs at least 2 steps and 12 facts, not {steps} and {n_facts}")
    shares = shares or StreamShares()
    draw = StableDraw(seed, f"stream/{split}")
    counts = shares.counts(n_facts)
    if facts is None:
        pool = embedded_pool(draw, counts, shares, frozenset(known_ids), split)
    else:
        pool = given_pool(draw, counts, frozenset(known_ids), facts)
    firsts = len(pool.known) + len(pool.new) + len(pool.changes)
    repeats = round(counts[Arrival.REPEAT] * firsts / (n_facts - counts[Arrival.REPEAT]))
    ordered = _arrange(
        draw,
        pool,
        repeats,
        steps,
        opening_steps=max(1, steps // 3) if opening_steps is None else opening_steps,
        repeats_from=(steps + 1) // 2 if repeats_from is None else repeats_from,
    )
    stream = _into_steps(draw, ordered, steps, questions_per_step)
    dated = round(questions_per_step * dated_share)
    return _with_further_questions(draw, stream, pool, dated, absent_per_step)


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


def _arrange(
    draw: StableDraw, pool: StreamPool, repeats: int, steps: int, *, opening_steps: int, repeats_from: int
) -> list[tuple[CorpusFact, Arrival]]:
    firsts = [(item, Arrival.KNOWN) for item in pool.known] + [(item, Arrival.NEW) for item in pool.new]
    total = len(firsts) + len(pool.changes) + repeats
    opening = _first_position(opening_steps, steps, total)
    replaced: dict[str, UpdatePair] = {pair.old.id: pair for pair in pool.changes}
    mixed = draw.shuffled(firsts, "firsts")
    olds = [first for first in mixed if first[0].id in replaced]
    others = [first for first in mixed if first[0].id not in replaced]
    room = opening - len(olds)
    if room < 0:
        raise InputError(
            "too many changes for the steps: the replaced values do not fit into the opening steps"
        )
    start, rest = draw.shuffled(olds + others[:room], "opening"), others[room:]
    later: list[tuple[CorpusFact, Arrival] | None] = [
        *rest,
        *((pair.new, Arrival.UPDATE) for pair in pool.changes),
    ]
    early_count = max(0, _first_position(repeats_from, steps, total) - opening)
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
        returnable = [
            (item, why)
            for index, (item, why) in enumerate(filled)
            if index * steps // len(ordered) < step
            and why in {Arrival.KNOWN, Arrival.NEW}
            and item.id not in replaced
        ]
        if all(item.id in repeated for item, _ in returnable):
            repeated.clear()
        earlier = [(item, why) for item, why in returnable if item.id not in repeated]
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
    stream, present, sorts = [], dict[Slot, StreamFact](), dict[str, str]()
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
            sorts.setdefault(item.id, why.value)
        asked = draw.shuffled(list(present.values()), "questions", index)[:questions_per_step]
        questions = tuple(_question(arrival, sorts[arrival.item.id]) for arrival in asked)
        stream.append(StreamStep(index, tuple(arrivals), questions))
    return stream


def _with_further_questions(
    draw: StableDraw, stream: list[StreamStep], pool: StreamPool, dated: int, absent: int
) -> list[StreamStep]:
    """Add to each step questions about replaced values as of a day, and about facts that never arrive."""
    change_of = {pair.new.id: pair for pair in pool.changes}
    moments: dict[str, StreamFact] = {}
    replaced: list[StreamQuestion] = []
    strangers = draw.shuffled(pool.absent, "absent")
    extended = []
    for step in stream:
        begin = step.arrivals[0].fact.observed_at - timedelta(seconds=1)
        for arrival in step.arrivals:
            if arrival.arrival is Arrival.UPDATE:
                old = moments[change_of[arrival.item.id].old.id]
                replaced.append(
                    _question(old, SUPERSEDED, _moment_between(old.fact, arrival.fact, begin)),
                )
            moments.setdefault(arrival.item.id, arrival)
        chosen = draw.shuffled(replaced, "dated", step.index)[:dated]
        unseen = (
            [strangers[(step.index * absent + place) % len(strangers)] for place in range(absent)]
            if (strangers)
            else []
        )
        more = [_question(StreamFact(item, item.fact, Arrival.NEW), ABSENT) for item in unseen]
        extended.append(StreamStep(step.index, step.arrivals, (*step.questions, *chosen, *more)))
    return extended


def _moment_between(old: Fact, new: Fact, wanted: datetime) -> datetime:
    """Return the wanted moment if the old value held then and the new one did not yet, else one in between."""
    if old.starts_at <= wanted < new.starts_at:
        return wanted
    return old.starts_at + (new.starts_at - old.starts_at) / 2


def _question(arrival: StreamFact, sort: str, as_of: datetime | None = None) -> StreamQuestion:
    item = arrival.item
    return StreamQuestion(
        fact_id=arrival.fact.id,
        question=item.heldout_question,
        answers=arrival.fact.answers,
        sort=sort,
        group=item.group,
        kind=item.kind,
        language=item.language,
        as_of=as_of,
    )
