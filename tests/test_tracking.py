"""The tracker against a real MLflow database: what is kept, and what happens when MLflow fails."""

from __future__ import annotations

import json
import logging
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sharpwave.settings import PROJECT_ROOT, Settings, load_settings
from tasks.run_labels import PARAM_CHARS, flattened, param_text, valid_name
from tasks.tracking import joined_run, nested_run, parent_run, where_to_look


def settings_for(uri: str, folder: Path) -> Settings:
    return load_settings("smoke", [f"tracking.uri={uri}", f"runs_dir={folder / 'runs'}"])


@pytest.fixture(scope="module")
def settings(tmp_path_factory) -> Settings:
    folder = tmp_path_factory.mktemp("with space")
    return settings_for(f"sqlite:///{folder / 'new' / 'mlflow.db'}", folder)


@pytest.fixture(scope="module")
def client(settings):
    from mlflow import MlflowClient

    with parent_run("first", settings, "first"):
        pass
    return MlflowClient(tracking_uri=settings.tracking.uri)


def test_parent_and_nested_run_keep_figures_settings_and_artifacts(client, settings, tmp_path):
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "em.txt").write_text("curve", encoding="utf-8")
    (tmp_path / "report.html").write_text("<p>report</p>", encoding="utf-8")

    with parent_run("nightly-cycle", settings, "night-1") as parent:
        with nested_run("ingest-stream", settings, "night-1", parent.run_id) as child:
            for step in range(3):
                child.log_metrics({"em": step / 2, "storage ratio %": 1.0}, step=step)
        parent.log_metrics({"em": 1.0})
        parent.log_artifact(tmp_path / "report.html")
        parent.log_artifact(tmp_path / "plots")

    kept, nested = client.get_run(parent.run_id), client.get_run(child.run_id)
    assert kept.info.run_name == "nightly-cycle"
    assert nested.data.tags["mlflow.parentRunId"] == parent.run_id
    assert [run.info.status for run in (kept, nested)] == ["FINISHED", "FINISHED"]
    assert [(m.step, m.value) for m in client.get_metric_history(child.run_id, "em")] == [
        (0, 0.0),
        (1, 0.5),
        (2, 1.0),
    ]
    assert client.get_metric_history(child.run_id, "storage ratio _")[2].step == 2
    assert kept.data.params["store.path"] == str(settings.store.path)
    assert kept.data.params["router.storage_price"] == "null"
    assert kept.data.tags["sharpwave.settings_digest"] == settings.digest()
    assert kept.data.tags["sharpwave.profile"] == "smoke"
    assert {file.path for file in client.list_artifacts(parent.run_id)} == {
        "settings.json",
        "report.html",
        "plots",
    }
    assert [file.path for file in client.list_artifacts(parent.run_id, "plots")] == ["plots/em.txt"]
    stored = json.loads(
        Path(client.download_artifacts(parent.run_id, "settings.json")).read_text(encoding="utf-8")
    )
    assert stored == settings.model_dump(mode="json")


def test_artifacts_lie_beside_the_database(client, settings):
    with parent_run("place", settings, "place") as tracker:
        pass
    database = Path(settings.tracking.uri.removeprefix("sqlite:///"))
    assert (database.parent / "artifacts" / tracker.run_id / "artifacts" / "settings.json").is_file()


@pytest.mark.parametrize(("error", "status"), [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED")])
def test_an_error_passes_through_and_ends_both_runs(client, settings, error, status):
    trackers = []

    def work():
        with parent_run("demo", settings, "broken") as parent:
            trackers.append(parent)
            with nested_run("consolidate", settings, "broken", parent.run_id) as child:
                trackers.append(child)
                child.log_metrics({"loss": 2.0}, step=7)
                raise error

    with pytest.raises(error):
        work()
    assert [client.get_run(tracker.run_id).info.status for tracker in trackers] == [status, status]
    assert client.get_metric_history(trackers[1].run_id, "loss")[0].step == 7


def test_long_odd_and_many_parameters_are_kept(client, settings, caplog):
    values = {"prompt": "x" * 20_000, "größe: ü?": {"a": [1, 2]}, **{f"many.{i}": i for i in range(250)}}
    with parent_run("parameters", settings, "parameters") as tracker:
        tracker.log_params(values)
    params = client.get_run(tracker.run_id).data.params
    assert len(params["prompt"]) == PARAM_CHARS
    assert params["prompt"].endswith("…")
    assert params["größe_ ü_.a"] == "[1, 2]"
    assert params["many.249"] == "249"
    assert not caplog.records


def test_more_metrics_than_one_batch_and_values_that_are_no_numbers(client, settings):
    with parent_run("metrics", settings, "metrics") as tracker:
        tracker.log_metrics({f"m{i}": float(i) for i in range(1500)}, step=3)
        tracker.log_metrics({"rate": float("nan"), "ratio": float("inf")})
    metrics = client.get_run(tracker.run_id).data.metrics
    assert metrics["m1499"] == 1499.0
    assert metrics["rate"] != metrics["rate"]
    assert metrics["ratio"] != metrics["ratio"]


@pytest.mark.parametrize(
    "uri", ["sqlite:////dev/null/mlflow.db", "sqlite:///{tmp}/text.db", "{tmp}/files", "nonsense://x"]
)
def test_an_unusable_store_costs_one_warning_and_not_the_work(tmp_path, caplog, uri):
    (tmp_path / "text.db").write_text("this is no database" * 100, encoding="utf-8")
    settings = settings_for(uri.format(tmp=tmp_path), tmp_path)
    with parent_run("demo", settings, "demo") as parent:
        parent.log_metrics({"em": 1.0}, step=1)
        parent.log_artifact(tmp_path / "missing")
    assert parent.run_id is None
    assert [record.levelno for record in caplog.records if record.name == "tasks.tracking"] == [
        logging.WARNING
    ]


def test_a_store_that_fails_half_way_costs_one_warning_and_not_the_work(client, settings, caplog):
    with parent_run("demo", settings, "vanishes") as tracker:
        client.delete_run(tracker.run_id)
        for step in range(5):
            tracker.log_metrics({"em": 1.0}, step=step)
            tracker.flush()
        tracker.log_artifact(Path("/nowhere/report.html"))
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warned) == 1
    assert tracker.run_id in warned[0].getMessage()


def test_a_killed_run_is_resumed_or_marked(client, settings):
    killed = parent_run("demo", settings, "killed")
    first = killed.__enter__()
    nested = nested_run("ingest", settings, "killed", first.run_id)
    child = nested.__enter__()

    with parent_run("demo", settings, "killed", resume=True) as second:
        assert client.get_run(child.run_id).info.status == "KILLED"
        assert client.get_run(first.run_id).info.status == "RUNNING"
    assert second.run_id == first.run_id
    assert client.get_run(first.run_id).info.status == "FINISHED"

    left = parent_run("demo", settings, "killed")
    third = left.__enter__()
    with parent_run("demo", settings, "killed") as fourth:
        assert client.get_run(third.run_id).info.status == "KILLED"
    assert len({first.run_id, third.run_id, fourth.run_id}) == 3

    with parent_run("demo", settings, "another folder", resume=True) as parent:
        assert parent.run_id != third.run_id

    alone = nested_run("consolidate", settings, "killed night", None)
    fifth = alone.__enter__()
    with nested_run("another flow", settings, "killed night", None):
        assert client.get_run(fifth.run_id).info.status == "RUNNING"
    with nested_run("consolidate", settings, "killed night", parent.run_id):
        assert client.get_run(fifth.run_id).info.status == "KILLED"


def test_concurrent_runs_do_not_mix(client, settings):
    run_ids = {}
    together = threading.Barrier(3)

    def work(name: str) -> None:
        with nested_run(name, settings, "together", None) as tracker:
            together.wait()
            for step in range(20):
                tracker.log_metrics({name: float(step)}, step=step)
            run_ids[name] = tracker.run_id

    threads = [threading.Thread(target=work, args=(f"flow{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, run_id in run_ids.items():
        assert set(client.get_run(run_id).data.metrics) == {name}
        assert len(client.get_metric_history(run_id, name)) == 20


def test_joined_run_logs_to_an_open_run_and_leaves_it_open(client, settings):
    with parent_run("demo", settings, "joined") as parent:
        with joined_run(settings, parent.run_id) as tracker:
            tracker.log_metrics({"em": 0.5}, step=2)
        assert client.get_run(parent.run_id).info.status == "RUNNING"
        assert client.get_metric_history(parent.run_id, "em")[0].step == 2
    with joined_run(settings, None) as tracker:
        tracker.log_metrics({"em": 0.5})
    assert tracker.run_id is None


def test_a_deleted_experiment_is_restored(client, settings):
    experiment = client.get_experiment_by_name(settings.tracking.experiment)
    client.delete_experiment(experiment.experiment_id)
    with parent_run("demo", settings, "restored") as tracker:
        pass
    assert client.get_run(tracker.run_id).info.status == "FINISHED"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_first_use_by_two_processes_at_once_loses_no_run(tmp_path):
    code = (
        "import sys; from pathlib import Path; from sharpwave.settings import load_settings; "
        "from tasks.tracking import parent_run\n"
        "settings = load_settings('smoke', [f'tracking.uri=sqlite:///{sys.argv[1]}/mlflow.db'])\n"
        "with parent_run('demo', settings, sys.argv[2]) as tracker: print(tracker.run_id)"
    )
    commands = [[sys.executable, "-c", code, str(tmp_path), name] for name in ("one", "two")]
    processes = [
        subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True) for command in commands
    ]
    run_ids = [process.communicate(timeout=550)[0].strip() for process in processes]
    assert "None" not in run_ids
    assert len(set(run_ids)) == 2
    assert all((tmp_path / "artifacts" / run_id).is_dir() for run_id in run_ids)


def test_tracking_is_imported_without_mlflow_and_prefect():
    code = (
        "import sys, tasks.tracking; print([name for name in ('mlflow', 'prefect') if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


def test_ui_command_names_the_database(settings):
    words = shlex.split(where_to_look(settings))
    assert words[:2] == ["mlflow", "ui"]
    assert words[words.index("--backend-store-uri") + 1] == settings.tracking.uri


def test_names_and_texts_fit_mlflow():
    assert list(flattened({"a": {"b": {"c": 1}, "d": {}}, "e": None})) == [
        ("a.b.c", 1),
        ("a.d", {}),
        ("e", None),
    ]
    assert valid_name("em@10 (x)") == "em_10 _x_"
    assert len(valid_name("n" * 400)) == 250
    assert param_text("x" * PARAM_CHARS) == "x" * PARAM_CHARS
    assert param_text(Path("/a")) == '"/a"'


def test_a_tracking_server_is_named_by_its_address():
    settings = load_settings("smoke", ["tracking.uri=https://tracking.example"])
    assert where_to_look(settings) == "https://tracking.example"
