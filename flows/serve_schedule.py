"""Serve a flow on a cron schedule from this process, with a Prefect server of its own unless one is named."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sharpwave.errors import ConfigError
from tasks.prefect_home import CONSOLE_LEVEL_VARIABLE
from tasks.prefect_server import start_server

if TYPE_CHECKING:
    from prefect import Flow
    from prefect.schedules import Schedule

NIGHTLY_CYCLE = "flows.nightly_cycle.nightly_cycle"


def serve_schedule(
    parameters: Mapping[str, object],
    *,
    cron: str,
    timezone: str = "UTC",
    port: int = 4200,
    name: str | None = None,
    entrypoint: str = NIGHTLY_CYCLE,
) -> None:
    """Run the flow whenever the schedule says so, one run at a time, until interrupted; blocks.

    Runs that were missed while nothing was served are done by one run. After Ctrl-C the schedule is paused
    until the next call. To be called before Prefect is imported, as `start_server` explains.

    Args:
        parameters: what each run of the flow is called with; names and paths only.
        cron: five fields, for example "0 3 * * *" for three o'clock every night.
        timezone: the schedule's time zone, for example "Europe/Madrid".
        port: where the server and its web page are, unless `PREFECT_API_URL` names another server.
        name: of the deployment in Prefect; by default each working folder has its own, so that two stores do
            not take each other's runs.
        entrypoint: dotted path of the flow; the runs import it from there.

    Raises:
        ConfigError: the cron text, the time zone, the entrypoint or the port cannot be used.
        TransientError: the server did not start.
    """
    os.environ.setdefault(CONSOLE_LEVEL_VARIABLE, "INFO")
    server = start_server(port=port, ui=True)

    from prefect.types.entrypoint import EntrypointType

    flow = _load_flow(entrypoint)
    schedule = _cron_schedule(cron, timezone)
    server.wait_until_ready()
    flow.serve(
        name=name or deployment_name(Path.cwd()),
        schedule=schedule,
        parameters=dict(parameters),
        limit=1,
        entrypoint_type=EntrypointType.MODULE_PATH,
        print_starting_message=False,
    )


def deployment_name(folder: Path) -> str:
    """Return a name that is the folder's own and can be recognised by a person."""
    return f"{folder.name or 'root'}-{hashlib.sha256(str(folder).encode('utf-8')).hexdigest()[:6]}"


def _load_flow(entrypoint: str) -> Flow[..., Any]:
    from prefect import Flow

    from flows.missed_runs import collapse_missed_runs

    module, _, name = entrypoint.rpartition(".")
    flow = getattr(import_module(module), name)
    if not isinstance(flow, Flow):
        raise ConfigError(f"{entrypoint} is not a flow")
    if collapse_missed_runs not in flow.on_running_hooks:
        flow.on_running(collapse_missed_runs)
    return flow


def _cron_schedule(cron: str, timezone: str) -> Schedule:
    from prefect.schedules import Cron

    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ConfigError(f"unknown time zone {timezone!r}; use a name such as 'Europe/Madrid'") from error
    try:
        return Cron(cron, timezone=timezone)
    except ValueError as error:
        raise ConfigError(f"{cron!r} is no cron schedule; use five fields such as '0 3 * * *'") from error
