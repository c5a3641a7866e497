"""Running out of disk or memory, in one clear error, whichever library met it first."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from sharpwave.errors import TrainingError

_DISK_ERRNO = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DISK_WORDS = ("no space left", "disk quota", "file too large", "disk is full")
_MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate memory")


@contextmanager
def exhaustion_told() -> Iterator[None]:
    """Turn what libraries raise when disk or memory runs out into a TrainingError that says what to do.

    safetensors and torch have exceptions of their own for this and tell it in words only.
    """
    try:
        yield
    except Exception as error:
        told = _explain(error)
        if told is None:
            raise
        raise TrainingError(told) from error


def _explain(error: Exception) -> str | None:
    text = str(error).lower()
    if getattr(error, "errno", None) in _DISK_ERRNO or any(words in text for words in _DISK_WORDS):
        return "the disk is full; free some space where the store lies and run `sharpwave consolidate` again"
    if isinstance(error, MemoryError) or any(words in text for words in _MEMORY_WORDS):
        return (
            "memory ran out; close other programs, or lower consolidation.write_back.batch_size and "
            "consolidation.selection.max_facts, and run `sharpwave consolidate` again"
        )
    return None
