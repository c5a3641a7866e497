"""Keeps on disk what models revealed about facts, so that heads are fitted again without another pass.

One safetensors file per chunk, written whole or not at all: a run that was killed goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from carriers.prompts import CLOSED_BOOK_PREFIX, closed_book
from routers.features import feature_digest
from routers.observation import MAX_PROBED_ANSWERS, FactObservation, observe
from routers.wordings import probed_questions
from sharpwave.settings import cache_home

if TYPE_CHECKING:
    from carriers.text_model import TextModel
    from routers.observation import OnCount
    from sharpwave.records import Fact

_FACTS_PER_FILE = 256
_FLOPS = ("text_flops", "probe_flops")


def observe_once(
    model: TextModel,
    facts: Sequence[Fact],
    *,
    cache_folder: Path | None = None,
    on_count: OnCount | None = None,
) -> list[FactObservation]:
    """Let a model look at facts with all the evidence they offer, in the order given; what was seen is read back.

    Args:
        model: The small or the large model, without an adapter.
        facts: What to look at.
        cache_folder: Where observations are kept; `observations/` in the cache by default.
        on_count: Told how many facts are seen, after every chunk.
    """
    parent = cache_folder or cache_home() / "observations"
    shards = _Shards(parent / f"{model.feature_fingerprint}-{feature_digest()}")
    keys = [observation_key(fact) for fact in facts]
    missing = list({key: row for row, key in enumerate(keys) if key not in shards}.values())
    done = len(facts) - len(missing)
    if on_count is not None:
        on_count(done, len(facts))
    for start in range(0, len(missing), _FACTS_PER_FILE):
        rows = missing[start : start + _FACTS_PER_FILE]
        seen = observe(model, [facts[row] for row in rows])
        shards.add({keys[row]: item for row, item in zip(rows, seen, strict=True)})
        if on_count is not None:
            on_count(done + start + len(rows), len(facts))
    kept = shards.read(set(keys))
    return [replace(kept[key], fact_id=fact.id) for key, fact in zip(keys, facts, strict=True)]


def observation_key(fact: Fact) -> str:
    """Return 32 hex digits of what an observation depends on beside the model: fact, question, answers probed."""
    asked = [CLOSED_BOOK_PREFIX + closed_book(question) for question in probed_questions(fact)]
    parts = [fact.id, fact.text, *asked, *fact.answers[:MAX_PROBED_ANSWERS]]
    return hashlib.sha256("\0".join(parts).encode("utf-8")).hexdigest()[:32]


class _Shards:
    """Files of observations by key, each with its keys in its header."""

    def __init__(self, folder: Path) -> None:
        from safetensors import SafetensorError, safe_open

        self._folder = folder
        self._places: dict[str, tuple[Path, int]] = {}
        for path in sorted(folder.glob("*.safetensors")):
            try:
                with safe_open(path, framework="numpy") as shard:
                    keys = json.loads(shard.metadata()["keys"])
            except (SafetensorError, ValueError, KeyError, TypeError):
                path.unlink()  # damaged: its facts are looked at again
            else:
                self._note(path, keys)

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def add(self, observations: Mapping[str, FactObservation]) -> None:
        from safetensors.numpy import save_file

        keys, items = list(observations), list(observations.values())
        arrays = {name: np.stack([item.groups[name] for item in items]) for name in items[0].groups}
        arrays |= {name: np.array([getattr(item, name) for item in items]) for name in _FLOPS}
        path = self._folder / f"{hashlib.sha256(''.join(keys).encode()).hexdigest()[:16]}.safetensors"
        part = path.with_suffix(".part")
        self._folder.mkdir(parents=True, exist_ok=True)
        save_file(arrays, part, metadata={"keys": json.dumps(keys)})
        part.replace(path)
        self._note(path, keys)

    def read(self, keys: set[str]) -> dict[str, FactObservation]:
        from safetensors.numpy import load_file

        found: dict[str, FactObservation] = {}
        for path in sorted({self._places[key][0] for key in keys}):
            arrays = load_file(path)
            flops = [arrays.pop(name) for name in _FLOPS]
            for key in keys:
                own, row = self._places[key]
                if own == path:
                    groups = {name: values[row] for name, values in arrays.items()}
                    found[key] = FactObservation(key, groups, *(float(cost[row]) for cost in flops))
        return found

    def _note(self, path: Path, keys: Sequence[str]) -> None:
        self._places |= {key: (path, row) for row, key in enumerate(keys)}
