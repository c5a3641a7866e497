"""Perplexity on plain prose that has nothing to do with any stored fact: does the model still speak as it did?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from carriers.text_model import TextModel

GENERAL_TEXT = Path(__file__).parent / "anchors" / "general_text.txt"
"""Paragraphs written for this project, one per line."""


def perplexity(model: TextModel, file: Path = GENERAL_TEXT) -> float:
    """Return exp of the mean negative log-likelihood per token over all paragraphs of a file, one per line."""
    paragraphs = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    tokens = np.concatenate([features.nll for features in model.forward_features(paragraphs)])
    return math.exp(float(tokens.mean(dtype=np.float64)))
