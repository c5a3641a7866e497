"""One seed for every random generator the project draws from."""

from __future__ import annotations

import random


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch (all devices); imports torch.

    Args:
        seed: from 0 to 2**32 - 1, the range that NumPy takes.
    """
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
