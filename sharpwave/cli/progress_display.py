"""Progress of long work on stderr: bars with the time left on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from sharpwave.progress import NullProgress, Progress, use_progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

SECONDS_BETWEEN_LINES = 30.0


@contextmanager
def shown_progress(*, quiet: bool) -> Iterator[Progress]:
    """Show progress in this block: bars on a terminal, lines elsewhere, nothing if `quiet`."""
    if quiet:
        with use_progress(NullProgress()):
            yield NullProgress()
    elif sys.stderr.isatty():
        with _rich_bars() as bars:
            listener: Progress = BarProgress(bars)
            with use_progress(listener):
                yield listener
    else:
        listener = LineProgress()
        with use_progress(listener):
            yield listener


class BarProgress:
    """One bar per stage; a finished stage stays on the screen with the time it took."""

    def __init__(self, bars: RichProgress) -> None:
        self._bars = bars
        self._task: TaskID | None = None
        self._guard = threading.Lock()

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a bar."""
        with self._guard:
            self._end()
            self._task = self._bars.add_task(name, total=total, figures="")

    def advance(self, units: int = 1, **figures: float) -> None:
        """Move the bar on."""
        with self._guard:
            if self._task is not None:
                self._bars.update(self._task, advance=units, figures=_in_words(figures))

    def _end(self) -> None:
        if self._task is not None:
            task = self._bars.tasks[-1]
            if task.total is None:  # the length was unknown; now the bar can stand full
                self._bars.update(self._task, total=task.completed or 1, completed=task.completed or 1)
            self._bars.stop_task(self._task)


class LineProgress:
    """One line per stage, and one every half minute inside a stage."""

    def __init__(self, seconds_between_lines: float = SECONDS_BETWEEN_LINES) -> None:
        self._pause = seconds_between_lines
        self._name = ""
        self._total: int | None = None
        self._done = 0
        self._last_line = 0.0
        self._guard = threading.Lock()

    def stage(self, name: str, total: int | None = None) -> None:
        """Print the name of the stage."""
        with self._guard:
            self._name, self._total, self._done = name, total, 0
            self._last_line = time.monotonic()
            typer.echo(f"{name} ...", err=True)

    def advance(self, units: int = 1, **figures: float) -> None:
        """Print how far the stage is, if the last line is some time ago."""
        with self._guard:
            self._done += units
            if time.monotonic() - self._last_line < self._pause:
                return
            self._last_line = time.monotonic()
            of_total = "" if self._total is None else f" of {self._total}"
            typer.echo(f"{self._name}: {self._done}{of_total} {_in_words(figures)}".rstrip(), err=True)


def _rich_bars() -> RichProgress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}", markup=False, style="dim"),
        console=Console(stderr=True),
    )


def _in_words(figures: dict[str, float]) -> str:
    return "  ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in figures.items())
