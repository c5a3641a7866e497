"""Measure what one fact costs as the store grows: a simulated stream through the real ledger, index and eviction.

    .venv/bin/python benchmarks/scale.py --facts 1000000 --out scale.json --plot docs/scale.svg

No model is loaded. Invented facts carry the decisions that a router would have recorded (45 % known, 47 % new, 8 % a
new value for an earlier slot), an embedder made of seeded directions gives the vectors, and nights without training
evict what they call proven, through the functions that apply a real night, so that about 30 % of what was observed is
stored.
Everything else is real: SQLite with every commit synced, Chroma's index, the outbox between them.

At 1,000, 3,000, 10,000, ... observed facts the stream halts and is measured; the figures are written at once, so a run
that is stopped keeps what it has. `relative` holds each cost divided by the one at 10,000 facts, which does not depend
on the machine as the milliseconds do.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from scale_stream import Stream, SyntheticEmbedder

from carriers.adapter_files import adapter_digest
from carriers.external_memory import ExternalMemory
from carriers.retention import retire_generations
from carriers.store_layout import INDEX_NAME, LEDGER_NAME
from consolidation.eviction import plan_evictions
from consolidation.night import apply_verdict
from consolidation.records import NightPlan, NightVerdict
from consolidation.targets import known_targets
from eval.plot_style import BACK, BAD, GOOD, INK, canvas, finish
from eval.run_records import write_atomically
from sharpwave.records import Fact, FactStatus, Record
from sharpwave.settings import ConsolidationSettings, RecallSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUN_ID, NAMESPACE, BASE = "scale", "default", "simulated"
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
REFERENCE_SIZE = 10_000
BATCH = 64  # facts per call, as an ingest takes them
HOT_SHARE = 0.3  # of the observed facts that a night leaves in the store
PROVEN_SHARE, DAMAGED_PER_EVICTED = 0.9, 0.02
MOST_SINGLES, MOST_QUESTIONS = 400, 200
SECONDS_BETWEEN_LINES = 30.0
_PAGE = 5_000


class Spread(Record):
    """Milliseconds of single calls: median, 95th percentile and how many."""

    p50: float
    p95: float
    n: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        """Return the spread of calls that took so many seconds."""
        p50, p95 = np.quantile(np.array(seconds) * 1_000, [0.5, 0.95]) if seconds else (0.0, 0.0)
        return cls(p50=round(float(p50), 3), p95=round(float(p95), 3), n=len(seconds))


class SizeFigures(Record):
    """What was measured when so many facts had been observed.

    `take_in_ms` (observe and route, in batches) and `evict_ms` are means per fact since the size before; `evicted`
    counts from there, too. `hot_read_ms` is per stored fact when all are read, as a night does that chooses among them.
    `recall_at_k` is the share of the `k` nearest facts of an exact search that the index found.
    """

    observed: int
    hot: int
    internalised: int
    superseded: int
    nights: int
    take_in_ms: float
    store_one_ms: Spread
    drop_one_ms: Spread
    recall_ms: Spread
    recall_at_k: float
    k: int
    evicted: int
    evict_ms: float
    hot_read_ms: float
    ledger_bytes: int
    index_bytes: int
    peak_memory_bytes: int
    minutes: float


class Stopwatch:
    """Adds up the seconds of one kind of work and the facts it was done for."""

    def __init__(self) -> None:
        self.seconds, self.facts = 0.0, 0

    def time(self, work: Callable[[], int]) -> None:
        """Do the work, which returns for how many facts it was."""
        begun = time.perf_counter()
        self.facts += work()
        self.seconds += time.perf_counter() - begun

    @property
    def ms_per_fact(self) -> float:
        """Milliseconds per fact; 0 before the first."""
        return round(self.seconds / self.facts * 1_000, 4) if self.facts else 0.0


@dataclass
class Simulation:
    """One growing store. `deadline` is a moment of `time.perf_counter` after which no more facts are taken in."""

    memory: ExternalMemory
    stream: Stream
    night_every: int
    deadline: float
    begun: float = field(default_factory=time.perf_counter)
    observed: int = 0
    generation: int = 0
    nights: int = 0

    def __post_init__(self) -> None:
        self._gone: list[str] = []  # what was ever evicted: damage is drawn from it
        self._random = random.Random(self.stream.seed)
        self._new_watches()

    def _new_watches(self) -> None:
        self._take_in, self._evict = Stopwatch(), Stopwatch()
        self._store_one: list[float] = []
        self._drop_one: list[float] = []

    @property
    def is_late(self) -> bool:
        """Whether the time is over."""
        return time.perf_counter() > self.deadline

    def grow(self, size: int, tell: Callable[[int], None]) -> None:
        """Take facts in up to a size, the last fifth or 400 of them one by one, with a night now and then."""
        singles = min(MOST_SINGLES, (size - self.observed) // 5)
        while self.observed < size - singles and not self.is_late:
            count = min(
                BATCH, size - singles - self.observed, self.night_every - self.observed % self.night_every
            )
            self._take_in.time(lambda count=count: self._take(count))  # type: ignore[misc]
            if self.observed % self.night_every == 0:
                self._night()
            tell(self.observed)
        self._night()
        for _ in range(singles):
            self._take_one()

    def _take(self, count: int) -> int:
        numbers = range(self.observed, self.observed + count)
        facts = [self.stream.fact(number) for number in numbers]
        self.memory.observe(facts, RUN_ID)
        decisions = [
            self.stream.decision(number, fact.id, self.generation)
            for number, fact in zip(numbers, facts, strict=True)
        ]
        self.memory.route(decisions, RUN_ID)
        self.observed += count
        return count

    def _take_one(self) -> None:
        kept = self._store_one if self.stream.action(self.observed).is_write else self._drop_one
        begun = time.perf_counter()
        self._take(1)
        kept.append(time.perf_counter() - begun)

    def _night(self) -> None:
        """Apply a night whose proofs are drawn: the oldest facts leave, some that left earlier come back."""
        surplus = self.memory.ledger.counts()[FactStatus.HOT] - int(HOT_SHARE * self.observed)
        chosen = list(islice(self.memory.ledger.iter_facts(status=FactStatus.HOT), max(surplus, 0)))
        if not chosen:
            return
        ids = [fact.id for fact in chosen]
        proven = [fact_id for fact_id in ids if self._random.random() < PROVEN_SHARE]
        evict = plan_evictions(proven, set(ids), len(ids), ConsolidationSettings().shrink_limit)
        drawn = self._random.sample(self._gone, min(int(len(evict) * DAMAGED_PER_EVICTED), len(self._gone)))
        plan = NightPlan(
            run_id=f"night{self.nights + 1:06d}",
            parent=self.generation,
            base_fingerprint=BASE,
            targets=tuple(known_targets(chosen, {})),
            evict_now=True,
        )
        self._evict.time(lambda: self._apply(plan, proven, evict, sorted(set(drawn) - set(ids))))
        self._gone += evict
        self.nights += 1

    def _apply(self, plan: NightPlan, proven: list[str], evict: list[str], damaged: list[str]) -> int:
        generations = self.memory.generations
        shadow = generations.create_shadow(plan.parent, BASE, [item.fact_id for item in plan.targets])
        (shadow.folder / "adapter.bin").write_bytes(plan.run_id.encode())
        generations.seal(shadow.number, adapter_digest(shadow.folder), {})
        verdict = NightVerdict(
            generation=shadow.number,
            promoted=True,
            reason="simulated",
            scale=1.0,
            trials=(),
            proven=tuple(proven),
            evict=tuple(evict),
            damaged=tuple(damaged),
        )
        report = apply_verdict(self.memory, plan, None, verdict)
        retire_generations(generations, ConsolidationSettings().keep_generations)
        self.generation = report.generation
        return report.evicted

    def measure(self) -> SizeFigures:
        """Return the figures of the present size and begin the next stretch."""
        counts = self.memory.ledger.counts()
        begun = time.perf_counter()
        hot = [fact.fact for fact in self.memory.ledger.iter_facts(status=FactStatus.HOT)]
        hot_read = time.perf_counter() - begun
        asked = [fact.questions[0] for fact in self._random.sample(hot, min(MOST_QUESTIONS, len(hot)))]
        k = RecallSettings().top_k
        recall, found = self._ask(asked, k)
        figures = SizeFigures(
            observed=self.observed,
            hot=counts[FactStatus.HOT],
            internalised=counts[FactStatus.INTERNALISED],
            superseded=counts[FactStatus.SUPERSEDED],
            nights=self.nights,
            take_in_ms=self._take_in.ms_per_fact,
            store_one_ms=Spread.of(self._store_one),
            drop_one_ms=Spread.of(self._drop_one),
            recall_ms=recall,
            recall_at_k=_overlap(found, _nearest(self.memory.index.embedder.embed, hot, asked, k)),
            k=k,
            evicted=self._evict.facts,
            evict_ms=self._evict.ms_per_fact,
            hot_read_ms=round(hot_read / max(1, len(hot)) * 1_000, 4),
            ledger_bytes=sum(path.stat().st_size for path in self.memory.directory.glob(f"{LEDGER_NAME}*")),
            index_bytes=_folder_bytes(self.memory.directory / INDEX_NAME),
            peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024,
            minutes=round((time.perf_counter() - self.begun) / 60, 2),
        )
        self._new_watches()
        return figures

    def _ask(self, questions: Sequence[str], k: int) -> tuple[Spread, list[list[str]]]:
        seconds, found = [], []
        for question in questions:
            begun = time.perf_counter()
            (hits,) = self.memory.query(NAMESPACE, [question], k)
            seconds.append(time.perf_counter() - begun)
            found.append([hit.fact_id for hit in hits])
        return Spread.of(seconds), found


def _nearest(
    embed: Callable[[Sequence[str]], NDArray[np.float32]], hot: Sequence[Fact], asked: Sequence[str], k: int
) -> list[list[str]]:
    """Return for each question the ids of the `k` nearest facts, by comparing it with every one."""
    if not asked:
        return []
    questions = embed(asked)
    best: list[list[tuple[float, int]]] = [[] for _ in asked]
    for start in range(0, len(hot), _PAGE):
        scores = questions @ embed([fact.text for fact in hot[start : start + _PAGE]]).T
        for row, places in enumerate(np.argsort(-scores, axis=1)[:, :k]):
            near = [(float(scores[row, place]), start + int(place)) for place in places]
            best[row] = sorted([*best[row], *near], reverse=True)[:k]
    return [[hot[place].id for _, place in row] for row in best]


def _overlap(found: Sequence[Sequence[str]], exact: Sequence[Sequence[str]]) -> float:
    wanted = sum(map(len, exact))
    shared = sum(len(set(got) & set(right)) for got, right in zip(found, exact, strict=True))
    return round(shared / wanted, 4) if wanted else 0.0


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run(
    directory: Path,
    facts: int,
    seed: int,
    *,
    night_every: int = 10_000,
    seconds: float = float("inf"),
    tell: Callable[[int], None] = lambda _: None,
) -> Iterator[SizeFigures]:
    """Grow a store in `directory` to so many facts and yield the figures of each size as they come.

    Args:
        directory: An empty folder; the store is left there.
        facts: Observed facts at the end.
        seed: Seeds facts, decisions, vectors and proofs.
        night_every: Observed facts between two nights; one is held before each measurement anyway.
        seconds: After this time the store is measured as it is, and no more facts are taken in.
        tell: Told how many facts have been observed.
    """
    with ExternalMemory.open(directory, SyntheticEmbedder(seed), writer=True) as memory:
        simulation = Simulation(memory, Stream(seed), night_every, time.perf_counter() + seconds)
        for size in [*(size for size in SIZES if size < facts), facts]:
            simulation.grow(size, tell)
            yield simulation.measure()
            if simulation.is_late:
                return


def relative(rows: Sequence[SizeFigures]) -> list[dict[str, float]]:
    """Return each size's costs divided by those at 10,000 facts, or at the first size of a run without that one."""
    base = _costs(next((row for row in rows if row.observed == REFERENCE_SIZE), rows[0]))
    return [
        {"observed": row.observed}
        | {name: round(cost / base[name], 3) for name, cost in _costs(row).items() if base[name]}
        for row in rows
    ]


def _costs(row: SizeFigures) -> dict[str, float]:
    return {
        "take_in_ms": row.take_in_ms,
        "store_one_p50_ms": row.store_one_ms.p50,
        "store_one_p95_ms": row.store_one_ms.p95,
        "drop_one_p95_ms": row.drop_one_ms.p95,
        "recall_p50_ms": row.recall_ms.p50,
        "recall_p95_ms": row.recall_ms.p95,
        "evict_ms": row.evict_ms,
        "hot_read_ms": row.hot_read_ms,
        "ledger_bytes_per_observed": row.ledger_bytes / row.observed,
        "index_bytes_per_hot": row.index_bytes / max(1, row.hot),
    }


_LINES = (
    ("take_in_ms", "observe and route, per fact, in batches", INK, "o"),
    ("store_one_p95_ms", "store one fact, p95", BAD, "s"),
    ("recall_p95_ms", "one recall, p95", BACK, "^"),
    ("evict_ms", "evict, per fact", GOOD, "x"),
)


def draw(rows: Sequence[SizeFigures], file: Path) -> None:
    """Draw the costs against the number of observed facts, both on logarithmic axes."""
    figure, axes = canvas(right=0.97, bottom=0.36)
    for name, label, colour, marker in _LINES:
        points = [(row.observed, _costs(row)[name]) for row in rows]
        axes.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=4, lw=1.6, label=label)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.19), frameon=False, fontsize=8, ncols=2)
    finish(axes, xlabel="observed facts", ylabel="milliseconds", names=True)
    axes.set_xscale("log")
    axes.set_yscale("log")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, format="svg", metadata={"Date": None})


class _Teller:
    """Says now and then on stderr how far the stream is and how long the rest will take at the present pace."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._last, self._last_count = time.monotonic(), 0

    def __call__(self, observed: int) -> None:
        now = time.monotonic()
        if now - self._last < SECONDS_BETWEEN_LINES:
            return
        pace = (now - self._last) / (observed - self._last_count)
        left = (self._total - observed) * pace / 60
        typer.echo(
            f"{observed:,} of {self._total:,} facts, {pace * 1_000:.2f} ms each, {left:.0f} min left",
            err=True,
        )
        self._last, self._last_count = now, observed


def main(
    facts: Annotated[int, typer.Option(min=100, help="Observed facts at the end.")] = 1_000_000,
    out: Annotated[
        Path, typer.Option(help="JSON file with the figures; written anew after every size.")
    ] = Path("scale.json"),
    plot: Annotated[Path | None, typer.Option(help="SVG file of cost against size.")] = None,
    seed: Annotated[int, typer.Option(help="Seeds facts, decisions, vectors and proofs.")] = 0,
    night_every: Annotated[int, typer.Option(min=1, help="Observed facts between two nights.")] = 10_000,
    minutes: Annotated[
        float, typer.Option(help="Stop taking in facts after this time and measure what is there.")
    ] = float("inf"),
    store: Annotated[
        Path | None,
        typer.Option(help="Where the store is built and left. Default: a folder that is removed."),
    ] = None,
) -> None:
    """Grow a store from nothing, with replayed decisions and no model, and print what a fact costs at each size.

    A million facts take hours on two cores and about 5 GB of disk. Begin with --facts 10000, which takes a minute.
    """
    rows: list[SizeFigures] = []
    with tempfile.TemporaryDirectory() as temporary:
        directory = store or Path(temporary) / "store"
        figures = run(
            directory, facts, seed, night_every=night_every, seconds=minutes * 60, tell=_Teller(facts)
        )
        for row in figures:
            rows.append(row)
            sys.stdout.write(row.model_dump_json() + "\n")
            sys.stdout.flush()
            _keep(rows, out, {"facts": facts, "seed": seed, "night_every": night_every})
            if plot is not None:
                draw(rows, plot)


def _keep(rows: Sequence[SizeFigures], out: Path, settings: dict[str, int]) -> None:
    content = {**settings, "sizes": [row.model_dump() for row in rows], "relative": relative(rows)}
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, (json.dumps(content, indent=2) + "\n").encode("utf-8"))


if __name__ == "__main__":
    typer.run(main)
