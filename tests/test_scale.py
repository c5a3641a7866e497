"""The simulated growth of a store: what it counts is what ledger and index hold."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from carriers.external_memory import ExternalMemory
from sharpwave.records import FactStatus

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from scale import relative, run
from scale_stream import SyntheticEmbedder


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scale") / "store"
    return folder, list(run(folder, 1200, seed=0, night_every=400))


def test_the_figures_are_of_what_ledger_and_index_hold(grown):
    folder, rows = grown
    assert [row.observed for row in rows] == [1000, 1200]
    with ExternalMemory.open(folder, SyntheticEmbedder(0)) as memory:
        counts = memory.ledger.counts()
        assert sum(counts.values()) == 1200
        assert rows[-1].hot == counts[FactStatus.HOT] == len(memory.index.ids())
        assert rows[-1].internalised == counts[FactStatus.INTERNALISED] > 0
        assert rows[-1].superseded == counts[FactStatus.SUPERSEDED] > 0


def test_everything_is_measured(grown):
    _, rows = grown
    for row in rows:
        assert 0.9 <= row.recall_at_k <= 1
        assert 0 < row.recall_ms.p50 <= row.recall_ms.p95
        assert 0 < row.store_one_ms.p50 <= row.store_one_ms.p95
        assert min(row.take_in_ms, row.evict_ms, row.ledger_bytes, row.index_bytes) > 0
    assert len(relative(rows)) == len(rows)
