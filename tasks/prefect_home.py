"""Where Prefect keeps its state, and what it and MLflow may do: no analytics, no network, a quiet console.

Both read the environment when they are imported, so this has to come first; the package files of `tasks` and
`flows` see to it. What the user has set in the environment always wins.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sharpwave.settings import cache_home

LOGGING_CONFIG = Path(__file__).with_name("prefect_logging.yaml")
CONSOLE_LEVEL_VARIABLE = "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"

_TELEMETRY_OFF = {
    "DO_NOT_TRACK": "true",  # Prefect's client and MLflow; MLflow knows no other spelling than "true"
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
_MLFLOW = {
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    # An unreachable tracking server must cost seconds, not the many minutes of MLflow's own defaults.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
_PREFECT = {
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "true",
    # The first start migrates an empty database, which takes over a minute on a busy machine.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",
    # Training may starve the server of CPU; these waits turn "database is locked" into a pause.
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "60",
    "PREFECT_LOGGING_SETTINGS_PATH": str(LOGGING_CONFIG),
    "PREFECT_LOGGING_EXTRA_LOGGERS": "sharpwave,carriers,routers,consolidation,eval,tasks,flows",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
}


def prepare_environment() -> None:
    """Fill in what Prefect and MLflow read from the environment; safe to call again.

    Prefect's database and default results then live under `SHARPWAVE_HOME/prefect` and never in `~/.prefect`,
    unless `PREFECT_HOME` says otherwise. With `PREFECT_API_URL` set, runs go there and no server is started.
    A Prefect that was imported earlier has read its settings already and is left as it is.
    """
    for name, value in {**_TELEMETRY_OFF, **_MLFLOW}.items():
        os.environ.setdefault(name, value)
    if "prefect" in sys.modules:
        return
    os.environ.setdefault("PREFECT_HOME", str(cache_home() / "prefect"))
    for name, value in _PREFECT.items():
        os.environ.setdefault(name, value)
