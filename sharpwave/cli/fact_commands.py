"""`sharpwave facts`: public sets of facts, and your own, made ready for `sharpwave ingest`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sharpwave.cli.display import counted, note, print_json, say, warn
from sharpwave.cli.failures import FAILED
from sharpwave.cli.options import Choice, examples, takes_choice

if TYPE_CHECKING:
    from eval.public_sets.harvest import PublicSet

_REJECTS_SHOWN = 5


def register(app: typer.Typer, panel: str) -> None:
    """Add the command to the application."""
    app.command(
        "facts",
        rich_help_panel=panel,
        epilog=examples(
            "sharpwave facts popqa popQA.tsv --out popqa.jsonl",
            "sharpwave facts popqa hub:akariasai/PopQA --out popqa.jsonl",
            "sharpwave ingest popqa.jsonl",
        ),
    )(facts)


@takes_choice(settings=False, store=False, namespace=False)
def facts(
    choice: Choice,
    name: Annotated[
        str,
        typer.Argument(
            metavar="SET",
            help="counterfact, dyknow, known_1000, locomo, mquake-cf, mquake-t, popqa, templama, zsre, or own.",
        ),
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The set's file, which you have from its authors; or hub:owner/name, which needs a network. For own: "
            "JSON Lines with text, subject, relation, question and answer.",
        ),
    ],
    out: Annotated[Path, typer.Option(dir_okay=False, help="JSON Lines file for the facts.")],
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
) -> None:
    """Turn a public set into a file of facts, with several questions each, for `sharpwave ingest`.

    Where a set has changes, the older value comes before the newer one on the same slot. Wordings that are held out
    for evaluations are not written. What could not be used goes to a rejects file beside --out, each with the number
    of its record, the field and the reason. docs/public_sets.md says what each set's file looks like.

    Changes: writes --out and, if something could not be used, the same name ending in .rejects.jsonl.
    """
    from eval.public_sets.fact_lines import fact_lines, reject_lines
    from eval.public_sets.reading import read_public_set
    from eval.run_records import write_atomically

    rejects_path = out.with_suffix(".rejects.jsonl")
    taken = [path for path in (out, rejects_path) if path.exists()]
    if taken and not force:
        raise typer.BadParameter(f"{taken[0]} exists; --force replaces it", param_hint="--out")
    found = read_public_set(name, source)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, fact_lines(item.fact for item in found.facts).encode("utf-8"))
    rejects_path.unlink(missing_ok=True)
    if found.rejects:
        write_atomically(rejects_path, reject_lines(found.rejects).encode("utf-8"))
    if choice.as_json:
        _print_data(found, out, rejects_path)
    else:
        _print_summary(found, out, rejects_path)
    if not found.facts:
        raise typer.Exit(FAILED)


def _print_data(found: PublicSet, out: Path, rejects_path: Path) -> None:
    print_json({
        "set": found.name,
        "file": str(out),
        "facts": len(found.facts),
        "changes": len(found.updates),
        "repeats": found.repeats,
        "rejects": len(found.rejects),
        "rejects_file": str(rejects_path) if found.rejects else None,
    })


def _print_summary(found: PublicSet, out: Path, rejects_path: Path) -> None:
    say(
        f"{counted(len(found.facts), 'fact')} written to {out}, among them {counted(len(found.updates), 'change')}"
    )
    if found.repeats:
        say(f"{counted(found.repeats, 'record')} said what an earlier one had said")
    for reject in found.rejects[:_REJECTS_SHOWN]:
        place = f"record {reject.number}" + (f", field '{reject.field}'" if reject.field else "")
        note(f"{place}: {reject.reason}")
    if found.rejects:
        warn(f"{counted(len(found.rejects), 'record')} or parts of records not used, kept in {rejects_path}")
