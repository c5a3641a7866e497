"""Disk and memory that run out, for real: one clear error, whichever library meets it first."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from consolidation.exhaustion import exhaustion_told
from sharpwave.errors import TrainingError

FAR_TOO_MUCH = 10**15


@contextmanager
def files_at_most(size: int) -> Iterator[None]:
    """Let writing beyond a size fail, as on a full disk."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
        signal.signal(signal.SIGXFSZ, handler)


def test_an_adapter_that_does_not_fit_on_the_disk(tmp_path: Path) -> None:
    tensors = {"a": torch.zeros(100_000)}
    with (
        pytest.raises(TrainingError, match="disk is full; free some space"),
        files_at_most(1000),
        exhaustion_told(),
    ):
        save_file(tensors, str(tmp_path / "adapter.safetensors"))


def test_a_record_that_does_not_fit_on_the_disk(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="disk is full"), files_at_most(1000), exhaustion_told():
        (tmp_path / "plan.json").write_text("x" * 100_000, encoding="utf-8")


def test_tensors_that_do_not_fit_into_memory() -> None:
    with pytest.raises(TrainingError, match=r"memory ran out.*batch_size"), exhaustion_told():
        torch.empty(FAR_TOO_MUCH)


def test_objects_that_do_not_fit_into_memory() -> None:
    with pytest.raises(TrainingError, match="memory ran out"), exhaustion_told():
        bytearray(FAR_TOO_MUCH)


def test_other_failures_stay_what_they_are() -> None:
    with pytest.raises(ValueError, match="something else"), exhaustion_told():
        raise ValueError("something else")
    with pytest.raises(FileNotFoundError), exhaustion_told():
        Path("no such file").read_text(encoding="utf-8")
