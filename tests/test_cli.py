"""The command line as a whole: help, start-up, usage errors, exit codes, how failures and interrupts look."""

from __future__ import annotations

import inspect
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sharpwave.cli import failures, options
from sharpwave.cli.main import app
from sharpwave.errors import InputError, StoreBusyError, TransientError
from sharpwave.settings import PROJECT_ROOT

COMMANDS = [
    *("demo", "benchmark", "report", "facts"),
    *("ingest", "ask", "status", "history"),
    *("consolidate", "schedule", "diff", "accept", "reject", "label", "train-router"),
    *("forget", "doctor", "rollback", "export", "import", "models"),
]
CHANGES_STORE_SETTINGS = set(COMMANDS) - {
    *("demo", "benchmark", "report", "facts", "models", "label", "train-router"),
}
MOST_CPU_SECONDS = 1.5
HEAVY = {
    "chromadb",
    "matplotlib",
    "mlflow",
    "numpy",
    "prefect",
    "sklearn",
    "sqlalchemy",
    "torch",
    "transformers",
}

runner = CliRunner()


def sharpwave(*arguments: str, cwd: Path, **options) -> subprocess.CompletedProcess[str]:
    """Run the console script's function in a process of its own."""
    code = "import sys; from sharpwave.cli.main import main; sys.argv[0] = 'sharpwave'; main()"
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT), "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def help_of(command: str) -> str:
    result = runner.invoke(app, [command, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_command_is_there_in_order():
    listed = runner.invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    found = re.findall(r"^│ ([a-z][a-z-]+)  ", listed, re.MULTILINE)
    assert found == COMMANDS
    assert "Exit codes: 0 done" in listed
    assert "2 wrong arguments" in listed


def test_no_arguments_show_the_help():
    result = runner.invoke(app, [])
    assert "Usage: " in result.output
    assert "ingest" in result.output


def test_version():
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert re.fullmatch(r"sharpwave \d+\.\d+\.\d+\n", result.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_says_what_changes(command):
    text = help_of(command)
    assert f"sharpwave {command}" in text.partition("Example")[2]
    assert re.search(r"[Cc]hange[sd]", text.partition("─ Options")[0].partition("─ Arguments")[0])
    assert "--debug" in text


@pytest.mark.parametrize("command", sorted(CHANGES_STORE_SETTINGS))
def test_commands_on_a_store_share_the_options_that_name_it(command):
    text = help_of(command)
    for option in ("--profile", "--config", "--set", "--store"):
        assert option in text


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"schedule"}))
def test_commands_that_print_data_take_json(command):
    assert "--json" in help_of(command)


def test_help_imports_nothing_heavy(tmp_path):
    code = (
        "import sys\n"
        "from sharpwave.cli.main import app\n"
        "for command in sys.argv[1:]:\n"
        "    app([command, '--help'], standalone_mode=False)\n"
        "app(['--help'], standalone_mode=False)\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, *COMMANDS],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(json.loads(done.stderr.splitlines()[-1].replace("'", '"')))
    assert "typer" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("arguments", [["--help"], ["ask", "--help"], ["demo", "--help"]])
def test_help_starts_fast(arguments, tmp_path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = sharpwave(*arguments, cwd=tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    # processor time, since the clock also measures what else the machine does
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < MOST_CPU_SECONDS


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["ask", "x", "--jsn"], "No such option: --jsn"),
        (["history"], "Missing argument 'ID|WORDS'"),
        (["ingest", "no-such-file.jsonl"], "does not exist"),
        (["ingest", "-", "--config", "no-such.yaml"], "does not exist"),
        (["status", "--set", "recall.topk=5"], "unknown setting 'recall.topk'; did you mean 'recall.top_k'?"),
        (["status", "--set", "recall.top_k=many"], "recall.top_k"),
        (["status", "--profile", "embeded"], "unknown profile 'embeded'; did you mean 'embedded'?"),
        (["ask"], "give a question"),
        (["ask", " "], "a question is empty"),
        (["ask", "Who?", "--as-of", "soon"], "expected a year, an ISO date or an ISO date-time"),
        (["demo", "--size", "huge"], "'huge' is none of tiny, demo, small"),
        (["demo", "--seed", "-1"], "Invalid value"),
        (["train-router", "--max-escalation", "2"], "Invalid value"),
    ],
)
def test_usage_errors_exit_with_2_and_one_line(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = runner.invoke(app, arguments)
    assert result.exit_code == failures.USAGE, result.output
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "kind", "code"),
    [
        (["status", "--profile", "embeded", "--json"], "ConfigError", 2),
        (["status", "--json"], "StoreError", 1),
        (["history", "--json"], "MissingParameter", 2),
        (["report", "nowhere", "--json"], "InputError", 1),
    ],
)
def test_with_json_an_error_is_an_object_on_stdout(arguments, kind, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = runner.invoke(app, arguments)
    assert result.exit_code == code
    assert result.stderr == ""
    error = json.loads(result.stdout)["error"]
    assert error["kind"] == kind
    assert error["message"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["ask", "Who?"],
        ["history", "ab"],
        ["forget", "ab", "--yes"],
        ["doctor"],
        ["rollback"],
        ["export", "x"],
        ["consolidate"],
        ["diff"],
        ["accept"],
        ["reject", "ab"],
    ],
)
def test_commands_name_a_missing_store_and_make_none(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = runner.invoke(app, [*arguments, "--store", "nowhere"])
    assert result.exit_code == failures.FAILED, result.output
    store = tmp_path / "nowhere"
    assert f"there is no memory store at {store}; `sharpwave ingest FILE` makes one" in result.stderr
    assert not store.exists()


def command_that_raises(error: BaseException) -> typer.Typer:
    """Return an application whose command `fail` takes the shared options and raises."""
    failing = typer.Typer(cls=failures.FailureReportingGroup, pretty_exceptions_enable=False)

    @failing.callback()
    def group() -> None: ...

    @failing.command()
    @options.takes_choice()
    def fail(choice: options.Choice) -> None:
        raise error

    return failing


def wrapped(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (StoreBusyError("written by process 7"), "sharpwave fail: written by process 7\n"),
        (InputError("is empty", file="a.jsonl", line=3), "sharpwave fail: a.jsonl, line 3: is empty\n"),
        (
            wrapped(RuntimeError("Flow run crashed"), TransientError("try later")),
            "sharpwave fail: try later\n",
        ),
    ],
)
def test_our_errors_are_one_line_without_traceback(error, words):
    result = runner.invoke(command_that_raises(error), ["fail"])
    assert result.exit_code == failures.FAILED
    assert result.stderr == words
    assert result.stdout == ""


def test_unexpected_errors_ask_for_debug_and_debug_shows_the_traceback():
    failing = command_that_raises(KeyError("missing\nsecond line"))
    plain = runner.invoke(failing, ["fail"])
    assert plain.exit_code == failures.FAILED
    assert "unexpected KeyError" in plain.stderr
    assert "run the command again with --debug" in plain.stderr
    assert "Traceback" not in plain.stderr
    debugged = runner.invoke(failing, ["fail", "--debug"])
    assert debugged.exit_code == failures.FAILED
    assert "Traceback" in debugged.stderr
    assert "test_cli.py" in debugged.stderr


def test_options_after_a_double_dash_are_no_options():
    result = runner.invoke(command_that_raises(KeyError("x")), ["fail", "--", "--json"])
    assert result.exit_code == failures.USAGE
    assert result.stdout == ""


def test_an_interrupt_exits_with_130_and_says_what_is_safe():
    result = runner.invoke(command_that_raises(KeyboardInterrupt()), ["fail"])
    assert result.exit_code == failures.INTERRUPTED
    assert result.stderr.startswith("Stopped. ")
    assert "Traceback" not in result.stderr


def test_what_is_safe_is_said_for_commands_that_exist():
    assert set(failures._SAFE_AFTER_INTERRUPT) <= set(COMMANDS)


def test_ctrl_c_stops_a_real_process(tmp_path):
    # A shell starts background jobs with the interrupt ignored, and children inherit that: set it right first.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from sharpwave.cli.main import main; sys.argv = ['sharpwave', 'ask', '--stdin']; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not is_waiting_for_input(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.stdin is not None
    _, errors = process.communicate(timeout=60)
    assert process.returncode == failures.INTERRUPTED, errors
    assert errors.startswith("Stopped. ")


def is_waiting_for_input(pid: int) -> bool:
    """Whether a process sleeps in a read, which here can only be the one from standard input."""
    return "pipe" in Path(f"/proc/{pid}/wchan").read_text(encoding="utf-8")


def test_choice_adds_up_to_settings(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("recall:\n  top_k: 7\n", encoding="utf-8")
    chosen = options.Choice(config=file, set_values=("seed=3",), store=Path("a=b, c"), namespace="true")
    settings = chosen.settings()
    assert (settings.recall.top_k, settings.seed) == (7, 3)
    assert settings.store.path == Path("a=b, c")
    assert settings.namespace == "true"


def test_flow_arguments_mean_the_same_settings_in_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("seed: 9\n", encoding="utf-8")
    arguments = options.Choice(config=Path("mine.yaml"), store=Path("here")).flow_arguments()
    assert json.loads(json.dumps(arguments)) == arguments
    assert Path(arguments["config"]).is_absolute()
    assert arguments["overrides"] == ["store.path=here"]


def test_every_flow_takes_the_flow_arguments():
    from flows.benchmark_memory import benchmark_memory
    from flows.consolidate_memory import consolidate_memory, plan_only
    from flows.ingest_stream import ingest_stream
    from flows.nightly_cycle import nightly_cycle
    from flows.run_demo import run_demo
    from flows.run_stream import run_stream
    from flows.train_router import train_router

    names = set(options.Choice().flow_arguments())
    flows = (
        *(benchmark_memory, consolidate_memory, ingest_stream, nightly_cycle),
        *(run_demo, run_stream, train_router),
    )
    for function in [*(flow.fn for flow in flows), plan_only]:
        assert names <= set(inspect.signature(function).parameters), function
