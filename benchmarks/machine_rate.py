"""How fast this machine multiplies matrices: what other rates are compared with."""

from __future__ import annotations

import time

from sharpwave.cpu import set_up_torch


def sgemm_gflops(size: int = 1024, seconds: float = 1.0) -> float:
    """Return the rate of square float32 products by torch, in 1e9 operations per second."""
    import torch

    set_up_torch()
    left, right = torch.randn(size, size), torch.randn(size, size)
    left @ right
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        left @ right
        count += 1
    return 2 * size**3 * count / (time.perf_counter() - begun) / 1e9
