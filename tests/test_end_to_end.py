"""The whole loop on the real embedded models: one short stream with every arm, looked at from many sides."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from carriers.external_memory import ExternalMemory
from consolidation import night_folder
from consolidation.night_folder import NightFolder
from consolidation.records import NightReport, NightVerdict
from eval.run_records import ALL_ARMS, READMITTED, SHARPWAVE_ARM, WITHOUT_READMISSION_ARM, Run, read_run
from sharpwave.records import EventKind, FactStatus, RouteStage
from tests.cli_runs import SHARPWAVE, environment

pytestmark = [pytest.mark.models, pytest.mark.slow, pytest.mark.timeout(1500)]

KEYS = json.loads(Path(__file__).with_name("demo_metrics_keys.json").read_text(encoding="utf-8"))


class Loop(NamedTuple):
    """A finished benchmark of one stream: the folder of the stream's run and what was printed."""

    folder: Path
    output: str

    @property
    def run(self) -> Run:
        return read_run(self.folder)

    @property
    def benchmark(self) -> Path:
        return self.folder.parent

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def night(self, name: str, kind: type) -> object:
        (folder,) = (self.store / "consolidations").iterdir()
        return NightFolder(self.store, folder.name).read(name, kind)


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory, embedded_models: dict[str, Path]) -> Loop:
    """Run commands as a person would: start the demo, kill it, and let the benchmark take up the same stream."""
    place = tmp_path_factory.mktemp("loop")
    shortened = [
        "write_back.epochs=10",
        "write_back.anchors_per_epoch=40",
        "promotion.scales=[1.0]",
        "promotion.max_damage_rate=0.6",
    ]
    options = [part for item in shortened for part in ("--set", f"consolidation.{item}")]
    folder, env = place / "bench" / "seed-3", environment(place, embedded_models)
    demo = [*SHARPWAVE, "demo", "--size", "tiny", "--out", "bench/seed-3", "--seed", "3", *options]
    _kill_when_there(folder / "stream" / "layout.json", demo, place, env)
    done = subprocess.run(
        [*SHARPWAVE, "benchmark", "--size", "tiny", "--out", "bench", "--first-seed", "3", *options],
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        timeout=1400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return Loop(folder, done.stdout)


def _kill_when_there(file: Path, command: list[str], place: Path, env: dict[str, str]) -> None:
    log = place / "killed.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=place, env=env, stdout=output, stderr=output, start_new_session=True
        )
        deadline = time.monotonic() + 600
        while not file.exists():
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def memory(loop: Loop, embedded_models: dict[str, Path]) -> ExternalMemory:
    """The run's store, opened for reading."""
    from carriers.embedder import MiniLMEmbedder

    with ExternalMemory.open(loop.store, MiniLMEmbedder.load(embedded_models["embedder"])) as opened:
        yield opened


def test_metrics_have_every_promised_key(loop: Loop) -> None:
    metrics = json.loads((loop.folder / "metrics.json").read_text(encoding="utf-8"))
    assert set(KEYS) <= metrics.keys()
    assert set(metrics["net_bytes"]) == {"vectors", "text", "ledger", "adapters"}
    assert metrics["seed"] == 3
    assert metrics["profile"] == "embedded"


def test_memory_beats_no_memory_and_stores_less_than_everything(loop: Loop) -> None:
    metrics = loop.run.metrics
    assert metrics.em > metrics.em_no_memory
    assert metrics.storage_ratio < 1
    assert metrics.storage_ratio == pytest.approx(loop.run.steps[-1].hot / metrics.n_facts)


def test_no_fact_of_the_stream_is_lost(loop: Loop, memory: ExternalMemory) -> None:
    lines = [
        json.loads(line)
        for file in sorted((loop.folder / "stream").glob("facts-*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    texts = {fact.fact.text for fact in memory.ledger.iter_facts()}
    assert {line["text"] for line in lines} <= texts
    assert sum(memory.ledger.counts().values()) == loop.run.metrics.n_facts


def test_night_trained_something_and_evicted_only_what_it_proved(loop: Loop, memory: ExternalMemory) -> None:
    report = loop.night(night_folder.REPORT, NightReport)
    verdict = loop.night(night_folder.VERDICT, NightVerdict)
    assert isinstance(report, NightReport)
    assert isinstance(verdict, NightVerdict)
    assert report.status == "promoted", report.reason
    assert report.internalised >= report.selected / 2
    assert set(verdict.evict) <= set(verdict.proven)
    gone = {fact.id for fact in memory.ledger.iter_facts(status=FactStatus.INTERNALISED)}
    assert gone <= set(verdict.evict)
    assert not gone & memory.index.ids()


def test_every_damaged_fact_is_back_in_the_index(loop: Loop, memory: ExternalMemory) -> None:
    verdict = loop.night(night_folder.VERDICT, NightVerdict)
    assert isinstance(verdict, NightVerdict)
    live = {
        fact.id for fact in memory.ledger.facts(verdict.damaged) if fact.status is not FactStatus.SUPERSEDED
    }
    assert live <= memory.index.ids()


def test_learnt_facts_that_arrive_again_are_not_stored_again(loop: Loop, memory: ExternalMemory) -> None:
    again = [
        fact for fact in memory.ledger.iter_facts(status=FactStatus.INTERNALISED) if fact.observed_count > 1
    ]
    for fact in again:
        kinds = [event.kind for event in memory.ledger.history(fact.id)]
        assert kinds.count(EventKind.STORED) == 1


def test_index_holds_exactly_the_hot_facts(memory: ExternalMemory) -> None:
    hot = {fact.id for fact in memory.ledger.iter_facts(status=FactStatus.HOT)}
    assert memory.index.ids() == hot
    assert memory.doctor().clean


def test_every_arm_was_asked_every_question(loop: Loop) -> None:
    run = loop.run
    assert [arm.name for arm in run.arms] == list(ALL_ARMS)
    assert len({arm.n_questions for arm in run.arms}) == 1
    assert all(arm.em_oracle is not None for arm in run.arms)
    assert {row.read for row in run.answers} == {"real", "oracle", "weights"}


def test_facts_put_back_are_asked_about_with_and_without_them(loop: Loop) -> None:
    rows = [row for row in loop.run.answers if row.kind == READMITTED]
    asked = {arm: [row.fact_id for row in rows if row.arm == arm] for arm in ALL_ARMS}
    assert asked[SHARPWAVE_ARM] == asked[WITHOUT_READMISSION_ARM]
    assert len(rows) == 2 * len(asked[SHARPWAVE_ARM])
    assert len(asked[SHARPWAVE_ARM]) <= loop.run.metrics.readmitted
    assert all(row.found is None for row in rows if row.arm == WITHOUT_READMISSION_ARM)


def test_controls_hold_as_much_as_the_memory_at_every_step(loop: Loop) -> None:
    for step in loop.run.steps:
        assert step.held["sharpwave"] == step.hot
        assert {step.held[name] for name in ("random", "novelty", "recency")} == {step.hot}
        assert step.held["full_store"] == step.n_distinct
        assert step.held["no_memory"] == 0


def test_routers_differ_in_what_they_cost(loop: Loop) -> None:
    arms = {arm.name: arm for arm in loop.run.arms}
    assert arms["small_router"].escalation_rate == 0
    assert arms["large_router"].routing_cost_ratio == pytest.approx(1.0)
    assert arms["small_router"].routing_cost_ratio < arms["cascade"].routing_cost_ratio < 1.0
    assert arms["full_store"].routing_cost_ratio is None


def test_escalation_is_what_the_decisions_say(loop: Loop) -> None:
    run = loop.run
    routed = [item for item in run.decisions if item.stage in (RouteStage.SMALL, RouteStage.LARGE)]
    share = sum(item.stage is RouteStage.LARGE for item in routed) / len(routed)
    assert run.metrics.escalation_rate == pytest.approx(share)


def test_page_is_self_contained_and_output_shows_the_arms(loop: Loop) -> None:
    page = (loop.folder / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    for arm in ("full store", "no memory", "random"):
        assert arm in loop.output.lower()
    assert (loop.benchmark / "report.html").is_file()
    drawn = {path.stem for path in (loop.benchmark / "plots").iterdir()}
    assert drawn >= {"frontier", "em", "shift", "cost", "nights"}


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # MLflow against a newer SQLAlchemy
def test_mlflow_holds_parent_nested_runs_and_curves(loop: Loop) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{loop.benchmark.parent / 'mlruns' / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'sharpwave'")
    runs = client.search_runs([experiment.experiment_id])
    parents = {run.info.run_name: run for run in runs if "mlflow.parentRunId" not in run.data.tags}
    assert set(parents) == {"tiny-stream", "tiny-benchmark"}  # the killed demo's run was taken up
    unfinished = [run for run in runs if run.info.status != "FINISHED"]
    assert [(run.info.run_name, run.info.status) for run in unfinished] in ([], [("ingest-stream", "KILLED")])
    stream = parents["tiny-stream"]
    assert len(client.get_metric_history(stream.info.run_id, "step_storage_ratio")) >= 3
    metrics = json.loads((loop.folder / "metrics.json").read_text(encoding="utf-8"))
    for name in ("em", "em_full_store", "storage_ratio", "escalation_rate"):  # not the last point of a curve
        assert stream.data.metrics[name] == pytest.approx(metrics[name])
    nested = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    assert {"ingest-stream", "consolidate-memory"} == {run.info.run_name for run in nested}
    assert {run.data.tags["mlflow.parentRunId"] for run in nested} == {stream.info.run_id}
    all_seeds = json.loads((loop.benchmark / "metrics.json").read_text(encoding="utf-8"))
    for arm in ALL_ARMS:
        logged = parents["tiny-benchmark"].data.metrics[f"arm_{arm}_em"]
        assert logged == pytest.approx(all_seeds[arm]["em"]["mean"])


def test_weights_answer_an_internalised_fact_after_a_restart(
    loop: Loop, memory: ExternalMemory, embedded_models: dict[str, Path]
) -> None:
    from carriers.language_model import LanguageModel
    from carriers.prompts import CLOSED_BOOK_PREFIX, closed_book

    facts = [fact.fact for fact in memory.ledger.iter_facts(status=FactStatus.INTERNALISED)]
    assert facts
    adapter = memory.generations.adapter_folder(memory.generations.current().number)
    model = LanguageModel.load(embedded_models["large"], adapter)
    prompts = [closed_book(fact.questions[0]) for fact in facts]
    matches = model.match_answers(prompts, [fact.answers for fact in facts], CLOSED_BOOK_PREFIX)
    assert sum(match.matched for match in matches) >= 0.9 * len(facts)


def test_rollback_brings_evicted_facts_back_to_the_index(
    loop: Loop, embedded_models: dict[str, Path], tmp_path: Path
) -> None:
    import shutil

    from carriers.embedder import MiniLMEmbedder

    shutil.copytree(loop.store, tmp_path / "store")
    embedder = MiniLMEmbedder.load(embedded_models["embedder"])
    with ExternalMemory.open(tmp_path / "store", embedder, writer=True) as memory:
        gone = {fact.id for fact in memory.ledger.iter_facts(status=FactStatus.INTERNALISED)}
        memory.rollback(0, "test")
        assert memory.generations.current().number == 0
        assert gone <= memory.index.ids()
        assert memory.doctor().clean
