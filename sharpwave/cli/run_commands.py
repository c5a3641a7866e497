"""`sharpwave demo`, `benchmark` and `report`: whole runs over a stream, and what they showed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sharpwave.cli.display import print_json, print_markdown, say
from sharpwave.cli.flow_runs import flow_session
from sharpwave.cli.options import Choice, examples, takes_choice
from sharpwave.errors import InputError

if TYPE_CHECKING:
    from sharpwave.settings import Settings

Seed = Annotated[int, typer.Option(min=0, help="Seed of the stream and of everything random in the run.")]
Size = Annotated[str, typer.Option(help="Length of the stream: tiny, demo, small or full.")]


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to the application."""
    app.command(
        "demo",
        rich_help_panel=panel,
        epilog=examples("sharpwave demo", "sharpwave demo --seed 1 --out runs/demo-1"),
    )(demo)
    app.command(
        "benchmark",
        rich_help_panel=panel,
        epilog=examples(
            "sharpwave benchmark --size small --seeds 3 --out runs/benchmark",
            "sharpwave benchmark --facts my_facts.jsonl",
            "sharpwave benchmark --set router.storage_price=0.2 --out runs/dear-storage",
        ),
    )(benchmark)
    app.command(
        "report",
        rich_help_panel=panel,
        epilog=examples(
            "sharpwave report runs/demo",
            "sharpwave report runs/demo runs/demo-1",
            "sharpwave report runs/benchmark runs/dear-storage",
        ),
    )(report)


@takes_choice(store=False, namespace=False)
def demo(
    choice: Choice,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder of the run.")] = Path("runs/demo"),
    size: Size = "demo",
) -> None:
    """Show the whole memory loop on real models and real facts, in about ten minutes on two cores.

    Facts stream in, the router decides, questions are answered, one consolidation trains the model; the same
    questions are put to a full store, to no memory and to a random choice.

    Changes: the --out folder is emptied first (only if it holds a former run) and then holds store, records and
    report; mlruns/ gets the figures; the model cache is filled if something is missing.
    """
    settings = _settings_for(choice, size)
    with flow_session(choice, settings):
        from flows.run_demo import run_demo

        run_demo(str(out), seed, size=size, **choice.flow_arguments())
    _show_run(out, settings, as_json=choice.as_json)


@takes_choice(store=False, namespace=False)
def benchmark(
    choice: Choice,
    seeds: Annotated[
        int, typer.Option(min=1, help="How many streams to run, each with a seed of its own.")
    ] = 1,
    first_seed: Annotated[
        int, typer.Option(min=0, help="The lowest seed. Machines that share --out can each run others.")
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder of the benchmark; a new one by default.")
    ] = None,
    size: Size = "small",
    facts: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="JSON Lines of your own facts to make the streams of."
        ),
    ] = None,
) -> None:
    """Measure this configuration on streams beside twelve other arms, from full store to oracle admission.

    Each seed is a run of its own in DIR/seed-N. `sharpwave report` shows one of them, or DIR with all seeds together.
    With the --out folder of a benchmark that was stopped, it goes on there: at the seed, the step and the arm.

    Changes: writes the folder and mlruns/.
    """
    settings = _settings_for(choice, size)
    with flow_session(choice, settings):
        from flows.benchmark_memory import benchmark_memory
        from tasks.run_settings import new_run_id

        folder = out or settings.runs_dir / new_run_id("benchmark")
        given = str(facts) if facts is not None else None
        benchmark_memory(
            str(folder), seeds, size, facts=given, first_seed=first_seed, **choice.flow_arguments()
        )
    _show_benchmark(folder, as_json=choice.as_json)
    if not choice.as_json:
        from tasks.tracking import where_to_look

        say(f"curves   {where_to_look(settings)}")


@takes_choice(settings=False, store=False, namespace=False)
def report(
    choice: Choice,
    run: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run or of a benchmark.")],
    other: Annotated[
        Path | None, typer.Argument(metavar="[DIR2]", help="Another one of its kind to compare it with.")
    ] = None,
) -> None:
    """Show what a run or a benchmark showed, or compare two of them.

    Changes: report.html in DIR is written anew, for a benchmark metrics.json and differences.json too. Comparing
    changes nothing.
    """
    from eval.benchmark_folder import is_benchmark

    if other is not None:
        if is_benchmark(run) != is_benchmark(other):
            raise InputError(
                f"a run and a benchmark cannot be compared; give {run} and {other} as two of one kind",
                file=str(other),
            )
        _compare_benchmarks(run, other, choice) if is_benchmark(run) else _compare_runs(run, other, choice)
    elif is_benchmark(run):
        _show_benchmark(run, as_json=choice.as_json)
    else:
        _show_anew(run, as_json=choice.as_json)


def _compare_runs(run: Path, other: Path, choice: Choice) -> None:
    from eval.comparison import comparison_markdown, comparison_table
    from eval.run_records import read_run

    first, second = read_run(run), read_run(other)
    rows = comparison_table(first, second)
    if choice.as_json:
        print_json([row._asdict() for row in rows])
    else:
        print_markdown(comparison_markdown(rows, first.config.run_id, second.config.run_id))


def _compare_benchmarks(folder: Path, other: Path, choice: Choice) -> None:
    from eval.benchmark_comparison import BENCHMARK_NOTE, benchmark_comparison
    from eval.benchmark_folder import read_benchmark
    from eval.comparison import comparison_markdown

    rows = benchmark_comparison(read_benchmark(folder), read_benchmark(other))
    if choice.as_json:
        print_json([row._asdict() for row in rows])
    else:
        print_markdown(comparison_markdown(rows, folder.name, other.name, BENCHMARK_NOTE))


def _show_anew(run: Path, *, as_json: bool) -> None:
    from eval.report import report_markdown, write_report
    from eval.run_records import read_run

    read = read_run(run)
    page = write_report(read, run)
    if as_json:
        print_json(_run_as_data(run, page))
        return
    print_markdown(report_markdown(read))
    say(f"\npage     {page}")


def _show_benchmark(folder: Path, *, as_json: bool) -> None:
    from eval.benchmark_figures import write_benchmark
    from eval.benchmark_folder import read_benchmark, seed_folder, unfinished_seeds
    from eval.benchmark_report import BenchmarkReport, benchmark_markdown, write_benchmark_report

    shown = BenchmarkReport(read_benchmark(folder))
    figures, differences = write_benchmark(folder, shown.metrics, shown.differences)
    page = write_benchmark_report(folder, shown)
    left_out = unfinished_seeds(folder)
    if as_json:
        print_json({
            "folder": str(folder),
            "report": str(page),
            "runs": [str(seed_folder(folder, seed)) for seed in shown.metrics["seeds"]],
            "unfinished_seeds": left_out,
            "metrics": shown.metrics,
            "differences": shown.differences,
        })
        return
    print_markdown(benchmark_markdown(shown))
    if left_out:
        say(f"\nnot finished, left out: seed {', '.join(map(str, left_out))}")
    say(f"\npage     {page}")
    say(f"figures  {figures}, {differences.name}")


def _settings_for(choice: Choice, size: str) -> Settings:
    """Return the settings, after a check of what would otherwise fail minutes later."""
    from tasks.stream_sizes import STREAM_SIZES

    if size not in STREAM_SIZES:
        raise typer.BadParameter(f"{size!r} is none of {', '.join(STREAM_SIZES)}", param_hint="--size")
    return choice.settings()


def _show_run(folder: Path, settings: Settings, *, as_json: bool) -> None:
    from eval.report import REPORT_FILE, report_markdown
    from eval.run_records import METRICS_FILE, read_run
    from tasks.tracking import where_to_look

    page = folder / REPORT_FILE
    if as_json:
        print_json(_run_as_data(folder, page))
        return
    print_markdown(report_markdown(read_run(folder)))
    say(f"\npage     {page}")
    say(f"figures  {folder / METRICS_FILE}")
    say(f"curves   {where_to_look(settings)}")


def _run_as_data(folder: Path, page: Path) -> dict[str, Any]:
    from eval.run_records import read_run

    run = read_run(folder)
    return {
        "folder": str(folder),
        "report": str(page),
        "metrics": run.metrics.model_dump(mode="json"),
        "arms": [arm.model_dump(mode="json") for arm in run.arms],
    }
