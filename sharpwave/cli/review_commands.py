"""`sharpwave diff`, `accept` and `reject`: look at what a consolidation changes, and decide about one that waits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sharpwave.cli.display import counted, note, print_json, say
from sharpwave.cli.night_page import print_diff, print_night
from sharpwave.cli.opened_store import opened_store
from sharpwave.cli.options import Choice, examples, takes_choice

if TYPE_CHECKING:
    from consolidation.records import NightReport, ReviewDecision
    from sharpwave.settings import Settings

_Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="FACT_ID", help="Ids of facts, or beginnings of them; the whole by default."),
]


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to the application."""
    app.command(
        "diff",
        rich_help_panel=panel,
        epilog=examples("sharpwave diff", "sharpwave diff 2 --html changes.html"),
    )(diff)
    app.command(
        "accept", rich_help_panel=panel, epilog=examples("sharpwave accept", "sharpwave accept 3f9a 77b1")
    )(accept)
    app.command(
        "reject",
        rich_help_panel=panel,
        epilog=examples("sharpwave reject 3f9a && sharpwave accept", "sharpwave reject"),
    )(reject)


@takes_choice(namespace=False)
def diff(
    choice: Choice,
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="GEN|RUN_ID",
            help="A generation's number or the name of a consolidation; by default the one that waits for review, "
            "or else the one that made the current generation.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="Write a page for a browser as well; replaces FILE."
        ),
    ] = None,
) -> None:
    """Show what a consolidation changes, before or after it is done: facts that enter or leave weights and store.

    What enters the weights is green, what leaves weights or store is struck out; below stand the facts that were
    not proven, with the probes they failed and the lowest token probability, and those left out, with the reason.

    Loads no model. Changes nothing but the FILE of --html.
    """
    from carriers.store_layout import open_generations, open_ledger
    from consolidation.night_diff import find_night, read_diff
    from serving.store_status import require_store

    settings = choice.settings()
    directory = settings.store.path
    require_store(directory)
    with open_ledger(directory) as ledger:
        run_id = find_night(directory, open_generations(directory, ledger), which)
        found = read_diff(directory, ledger, run_id, settings.consolidation.probe.min_token_prob)
    if html is not None:
        from eval.night_page import write_night_page

        write_night_page(found, html)
        note(f"Page written to {html}")
    if choice.as_json:
        print_json(found.model_dump(mode="json"))
    else:
        print_diff(found)


@takes_choice(namespace=False)
def accept(choice: Choice, ids: _Ids = None) -> None:
    """Promote the consolidation that waits for review, with all that follows from it.

    With ids, take back an earlier `sharpwave reject` of these facts; the consolidation goes on waiting. Refused when
    another generation has become current meanwhile. Run again, it finishes what was interrupted.

    Changes: the current pointer, facts and index of the store, in one transaction; with ids only the review.
    """
    from consolidation.records import ReviewDecision

    if ids:
        _mark(choice, ids, keep=False)
    else:
        _settle(choice, ReviewDecision.ACCEPTED)


@takes_choice(namespace=False)
def reject(choice: Choice, ids: _Ids = None) -> None:
    """Discard the consolidation that waits for review: no fact moves, and the former generation stays current.

    With ids, only keep these facts in the store although the new weights were trained on them; the consolidation
    goes on waiting for accept or reject. A later consolidation may take them on again.

    Changes: the new generation is discarded and its adapter deleted; with ids only the review.
    """
    from consolidation.records import ReviewDecision

    if ids:
        _mark(choice, ids, keep=True)
    else:
        _settle(choice, ReviewDecision.REJECTED)


def _mark(choice: Choice, ids: list[str], *, keep: bool) -> None:
    from carriers.store_layout import open_ledger
    from consolidation.night import night_lease
    from consolidation.reviewing import mark_in_review
    from serving.fact_lookup import find_fact_ids
    from serving.store_status import require_store

    directory = choice.settings().store.path
    require_store(directory)
    with night_lease(directory), open_ledger(directory) as ledger:
        review = mark_in_review(directory, find_fact_ids(ledger, ids), keep=keep)
    if choice.as_json:
        print_json(review.model_dump(mode="json"))
        return
    say(f"{counted(len(review.kept), 'fact')} will stay in the store although the new weights hold them")
    note("The consolidation still waits: `sharpwave accept` promotes it, `sharpwave reject` discards it.")


def settled(settings: Settings, decision: ReviewDecision) -> NightReport:
    """Accept or reject the consolidation under review and return its report; see `settle_review`.

    Afterwards the adapters of old generations are deleted.
    """
    from carriers.retention import retire_generations
    from consolidation.night import night_lease
    from consolidation.reviewing import settle_review
    from serving.store_status import require_store

    require_store(settings.store.path)
    with night_lease(settings.store.path), opened_store(settings) as memory:
        report = settle_review(memory, decision)
        retire_generations(memory.generations, settings.consolidation.keep_generations)
        return report


def _settle(choice: Choice, decision: ReviewDecision) -> None:
    settings = choice.settings()
    report = settled(settings, decision)
    if choice.as_json:
        print_json(report.model_dump(mode="json"))
    else:
        print_night(report, settings.store.path)
