"""Commands in processes of their own, watched from outside and killed at a chosen moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from store_checks import Picture, file_marks, look, look_after_kill

LOOK_SECONDS = 0.02
LOOK_ANYWAY_SECONDS = 0.3
ORPHAN_SECONDS = 20.0
DONE = "finishing"


@dataclass
class Workplace:
    """Where commands run: a folder of its own with the store, runs, logs and Prefect's state."""

    folder: Path
    store: Path
    environment: dict[str, str] = field(default_factory=dict)

    def begun_since(self, moment: float) -> bool:
        """Whether a flow has begun since a moment: it writes its settings first."""
        settings = (self.folder / "runs").glob("*/settings.json")
        return any(path.stat().st_mtime >= moment for path in settings)


StageOf = Callable[[Workplace, Picture, float], str]


@dataclass(frozen=True)
class Aim:
    """When to kill: `share` of the whole run's seconds, or of one stage's from the moment it is seen."""

    share: float
    stage: str | None = None


@dataclass
class Outcome:
    """What became of a run: what a reader saw last while it lived, and where it was when it ended."""

    seen: Picture
    seconds: float
    stage: str
    code: int
    output: str
    errors: str
    spans: Counter[str]

    @property
    def was_killed(self) -> bool:
        """Whether the kill came before the end."""
        return self.code == -signal.SIGKILL


class WatchedRun:
    """One process in a group of its own; a thread looks at the store while it lives, as a reader would."""

    def __init__(self, place: Workplace, command: list[str], stage_of: StageOf) -> None:
        self._place = place
        self._stage_of = stage_of
        self._logs = place.folder / "stdout.log", place.folder / "stderr.log"
        self._started, self._started_at = time.monotonic(), time.time()
        self.seen = look_after_kill(place.store)
        self.stage = "starting"
        self.spans: Counter[str] = Counter()
        with self._logs[0].open("wb") as output, self._logs[1].open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=place.folder,
                env=place.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def kill_at(self, aim: Aim, total_seconds: float, spans: Counter[str]) -> None:
        """Kill the process group at the moment aimed at, if the run is still there then."""
        if aim.stage is None:
            self._sleep_until(lambda: time.monotonic() - self._started >= aim.share * total_seconds)
        else:
            self._sleep_until(lambda: self.stage == aim.stage)
            seen = time.monotonic()
            self._sleep_until(lambda: time.monotonic() - seen >= aim.share * spans[aim.stage or ""])
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def finish(self, timeout_seconds: float) -> Outcome:
        """Wait for the end, killed or not, and tell what became of the run."""
        try:
            code = self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise
        self._watcher.join()
        stage = self._stage_of(self._place, look_after_kill(self._place.store), self._started_at)
        output, errors = (log.read_text(encoding="utf-8", errors="replace") for log in self._logs)
        seconds = time.monotonic() - self._started
        return Outcome(self.seen, seconds, stage, code, output, errors, self.spans)

    def _watch(self) -> None:
        last, looked, looked_at = time.monotonic(), 0.0, None
        while self.process.poll() is None:
            marks = file_marks(self._place.store)
            # now and then anyway: a commit can be seen only some time after its files have changed
            if marks != looked_at or last - looked >= LOOK_ANYWAY_SECONDS:
                self.seen = look(self._place.store) or self.seen
                looked, looked_at = last, marks
            self.stage = self._stage_of(self._place, self.seen, self._started_at)
            now = time.monotonic()
            self.spans[self.stage] += now - last
            last = now
            time.sleep(LOOK_SECONDS)

    def _sleep_until(self, is_time: Callable[[], bool]) -> None:
        while not is_time() and self.process.poll() is None:
            time.sleep(0.002)


def ingest_stage(place: Workplace, picture: Picture, started_at: float) -> str:
    """Name the part of `sharpwave ingest` that a store is in."""
    if not place.begun_since(started_at):
        return "starting"
    if picture.outbox:
        return "indexing"
    if picture.having("observed"):
        return "routing"
    return "between batches" if picture.events else "opening"


def night_stage(place: Workplace, picture: Picture, started_at: float) -> str:
    """Name the part of `sharpwave consolidate` that a store is in, by the files of its latest night."""
    if not place.begun_since(started_at):
        return "starting"
    nights = sorted((place.store / "consolidations").glob("night-*"))
    night = nights[-1] if nights else None
    if night is None or not (night / "plan.json").exists():
        return "planning"
    if (night / "report.json").exists():
        return DONE if (night / "report.json").stat().st_mtime >= started_at else "planning"
    if (night / "verdict.json").exists():
        return "applying"
    return "judging" if (night / "training.json").exists() else "training"


def draw_aim(number: int, stages: list[str], random_source: random.Random) -> Aim:
    """Draw a moment: even numbers over the whole run, odd ones within one stage after the other."""
    stage = stages[number // 2 % len(stages)] if number % 2 and stages else None
    return Aim(random_source.random(), stage)


def end_orphans(place: Workplace) -> list[str]:
    """Wait for what a killed run left behind to end by itself; end it and tell if it does not."""
    deadline = time.monotonic() + ORPHAN_SECONDS
    while (left := _left_behind(place)) and time.monotonic() < deadline:
        time.sleep(0.2)
    complaints = []
    for process in left:
        complaints.append(
            f"process {process.pid} outlived the kill by {ORPHAN_SECONDS:g} s: {process.name()}"
        )
        process.kill()
    return complaints


def _left_behind(place: Workplace) -> list[psutil.Process]:
    mark, found = place.environment["PREFECT_HOME"], []
    for process in psutil.process_iter():
        try:
            is_ours = process.environ().get("PREFECT_HOME") == mark and process.pid != os.getpid()
            if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found
