"""MLflow behind the tracker protocol: the only module that knows MLflow.

A run opens before the work and closes after it, whatever happens. Nothing here fails the work it tracks: a
broken tracking store costs a warning. No autologging and no global run state, so concurrent flows cannot mix.
"""

from __future__ import annotations

import json
import logging
import math
import shlex
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sharpwave.settings import Settings, TrackingSettings
from tasks.run_labels import FOLDER_TAG, flattened, param_text, run_tags, valid_name

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

FLUSH_SECONDS = 5.0
FLUSH_COUNT = 200  # metrics; MLflow takes 1,000 at a time
PARAMS_PER_BATCH = 100  # MLflow's limit
FAILURES_MAX = 3  # in a row, after which a run is given up
DATABASE_WAIT_SECONDS = 60

PARENT_TAG = "mlflow.parentRunId"

logger = logging.getLogger(__name__)


class MlflowTracker:
    """One run of the tracking store. Without a client it drops everything, as after a failed connection.

    Metrics are buffered. They are written when there are `FLUSH_COUNT`, with the first that comes
    `FLUSH_SECONDS` after the last write, and at the end of the run.
    """

    def __init__(self, client: MlflowClient | None, run_id: str | None) -> None:
        self._client = client
        self._run_id = run_id
        self._buffer: list[Metric] = []
        self._buffer_lock = threading.Lock()
        self._flushed_at = time.monotonic()
        self._failures = 0
        self._has_warned = False

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the run, to pass on to nested runs; None if nothing is tracked."""
        return self._run_id

    def log_params(self, values: Mapping[str, object]) -> None:
        """Record what the run was made with; nested mappings become dotted names, long values are cut."""
        self._attempt("parameters", lambda client, run_id: _write_params(client, run_id, values))

    def log_metrics(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Record figures; with a step they form a curve. Infinite values become NaN."""
        self._attempt("metrics", lambda _client, _run_id: self._buffer_metrics(values, step or 0))
        if len(self._buffer) >= FLUSH_COUNT or time.monotonic() - self._flushed_at >= FLUSH_SECONDS:
            self.flush()

    def log_artifact(self, path: Path) -> None:
        """Keep a file, or a folder under its name, with the run."""
        self._attempt(f"artifact {path.name}", lambda client, run_id: client.log_artifact(run_id, str(path)))

    def log_json(self, name: str, value: Mapping[str, object]) -> None:
        """Keep a JSON document with the run, under a file name ending in `.json`."""

        def write(client: MlflowClient, run_id: str) -> None:
            client.log_text(run_id, json.dumps(value, indent=2, ensure_ascii=False, default=str), name)

        self._attempt(f"artifact {name}", write)

    def flush(self) -> None:
        """Write the buffered metrics."""
        with self._buffer_lock:
            metrics, self._buffer = self._buffer, []
            self._flushed_at = time.monotonic()
        for start in range(0, len(metrics), FLUSH_COUNT):
            self._attempt("metrics", partial(_write_metrics, metrics=metrics[start : start + FLUSH_COUNT]))

    def close(self, status: str) -> None:
        """Write what is left and end the run with MLflow's FINISHED, FAILED or KILLED."""
        self._failures = 0  # even a run that was given up deserves one try to be ended
        self.flush()
        self._attempt("its end", lambda client, run_id: client.set_terminated(run_id, status))

    def _buffer_metrics(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [
            Metric(valid_name(name), number if math.isfinite(number) else math.nan, now, step)
            for name, number in ((name, float(value)) for name, value in values.items())
        ]
        with self._buffer_lock:
            self._buffer.extend(metrics)

    def _attempt(self, what: str, write: Callable[[MlflowClient, str], object]) -> None:
        if self._client is None or self._run_id is None or self._failures >= FAILURES_MAX:
            return
        try:
            write(self._client, self._run_id)
        except Exception as error:
            self._failures += 1
            level = logging.DEBUG if self._has_warned else logging.WARNING
            logger.log(level, "MLflow run %s did not take %s: %s", self._run_id, what, _first_line(error))
            self._has_warned = True
        else:
            self._failures = 0


@contextmanager
def parent_run(
    name: str, settings: Settings, run_id: str, *, resume: bool = False
) -> Iterator[MlflowTracker]:
    """Track a whole demo, nightly cycle or command, with the resolved settings as parameters and as artifact.

    The run ends as FINISHED, as FAILED on an exception, as KILLED on an interrupt. A run of the same folder
    that is still open was killed from outside: it is marked so, or with `resume` taken up again.

    Args:
        name: shown in MLflow.
        settings: resolved settings; their `tracking` part says where to.
        run_id: name of the folder under `settings.runs_dir`.
        resume: continue the latest run of this folder that did not finish, if there is one.
    """
    tags = run_tags(settings, run_id)

    def open_run(client: MlflowClient, experiment: str) -> str:
        unfinished = _unfinished_runs(client, experiment, tags[FOLDER_TAG])
        candidates = [run for run in unfinished if resume and PARENT_TAG not in run.data.tags]
        _mark_killed([run for run in unfinished if run not in candidates[:1]], client)
        if not candidates:
            return _create_run(client, experiment, name, tags)
        resumed: str = candidates[0].info.run_id
        client.update_run(resumed, status="RUNNING")
        return resumed

    with _closing(_tracker(settings, open_run)) as tracker:
        _log_settings(tracker, settings)
        yield tracker


@contextmanager
def nested_run(name: str, settings: Settings, run_id: str, parent_id: str | None) -> Iterator[MlflowTracker]:
    """Track one flow inside a parent run; ends as the parent run does.

    An open run of the same name and folder was killed from outside and is marked so.

    Args:
        name: shown in MLflow.
        settings: resolved settings; their `tracking` part says where to.
        run_id: name of the folder under `settings.runs_dir`.
        parent_id: `run_id` of the parent's tracker; without one the run keeps the settings, as a parent does.
    """
    tags = run_tags(settings, run_id) | ({PARENT_TAG: parent_id} if parent_id else {})

    def open_run(client: MlflowClient, experiment: str) -> str:
        _mark_killed(_unfinished_runs(client, experiment, tags[FOLDER_TAG], name), client)
        return _create_run(client, experiment, name, tags)

    with _closing(_tracker(settings, open_run)) as tracker:
        if parent_id is None:
            _log_settings(tracker, settings)
        yield tracker


@contextmanager
def joined_run(settings: Settings, mlflow_run_id: str | None) -> Iterator[MlflowTracker]:
    """Log to a run that somebody else opened and will close; None logs nothing."""
    if mlflow_run_id is None:
        yield MlflowTracker(None, None)
        return
    tracker = _tracker(settings, lambda _client, _experiment: mlflow_run_id)
    try:
        yield tracker
    finally:
        tracker.flush()


def where_to_look(settings: Settings) -> str:
    """Return the address of the tracking server, or else the shell command that shows the runs in a browser."""
    if settings.tracking.resolved_uri.startswith("http"):
        return settings.tracking.resolved_uri
    return f"mlflow ui --workers 1 --backend-store-uri {shlex.quote(settings.tracking.resolved_uri)}"


def _log_settings(tracker: MlflowTracker, settings: Settings) -> None:
    resolved = settings.model_dump(mode="json")
    tracker.log_params(resolved)
    tracker.log_json("settings.json", resolved)


@contextmanager
def _closing(tracker: MlflowTracker) -> Iterator[MlflowTracker]:
    status = "KILLED"
    try:
        yield tracker
        status = "FINISHED"
    except Exception:
        status = "FAILED"
        raise
    finally:
        tracker.close(status)


def _tracker(settings: Settings, open_run: Callable[[MlflowClient, str], str]) -> MlflowTracker:
    try:
        client, experiment = _connect(settings.tracking)
        return MlflowTracker(client, open_run(client, experiment))
    except Exception as error:
        logger.warning("Nothing is tracked: %s: %s", settings.tracking.resolved_uri, _first_line(error))
        return MlflowTracker(None, None)


def _create_run(client: MlflowClient, experiment: str, name: str, tags: dict[str, str]) -> str:
    run_id: str = client.create_run(experiment, run_name=name, tags=tags).info.run_id
    return run_id


def _unfinished_runs(
    client: MlflowClient, experiment: str, folder: str, name: str | None = None
) -> list[Run]:
    """Return the runs of a folder, or those of one name, that did not finish; the latest first."""
    quote = '"' if "'" in folder else "'"
    runs = client.search_runs(
        [experiment],
        filter_string=f"tags.`{FOLDER_TAG}` = {quote}{folder}{quote} and attributes.status != 'FINISHED'",
        order_by=["attributes.start_time DESC"],
    )
    return [run for run in runs if name is None or run.info.run_name == name]


def _mark_killed(runs: Sequence[Run], client: MlflowClient) -> None:
    for run in runs:
        if run.info.status == "RUNNING":
            client.set_terminated(run.info.run_id, "KILLED")


def _connect(tracking: TrackingSettings) -> tuple[MlflowClient, str]:
    """Open the tracking store, making database and experiment if missing; return client and experiment id."""
    from filelock import FileLock
    from sqlalchemy import make_url

    with warnings.catch_warnings():  # MLflow's own use of its libraries is not ours to mend
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient

        uri = tracking.resolved_uri
        if not uri.startswith("sqlite:"):
            client = MlflowClient(tracking_uri=uri)
            return client, _experiment_id(client, tracking.experiment, None)
        url = make_url(uri)
        database = Path(url.database or "mlruns/mlflow.db").absolute()
        url = url.set(database=database.as_posix()).update_query_dict({"timeout": str(DATABASE_WAIT_SECONDS)})
        database.parent.mkdir(parents=True, exist_ok=True)
        # Two processes that make the same database at once break each other's schema migration.
        with FileLock(f"{database}.lock", timeout=10 * DATABASE_WAIT_SECONDS):
            client = MlflowClient(tracking_uri=url.render_as_string(hide_password=False))
            return client, _experiment_id(client, tracking.experiment, database.parent / "artifacts")


def _experiment_id(client: MlflowClient, name: str, artifacts: Path | None) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        created: str = client.create_experiment(
            name, artifact_location=artifacts.as_uri() if artifacts else None
        )
        return created
    if experiment.lifecycle_stage != "active":
        client.restore_experiment(experiment.experiment_id)
    found: str = experiment.experiment_id
    return found


def _write_metrics(client: MlflowClient, run_id: str, metrics: Sequence[Metric]) -> None:
    client.log_batch(run_id, metrics=metrics)


def _write_params(client: MlflowClient, run_id: str, values: Mapping[str, object]) -> None:
    from mlflow.entities import Param

    params = [Param(valid_name(name), param_text(value)) for name, value in flattened(values)]
    for start in range(0, len(params), PARAMS_PER_BATCH):
        client.log_batch(run_id, params=params[start : start + PARAMS_PER_BATCH])


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
