"""Sharpwave: a two-layer memory for language-model agents.

New facts go fast into an external store; a scheduled consolidation writes the lasting ones into the model's
own weights and frees the store. This package holds what every layer shares; importing it loads nothing heavy.
"""

from __future__ import annotations

__version__ = "0.1.0"
