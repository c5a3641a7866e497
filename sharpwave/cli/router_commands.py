"""`sharpwave label` and `train-router`: what the models know, and the heads that learn to tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sharpwave.cli.display import counted, note, print_json, print_table, say, warn
from sharpwave.cli.flow_runs import flow_session
from sharpwave.cli.model_commands import fetch_missing
from sharpwave.cli.options import Choice, examples, input_file, takes_choice
from sharpwave.cli.progress_display import shown_progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eval.labelling import LabelledFact
    from sharpwave.progress import Progress
    from sharpwave.records import Fact
    from sharpwave.settings import Settings


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to the application."""
    app.command(
        "label",
        rich_help_panel=panel,
        epilog=examples("sharpwave label --limit 200", "sharpwave label facts.jsonl --out labels.jsonl"),
    )(label)
    app.command(
        "train-router",
        rich_help_panel=panel,
        epilog=examples(
            "sharpwave train-router --out my-heads",
            "sharpwave ingest facts.jsonl --set router.heads=my-heads",
        ),
    )(train_router)


@takes_choice(store=False)
def label(
    choice: Choice,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE|-]",
            dir_okay=False,
            callback=lambda path: path and input_file(path),
            help="Facts with questions and answers, as for `ingest`; without a file, those a router is trained on.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write every label here, as JSON Lines.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Most facts per split, or of the file; 0 takes all.")] = 0,
) -> None:
    """Ask the large model every fact's last question without and with the fact, and count what it knows.

    A fact it answers alone is non-write; one it answers otherwise with every token above 0.5 is write-update; the rest
    is write-new. Answers are kept per model, so a run that was stopped goes on where it was.

    Changes: the labels in the model cache, and the --out file.
    """
    from eval.labelling import label_corpus, label_shares
    from serving.loaded_models import shared_models

    settings = choice.settings()
    facts, splits = _facts_to_label(settings, file, limit)
    with shown_progress(quiet=choice.as_json) as progress:
        fetch_missing(settings.models, progress)
        reader = shared_models(settings.models).reader
        progress.stage("asking the model", len(facts))
        labelled = label_corpus(reader, facts, splits, _counter(progress))
    if out is not None:
        _write_labels(out, labelled)
    shares = label_shares(labelled)
    if choice.as_json:
        print_json(shares)
    else:
        _print_shares(shares)
        if out is not None:
            say(f"labels  {out}")


def _facts_to_label(settings: Settings, file: Path | None, limit: int) -> tuple[list[Fact], list[str]]:
    """Return the facts to label and the split that each belongs to."""
    if file is None:
        from tasks.router_tasks import facts_for_router

        chosen = facts_for_router(settings, limit)
        pairs = [(item.fact, split) for split, items in chosen.items() for item in items]
        return [fact for fact, _ in pairs], [split for _, split in pairs]
    from eval.labelling import split_of_fact
    from sharpwave.errors import InputError
    from sharpwave.fact_files import AcceptedLine, read_facts

    facts, bad, bare = [], 0, 0
    for line in read_facts(file, namespace=settings.namespace, max_fact_chars=settings.max_fact_chars):
        if not isinstance(line, AcceptedLine):
            warn(f"left out: {line.error}")
            bad += 1
        elif not line.fact.questions:
            bare += 1
        else:
            facts.append(line.fact)
    if bare:
        warn(f"{counted(bare, 'fact')} left out: behaviour cannot label a fact without a question")
    if not facts:
        raise InputError("no fact with a question and an answer to label", file=str(file))
    facts = facts[:limit] if limit else facts
    return facts, [split_of_fact(fact) for fact in facts]


def _counter(progress: Progress) -> Any:
    done = 0

    def count(finished: int, _total: int) -> None:
        nonlocal done
        progress.advance(finished - done)
        done = finished

    return count


def _write_labels(out: Path, labelled: Sequence[LabelledFact]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(item.to_json(), ensure_ascii=False) + "\n" for item in labelled)
    part = out.with_name(f"{out.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(out)


def _print_shares(shares: dict[str, Any]) -> None:
    rows = [*shares["classes"].items(), ("right with the fact", shares["right_with_fact"])]
    print_table(
        ["class", "facts", "share", "95 % interval"],
        [
            [name, f"{row['n']:,}", f"{row['share']:.1%}", f"{row['low']:.1%} to {row['high']:.1%}"]
            for name, row in rows
        ],
        right=(1, 2, 3),
        title=f"{shares['n']:,} facts",
    )
    for kind in ("splits", "relations"):
        table = shares[kind]
        columns = list(next(iter(table.values()), {}))
        print_table(
            [kind[:-1], *(column.replace("_", " ") for column in columns)],
            [[name, *(f"{row[column]:,}" for column in columns)] for name, row in table.items()],
            right=range(1, len(columns) + 1),
        )


@takes_choice(store=False, namespace=False)
def train_router(
    choice: Choice,
    out: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder for the heads; by default where this profile reads them."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Most facts per split; 0 takes the default of each.")] = 0,
    target_em_loss: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the full store's right answers that may be lost.")
    ] = 0.02,
    max_escalation: Annotated[
        float, typer.Option(min=0, max=1, help="Largest share of facts that the large model is asked about.")
    ] = 0.3,
) -> None:
    """Train the router's heads and gate anew from what the models themselves answer. Takes an hour or more.

    Changes: replaces the heads in --out and the anchor bank that consolidation.anchors names; runs/ and mlruns/
    get the figures.
    """
    settings = choice.settings()
    folder = out or settings.router.heads_folder
    with flow_session(choice, settings):
        from flows import train_router as router_flow
        from tasks.run_settings import new_run_id

        record = router_flow.train_router(
            str(folder),
            new_run_id("train-router"),
            limit=limit,
            target_em_loss=target_em_loss,
            max_escalation=max_escalation,
            **choice.flow_arguments(),
        )
    if choice.as_json:
        print_json(record.model_dump(mode="json"))
        return
    figures = sorted(record.metrics.items())
    print_table(
        ["figure", "value"], [[name.replace("_", " "), f"{value:.4g}"] for name, value in figures], right=(1,)
    )
    say(f"heads  {record.folder}")
    if out is not None:
        note(f"To use them: --set router.heads={record.folder}, or the same in a file for --config.")
