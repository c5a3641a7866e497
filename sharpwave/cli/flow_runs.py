"""Running a flow from a command: models first, then a Prefect server of our own, with progress shown."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from sharpwave.cli.model_commands import fetch_missing
from sharpwave.cli.progress_display import shown_progress

if TYPE_CHECKING:
    from sharpwave.cli.options import Choice
    from sharpwave.settings import Settings


@contextmanager
def flow_session(choice: Choice, settings: Settings) -> Iterator[None]:
    """Make everything ready in which flows run, and show progress while they do.

    Flows are to be imported inside the block: Prefect reads where its server is when it is imported. Where it
    was imported before, as in a test, its own temporary server is used.
    """
    with shown_progress(quiet=choice.as_json) as progress:
        fetch_missing(settings.models, progress)
        progress.stage("starting")
        if "prefect" not in sys.modules:
            from tasks.prefect_server import start_server

            server = start_server()
            import_module("flows.nightly_cycle")  # costs seconds, which the server needs to start anyway
            server.wait_until_ready()
        yield
