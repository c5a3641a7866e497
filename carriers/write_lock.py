"""Cross-process locks: who may write the store, and who touches the index files just now.

The operating system releases a lock when its holder dies, so a lock file left behind blocks nobody. The
lock file of the store also says who holds it, for the message a second writer gets. Not safe on network
file systems without flock.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sharpwave.errors import StoreBusyError
from sharpwave.records import utc_now

if TYPE_CHECKING:
    from types import TracebackType

    from filelock import BaseFileLock

LOCK_NAME = "write.lock"
NIGHT_LOCK_NAME = "night.lock"  # held for the whole of a consolidation
POLL_SECONDS = 0.02


class WriteLock:
    """The right to write one store directory; held by at most one handle on the machine.

    Waiting is by polling; a waiter gets no place in a queue.
    """

    def __init__(self, directory: Path, timeout_seconds: float = 10.0) -> None:
        self.file = Path(directory) / LOCK_NAME
        self.timeout_seconds = timeout_seconds
        self._lock: BaseFileLock | None = None

    @property
    def is_held(self) -> bool:
        """Whether this handle holds the lock."""
        return self._lock is not None

    def acquire(self) -> Self:
        """Take the lock and record the holder in the lock file; taking it twice is harmless.

        Raises:
            StoreBusyError: someone else still held it after the timeout; the message says who.
        """
        if self._lock is None:
            lock = open_file_lock(self.file)
            take_file_lock(
                lock, self.timeout_seconds, f"the memory store {self.file.parent} is being written"
            )
            self._lock = lock
            self.file.write_text(json.dumps(_holder()), encoding="utf-8")
        return self

    def release(self) -> None:
        """Give the lock back; harmless if it is not held."""
        if self._lock is not None:
            self.file.write_text("", encoding="utf-8")
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def open_file_lock(file: Path) -> BaseFileLock:
    """Return a lock on `file` against other processes and other handles of this one; makes its folder."""
    from filelock import FileLock

    file.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(file, thread_local=False)


def take_file_lock(lock: BaseFileLock, timeout_seconds: float, busy: str) -> None:
    """Acquire `lock`, waiting at most `timeout_seconds`.

    Raises:
        StoreBusyError: still held after that; the message begins with `busy` and names the holder where
            known.
    """
    from filelock import Timeout

    try:
        lock.acquire(timeout=timeout_seconds, poll_interval=POLL_SECONDS)
    except Timeout as error:
        holder = describe_holder(Path(lock.lock_file))
        message = f"{busy} by {holder}; waited {timeout_seconds:g} s. Try again, or stop that process."
        raise StoreBusyError(message) from error


def is_locked(file: Path) -> bool:
    """Tell whether somebody holds a lock, by trying to take it for a moment; never makes the file."""
    from filelock import Timeout

    if not file.is_file():
        return False
    lock = open_file_lock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError:  # a store that may only be read
        return False
    lock.release()
    return False


def describe_holder(file: Path) -> str:
    """Say in words which process a lock file names, or "another process" where it names none."""
    try:
        holder = json.loads(file.read_text(encoding="utf-8"))
        return f"process {holder['pid']} on {holder['host']} ({holder['command']}, since {holder['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _holder() -> dict[str, str | int]:
    command = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": " ".join([command, *sys.argv[1:3]])[:120],
        "since": utc_now().isoformat(timespec="seconds"),
    }
