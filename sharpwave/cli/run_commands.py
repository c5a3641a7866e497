"""`sharpwave demo`, `benchmark` and `report`: whole runs over a stream, and what they showed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sharpwave.cli.display import print_json, print_markdown, say
from sharpwave.cli.flow_runs import flow_session
from sharpwave.cli.options import Choice, examples, takes_choice

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
        epilog=examples("sharpwave report runs/demo", "sharpwave report runs/demo runs/demo-1"),
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
        int, typer.Option(min=1, help="Streams to run: with the seeds 0, 1, ... up to one less than this.")
    ] = 1,
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

    Each seed is a run of its own in DIR/seed-N, which `sharpwave report` shows. With the --out folder of a benchmark
    that was stopped, it goes on there: at the seed, the step and the arm.

    Changes: writes the folder and mlruns/.
    """
    settings = _settings_for(choice, size)
    with flow_session(choice, settings):
        from flows.benchmark_memory import benchmark_memory
        from tasks.run_settings import new_run_id

        folder = out or settings.runs_dir / new_run_id("benchmark")
        given = str(facts) if facts is not None else None
        runs = benchmark_memory(str(folder), seeds, size, facts=given, **choice.flow_arguments())
    if choice.as_json:
        from eval.benchmark_figures import BENCHMARK_METRICS_FILE, DIFFERENCES_FILE

        files = {"metrics": BENCHMARK_METRICS_FILE, "differences": DIFFERENCES_FILE}
        written = {key: json.loads((folder / name).read_bytes()) for key, name in files.items()}
        print_json({"folder": str(folder), "runs": runs, **written})
        return
    for run in runs:
        _show_run(Path(run), settings, as_json=False)
    say(f"\nall seeds  {folder}")


@takes_choice(settings=False, store=False, namespace=False)
def report(
    choice: Choice,
    run: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run.")],
    other: Annotated[
        Path | None, typer.Argument(metavar="[DIR2]", help="Another run to compare it with.")
    ] = None,
) -> None:
    """Show what a run showed, or compare two runs.

    Changes: report.html in DIR is written anew. Comparing changes nothing.
    """
    from eval.comparison import comparison_markdown, comparison_table
    from eval.report import report_markdown, write_report
    from eval.run_records import read_run

    first = read_run(run)
    if other is not None:
        second = read_run(other)
        if choice.as_json:
            print_json([row._asdict() for row in comparison_table(first, second)])
        else:
            print_markdown(comparison_markdown(first, second))
        return
    page = write_report(first, run)
    if choice.as_json:
        print_json(_run_as_data(run, page))
        return
    print_markdown(report_markdown(first))
    say(f"\npage     {page}")


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
