"""The progress port: long work says how far it is without knowing who shows it, if anybody does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Shows one stage at a time."""

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a stage of `total` units; None where the length is unknown. Ends the stage before."""

    def advance(self, units: int = 1, **figures: float) -> None:
        """Report units done, and figures worth showing beside the bar."""


class NullProgress:
    """Shows nothing."""

    def stage(self, name: str, total: int | None = None) -> None:
        """Show nothing."""

    def advance(self, units: int = 1, **figures: float) -> None:
        """Show nothing."""


_SILENT = NullProgress()
_installed: list[Progress] = []  # process-wide, since flows run their tasks in threads of their own


def current_progress() -> Progress:
    """Return the listener in force in this process."""
    return _installed[-1] if _installed else _SILENT


@contextmanager
def use_progress(progress: Progress) -> Iterator[None]:
    """Show progress through this listener inside the block."""
    _installed.append(progress)
    try:
        yield
    finally:
        _installed.remove(progress)
