"""What every test gets: an environment apart from the user's state, and the embedded models' folders."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from sharpwave.settings import cache_home

_REAL_CACHE = cache_home()
_SESSION_HOME = pytest.StashKey[Path]()

# Libraries read these when they are imported, so they are set before anything is collected.
_QUIET = {
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    "TOKENIZERS_PARALLELISM": "false",
}
_FORGOTTEN = (
    "PREFECT_API_KEY",
    "PREFECT_API_URL",
    "PREFECT_PROFILE",
    "MLFLOW_EXPERIMENT_NAME",
    "MLFLOW_RUN_ID",
)


def pytest_configure(config: pytest.Config) -> None:
    """Point the libraries' own state at a folder of this session; give parallel test processes cores of their own."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get("PYTEST_XDIST_WORKER_COUNT")
    if worker and workers and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))[int(worker.removeprefix("gw")) :: int(workers)]
        if cores:
            os.sched_setaffinity(0, cores)
    home = Path(tempfile.mkdtemp(prefix="sharpwave-tests-"))
    config.stash[_SESSION_HOME] = home
    os.environ.update(_QUIET)
    os.environ["PREFECT_HOME"] = str(home / "prefect")
    os.environ["HF_HOME"] = str(home / "huggingface")
    os.environ["MPLCONFIGDIR"] = str(home / "matplotlib")
    for variable in _FORGOTTEN:
        os.environ.pop(variable, None)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove that folder."""
    shutil.rmtree(config.stash[_SESSION_HOME], ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that asks for the embedded models; put files with slow tests first, so none is waited for."""
    for item in items:
        if "embedded_models" in getattr(item, "fixturenames", ()):
            item.add_marker("models")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True)
def isolated_environment(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep a test away from the user's state; only `models` tests see the real weights cache."""
    for variable in [name for name in os.environ if name.startswith("SHARPWAVE_")]:
        monkeypatch.delenv(variable)
    uses_models = request.node.get_closest_marker("models") is not None
    monkeypatch.setenv("SHARPWAVE_HOME", str(_REAL_CACHE if uses_models else tmp_path / "sharpwave-cache"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(scope="session")
def embedded_models() -> dict[str, Path]:
    """Folders of the embedded models by role: "small", "large", "embedder". Never fetches them."""
    from carriers.model_weights import MODELS, ensure_all

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARPWAVE_HOME", str(_REAL_CACHE))
        folders = ensure_all(offline=True)
    return {MODELS[name].role: folder for name, folder in folders.items()}
