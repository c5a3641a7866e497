"""`sharpwave forget`, `doctor`, `rollback`, `export` and `import`: care for a store."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from sharpwave.cli.display import counted, note, print_json, say, shown, warn
from sharpwave.cli.failures import FAILED
from sharpwave.cli.opened_store import opened_store
from sharpwave.cli.options import Choice, examples, input_file, takes_choice

if TYPE_CHECKING:
    from carriers.doctor import DoctorReport
    from carriers.ledger_records import StoredFact


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to the application."""
    app.command(
        "forget",
        rich_help_panel=panel,
        epilog=examples("sharpwave forget 3f9a", "sharpwave forget 3f9a 77b1 --yes"),
    )(forget)
    app.command(
        "doctor", rich_help_panel=panel, epilog=examples("sharpwave doctor", "sharpwave doctor --repair")
    )(doctor)
    app.command(
        "rollback", rich_help_panel=panel, epilog=examples("sharpwave rollback", "sharpwave rollback 0")
    )(rollback)
    app.command(
        "export",
        rich_help_panel=panel,
        epilog=examples("sharpwave export memory.jsonl", "sharpwave export - | gzip > memory.jsonl.gz"),
    )(export)
    app.command(
        "import",
        rich_help_panel=panel,
        epilog=examples(
            "sharpwave import memory.jsonl --store new-store",
            "sharpwave import memory.jsonl --store new-store --weights memory-store",
        ),
    )(import_)


@takes_choice()
def forget(
    choice: Choice,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of facts, or beginnings of them.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove the words of facts for good, at a person's request; a tombstone without words stays.

    Changes: the ledger, the index and the plans of consolidations lose the words. What the weights have learnt
    stays in them until a rollback; files you ingested, exports and rejects files are yours to delete.
    """
    from consolidation.night_folder import forget_words
    from serving.fact_lookup import find_fact_ids

    settings = choice.settings()
    with opened_store(settings) as memory:
        found = find_fact_ids(memory.ledger, ids, choice.namespace)
        facts = memory.ledger.facts(found)
        _confirm(facts, yes=yes)
        learnt = [fact for fact in facts if fact.trained_generation is not None]
        count = memory.forget(found)
        forget_words(memory.directory, found)
    if choice.as_json:
        print_json({"forgotten": count, "ids": found, "in_weights": [fact.id for fact in learnt]})
        return
    say(
        f"{count} of {counted(len(found), 'fact')} forgotten"
        + ("" if count == len(found) else "; the others were before")
    )
    if learnt:
        first = min(fact.trained_generation or 0 for fact in learnt)
        warn(
            f"generation {first} and later were trained on {len(learnt)} of them and may still answer; "
            "`sharpwave status` lists the generations, `sharpwave rollback` leaves them"
        )


@takes_choice(namespace=False)
def doctor(
    choice: Choice,
    repair: Annotated[bool, typer.Option("--repair", help="Mend the index from the ledger.")] = False,
    reembed: Annotated[
        bool,
        typer.Option("--reembed", help="Build index and scopes anew with the embedder of these settings."),
    ] = False,
) -> None:
    """Compare ledger, index and adapters, and say what is wrong and what to do.

    Exits with 1 if faults remain. Changes nothing without an option; --repair and --reembed change the index and
    remove what killed consolidations left, but nothing that waits for review. The ledger is never changed to fit
    the index.
    """
    from carriers.doctor import run_doctor
    from consolidation.night import night_lease
    from consolidation.reviewing import generations_in_review
    from consolidation.scopes import rescope_generations
    from serving.loaded_models import shared_models
    from serving.store_status import require_store

    settings = choice.settings()
    require_store(settings.store.path)
    found = run_doctor(
        settings.store.path,
        shared_models(settings.models).embedder,
        repair=repair,
        reembed=reembed,
        in_review=generations_in_review(settings.store.path),
        lock_timeout_seconds=settings.store.lock_timeout_seconds,
    )
    if reembed:
        with opened_store(settings) as memory, night_lease(settings.store.path):
            rescope_generations(memory, settings.consolidation.scope_similarity)
    if choice.as_json:
        print_json(found.to_dict())
    else:
        _print_report(found)
    if not (found.clean or found.repaired):
        raise typer.Exit(FAILED)


@takes_choice(namespace=False)
def rollback(
    choice: Choice,
    generation: Annotated[
        int | None,
        typer.Argument(min=0, help="Generation to make current; the parent of the current by default."),
    ] = None,
) -> None:
    """Make another generation of the weights current; what only later ones knew goes back into the store.

    A later generation can be made current again in the same way. Changes: the current pointer, facts and index of
    the store, in one transaction; no adapter is deleted.
    """
    from consolidation.night import night_lease
    from sharpwave.errors import StoreError
    from tasks.run_settings import new_run_id

    settings = choice.settings()
    with opened_store(settings) as memory, night_lease(settings.store.path):
        current = memory.generations.current()
        target = current.parent if generation is None else generation
        if target is None:
            raise StoreError("the base model, generation 0, is current; there is nothing before it")
        if target == current.number:
            raise StoreError(f"generation {target} is current already")
        receipt = memory.rollback(target, new_run_id("rollback"))
    if choice.as_json:
        print_json(receipt.model_dump(mode="json"))
        return
    say(f"generation {receipt.to_number} is current now, before it was {receipt.from_number}")
    say(f"{counted(receipt.readmitted, 'fact')} went back into the store, {receipt.internalised} left it")
    if receipt.overridden:
        say(
            f"{counted(receipt.overridden, 'fact')} stored because the weights hold an older value of their slot"
        )


@takes_choice()
def export(
    choice: Choice,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE|-", dir_okay=False, help="JSON Lines file, or - for stdout."),
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Write every fact with its full life as JSON Lines; with --namespace only those of one.

    Works while another process writes the store. Adapters are not in the file: keep the folder 'generations' of
    the store for them. Changes: writes FILE, as a whole or not at all.
    """
    from carriers.store_layout import open_generations, open_ledger
    from serving.store_status import require_store
    from serving.store_transfer import export_lines

    directory = choice.settings().store.path
    require_store(directory)
    if str(file) != "-" and file.exists() and not force:
        raise typer.BadParameter(f"{file} exists; --force replaces it", param_hint="FILE")
    count = -2  # header and end are no facts
    with open_ledger(directory) as ledger, _written_whole(file) as stream:
        for line in export_lines(ledger, open_generations(directory, ledger), choice.namespace):
            stream.write(line.encode("utf-8") + b"\n")
            count += 1
    if str(file) == "-":
        return
    if choice.as_json:
        print_json({"file": str(file), "facts": count})
    else:
        say(f"{counted(count, 'fact')} with all that happened written to {file}")


@takes_choice()
def import_(
    choice: Choice,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE|-", dir_okay=False, callback=input_file, help="What export wrote."),
    ],
    weights: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Former store, to take over its generations, too."),
    ] = None,
) -> None:
    """Take in what `sharpwave export` wrote, all of it or nothing; for files of facts use `sharpwave ingest`.

    Facts that the store has already are left as they are. Without --weights, what only an adapter knew becomes
    hot here. Changes: the store, made if it is missing.
    """
    from serving.opened_store import open_store
    from serving.store_transfer import import_lines

    with open_store(choice.settings(), writer=True) as memory:
        if str(file) == "-":
            name, stream = "standard input", sys.stdin.buffer
            receipt = import_lines(memory, stream, name, weights=weights, namespace=choice.namespace)
        else:
            with file.open("rb") as opened:
                receipt = import_lines(memory, opened, str(file), weights=weights, namespace=choice.namespace)
    if choice.as_json:
        print_json(receipt.model_dump(mode="json"))
        return
    say(f"{counted(receipt.read, 'fact')} read, {receipt.new} new here")
    say(f"{counted(receipt.generations, 'generation')} taken over")
    if not receipt.same_weights:
        note("The generations of the export were not taken over: what only they knew is hot here.")


def _confirm(facts: list[StoredFact], *, yes: bool) -> None:
    if yes:
        return
    for fact in facts:
        note(f"{fact.id[:12]}  {'(forgotten before)' if fact.words is None else shown(fact.words.text)}")
    typer.confirm(f"Forget {counted(len(facts), 'fact')} for good?", abort=True, err=True)


def _print_report(report: DoctorReport) -> None:
    findings = report.findings
    for finding in findings:
        say(f"{'fault ' if finding.is_fault else 'notice'}  {shown(finding.problem, 1000)}")
        if not report.is_repair:
            say(f"        {finding.remedy}")
    if report.clean:
        say(f"the store is sound; {counted(report.hot_facts, 'fact')} in the index")
    elif report.repaired:
        say("everything was mended")
    elif report.is_repair:
        say("after the repair there remain:")
        for finding in report.remaining:
            say(f"        {shown(finding.problem, 1000)}: {finding.remedy}")


@contextmanager
def _written_whole(file: Path) -> Iterator[IO[bytes]]:
    """Yield a stream whose content becomes the file when the block succeeds; `-` is standard output."""
    if str(file) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
