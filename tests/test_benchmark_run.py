"""`sharpwave benchmark` on the real embedded models: a short stream, every arm, killed once and taken up again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from eval.benchmark_folder import read_benchmark
from eval.run_records import ALL_ARMS, Run
from tests.cli_runs import SHARPWAVE, environment

pytestmark = [pytest.mark.models, pytest.mark.slow, pytest.mark.timeout(1500)]

_OPTIONS = (
    *("--size", "tiny", "--first-seed", "5", "--out", "bench", "--json"),
    *("--set", "consolidation.write_back.epochs=1", "--set", "consolidation.write_back.anchors_per_epoch=8"),
    *("--set", "consolidation.promotion.scales=[1.0]"),
)


class Benchmark(NamedTuple):
    """A finished benchmark: its folder, what it printed, and how the arms stood when it was killed."""

    folder: Path
    printed: dict
    before_kill: dict[str, bytes]

    @property
    def run(self) -> Run:
        [run] = read_benchmark(self.folder)
        return run


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory, embedded_models: dict[str, Path]) -> Benchmark:
    """Start the command, kill it after some arms have been asked, and call it again."""
    place = tmp_path_factory.mktemp("benchmark")
    own = environment(place, embedded_models)
    folder = place / "bench"
    with (place / "first.log").open("w") as log:
        first = subprocess.Popen(
            [*SHARPWAVE, "benchmark", *_OPTIONS],
            cwd=place,
            env=own,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        deadline = time.monotonic() + 600
        while not (folder / "seed-5" / "arms" / "recency" / "step-01.json").exists():
            assert first.poll() is None, (place / "first.log").read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    asked = {str(path): path.read_bytes() for path in (folder / "seed-5" / "arms").glob("*/answers-01.jsonl")}
    done = subprocess.run(
        [*SHARPWAVE, "benchmark", *_OPTIONS],
        cwd=place,
        env=own,
        capture_output=True,
        text=True,
        timeout=1400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return Benchmark(folder, json.loads(done.stdout), asked)


def test_every_arm_was_asked_every_question(benchmark: Benchmark) -> None:
    run = benchmark.run
    assert [arm.name for arm in run.arms] == list(ALL_ARMS)
    assert len({arm.n_questions for arm in run.arms}) == 1
    assert all(arm.em_oracle is not None for arm in run.arms)
    assert {row.read for row in run.answers} == {"real", "oracle", "weights"}


def test_what_was_asked_before_the_kill_was_not_asked_again(benchmark: Benchmark) -> None:
    assert len(benchmark.before_kill) >= 6
    for path, content in benchmark.before_kill.items():
        assert Path(path).read_bytes() == content


def test_controls_hold_as_much_as_the_memory_at_every_step(benchmark: Benchmark) -> None:
    for step in benchmark.run.steps:
        assert step.held["sharpwave"] == step.hot
        assert {step.held[name] for name in ("random", "novelty", "recency")} == {step.hot}
        assert step.held["full_store"] == step.n_distinct
        assert step.held["no_memory"] == 0


def test_routers_differ_in_what_they_cost(benchmark: Benchmark) -> None:
    arms = {arm.name: arm for arm in benchmark.run.arms}
    assert arms["small_router"].escalation_rate == 0
    assert arms["large_router"].routing_cost_ratio == pytest.approx(1.0)
    assert arms["small_router"].routing_cost_ratio < arms["cascade"].routing_cost_ratio < 1.0
    assert arms["full_store"].routing_cost_ratio is None


def test_what_is_printed_is_what_is_written(benchmark: Benchmark) -> None:
    assert benchmark.printed["metrics"] == json.loads((benchmark.folder / "metrics.json").read_bytes())
    assert benchmark.printed["metrics"]["seeds"] == [5]
    assert (benchmark.folder / "report.html").is_file()
    assert {path.stem for path in (benchmark.folder / "plots").iterdir()} >= {
        "frontier",
        "em",
        "shift",
        "cost",
        "nights",
    }


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # MLflow against a newer SQLAlchemy
def test_mlflow_holds_the_figures_of_all_seeds(benchmark: Benchmark) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{benchmark.folder.parent / 'mlruns' / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'sharpwave'")
    named = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    logged = named["tiny-benchmark"].data.metrics
    for arm in ALL_ARMS:
        assert logged[f"arm_{arm}_em"] == pytest.approx(benchmark.printed["metrics"][arm]["em"]["mean"])
    assert {"tiny-stream", "ingest-stream"} <= named.keys()
