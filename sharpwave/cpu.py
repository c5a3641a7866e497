"""How many threads this process should use: the container's CPU quota counts, not the host's cores."""

from __future__ import annotations

import os
from pathlib import Path

from sharpwave.errors import ConfigError

_MOST_THREADS = 1024


def cpu_budget(
    *, cgroup_root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> int:
    """Return the number of threads to compute with, at least 1.

    `SHARPWAVE_THREADS` if set, else the smaller of the CPUs this process may run on and its cgroup quota
    (version 1 or 2, the tightest on the way up), rounded down.

    Args:
        cgroup_root: where the cgroup file systems are mounted.
        membership: the kernel's list of this process's cgroups.

    Raises:
        ConfigError: `SHARPWAVE_THREADS` is not a whole number from 1 to 1024.
    """
    chosen = os.environ.get("SHARPWAVE_THREADS", "").strip()
    if chosen:
        if not chosen.isascii() or not chosen.isdigit() or not 1 <= int(chosen) <= _MOST_THREADS:
            raise ConfigError(
                f"SHARPWAVE_THREADS: expected a whole number from 1 to {_MOST_THREADS}, not {chosen!r}"
            )
        return int(chosen)
    quotas = _quotas(cgroup_root, membership)
    return max(1, int(min([float(_usable_cpus()), *quotas])))


def set_up_torch() -> int:
    """Make torch compute with `cpu_budget()` threads and the faster matrix products; return the threads.

    Imports torch. Its usual library for float32 products (MKL) uses half the vector width on processors of other makers
    than its own. oneDNN uses all of it; torch takes oneDNN for float32 when lower precision is allowed. Where
    there are no units that would round to bfloat16 (AMX), the products stay float32 and only get faster.
    """
    import torch

    count = cpu_budget()
    torch.set_num_threads(count)
    if not torch.cpu.get_capabilities().get("amx_bf16", True):
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]  # made on import
    return count


def _usable_cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS has no affinity
        return os.cpu_count() or 1


def _quotas(root: Path, membership: Path) -> list[float]:
    """Return every CPU quota that binds this process, in CPUs."""
    quotas = []
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            hierarchies, read_quota = [root, root / "unified"], _quota_v2
        elif "cpu" in controllers.split(","):
            hierarchies, read_quota = [root / controllers, root / "cpu"], _quota_v1
        else:
            continue
        for hierarchy in hierarchies:
            group = hierarchy / path.lstrip("/")
            for folder in (group, *group.parents):
                if folder.is_relative_to(hierarchy) and (quota := read_quota(folder)) is not None:
                    quotas.append(quota)
    return quotas


def _quota_v2(folder: Path) -> float | None:
    quota, _, period = _read(folder / "cpu.max").partition(" ")
    return _ratio(quota, period)


def _quota_v1(folder: Path) -> float | None:
    return _ratio(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _ratio(quota: str, period: str) -> float | None:
    """Return quota / period, or None where there is no quota ("max" in version 2, -1 in version 1)."""
    quota, period = quota.strip(), period.strip()
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None
    return int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
