"""Task policies on a real Prefect server: what is retried, what is cached, what survives a crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharpwave.errors import ConfigError, StoreBusyError
from sharpwave.records import Fact, Slot
from sharpwave.settings import PROJECT_ROOT
from tasks import policies
from tasks.policies import cached_task, io_task, kept_in, side_effect_task, source_version


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """A Prefect server of its own for the whole session: starting one takes about ten seconds."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    # Without heartbeats, since a flow that sends them takes at least a second.
    with (
        prefect_test_harness(server_startup_timeout=200),
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
    ):
        yield


@pytest.fixture
def quick_retries(monkeypatch):
    monkeypatch.setattr(policies, "FIRST_RETRY_DELAY_SECONDS", 0.01)


class Calls:
    """A function that counts its calls and fails as told."""

    def __init__(self, *errors: Exception) -> None:
        self.count = 0
        self.errors = list(errors)

    def store_fact(self, fact_id: str) -> str:
        """Store one fact."""
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return f"{fact_id} stored"


def run_in_flow(step, *arguments):
    from prefect import flow

    @flow(name="policy-test")
    def run():
        return step(*arguments)

    return run()


@pytest.mark.usefixtures("prefect_server", "quick_retries")
class TestRetries:
    def test_a_busy_store_is_tried_again(self):
        calls = Calls(StoreBusyError("locked"), StoreBusyError("locked"))
        assert run_in_flow(io_task(calls.store_fact), "f1") == "f1 stored"
        assert calls.count == 3

    def test_a_store_that_stays_busy_is_reported_after_the_last_try(self):
        calls = Calls(*[StoreBusyError("locked")] * 9)
        with pytest.raises(StoreBusyError):
            run_in_flow(io_task(calls.store_fact, retries=2), "f1")
        assert calls.count == 3

    def test_a_wrong_setting_is_never_tried_again(self):
        calls = Calls(ConfigError("no such profile"))
        with pytest.raises(ConfigError, match="no such profile"):
            run_in_flow(io_task(calls.store_fact), "f1")
        assert calls.count == 1

    @pytest.mark.parametrize(("error", "count"), [(StoreBusyError("locked"), 2), (OSError("disk"), 1)])
    def test_a_side_effect_is_repeated_once_and_only_when_nothing_was_changed(self, error, count):
        calls = Calls(error, error)
        with pytest.raises(type(error)):
            run_in_flow(side_effect_task(calls.store_fact), "f1")
        assert calls.count == count

    def test_a_task_that_takes_too_long_is_stopped(self):
        def wait_long() -> None:
            for _ in range(300):
                time.sleep(0.1)

        started = time.monotonic()
        with pytest.raises(TimeoutError):
            run_in_flow(side_effect_task(wait_long, timeout_seconds=0.3))
        assert time.monotonic() - started < 10


def read_facts(folder: str) -> tuple[Fact, ...]:
    counter = Path(folder) / "calls"
    counter.write_text(
        counter.read_text(encoding="utf-8") + "x" if counter.exists() else "x", encoding="utf-8"
    )
    slot = Slot(subject="Perú", relation="capital")
    return (
        Fact(text="La capital del Perú es Lima.", slot=slot, questions=("¿Capital?",), answers=("Lima",)),
    )


def calls_of(folder: Path) -> int:
    return len((folder / "calls").read_text(encoding="utf-8"))


@pytest.mark.usefixtures("prefect_server")
class TestCache:
    def test_uncached_tasks_run_every_time(self):
        calls = Calls()
        for step in (io_task(calls.store_fact), side_effect_task(calls.store_fact)):
            run_in_flow(step, "f1")
            run_in_flow(step, "f1")
        assert calls.count == 4

    def test_the_same_key_runs_once_and_gives_equal_records(self, tmp_path):
        step = kept_in(
            cached_task(read_facts, key=lambda folder: "night-1", modules=["sharpwave.records"]), tmp_path
        )
        first = run_in_flow(step, str(tmp_path))
        again = run_in_flow(step, str(tmp_path))
        assert calls_of(tmp_path) == 1
        assert [fact.id for fact in again] == [fact.id for fact in first]
        assert all(isinstance(fact, Fact) for fact in again)
        assert tuple(again) == first

    def test_another_key_and_no_key_run_again(self, tmp_path):
        for key in ("night-1", "night-2", None, None):
            step = cached_task(read_facts, key=lambda folder, key=key: key, modules=[])
            run_in_flow(kept_in(step, tmp_path), str(tmp_path))
        assert calls_of(tmp_path) == 4

    def test_two_tasks_with_the_same_key_do_not_share_results(self, tmp_path):
        def other(folder: str) -> str:
            return "other"

        first = cached_task(read_facts, key=lambda folder: "night-1", modules=[])
        second = cached_task(other, key=lambda folder: "night-1", modules=[])
        run_in_flow(kept_in(first, tmp_path), str(tmp_path))
        assert run_in_flow(kept_in(second, tmp_path), str(tmp_path)) == "other"

    def test_changed_source_runs_again(self, tmp_path, monkeypatch):
        module = tmp_path / "changing_module.py"
        module.write_text("VALUE = 1\n", encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        step = cached_task(read_facts, key=lambda folder: "night-1", modules=["changing_module"])
        before = source_version("changing_module")
        run_in_flow(kept_in(step, tmp_path), str(tmp_path))
        module.write_text("VALUE = 2\n", encoding="utf-8")
        os.utime(module, (0, 0))
        run_in_flow(kept_in(step, tmp_path), str(tmp_path))
        assert calls_of(tmp_path) == 2
        assert source_version("changing_module") != before

    def test_a_result_cut_short_by_a_crash_is_made_again(self, tmp_path):
        step = kept_in(cached_task(read_facts, key=lambda folder: "night-1", modules=[]), tmp_path)
        first = run_in_flow(step, str(tmp_path))
        (result,) = (tmp_path / "results").iterdir()
        result.write_bytes(result.read_bytes()[:-20])
        assert run_in_flow(step, str(tmp_path))[0].text == first[0].text
        assert calls_of(tmp_path) == 2


def test_tasks_are_named_after_their_functions():
    assert io_task(read_facts).name == "read_facts"
    assert side_effect_task(read_facts).name == "read_facts"
    assert cached_task(read_facts, key=lambda folder: folder, modules=[]).name == "read_facts"


def environment_after_import(tmp_path: Path, **variables: str) -> dict[str, str]:
    code = """
        import json, os, flows
        from prefect.settings import get_current_settings
        settings = get_current_settings()
        database = settings.server.database.connection_url.get_secret_value()
        print(json.dumps({"home": str(settings.home), "api": settings.api.url, "database": database,
            "ephemeral": settings.server.ephemeral.enabled, "analytics": settings.server.analytics_enabled,
            "track": os.environ["DO_NOT_TRACK"], "mlflow": os.environ["MLFLOW_DISABLE_TELEMETRY"]}))
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PREFECT_", "MLFLOW_", "DO_NOT"))
    }
    answer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=PROJECT_ROOT,
        env={**kept, "HOME": str(tmp_path / "home"), "SHARPWAVE_HOME": str(tmp_path / "cache"), **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(answer.stdout)


def test_prefect_lives_in_the_project_cache_and_not_in_the_users_home(tmp_path):
    seen = environment_after_import(tmp_path)
    assert seen["home"] == str(tmp_path / "cache" / "prefect")
    assert seen["database"].endswith(str(tmp_path / "cache" / "prefect" / "prefect.db"))
    assert (seen["ephemeral"], seen["analytics"], seen["track"], seen["mlflow"]) == (
        True,
        False,
        "true",
        "true",
    )
    assert not (tmp_path / "home" / ".prefect").exists()


def test_what_the_user_set_wins(tmp_path):
    seen = environment_after_import(
        tmp_path, PREFECT_HOME=str(tmp_path / "mine"), PREFECT_API_URL="http://127.0.0.1:4200/api"
    )
    assert seen["home"] == str(tmp_path / "mine")
    assert seen["api"] == "http://127.0.0.1:4200/api"
