"""Retry, cache and timeout rules of all tasks: the only place that applies Prefect's task decorator.

Nothing is cached unless a task says under which key. Task parameters are ids, paths, digests and counts;
facts, tensors and models are opened inside the task. `kept_in` keeps results with a run, so it can resume.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE, CachePolicy
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.tasks import Task, exponential_backoff

from sharpwave.errors import TransientError

P = ParamSpec("P")
R = TypeVar("R")

FIRST_RETRY_DELAY_SECONDS = 0.5
RETRY_JITTER = 0.5  # each delay is lengthened at random by up to about this share, so that rivals part


def io_task(fn: Callable[P, R], *, retries: int = 3, timeout_seconds: float | None = None) -> Task[P, R]:
    """Make a task of a function that may be repeated freely; transient errors are retried.

    Args:
        fn: the pure function; the task takes its name and its parameters.
        retries: how often a `TransientError` may be answered with another try, after 0.5, 1, 2 ... seconds.
        timeout_seconds: how long one try may take. Only a task that the flow calls directly is stopped on the
            dot; a submitted one runs in another thread and is judged when it returns.
    """
    return _make_task(fn, retries, timeout_seconds)


def side_effect_task(fn: Callable[P, R], *, timeout_seconds: float | None = None) -> Task[P, R]:
    """Make a task of a function called for what it changes: training, promoting, evicting.

    It runs each time it is called, so the function itself has to be safe to repeat. Only a `TransientError`
    is tried again, and once: it is raised before anything is changed.
    """
    return _make_task(fn, 1, timeout_seconds)


def cached_task(
    fn: Callable[P, R],
    *,
    key: Callable[P, str | None],
    modules: Sequence[str],
    timeout_seconds: float | None = None,
) -> Task[P, R]:
    """Make a task of a costly pure function whose result is reused for the same key and the same source code.

    Results are kept as JSON: a record or model comes back as what it was, a bare tuple as a list.

    Args:
        fn: the pure function.
        key: takes the same parameters and names what the result depends on (content hash, model version, run
            id); None means that this call is not cached. If it raises, Prefect logs that and does not cache.
        modules: dotted names of the modules whose source the result depends on; that of `fn` always counts.
        timeout_seconds: as for `io_task`.
    """
    sources = sorted({fn.__module__, *modules})
    name = f"{fn.__module__}.{fn.__qualname__}"

    def cache_key(_context: TaskRunContext, inputs: dict[str, Any]) -> str | None:
        chosen = key(**inputs)  # type: ignore[call-arg]  # Prefect hands every parameter over by name
        if chosen is None:
            return None
        return hashlib.sha256("\0".join([name, source_version(*sources), chosen]).encode("utf-8")).hexdigest()

    return _make_task(fn, 1, timeout_seconds, CachePolicy.from_cache_key_fn(cache_key))


def kept_in(step: Task[P, R], run_folder: Path) -> Task[P, R]:
    """Return the cached task with its results in a run's folder, so that a rerun skips what is done.

    A result that was cut short by a crash counts as absent and is made again.
    """
    return step.with_options(result_storage=run_folder.absolute() / "results", persist_result=True)


def source_version(*modules: str) -> str:
    """Return a digest of the modules' source code, 64 hex digits; imports them."""
    text = "\0".join(inspect.getsource(importlib.import_module(name)) for name in modules)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def is_transient(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Tell whether a failed try may be repeated: a busy store may be free later, a bad setting stays bad."""
    return isinstance(state.result(raise_on_failure=False), TransientError)


def _make_task(
    fn: Callable[P, R], retries: int, timeout_seconds: float | None, policy: CachePolicy = NO_CACHE
) -> Task[P, R]:
    cached = policy is not NO_CACHE
    make = task(
        name=fn.__name__,
        cache_policy=policy,
        persist_result=True if cached else None,
        result_serializer="json" if cached else None,
        retries=retries,
        retry_delay_seconds=exponential_backoff(FIRST_RETRY_DELAY_SECONDS),
        retry_jitter_factor=RETRY_JITTER,
        retry_condition_fn=is_transient,
        timeout_seconds=timeout_seconds,
    )
    return make(fn)
