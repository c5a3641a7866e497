"""The whole loop in a small form on the real embedded models: one demo run, looked at from many sides."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from carriers.external_memory import ExternalMemory
from consolidation import night_folder
from consolidation.night_folder import NightFolder
from consolidation.records import NightReport, NightVerdict
from eval.run_records import Run, read_run
from sharpwave.records import EventKind, FactStatus, RouteStage
from tests.cli_runs import SHARPWAVE, environment

pytestmark = [pytest.mark.models, pytest.mark.slow, pytest.mark.timeout(1500)]

KEYS = json.loads(Path(__file__).with_name("demo_metrics_keys.json").read_text(encoding="utf-8"))


class Demo(NamedTuple):
    """A finished run: its folder and what it printed."""

    folder: Path
    output: str

    @property
    def run(self) -> Run:
        return read_run(self.folder)

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def night(self, name: str, kind: type) -> object:
        (folder,) = (self.store / "consolidations").iterdir()
        return NightFolder(self.store, folder.name).read(name, kind)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, embedded_models: dict[str, Path]) -> Demo:
    """Run `sharpwave demo` as a person would, in a process of its own."""
    place = tmp_path_factory.mktemp("demo")
    shortened = [
        "write_back.epochs=10",
        "write_back.anchors_per_epoch=40",
        "promotion.scales=[1.0]",
        "promotion.max_damage_rate=0.6",
    ]
    options = [part for item in shortened for part in ("--set", f"consolidation.{item}")]
    command = [*SHARPWAVE, "demo", "--size", "tiny", "--out", "run", "--seed", "3"]
    done = subprocess.run(
        [*command, *options],
        cwd=place,
        env=environment(place, embedded_models),
        capture_output=True,
        text=True,
        timeout=1400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return Demo(place / "run", done.stdout)


@pytest.fixture
def memory(demo: Demo, embedded_models: dict[str, Path]) -> ExternalMemory:
    """The run's store, opened for reading."""
    from carriers.embedder import MiniLMEmbedder

    with ExternalMemory.open(demo.store, MiniLMEmbedder.load(embedded_models["embedder"])) as opened:
        yield opened


def test_metrics_have_every_promised_key(demo: Demo) -> None:
    metrics = json.loads((demo.folder / "metrics.json").read_text(encoding="utf-8"))
    assert set(KEYS) <= metrics.keys()
    assert set(metrics["net_bytes"]) == {"vectors", "text", "ledger", "adapters"}
    assert metrics["seed"] == 3
    assert metrics["profile"] == "embedded"


def test_memory_beats_no_memory_and_stores_less_than_everything(demo: Demo) -> None:
    metrics = demo.run.metrics
    assert metrics.em > metrics.em_no_memory
    assert metrics.storage_ratio < 1
    assert metrics.storage_ratio == pytest.approx(demo.run.steps[-1].hot / metrics.n_facts)


def test_no_fact_of_the_stream_is_lost(demo: Demo, memory: ExternalMemory) -> None:
    lines = [
        json.loads(line)
        for file in sorted((demo.folder / "stream").glob("facts-*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    texts = {fact.fact.text for fact in memory.ledger.iter_facts()}
    assert {line["text"] for line in lines} <= texts
    assert sum(memory.ledger.counts().values()) == demo.run.metrics.n_facts


def test_night_trained_something_and_evicted_only_what_it_proved(demo: Demo, memory: ExternalMemory) -> None:
    report = demo.night(night_folder.REPORT, NightReport)
    verdict = demo.night(night_folder.VERDICT, NightVerdict)
    assert isinstance(report, NightReport)
    assert isinstance(verdict, NightVerdict)
    assert report.status == "promoted", report.reason
    assert report.internalised >= report.selected / 2
    assert set(verdict.evict) <= set(verdict.proven)
    gone = {fact.id for fact in memory.ledger.iter_facts(status=FactStatus.INTERNALISED)}
    assert gone <= set(verdict.evict)
    assert not gone & memory.index.ids()


def test_every_damaged_fact_is_back_in_the_index(demo: Demo, memory: ExternalMemory) -> None:
    verdict = demo.night(night_folder.VERDICT, NightVerdict)
    assert isinstance(verdict, NightVerdict)
    live = {
        fact.id for fact in memory.ledger.facts(verdict.damaged) if fact.status is not FactStatus.SUPERSEDED
    }
    assert live <= memory.index.ids()


def test_learnt_facts_that_arrive_again_are_not_stored_again(demo: Demo, memory: ExternalMemory) -> None:
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


def test_escalation_is_what_the_decisions_say(demo: Demo) -> None:
    run = demo.run
    routed = [item for item in run.decisions if item.stage in (RouteStage.SMALL, RouteStage.LARGE)]
    share = sum(item.stage is RouteStage.LARGE for item in routed) / len(routed)
    assert run.metrics.escalation_rate == pytest.approx(share)


def test_page_is_self_contained_and_output_shows_the_arms(demo: Demo) -> None:
    page = (demo.folder / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    for arm in ("full store", "no memory", "random"):
        assert arm in demo.output.lower()


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # MLflow against a newer SQLAlchemy
def test_mlflow_holds_parent_nested_runs_and_curves(demo: Demo) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{demo.folder.parent / 'mlruns' / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'sharpwave'")
    runs = client.search_runs([experiment.experiment_id])
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert len(parents) == 1
    assert all(run.info.status == "FINISHED" for run in runs)
    assert len(client.get_metric_history(parents[0].info.run_id, "step_storage_ratio")) >= 3
    metrics = json.loads((demo.folder / "metrics.json").read_text(encoding="utf-8"))
    for name in ("em", "em_full_store", "storage_ratio", "escalation_rate"):  # not the last point of a curve
        assert parents[0].data.metrics[name] == pytest.approx(metrics[name])
    nested = {run.info.run_name for run in runs} - {parents[0].info.run_name}
    assert {"ingest-stream", "consolidate-memory"} <= nested


def test_weights_answer_an_internalised_fact_after_a_restart(
    demo: Demo, memory: ExternalMemory, embedded_models: dict[str, Path]
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
    demo: Demo, embedded_models: dict[str, Path], tmp_path: Path
) -> None:
    import shutil

    from carriers.embedder import MiniLMEmbedder

    shutil.copytree(demo.store, tmp_path / "store")
    embedder = MiniLMEmbedder.load(embedded_models["embedder"])
    with ExternalMemory.open(tmp_path / "store", embedder, writer=True) as memory:
        gone = {fact.id for fact in memory.ledger.iter_facts(status=FactStatus.INTERNALISED)}
        memory.rollback(0, "test")
        assert memory.generations.current().number == 0
        assert gone <= memory.index.ids()
        assert memory.doctor().clean
