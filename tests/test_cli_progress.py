"""Progress on stderr: bars on a terminal, few lines elsewhere, nothing when asked to be quiet."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from sharpwave.cli.model_commands import _fraction_listener
from sharpwave.cli.progress_display import LineProgress, shown_progress
from sharpwave.progress import current_progress
from sharpwave.settings import PROJECT_ROOT


def test_lines_where_there_is_no_terminal(capsys):
    with shown_progress(quiet=False):
        current_progress().stage("training", 100)
        for _ in range(100):
            current_progress().advance(1, loss=0.5)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "training ...\n"


def test_a_line_says_how_far_it_is(capsys):
    progress = LineProgress(seconds_between_lines=0)
    progress.stage("training", 4)
    progress.advance(3, token_loss=0.51234567)
    assert capsys.readouterr().err == "training ...\ntraining: 3 of 4 token loss 0.5123\n"


def test_quiet_prints_nothing_and_takes_the_place_of_others(capsys):
    with shown_progress(quiet=False), shown_progress(quiet=True):
        current_progress().stage("training")
        current_progress().advance()
    assert capsys.readouterr().err == ""


def test_the_listener_is_gone_after_the_block():
    before = current_progress()
    with shown_progress(quiet=False) as shown:
        assert current_progress() is shown
    assert current_progress() is before


def test_fractions_become_percent_of_the_whole():
    seen = []

    class Recorder:
        def stage(self, name, total=None):
            seen.append((name, total))

        def advance(self, units=1, **figures):
            seen.append(units)

    listen = _fraction_listener(Recorder())
    listen("fetching", 0.0)
    listen("fetching", 0.255)
    listen("fetching", 0.2559)
    listen("converting", 0.6)
    listen("converting", 1.0)
    assert seen == [("fetching", 100), 25, ("converting", 100), 60, 40]


def test_bars_on_a_terminal():
    """Run in a process whose stderr is a pseudo-terminal; stdout stays a pipe and clean."""
    code = (
        "from sharpwave.cli.progress_display import shown_progress\n"
        "from sharpwave.progress import current_progress\n"
        "with shown_progress(quiet=False):\n"
        "    current_progress().stage('counting [bold]', 3)\n"
        "    for _ in range(3): current_progress().advance(1, share=0.25)\n"
        "    current_progress().stage('waiting')\n"
        "print('data')"
    )
    master, slave = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT), "COLUMNS": "120", "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=slave, check=True
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(master)
    text = shown.decode("utf-8", errors="replace")
    assert done.stdout == b"data\n"
    assert "counting [bold]" in text
    assert "3/3" in text
    assert "share 0.25" in text
    assert "waiting" in text
