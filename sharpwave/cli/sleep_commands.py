"""`sharpwave consolidate` and `schedule`: what changes the weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sharpwave.cli.display import note, print_json, print_table, say, shown, warn
from sharpwave.cli.flow_runs import flow_session
from sharpwave.cli.model_commands import fetch_missing
from sharpwave.cli.night_page import print_night, print_rejections
from sharpwave.cli.options import Choice, examples, takes_choice
from sharpwave.cli.progress_display import shown_progress
from sharpwave.cli.review_commands import settled

if TYPE_CHECKING:
    from consolidation.records import NightPlan
    from sharpwave.settings import Settings


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to the application."""
    app.command(
        "consolidate",
        rich_help_panel=panel,
        epilog=examples(
            "sharpwave consolidate --dry-run",
            "sharpwave consolidate",
            "sharpwave consolidate --review && sharpwave diff",
        ),
    )(consolidate)
    app.command(
        "schedule",
        rich_help_panel=panel,
        epilog=examples(
            "sharpwave schedule", "sharpwave schedule --cron '30 2 * * 1-5' --timezone Europe/Madrid"
        ),
    )(schedule)


@takes_choice(namespace=False)
def consolidate(
    choice: Choice,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be written back; change nothing.")
    ] = False,
    new: Annotated[
        bool,
        typer.Option(
            "--new",
            help="Begin anew even if a consolidation was interrupted; one that waits for review is rejected.",
        ),
    ] = False,
    evict_now: Annotated[
        bool,
        typer.Option(
            "--evict-now",
            help="Take proven facts out of the store at once, not after a second proof when the next one begins.",
        ),
    ] = False,
    review: Annotated[
        bool, typer.Option("--review", help="Stop before anything changes, until accept or reject decides.")
    ] = False,
) -> None:
    """Write stored facts into the weights, prove them, take out of the store what was proven twice.

    A fact stays in the store after its first proof and leaves it when the next consolidation, before it trains, finds
    it proven again; --evict-now takes it out at once. Facts that the new weights do not answer any more come back into
    the store. A consolidation that was interrupted is finished first. With --review it trains and judges and then
    waits: `sharpwave diff` shows what it would change, `sharpwave accept` does it. Takes minutes.

    Changes: the store (generations, ledger, index, consolidations), runs/ and mlruns/; with --dry-run nothing.
    """
    from serving.store_status import require_store

    if evict_now:
        choice = choice.with_override("consolidation.evict_now=true")
    settings = choice.settings()
    require_store(settings.store.path)
    if dry_run:
        from flows.consolidate_memory import plan_only

        with shown_progress(quiet=choice.as_json) as progress:
            fetch_missing(settings.models, progress)
            plan = plan_only(**choice.flow_arguments())
        if choice.as_json:
            print_json(plan.model_dump(mode="json"))
        else:
            _print_plan(plan)
        return
    run_id = _night_to_run(settings, new=new)
    with flow_session(choice, settings):
        from flows.consolidate_memory import consolidate_memory

        report = consolidate_memory(run_id, **choice.flow_arguments(), review=review)
    if choice.as_json:
        print_json(report.model_dump(mode="json"))
    else:
        print_night(report, settings.store.path)


@takes_choice(json=False)
def schedule(
    choice: Choice,
    cron: Annotated[str, typer.Option(help="When: minute, hour, day, month, weekday.")] = "0 3 * * *",
    timezone: Annotated[str, typer.Option(help="Time zone of the schedule, such as Europe/Madrid.")] = "UTC",
    inbox: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder of fact files to take in; <store>/inbox by default."),
    ] = None,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Where the page with all runs is shown.")
    ] = 4200,
) -> None:
    """Serve the nightly cycle until Ctrl-C: finish what was interrupted, take in the inbox, consolidate.

    Missed nights are made up by one run. With PREFECT_API_URL set, that server is used.

    Changes: Prefect's database under SHARPWAVE_HOME; each run changes what ingest and consolidate change.
    """
    settings = choice.settings()
    with shown_progress(quiet=False) as progress:
        fetch_missing(settings.models, progress)
    from flows.serve_schedule import serve_schedule

    folder = (inbox or settings.store.path / "inbox").absolute()
    note(
        f"The nightly cycle runs at '{cron}' ({timezone}) on the store {settings.store.path}, inbox {folder}."
    )
    note(f"Its runs are shown at http://127.0.0.1:{port}; Ctrl-C stops the schedule.")
    serve_schedule({**choice.flow_arguments(), "inbox": str(folder)}, cron=cron, timezone=timezone, port=port)


def _night_to_run(settings: Settings, *, new: bool) -> str:
    from consolidation.night_folder import unfinished_nights, waiting_night
    from consolidation.records import ReviewDecision
    from consolidation.review import DECIDES
    from sharpwave.errors import StoreError
    from tasks.run_settings import new_run_id

    waiting = waiting_night(settings.store.path)
    if waiting is not None:
        if not new:
            raise StoreError(
                f"the consolidation {waiting} waits for review; {DECIDES}; --new rejects it and begins another"
            )
        settled(settings, ReviewDecision.REJECTED)
        note(f"The consolidation {waiting}, which waited for review, was rejected.")
    interrupted = unfinished_nights(settings.store.path)
    if interrupted and not new:
        note(f"Going on with the interrupted consolidation {interrupted[0]}; --new begins another.")
        return interrupted[0]
    return new_run_id("night")


def _print_plan(plan: NightPlan) -> None:
    say(
        f"would write {len(plan.targets)} of {plan.hot_before} stored facts into generation {plan.parent}'s successor"
    )
    print_table(
        ["fact", "text", "question", "answer"],
        [
            [
                item.fact_id[:12],
                shown(item.text, 80),
                shown(item.train_questions[0], 60),
                shown(item.answers[0], 40),
            ]
            for item in plan.targets
        ],
    )
    print_rejections(plan.rejected)
    if not plan.is_worthwhile:
        warn(f"the consolidation would be skipped: {plan.shortage}")
    say("nothing was changed")
