"""The tracker protocol: how domain code reports figures without knowing MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


class Tracker(Protocol):
    """Receives parameters, metrics and artifacts of one run. Never raises into the work it tracks."""

    def log_params(self, values: Mapping[str, object]) -> None:
        """Record what the run was made with."""

    def log_metrics(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Record figures; with a step they form a curve."""

    def log_artifact(self, path: Path) -> None:
        """Keep a file or folder with the run."""


class NullTracker:
    """A tracker that keeps nothing, so callers need no `if`."""

    def log_params(self, values: Mapping[str, object]) -> None:
        """Drop the parameters."""

    def log_metrics(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Drop the figures."""

    def log_artifact(self, path: Path) -> None:
        """Drop the artifact."""
