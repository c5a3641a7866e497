"""The schedule and its server: one run for all that were missed, and nothing left behind by a killed program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from flows.missed_runs import collapse_missed_runs
from flows.serve_schedule import deployment_name, serve_schedule
from sharpwave.errors import ConfigError
from sharpwave.settings import PROJECT_ROOT
from tasks import prefect_server

SAMPLE = """
from pathlib import Path

import flows
from prefect import flow

@flow(name="sample-night")
def sample_night(store: str, overrides: list[str] | None = None) -> None:
    with Path(store).open("a", encoding="utf-8") as file:
        file.write(f"{Path.cwd()} {overrides}\\n")
"""


@pytest.fixture(scope="module")
def prefect_server_url() -> Iterator[str]:
    """A Prefect server of its own; starting one takes about ten seconds."""
    from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    with (
        prefect_test_harness(server_startup_timeout=200),
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
    ):
        yield PREFECT_API_URL.value()


@contextmanager
def program(code: str, folder: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program in the folder, with the project and the folder importable, and kill it at the end."""
    (folder / "sample_flow.py").write_text(SAMPLE, encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**kept, "PYTHONPATH": f"{PROJECT_ROOT}{os.pathsep}{folder}", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        sys.stderr.write(process.communicate()[0])


def wait_for(condition, seconds: float = 250) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.5)
    return False


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5):
            return True
    except OSError:
        return False


def test_one_run_does_the_work_of_all_that_were_missed(prefect_server_url, tmp_path):
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.schedules import CronSchedule

    @flow(name="missed")
    def missed() -> None:
        """Do nothing."""

    missed.on_running(collapse_missed_runs)
    now = datetime.now(UTC)
    cron = f"{(now.minute + 30) % 60} * * * *"  # never due while this runs
    with get_client(sync_client=True) as client:
        deployment = client.create_deployment(
            flow_id=client.create_flow(missed),
            name="missed",
            schedules=[{"schedule": CronSchedule(cron=cron), "active": True}],
        )
        client.request(
            "POST",
            "/deployments/{id}/schedule",
            path_params={"id": deployment},
            json={
                "start_time": (now - timedelta(hours=5)).isoformat(),
                "end_time": (now + timedelta(hours=3)).isoformat(),
                "min_runs": 8,
            },
        )
        by_hand = client.create_flow_run_from_deployment(deployment)
        scheduled = sorted(
            (
                run
                for run in client.read_flow_runs()
                if run.deployment_id == deployment and run.auto_scheduled
            ),
            key=lambda run: run.expected_start_time,
        )
        due = [run for run in scheduled if run.expected_start_time < now]
        assert len(due) == 5
        assert len(scheduled) == 8

        collapse_missed_runs(missed, due[0], due[0].state)

        states = {run.id: client.read_flow_run(run.id).state.type.value for run in scheduled}
        assert [states[run.id] for run in scheduled] == ["SCHEDULED", *["CANCELLED"] * 4, *["SCHEDULED"] * 3]
        assert client.read_flow_run(by_hand.id).state.is_scheduled()


def test_a_run_without_deployment_has_nothing_to_collapse(prefect_server_url):
    from prefect import flow

    @flow(name="direct", on_running=[collapse_missed_runs])
    def direct() -> int:
        return 7

    assert direct() == 7


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_served_flow_runs_in_the_folder_it_was_served_from_until_terminated(prefect_server_url, tmp_path):
    from prefect.client.orchestration import get_client

    code = (
        "from flows.serve_schedule import serve_schedule\n"
        "if __name__ == '__main__':\n"
        "    serve_schedule({'store': 'ran.txt', 'overrides': ['seed=1']}, cron='0 3 1 1 *',\n"
        "                   timezone='Europe/Madrid', name='test', entrypoint='sample_flow.sample_night')\n"
    )
    variables = {
        "PREFECT_API_URL": prefect_server_url,
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_RUNNER_POLL_FREQUENCY": "1",
    }
    with program(code, tmp_path, **variables) as served, get_client(sync_client=True) as client:

        def deployment():
            return next((item for item in client.read_deployments() if item.name == "test"), None)

        assert wait_for(deployment)
        client.create_flow_run_from_deployment(deployment().id)
        assert wait_for((tmp_path / "ran.txt").exists)
        assert (tmp_path / "ran.txt").read_text(encoding="utf-8") == f"{tmp_path} ['seed=1']\n"
        (schedule,) = deployment().schedules
        assert (schedule.schedule.cron, schedule.schedule.timezone) == ("0 3 1 1 *", "Europe/Madrid")
        assert deployment().entrypoint == "sample_flow.sample_night"

        served.terminate()
        assert served.wait(timeout=100) == 0
        assert deployment().paused


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_server_ends_with_a_killed_program(tmp_path):
    code = (
        "import time\n"
        "from tasks.prefect_server import start_server\n"
        "server = start_server(ui=True)\n"
        "from sample_flow import sample_night\n"
        "server.wait_until_ready()\n"
        "sample_night('ran.txt')\n"
        "print(server.api_url, flush=True)\n"
        "time.sleep(600)\n"
    )
    with program(code, tmp_path, PREFECT_HOME=str(tmp_path / "prefect")) as owner:
        url = owner.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        assert (tmp_path / "ran.txt").exists()
        assert answers(url)
        with urllib.request.urlopen(f"{url.removesuffix('/api')}/ui-settings", timeout=20) as page:
            assert json.load(page)["api_url"] == url  # and not that of the usual port
        owner.send_signal(signal.SIGKILL)
    assert wait_for(lambda: not answers(url), 60)
    assert (tmp_path / "prefect" / "prefect.db").exists()
    assert not (tmp_path / ".prefect").exists()


def test_a_server_that_the_user_named_is_used(monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://example.test/api")
    server = prefect_server.start_server()
    server.wait_until_ready()
    assert (server.api_url, server.process) == ("http://example.test/api", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cron": "61 3 * * *"}, "'61 3 \\* \\* \\*' is no cron schedule"),
        ({"cron": "0 3 * * *", "timezone": "Madrid"}, "unknown time zone 'Madrid'"),
        ({"cron": "0 3 * * *", "entrypoint": "flows.missed_runs.RUNS_PER_REQUEST"}, "is not a flow"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(monkeypatch, options, message):
    monkeypatch.setenv("PREFECT_API_URL", "http://example.test/api")
    monkeypatch.setenv("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    with pytest.raises(ConfigError, match=message):
        serve_schedule({}, **{"entrypoint": "flows.nightly_cycle.nightly_cycle", **options})


def test_a_taken_port_is_refused_with_the_way_out(monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.delitem(sys.modules, "prefect", raising=False)
    import socket

    with socket.socket() as taken:
        taken.bind((prefect_server.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} is taken.*PREFECT_API_URL"):
            prefect_server.start_server(port=port)


def test_start_after_prefect_was_imported_is_an_error(monkeypatch):
    import prefect  # noqa: F401

    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(RuntimeError, match="before Prefect is imported"):
        prefect_server.start_server()


def test_each_folder_has_its_own_deployment(tmp_path):
    assert deployment_name(Path("/a/store")) != deployment_name(Path("/b/store"))
    assert deployment_name(tmp_path).startswith(f"{tmp_path.name}-")


def test_deployments_of_prefect_yaml_load_and_fit_their_flows():
    from prefect.client.schemas.schedules import CronSchedule
    from prefect.flows import load_flow_from_entrypoint

    settings = yaml.safe_load((PROJECT_ROOT / "prefect.yaml").read_text(encoding="utf-8"))
    assert settings["name"] == "sharpwave"
    assert [item["name"] for item in settings["deployments"]] == ["nightly"]
    for deployment in settings["deployments"]:
        flow = load_flow_from_entrypoint(deployment["entrypoint"], use_placeholder_flow=False)
        flow.validate_parameters(deployment["parameters"])
        assert deployment["parameters"].keys() <= flow.parameters.properties.keys()
        for schedule in deployment["schedules"]:
            CronSchedule(cron=schedule["cron"], timezone=schedule["timezone"])
