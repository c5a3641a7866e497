"""A benchmark's folder: figures of several runs by hand, page and Markdown, the command, two of them compared."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eval.benchmark_comparison import benchmark_comparison
from eval.benchmark_figures import benchmark_differences, benchmark_metrics
from eval.benchmark_folder import is_benchmark, mean_steps, read_benchmark, summed_nights
from eval.benchmark_report import BenchmarkReport, benchmark_markdown, render_benchmark
from eval.run_records import AnswerRow, Run, write_run
from sharpwave.cli.main import app
from sharpwave.errors import InputError
from tests.made_runs import make_run

PROMISED = {
    "storage_ratio",
    "em",
    "em_retention",
    "f1",
    "escalation_rate",
    "routing_cost_ratio",
    "net_bytes",
    "internalised",
    "damaged",
    "readmitted",
    "em_known",
    "em_new",
    "em_updated",
    "em_superseded_as_of",
}
BEATEN = {"sharpwave": 3, "full_store": 60, "no_memory": 2, "random": 4}

runner = CliRunner()


def answer(arm: str, number: int, *, correct: bool, kind: str = "new", read: str = "real") -> AnswerRow:
    return AnswerRow(
        arm=arm,
        step=0,
        fact_id=f"{number:032x}",
        question=f"question {number}?",
        answer="peso",
        given="peso" if correct else "euro",
        correct=correct,
        origin="store",
        group=f"subject {number}",
        kind=kind,
        read=read,
    )


def run_of(rows: list[AnswerRow], seed: int = 0) -> Run:
    return make_run(seed=seed).model_copy(update={"answers": tuple(rows)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed in (0, 1):
        write_run(tmp_path / "bench" / f"seed-{seed}", make_run(seed=seed))
    return tmp_path / "bench"


# ---------------------------------------------------------------------------------------- figures


def test_every_promised_key_is_there_for_every_arm_with_mean_low_and_high():
    metrics = benchmark_metrics([make_run(seed=0), make_run(seed=1)])
    for arm in ("sharpwave", "full_store", "no_memory", "random"):
        assert set(metrics[arm]) >= PROMISED
        assert all(set(figure) == {"mean", "low", "high"} for figure in metrics[arm].values())
    assert metrics["seeds"] == [0, 1]
    assert metrics["profile"] == "smoke"
    assert metrics["n_facts"] == 54
    assert metrics["n_questions"] == 120


def test_shares_are_taken_over_all_questions_of_all_seeds():
    first = run_of([
        *(answer("sharpwave", number, correct=number < 3) for number in range(4)),
        *(answer("full_store", number, correct=number < 2) for number in range(4)),
        answer("sharpwave", 9, correct=True, kind="known"),
        answer("full_store", 9, correct=True, kind="known"),
    ])
    second = run_of([answer("sharpwave", 1, correct=False), answer("full_store", 1, correct=True)], seed=1)
    ours = benchmark_metrics([first, second])["sharpwave"]
    assert ours["em"]["mean"] == pytest.approx(4 / 6)
    assert ours["em_retention"]["mean"] == pytest.approx(4 / 4)
    assert ours["em_new"]["mean"] == pytest.approx(3 / 5)
    assert ours["em_known"]["mean"] == 1.0
    assert ours["em_updated"] == {"mean": None, "low": None, "high": None}


def test_dated_and_oracle_questions_stay_out_of_the_headline():
    run = run_of([
        answer("sharpwave", 1, correct=True),
        answer("full_store", 1, correct=True),
        answer("sharpwave", 2, correct=False, kind="superseded"),
        answer("sharpwave", 3, correct=False, kind="absent"),
        answer("sharpwave", 4, correct=False, read="oracle"),
    ])
    ours = benchmark_metrics([run])["sharpwave"]
    assert ours["em"]["mean"] == 1.0
    assert ours["em_superseded_as_of"]["mean"] == 0.0


def test_figures_of_one_value_a_seed_have_no_interval_with_one_seed_and_students_with_two():
    assert benchmark_metrics([make_run()])["sharpwave"]["storage_ratio"] == {
        "mean": 0.4,
        "low": None,
        "high": None,
    }
    runs = [make_run(seed=0), make_run(seed=1)]
    arms = tuple(arm.model_copy(update={"storage_ratio": 0.6}) for arm in runs[1].arms)
    figure = benchmark_metrics([runs[0], runs[1].model_copy(update={"arms": arms})])["sharpwave"][
        "storage_ratio"
    ]
    # half a difference of 0.2 over two values: a standard error of 0.1, and t(0.975, 1) = 12.706
    assert figure == pytest.approx({"mean": 0.5, "low": 0.5 - 1.2706, "high": 0.5 + 1.2706}, abs=1e-4)


def test_answers_all_alike_get_wilsons_interval_over_subjects():
    rows = [answer("sharpwave", number, correct=True, kind="known") for number in (1, 1, 2)]
    figure = benchmark_metrics([run_of(rows)])["sharpwave"]["em_known"]
    assert figure == pytest.approx({"mean": 1.0, "low": 0.3424, "high": 1.0}, abs=1e-4)  # 2 of 2, z = 1.96


def test_differences_are_taken_in_pairs():
    ours = [answer("sharpwave", number, correct=True) for number in range(20)]
    theirs = [answer("random", number, correct=number < 10) for number in range(20)]
    extra = [answer("random", number, correct=True) for number in range(20, 40)]
    found = benchmark_differences([run_of([*ours, *theirs, *extra])])["random"]
    assert found["mean"] == pytest.approx(0.5)
    assert found["n"] == 20
    assert found["p"] == pytest.approx(2 * 0.5**10)
    assert 0.2 < found["low"] < 0.5 < found["high"] < 0.8


def test_curves_are_means_and_nights_are_sums():
    runs = [make_run(seed=0), make_run(seed=1)]
    steps = tuple(
        step.model_copy(update={"storage_ratio": 0.6, "em": step.em | {"random": None}})
        for step in runs[1].steps
    )
    step = mean_steps([runs[0], runs[1].model_copy(update={"steps": steps})])[0]
    assert step.storage_ratio == pytest.approx((4 / 9 + 0.6) / 2)
    assert step.em["random"] == 0.5  # the seed that has it
    night = summed_nights(runs)[0]
    assert (night.selected, night.internalised, night.damaged) == (16, 16, 4)


def test_what_was_put_back_is_a_figure_of_its_own_and_no_part_of_the_headline():
    ours, without = "sharpwave", "sharpwave_without_readmission"
    rows = [
        *(answer(arm, 1, correct=True) for arm in (ours, without, "full_store")),
        *(answer(ours, number, correct=number != 2, kind="readmitted") for number in range(2, 6)),
        *(answer(without, number, correct=number == 2, kind="readmitted") for number in range(2, 6)),
    ]
    run = run_of(rows)
    run = run.model_copy(update={"arms": (*run.arms, run.arms[0].model_copy(update={"name": without}))})
    report = BenchmarkReport([run])
    assert report.metrics[ours]["em"]["mean"] == 1.0
    assert report.metrics[ours]["em_readmitted"]["mean"] == 0.75
    assert report.metrics[without]["em_readmitted"]["mean"] == 0.25
    text = " ".join(report.sentences())
    assert "about these facts alone (n = 4), it is 75.0% (" in text
    assert "and 25.0% (" in text


# ----------------------------------------------------------------------------------------- folder


def test_a_benchmark_is_told_from_a_run(folder: Path):
    assert is_benchmark(folder)
    assert not is_benchmark(folder / "seed-0")
    assert not is_benchmark(folder / "nowhere")


def test_unfinished_seeds_are_left_out_and_named(folder: Path):
    (folder / "seed-2").mkdir()
    (folder / "seed-2" / "config.json").write_text("{}")
    assert [run.metrics.seed for run in read_benchmark(folder)] == [0, 1]
    shown = runner.invoke(app, ["report", str(folder)])
    assert shown.exit_code == 0
    assert "not finished, left out: seed 2" in shown.output


def test_a_benchmark_without_a_finished_seed_is_an_error(tmp_path: Path):
    (tmp_path / "seed-0").mkdir()
    with pytest.raises(InputError, match="no seed of this benchmark is finished"):
        read_benchmark(tmp_path)


def test_runs_with_other_arms_do_not_make_one_benchmark(folder: Path):
    run = make_run(seed=1)
    write_run(
        folder / "seed-1",
        run.model_copy(update={"arms": (*run.arms, run.arms[0].model_copy(update={"name": "mine"}))}),
    )
    with pytest.raises(InputError, match="have not the same arms"):
        read_benchmark(folder)


# ----------------------------------------------------------------------------------------- report


def test_who_beats_us_is_named_with_figures():
    beaten = BenchmarkReport([make_run(seed=seed, wrong_every=BEATEN) for seed in (0, 1)])
    text = " ".join(beaten.sentences())
    assert "Full store answers better: Sharpwave minus it is \u221231.7 pts" in text
    even = make_run(wrong_every={"sharpwave": 7, "full_store": 8, "no_memory": 2, "random": 3})
    assert "Full store is ahead by no more than chance explains" in " ".join(
        BenchmarkReport([even]).sentences()
    )
    assert "The full store does better on known facts (" in text
    assert "Best on known facts: full store, " in text
    unbeaten = BenchmarkReport([
        make_run(wrong_every={"sharpwave": 60, "full_store": 3, "no_memory": 2, "random": 4})
    ])
    assert "Full store answers better" not in " ".join(unbeaten.sentences())
    assert "No arm is ahead" in " ".join(unbeaten.sentences())
    assert "Best on" not in " ".join(unbeaten.sentences())
    assert "ahead on no sort of question" in " ".join(unbeaten.sentences())


def test_questions_lost_to_the_full_store_are_sorted_by_what_went_wrong():
    def lost(number: int, origin: str, found: bool | None) -> list[AnswerRow]:
        ours = answer("sharpwave", number, correct=False).model_copy(
            update={"origin": origin, "found": found}
        )
        return [ours, answer("full_store", number, correct=True)]

    rows = [
        *lost(1, "store", None),
        *lost(2, "store", None),
        *lost(3, "weights", None),
        *lost(4, "store", True),
    ]
    both_wrong = [answer(arm, 5, correct=False) for arm in ("sharpwave", "full_store")]
    text = " ".join(BenchmarkReport([run_of([*rows, *both_wrong])]).sentences())
    assert "Of the 4 questions that the full store answered and Sharpwave did not, 2 were about" in text
    assert "believed another note, 1 about" in text
    assert "answered wrongly, 1 about facts in its store" in text


def test_markdown_and_page_hold_every_arm_in_every_table():
    report = BenchmarkReport([make_run(seed=0), make_run(seed=1)])
    markdown, page = benchmark_markdown(report), render_benchmark(report, "mine")
    for label in ("Sharpwave", "full store", "no memory", "random, equal storage"):
        assert markdown.count(f"| {label} |") == len(report.tables())
        assert page.count(f'<th scope="row">{label}</th>') == len(report.tables())
    assert page.count("<svg") == 1 + len(report.drawings())
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_the_title_cannot_bring_markup_into_the_page():
    assert "<script>" not in render_benchmark(BenchmarkReport([make_run()]), "<script>alert(1)</script>")


def test_the_command_writes_page_and_figures_and_prints_json(folder: Path):
    shown = runner.invoke(app, ["report", str(folder), "--json"])
    assert shown.exit_code == 0
    data = json.loads(shown.stdout)
    assert data["metrics"] == json.loads((folder / "metrics.json").read_bytes())
    assert data["differences"] == json.loads((folder / "differences.json").read_bytes())
    assert data["runs"] == [str(folder / "seed-0"), str(folder / "seed-1")]
    assert (folder / "report.html").is_file()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--size", "huge"), "none of tiny, demo, small, full"),
        (("--seeds", "0"), "--seeds"),
        (("--first-seed", "-1"), "--first-seed"),
        (("--facts", "nowhere.jsonl"), "nowhere.jsonl"),
    ],
)
def test_bad_options_are_refused_before_anything_is_loaded(options: tuple[str, ...], named: str):
    refused = runner.invoke(app, ["benchmark", *options], env={"COLUMNS": "200"})
    assert refused.exit_code == 2
    assert named in refused.output


# ------------------------------------------------------------------------------------- comparison


def test_two_benchmarks_are_compared_in_pairs_of_seeds():
    old = [make_run(seed=seed, wrong_every=BEATEN) for seed in (0, 1)]
    new = [make_run(seed=seed, wrong_every=BEATEN | {"sharpwave": 6}) for seed in (0, 1)]
    rows = {row.figure: row for row in benchmark_comparison(old, new)}
    ours = rows["Sharpwave: EM"]
    assert ours.difference == pytest.approx(1 / 6)
    assert ours.n_pairs == 120
    assert ours.low is not None
    assert ours.low > 0
    assert rows["full store: EM"].difference == 0
    assert rows["full store: EM"].low == 0
    assert rows["Sharpwave: facts stored"].difference == 0


def test_other_seeds_give_no_pairs():
    rows = benchmark_comparison([make_run(seed=0)], [make_run(seed=1)])
    assert all(row.low is None and row.n_pairs == 0 for row in rows)


def test_the_command_compares_benchmarks_and_refuses_a_mixture(folder: Path, tmp_path: Path):
    other = tmp_path / "other"
    write_run(other / "seed-0", make_run(seed=0))
    shown = runner.invoke(app, ["report", str(folder), str(other)])
    assert shown.exit_code == 0
    assert "A: bench" in shown.output
    mixed = runner.invoke(app, ["report", str(folder), str(other / "seed-0")])
    assert mixed.exit_code != 0
    assert "two of one kind" in mixed.output


# ------------------------------------------------------------------------------------------ records


def test_gzipped_lines_are_read_as_they_were(folder: Path):
    plain = read_benchmark(folder)
    for path in folder.glob("seed-*/*.jsonl"):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert read_benchmark(folder) == plain


def test_a_damaged_archive_is_an_error_with_its_name(folder: Path):
    path = folder / "seed-0" / "answers.jsonl"
    path.with_name("answers.jsonl.gz").write_bytes(gzip.compress(path.read_bytes())[:-20])
    path.unlink()
    with pytest.raises(InputError, match=r"answers\.jsonl"):
        read_benchmark(folder)
