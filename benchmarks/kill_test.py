"""Kill `sharpwave ingest` and `sharpwave consolidate` with SIGKILL at random moments and look at what is left.

    .venv/bin/python benchmarks/kill_test.py --kills 30 --out kills.json

Real processes on the real embedded models. Every second kill is drawn uniformly over the measured length of an
undisturbed run, the others within one stage after the other, so that short stages are hit as well. Exits with 1 if
a fact was lost or doubled, or a store could not be repaired.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from killed_runs import (
    Aim,
    Outcome,
    StageOf,
    WatchedRun,
    Workplace,
    draw_aim,
    end_orphans,
    ingest_stage,
    night_stage,
)
from rich.console import Console
from rich.table import Table
from store_checks import (
    Picture,
    find_bad_generation,
    find_doubled,
    find_incomplete,
    find_index_difference,
    find_lost,
    look_after_kill,
)

from carriers.memory_index import MemoryIndex
from carriers.store_layout import INDEX_NAME
from consolidation.night_folder import unfinished_nights
from eval.corpora.agent_world import agent_world
from eval.corpora.updates import agent_updates
from eval.corpora.world import load_world_corpus
from serving.loaded_models import shared_models
from sharpwave.records import Fact, utc_now
from sharpwave.settings import cache_home, load_settings

SHARPWAVE = Path(sys.executable).with_name("sharpwave")
COMMAND_SECONDS = 3600
KILLS_PER_EPISODE = 3
ATTEMPTS = 5
QUESTIONS = 12
INGEST_STAGES = ["opening", "routing", "indexing", "between batches"]
NIGHT_STAGES = ["planning", "training", "judging", "applying"]
SMALL_NIGHT = [
    "selection.max_facts=12",
    "selection.min_facts=4",
    "write_back.epochs=2",
    "write_back.anchor_count=8",
    "promotion.scales=[1.0]",
    "promotion.min_internalised_rate=0.0",
    "promotion.max_damage_rate=1.0",
    "damage.max_probes=20",
    "damage.sample_size=10",
    "probe.min_token_prob=0.0",
]
# The command line gives every ingest a run id of its own; flows that are started again keep theirs.
SAME_RUN = """
import json, sys
from tasks.prefect_server import start_server
server = start_server()
from flows.ingest_stream import ingest_stream
server.wait_until_ready()
print(ingest_stream(sys.argv[1], sys.argv[2], overrides=json.loads(sys.argv[3])).model_dump_json())
"""

console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)


@dataclass
class Tally:
    """What is counted over all kills."""

    kills: list[dict[str, Any]] = field(default_factory=list)
    violations: list[dict[str, str]] = field(default_factory=list)
    repaired: int = 0
    escaped: int = 0

    def add(self, kind: str, problems: list[str]) -> None:
        """Take down violations of one kind."""
        for problem in problems:
            self.violations.append({"kind": kind, "problem": problem})
            console.print(f"    [bold]{kind}[/bold]: {problem}", markup=True)


class Bench:
    """One workplace with one store, its commands and its checks."""

    def __init__(self, folder: Path, facts: Path, tally: Tally) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {
            "SHARPWAVE_HOME": str(cache_home()),
            "SHARPWAVE_OFFLINE": "1",
            "PREFECT_HOME": str(folder / "prefect"),
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlruns' / 'mlflow.db'}",
        }
        self.place = Workplace(folder, folder / "store", environment)
        self.file = facts
        self.facts = [
            Fact.model_validate_json(line) for line in facts.read_text(encoding="utf-8").splitlines()
        ]
        self.lines = Counter(fact.id for fact in self.facts)
        self.tally = tally

    def fork(self, folder: Path) -> Bench:
        """Return a bench whose store begins as a copy of this one's."""
        shutil.copytree(self.place.folder, folder)
        return Bench(folder, self.file, self.tally)

    def ingest(self) -> list[str]:
        """Return the command that takes the facts in."""
        return [str(SHARPWAVE), "ingest", str(self.file), "--store", str(self.place.store), "--json"]

    def ingest_again(self, run_id: str) -> list[str]:
        """Return the command that goes on with a run under its own id."""
        overrides = json.dumps([f"store.path={self.place.store}"])
        return [sys.executable, "-c", SAME_RUN, str(self.file), run_id, overrides]

    def consolidate(self) -> list[str]:
        """Return the command of a small night."""
        options = [part for item in SMALL_NIGHT for part in ("--set", f"consolidation.{item}")]
        return [str(SHARPWAVE), "consolidate", "--store", str(self.place.store), "--json", *options]

    def run(self, command: list[str], stage_of: StageOf) -> Outcome:
        """Run a watched command to its end."""
        outcome = WatchedRun(self.place, command, stage_of).finish(COMMAND_SECONDS)
        if outcome.code:
            self.tally.add("failed", [f"exit code {outcome.code}: {outcome.errors[-600:]}"])
        self.tally.add(
            "untracked", [line for line in outcome.errors.splitlines() if "Nothing is tracked" in line]
        )
        return outcome

    def call(self, *arguments: str) -> tuple[int, Any]:
        """Run a short command; return its exit code and its JSON, None if it printed none."""
        done = subprocess.run(
            [str(SHARPWAVE), *arguments, "--json", "--store", str(self.place.store)],
            cwd=self.place.folder,
            env=self.place.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        try:
            return done.returncode, json.loads(done.stdout)
        except ValueError:
            return done.returncode, done.stderr[-600:]

    def last_run_id(self) -> str:
        """Return the id of the latest ingest, whether it recorded anything or not."""
        runs = sorted((self.place.folder / "runs").glob("ingest-*"))
        return runs[-1].name if runs else "ingest-again"

    def check_left_behind(self, seen: Picture) -> Picture:
        """Check what must hold directly after a kill, before any repair."""
        self.tally.add("orphan", end_orphans(self.place))
        after = look_after_kill(self.place.store)
        self.tally.add("lost", find_lost(seen, after))
        self.tally.add("doubled", find_doubled(after, self.lines))
        self.tally.add("generation", find_bad_generation(self.place.store, after))
        return after

    def doctor(self) -> str:
        """Run `sharpwave doctor --repair`; afterwards the index must hold the hot facts."""
        before = look_after_kill(self.place.store)
        if not before.has_tables:
            return "not begun"
        code, found = self.call("doctor", "--repair")
        verdict = "unclean"
        if code == 0 and isinstance(found, dict):
            verdict = "clean" if found["clean"] else "repaired" if found["repaired"] else verdict
        self.tally.add("unclean", [f"doctor --repair: {found}"] if verdict == "unclean" else [])
        self.tally.repaired += verdict == "repaired"
        after = look_after_kill(self.place.store)
        self.tally.add("lost", find_lost(before, after))
        self.tally.add("generation", find_bad_generation(self.place.store, after))
        self.tally.add("index", find_index_difference(after, self.index_ids()))
        return verdict

    def index_ids(self) -> set[str]:
        """Return the ids that the index holds; an index that is missing holds none."""
        folder = self.place.store / INDEX_NAME
        if not MemoryIndex.exists(folder):
            return set()
        with MemoryIndex.open(folder, shared_models(load_settings().models).embedder) as index:
            return index.ids()

    def check_ingested(self, finished_runs: list[str]) -> None:
        """Check a store into which the whole file was taken."""
        self.doctor()
        picture = look_after_kill(self.place.store)
        self.tally.add("lost", find_incomplete(picture, self.facts))
        self.tally.add("doubled", find_doubled(picture, self.lines, finished_runs))

    def check_rebuilt_index(self) -> None:
        """Delete the index, repair, and compare ids and answers with those before."""
        asked = [fact.questions[0] for fact in self.facts if fact.questions]
        asked = asked[:: max(1, len(asked) // QUESTIONS)]
        ids, (_, before) = self.index_ids(), self.call("ask", *asked)
        shutil.rmtree(self.place.store / INDEX_NAME)
        verdict = self.doctor()
        self.tally.add(
            "unclean", [] if verdict == "repaired" else [f"without its index the store is {verdict}"]
        )
        self.tally.add("index", [] if self.index_ids() == ids else ["the rebuilt index has other ids"])
        code, after = self.call("ask", *asked)
        if code or not isinstance(before, list) or len(before) != len(asked):
            self.tally.add("answers", [f"ask failed: {after}"])
        elif before != after:
            changed = sum(old != new for old, new in zip(before, after, strict=True))
            self.tally.add(
                "answers", [f"{changed} of {len(asked)} answers differ after the index was rebuilt"]
            )
        console.print(
            f"index deleted and rebuilt: {len(ids)} facts, {len(asked)} questions asked before and after"
        )


def write_facts(path: Path, count: int, seed: int) -> None:
    """Write the input: invented and world facts, updates of a slot, values that come back, repeats, in mixed order.

    Every second group of lines says when it was observed; for the others the program takes the time.
    """
    source = random.Random(seed)
    plain = [item.fact for item in agent_world(count // 2, seed)]
    plain += [item.fact for item in source.sample(load_world_corpus(), count // 4)]
    groups = [[fact] for fact in [*plain, *source.sample(plain, count // 8)]]
    for number, pair in enumerate(agent_updates(count // 16, seed)):
        groups.append([pair.old.fact, pair.new.fact, *([pair.old.fact] if number % 3 == 0 else [])])
    order = [number for number, group in enumerate(groups) for _ in group]
    source.shuffle(order)
    moment = utc_now() - timedelta(days=1)
    lines = []
    for place, number in enumerate(order):
        fact = groups[number].pop(0)
        row = fact.model_dump(mode="json", exclude_none=True, exclude={"observed_at", "source", "metadata"})
        if number % 2:
            row["observed_at"] = (moment + timedelta(seconds=place)).isoformat()
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


@dataclass
class Phase:
    """How one command is killed: what it is, how to name its stages, what an undisturbed run took."""

    name: str
    stage_of: StageOf
    stages: list[str]
    seconds: float
    spans: Counter[str]

    def kill(self, bench: Bench, command: list[str], source: random.Random, total: int) -> None:
        """Run and kill a command; runs that end before the moment drawn are repeated with another moment."""
        for _ in range(ATTEMPTS):
            number = sum(kill["phase"] == self.name for kill in bench.tally.kills)
            aim = draw_aim(number, self.stages, source)
            run = WatchedRun(bench.place, command, self.stage_of)
            run.kill_at(aim, self.seconds, self.spans)
            outcome = run.finish(COMMAND_SECONDS)
            if outcome.was_killed:
                self._take_down(bench, aim, outcome, total)
                return
            bench.tally.escaped += 1
            if outcome.code:
                bench.tally.add("failed", [f"exit code {outcome.code}: {outcome.errors[-600:]}"])
                return

    def _take_down(self, bench: Bench, aim: Aim, outcome: Outcome, total: int) -> None:
        tally = bench.tally
        after = bench.check_left_behind(outcome.seen)
        number = len(tally.kills) + 1
        # Every second store goes to the doctor at once, the others are left to the next command as they are.
        verdict = bench.doctor() if number % 2 else "left as it was"
        tally.kills.append({
            "phase": self.name,
            "stage": outcome.stage,
            "aimed_at": aim.stage or "the whole run",
            "after_seconds": round(outcome.seconds, 2),
            "facts": len(after.words),
            "events": len(after.events),
            "doctor": verdict,
        })
        console.print(
            f"[{number:3d}/{total}] {self.name:<12} killed after {outcome.seconds:6.1f} s while {outcome.stage:<16} "
            f"{len(after.words):4d} facts  {verdict}",
            markup=False,
        )


def kill_ingests(
    base: Bench, folder: Path, phase: Phase, kills: int, source: random.Random, total: int
) -> None:
    """Kill ingests in episodes: a new store, up to three kills, then to the end."""
    left, episode = kills, 0
    while left:
        bench, run_id = Bench(folder / f"ingest-{episode}", base.file, base.tally), None
        if episode % 2:  # a workplace that was used before; every second is all new
            shutil.copytree(base.place.folder / "mlruns", bench.place.folder / "mlruns")
        shutil.copytree(base.place.folder / "prefect", bench.place.folder / "prefect")
        for _ in range(min(left, KILLS_PER_EPISODE)):
            command = bench.ingest() if run_id is None else bench.ingest_again(run_id)
            phase.kill(bench, command, source, total)
            left -= 1
            run_id = bench.last_run_id() if episode % 2 == 0 else None
        done = bench.run(bench.ingest() if run_id is None else bench.ingest_again(run_id), ingest_stage)
        bench.check_ingested([json.loads(done.output)["run_id"]] if done.code == 0 else [])
        shutil.rmtree(bench.place.folder)
        episode += 1


def kill_nights(bench: Bench, phase: Phase, kills: int, source: random.Random, total: int) -> Counter[str]:
    """Kill consolidations of one store; after at most three kills a night is let run to its end."""
    left, ends = kills, Counter[str]()
    while left:
        for _ in range(min(left, KILLS_PER_EPISODE)):
            phase.kill(bench, bench.consolidate(), source, total)
            left -= 1
        done = bench.run(bench.consolidate(), night_stage)
        if done.code == 0:
            ends[json.loads(done.output)["status"]] += 1
        unfinished = unfinished_nights(bench.place.store)
        bench.tally.add("unfinished", [f"night {name} has no report" for name in unfinished])
        bench.check_left_behind(done.seen)
        bench.doctor()
    return ends


@contextmanager
def working_folder(store: Path | None) -> Iterator[Path]:
    """Yield the folder asked for, or a temporary one that is removed afterwards."""
    if store is not None:
        if store.exists() and any(store.iterdir()):
            raise typer.BadParameter(f"{store} is not empty", param_hint="--store")
        yield store.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="sharpwave-kills-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def report(tally: Tally, started: float, seed: int, facts: int, nights: Counter[str]) -> dict[str, Any]:
    """Return the figures of the whole run as plain data."""
    kinds = Counter(item["kind"] for item in tally.violations)
    phases: dict[str, Counter[str]] = {}
    for kill in tally.kills:
        phases.setdefault(kill["phase"], Counter())[kill["stage"]] += 1
    return {
        "kills": len(tally.kills),
        "by_phase": {name: sum(stages.values()) for name, stages in phases.items()},
        "by_stage": {name: dict(sorted(stages.items())) for name, stages in phases.items()},
        "lost": kinds["lost"],
        "doubled": kinds["doubled"],
        "unclean": kinds["unclean"],
        "other_violations": sum(kinds.values()) - kinds["lost"] - kinds["doubled"] - kinds["unclean"],
        "repaired": tally.repaired,
        "escaped": tally.escaped,
        "nights": dict(nights),
        "lines": facts,
        "seed": seed,
        "seconds": round(time.monotonic() - started, 1),
        "violations": tally.violations,
        "each": tally.kills,
    }


def show(figures: dict[str, Any]) -> None:
    """Print the table of kills and the figures."""
    table = Table("command", "killed while", "kills")
    for phase, stages in figures["by_stage"].items():
        for stage, count in stages.items():
            table.add_row(phase, stage, str(count))
    console.print(table)
    for name in ("kills", "lost", "doubled", "unclean", "other_violations", "repaired", "nights", "seconds"):
        console.print(f"{name.replace('_', ' '):<17} {figures[name]}", markup=False)


def main(
    kills: Annotated[int, typer.Option(min=2, help="Kills; half of ingests, half of consolidations.")] = 30,
    seed: Annotated[int, typer.Option(help="Seeds the facts and the moments.")] = 0,
    lines: Annotated[int, typer.Option(min=40, help="Lines of the file of facts, about.")] = 200,
    out: Annotated[Path | None, typer.Option(dir_okay=False, help="JSON file for the figures.")] = None,
    store: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Empty folder to work in and keep; else a temporary one."),
    ] = None,
) -> None:
    """Kill, look, repair, go on; print what was found."""
    started, source, tally = time.monotonic(), random.Random(seed), Tally()
    with working_folder(store) as folder:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "facts.jsonl"
        write_facts(file, lines, seed)
        base = Bench(folder / "base", file, tally)
        console.print(f"{len(base.facts)} lines, {len(base.lines)} facts; first an undisturbed ingest")
        whole = base.run(base.ingest(), ingest_stage)
        base.check_ingested([json.loads(whole.output)["run_id"]] if whole.code == 0 else [])
        console.print(f"took {whole.seconds:.1f} s; spans {_rounded(whole.spans)}")
        phase = Phase("ingest", ingest_stage, INGEST_STAGES, whole.seconds, whole.spans)
        kill_ingests(base, folder, phase, kills - kills // 2, source, kills)
        console.print("an undisturbed consolidation")
        night = base.run(base.consolidate(), night_stage)
        base.doctor()
        console.print(f"took {night.seconds:.1f} s; spans {_rounded(night.spans)}")
        phase = Phase("consolidate", night_stage, NIGHT_STAGES, night.seconds, night.spans)
        nights = kill_nights(base, phase, kills // 2, source, kills)
        base.check_rebuilt_index()
        figures = report(tally, started, seed, len(base.facts), nights)
    show(figures)
    if out is not None:
        out.write_text(json.dumps(figures, indent=2), encoding="utf-8")
    if tally.violations or figures["kills"] < kills:
        raise typer.Exit(1)


def _rounded(spans: Counter[str]) -> dict[str, float]:
    return {name: round(seconds, 1) for name, seconds in spans.items()}


if __name__ == "__main__":
    typer.run(main)
