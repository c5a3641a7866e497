"""The CPU budget follows quotas and the environment; one seed governs every generator."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

from sharpwave.cpu import cpu_budget, set_up_torch
from sharpwave.errors import ConfigError
from sharpwave.seeding import seed_everything


@pytest.fixture(autouse=True)
def sixteen_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHARPWAVE_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)), raising=False)


def budget(tmp_path: Path, membership: str, files: dict[str, str]) -> int:
    for name, content in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    listing = tmp_path / "membership"
    listing.write_text(membership, encoding="utf-8")
    return cpu_budget(cgroup_root=tmp_path / "cgroup", membership=listing)


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("", {}, 16),
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 16),
        ("0::/a/b\n", {"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "max 100000\n"}, 3),
        ("0::/outside\n", {"cpu.max": "400000 100000\n"}, 4),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "9900000 100000\n"}, 16),
        ("0::/\n", {"cpu.max": "garbage\n"}, 16),
        (
            "4:cpu,cpuacct:/box\n1:memory:/box\n",
            {"cpu,cpuacct/box/cpu.cfs_quota_us": "500000\n", "cpu,cpuacct/box/cpu.cfs_period_us": "100000\n"},
            5,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 16),
        ("1:cpu:/\n0::/\n", {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
    ],
)
def test_budget_is_the_tightest_quota(
    tmp_path: Path, membership: str, files: dict[str, str], expected: int
) -> None:
    assert budget(tmp_path, membership, files) == expected


def test_variable_wins_over_the_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARPWAVE_THREADS", "7")
    assert budget(tmp_path, "0::/\n", {"cpu.max": "200000 100000\n"}) == 7


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "99999", "²"])
def test_wrong_variable_is_an_error(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SHARPWAVE_THREADS", value)
    with pytest.raises(ConfigError, match="SHARPWAVE_THREADS"):
        cpu_budget()


def test_torch_follows_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    before = torch.get_num_threads()
    monkeypatch.setenv("SHARPWAVE_THREADS", "1")
    try:
        assert set_up_torch() == 1
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_equal_seeds_give_equal_draws() -> None:
    import torch

    def draws(seed: int) -> tuple[float, float, float]:
        seed_everything(seed)
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    first, second, other = draws(3), draws(3), draws(4)
    assert first == second
    assert all(one != two for one, two in zip(first, other, strict=True))


def test_matrix_products_stay_float32() -> None:
    import torch

    set_up_torch()
    generator = torch.Generator().manual_seed(0)
    one, two = (torch.randn(300, 640, generator=generator) for _ in range(2))
    exact = one.double() @ two.double().T
    assert (one @ two.T - exact).abs().max() < 1e-3  # rounded to bfloat16 it would be some 0.3 off
    assert (torch.nn.functional.linear(one, two) - exact).abs().max() < 1e-3
