"""What must hold of a store at any moment, looked at from outside: read with plain SQL, not with the ledger's code.

Each check returns the violations it finds as sentences; an empty list is a pass.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from carriers.adapter_files import adapter_digest

if TYPE_CHECKING:
    from sharpwave.records import Fact

LEDGER, NO_TABLE = "ledger.db", "no such table"
LIVE = ("known", "hot", "internalised")
ONCE_PER_GENERATION = ("trained", "proven", "evicted", "damaged", "readmitted")


class Event(NamedTuple):
    """One line of the journal."""

    seq: int
    fact_id: str
    kind: str
    run_id: str
    action: str | None
    stage: str | None
    generation: int | None


class State(NamedTuple):
    """The derived state of one fact."""

    status: str
    observed_count: int
    proven_generation: int | None
    slot_number: int | None


@dataclass
class Picture:
    """What one look at the ledger saw. `words` maps a fact's id to its text, questions and answers as kept."""

    words: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    generations: dict[int, tuple[int, str, str | None, str | None]] = field(default_factory=dict)
    current: int = 0
    outbox: int = 0
    has_tables: bool = False

    def having(self, status: str) -> set[str]:
        """Return the ids of the facts in one status."""
        return {fact_id for fact_id, state in self.states.items() if state.status == status}

    def lineage(self) -> list[int]:
        """Return the current generation and what it was built on, back to 0; stops at a missing one."""
        numbers = [self.current]
        while numbers[-1] in self.generations:
            numbers.append(self.generations[numbers[-1]][0])
        return numbers


def look_after_kill(store: Path) -> Picture:
    """Read a copy of the ledger's files, so that the store is left as the kill left it for the next command."""
    with tempfile.TemporaryDirectory() as folder:
        for name in (LEDGER, f"{LEDGER}-wal"):
            if (store / name).is_file():
                shutil.copy2(store / name, folder)
        return _picture(Path(folder) / LEDGER, "rw")


def file_marks(store: Path) -> list[tuple[int, int]]:
    """Return what changes whenever something is written to the ledger; costs much less than a look."""
    marks = []
    for name in (LEDGER, f"{LEDGER}-wal"):
        with contextlib.suppress(FileNotFoundError):  # the log comes and goes with its writer
            found = (store / name).stat()
            marks.append((found.st_mtime_ns, found.st_size))
    return marks


def look(store: Path) -> Picture | None:
    """Read the ledger as of one moment as a reader beside a living writer; None if it cannot be read just now.

    A ledger that was not even begun is an empty picture.
    """
    try:
        return _picture(store / LEDGER, "ro")
    except sqlite3.OperationalError:
        return None


def _picture(ledger: Path, mode: str) -> Picture:
    if not ledger.is_file():
        return Picture()
    with closing(sqlite3.connect(f"file:{ledger}?mode={mode}", uri=True, timeout=30)) as database:
        database.execute("BEGIN")
        try:
            return _read(database)
        except sqlite3.OperationalError as error:
            if NO_TABLE in str(error):
                return Picture()
            raise


def _read(database: sqlite3.Connection) -> Picture:
    facts = database.execute("SELECT id, text, questions, answers FROM facts")
    states = database.execute(
        "SELECT fact_id, status, observed_count, proven_generation, slot_number FROM states"
    )
    events = database.execute(
        "SELECT seq, fact_id, kind, run_id, json_extract(payload, '$.action'), json_extract(payload, '$.stage'), "
        "generation FROM events ORDER BY seq"
    )
    generations = database.execute(
        "SELECT number, parent, status, adapter_path, adapter_digest FROM generations"
    )
    pointer = database.execute("SELECT value FROM meta WHERE key = 'current_generation'").fetchone()
    return Picture(
        words={row[0]: (row[1], *(_plain_json(json.loads(part)) for part in row[2:])) for row in facts},
        states={row[0]: State(*row[1:]) for row in states},
        events=[Event(*row) for row in events],
        generations={row[0]: row[1:] for row in generations},
        current=int(pointer[0]),
        outbox=database.execute("SELECT count(*) FROM index_outbox").fetchone()[0],
        has_tables=True,
    )


def words_of(fact: Fact) -> tuple[str, str, str]:
    """Return a fact's text, questions and answers as a picture holds them."""
    return fact.text, _plain_json(list(fact.questions)), _plain_json(list(fact.answers))


def _plain_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def find_lost(before: Picture, after: Picture) -> list[str]:
    """Tell what a reader saw before a kill and does not find after it: words of facts and lines of the journal."""
    lost = [f"fact {fact_id} is gone" for fact_id in before.words if fact_id not in after.words]
    lost += [
        f"fact {fact_id} has other words"
        for fact_id, words in before.words.items()
        if after.words.get(fact_id, words) != words
    ]
    if after.events[: len(before.events)] != before.events:
        lost.append("the journal does not begin with what it held before")
    return lost


def find_doubled(picture: Picture, lines: Counter[str], finished_runs: Iterable[str] = ()) -> list[str]:
    """Tell what was recorded more often than it happened.

    Args:
        picture: The store.
        lines: How many lines of the input hold each fact.
        finished_runs: Runs that read the input to its end, killed in between or not: they must have observed each
            fact exactly as often as the input holds it, all others at most as often.
    """
    observed = Counter((event.run_id, event.fact_id) for event in picture.events if event.kind == "observed")
    doubled = [
        f"run {run_id} observed fact {fact_id} {count} times and the file holds it {lines[fact_id]} times"
        for (run_id, fact_id), count in observed.items()
        if count > lines[fact_id]
    ]
    doubled += [
        f"the finished run {run_id} observed fact {fact_id} {observed[run_id, fact_id]} times instead of {count}"
        for run_id in finished_runs
        for fact_id, count in lines.items()
        if observed[run_id, fact_id] < count
    ]
    by_generation = Counter(
        (event.kind, event.fact_id, event.generation)
        for event in picture.events
        if event.kind in ONCE_PER_GENERATION and event.generation is not None
    )
    doubled += [
        f"fact {fact_id} was {kind} {count} times by generation {number}"
        for (kind, fact_id, number), count in by_generation.items()
        if count > 1
    ]
    return doubled + find_broken_lives(picture)


def find_broken_lives(picture: Picture) -> list[str]:
    """Replay each fact's events; tell where one could not have happened or the result is not the present state."""
    broken = []
    lives: dict[str, list[Event]] = {fact_id: [] for fact_id in picture.states}
    for event in picture.events:
        lives.setdefault(event.fact_id, []).append(event)
    for fact_id, life in lives.items():
        state = picture.states.get(fact_id)
        if state is None:
            broken.append(f"fact {fact_id} has events and no state")
            continue
        replayed, complaints = _replay(life)
        broken += [f"fact {fact_id}: {complaint}" for complaint in complaints]
        if state.status not in replayed:
            broken.append(f"fact {fact_id} is {state.status}; its events say {' or '.join(sorted(replayed))}")
        count = sum(event.kind == "observed" for event in life)
        if count != state.observed_count:
            broken.append(f"fact {fact_id} counts {state.observed_count} observations and has {count}")
    return broken


# From which states an event can happen, and what a fact is after it.
_MOVES: dict[str, tuple[set[str], str]] = {
    "stored": ({"observed", "routed", "known", "internalised"}, "hot"),
    "superseded": ({"routed", "superseded", *LIVE}, "superseded"),
    "evicted": ({"hot"}, "internalised"),
    "readmitted": ({"known", "internalised"}, "hot"),
}


def _replay(life: Sequence[Event]) -> tuple[set[str], list[str]]:
    """Return the states a fact may be in after its events, and what could not have happened."""
    possible, complaints = {"new"}, []
    for event in life:
        if event.kind == "observed":
            # a superseded value that is asserted again waits for routing; an older assertion of it does not
            possible = _observed(possible)
        elif event.kind == "routed":
            if event.stage != "repeat" and "observed" in possible:
                possible = {"known" if event.action == "non_write" else "routed"} | (possible - {"observed"})
        elif event.kind in _MOVES:
            sources, target = _MOVES[event.kind]
            if not possible & sources:
                complaints.append(f"{event.kind} (event {event.seq}) while {' or '.join(sorted(possible))}")
            possible = {target}
    return possible, complaints


def _observed(possible: set[str]) -> set[str]:
    if possible == {"new"}:
        return {"observed"}
    return possible | {"observed"} if "superseded" in possible else possible


def find_incomplete(picture: Picture, facts: Sequence[Fact]) -> list[str]:
    """Tell in what a store differs from one that took in these lines to the end.

    Each fact is there once, word for word and routed, and on each slot the value of the last line is current.
    """
    wanted = {fact.id: fact for fact in facts}
    problems = [
        f"fact {fact_id} of the file is not there" for fact_id in wanted if fact_id not in picture.words
    ]
    problems += [f"fact {fact_id} is in no file" for fact_id in picture.words if fact_id not in wanted]
    texts = Counter(text for text, _, _ in picture.words.values())
    expected_texts = Counter(fact.text for fact in wanted.values())
    problems += [
        f"{count} facts read {text!r}" for text, count in texts.items() if count > expected_texts[text]
    ]
    problems += [
        f"fact {fact_id} has other words than the file"
        for fact_id, fact in wanted.items()
        if fact_id in picture.words and picture.words[fact_id] != words_of(fact)
    ]
    problems += [f"fact {fact_id} was not routed" for fact_id in picture.having("observed")]
    last = {(fact.namespace, fact.slot): fact.id for fact in facts if fact.slot is not None}
    for fact_id, fact in wanted.items():
        is_current = fact.slot is None or last[fact.namespace, fact.slot] == fact_id
        status = picture.states[fact_id].status if fact_id in picture.states else "missing"
        if is_current != (status in LIVE):
            problems.append(f"fact {fact_id} is {status}; current on its slot: {is_current}")
    return problems


def find_bad_generation(store: Path, picture: Picture) -> list[str]:
    """Tell what is wrong with the current generation, its adapter, or the facts that depend on its lineage."""
    problems, lineage = [], picture.lineage()
    for number in lineage:
        if number == 0:
            continue
        if number not in picture.generations:
            problems.append(f"generation {number} has no record")
            continue
        _, status, path, digest = picture.generations[number]
        if status != "promoted":
            problems.append(f"generation {number} of the current lineage is {status}")
        if path is not None or number == picture.current:  # older ones may be retired
            problems += _check_adapter(store, number, path, digest)
    problems += [
        f"fact {fact_id} is internalised, proven by generation {picture.states[fact_id].proven_generation} "
        f"outside the lineage {lineage}"
        for fact_id in picture.having("internalised")
        if picture.states[fact_id].proven_generation not in lineage
    ]
    return problems


def _check_adapter(store: Path, number: int, path: str | None, digest: str | None) -> list[str]:
    if path is None or digest is None:
        return [f"generation {number} was never sealed"]
    folder = store / "generations" / path
    if not folder.is_dir() or adapter_digest(folder) != digest:
        return [f"the adapter of generation {number} does not have its digest"]
    return []


def find_index_difference(picture: Picture, index_ids: set[str]) -> list[str]:
    """Tell how the index differs from the hot facts."""
    hot = picture.having("hot")
    problems: list[str] = []
    for count, words in ((len(hot - index_ids), "missing from"), (len(index_ids - hot), "too many in")):
        if count:
            problems.append(f"{count} facts are {words} the index")
    return problems
