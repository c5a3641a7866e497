"""A Prefect server that lives and dies with this process.

Prefect's own temporary server outlives a killed program and runs no scheduler; this one ends within seconds
of its owner, even after `kill -9`, and can serve schedules and the web page.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from sharpwave.errors import ConfigError, TransientError
from tasks.prefect_home import prepare_environment

HOST = "127.0.0.1"
STOP_SECONDS = 10

# Runs Prefect's command line in the child, which ends itself once it has another parent than the one given.
_TIED_PREFECT = """
import os, runpy, signal, sys, threading, time

def end_with_parent(parent):
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)
    os._exit(1)

threading.Thread(target=end_with_parent, args=(int(sys.argv.pop(1)),), daemon=True).start()
sys.argv[0] = "prefect"
runpy.run_module("prefect", run_name="__main__")
"""


@dataclass(frozen=True)
class Server:
    """Where the flows of this process report; started here if there is a process, else somebody else's."""

    api_url: str
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None

    def wait_until_ready(self, timeout_seconds: float = 300) -> None:
        """Return once the server answers: after about ten seconds, the first time later.

        Raises:
            TransientError: it ended or did not answer in time; names its log.
        """
        if self.process is None:
            return
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        end = time.monotonic() + timeout_seconds
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with opener.open(f"{self.api_url}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.2)
        code = self.process.poll()
        _stop(self.process)
        outcome = "did not answer in time" if code is None else f"ended with code {code}"
        raise TransientError(f"the Prefect server {outcome}; its log is {self.log}")


def start_server(*, port: int | None = None, ui: bool = False) -> Server:
    """Start a Prefect server for the flows of this process, without waiting for it.

    With `PREFECT_API_URL` set nothing is started. Otherwise the variable is set here, so this has to be
    called before Prefect is imported. The log lies beside the database.

    Args:
        port: on this machine; None takes any free one.
        ui: whether the server also shows the web page, at the address without `/api`.

    Raises:
        ConfigError: the port is taken.
    """
    prepare_environment()
    if url := os.environ.get("PREFECT_API_URL"):
        return Server(url)
    if "prefect" in sys.modules:
        raise RuntimeError("start_server has to be called before Prefect is imported")
    port = _free_port() if port is None else _checked_port(port)
    home = Path(os.environ["PREFECT_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    log = home / "server.log"
    process = _start_process(port, log, ui=ui)
    # Registered before Prefect registers what sends its last log lines, so that it runs after that.
    atexit.register(_stop, process)
    os.environ["PREFECT_API_URL"] = f"http://{HOST}:{port}/api"
    return Server(os.environ["PREFECT_API_URL"], process, log)


def _start_process(port: int, log: Path, *, ui: bool) -> subprocess.Popen[bytes]:
    arguments = ["server", "start", "--host", HOST, "--port", str(port), "--ui" if ui else "--no-ui"]
    page = {  # the page would ask the usual port
        "PREFECT_SERVER_UI_API_URL": f"http://{HOST}:{port}/api",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    }
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-c", _TIED_PREFECT, str(os.getpid()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**page, **os.environ},
            start_new_session=True,  # Ctrl-C ends the flows first; the server ends when they have reported
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _checked_port(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ConfigError(
                f"port {port} is taken; choose another, or if a Prefect server runs there, set"
                f" PREFECT_API_URL=http://{HOST}:{port}/api"
            ) from error
    return port
