"""`sharpwave ingest`, `ask`, `status` and `history`: the daily use of a memory."""

from __future__ import annotations

import shutil
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sharpwave.cli.display import counted, note, print_json, print_table, say, shown, warn
from sharpwave.cli.failures import FAILED
from sharpwave.cli.flow_runs import flow_session
from sharpwave.cli.model_commands import fetch_missing
from sharpwave.cli.options import Choice, examples, input_file, takes_choice
from sharpwave.cli.progress_display import shown_progress

if TYPE_CHECKING:
    from carriers.ledger import Ledger
    from carriers.ledger_records import Event, StoredFact
    from serving.ingestion import IngestSummary
    from sharpwave.records import RecallAnswer

_NOTES_SHOWN = 8
_GUESS = 0.3  # an answer with a less probable token is called a guess


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to the application."""
    app.command(
        "ingest",
        rich_help_panel=panel,
        epilog=examples(
            "sharpwave ingest facts.jsonl", "echo 'Mira works as a notary.' | sharpwave ingest - --text"
        ),
    )(ingest)
    app.command(
        "ask",
        rich_help_panel=panel,
        epilog=examples(
            'sharpwave ask "What does Mira do?"', 'sharpwave ask "Who chaired the board?" --as-of 2019-06-01'
        ),
    )(ask)
    app.command("status", rich_help_panel=panel, epilog=examples("sharpwave status --store memory-store"))(
        status
    )
    app.command(
        "history",
        rich_help_panel=panel,
        epilog=examples("sharpwave history 3f9a", "sharpwave history 'lives in Porto' --json"),
    )(history)


@takes_choice()
def ingest(
    choice: Choice,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|-",
            dir_okay=False,
            callback=input_file,
            help="A .jsonl or .ndjson file with one {'text': ...} object per line, a .txt file with one fact per "
            "line, or - for standard input.",
        ),
    ],
    text: Annotated[
        bool, typer.Option("--text", help="Standard input holds one fact per line instead of JSON.")
    ] = False,
) -> None:
    """Take facts into the memory: record each word for word, route it, store what is worth storing.

    Bad lines never stop good ones; they go to a rejects file in the store. Mend their 'original' there and ingest
    that file. Taking in a file again doubles nothing.

    Changes: the store (made if it is missing), runs/ (decisions) and mlruns/ (figures).
    """
    if text and str(file) != "-":
        raise typer.BadParameter("is for standard input; name the file .txt instead", param_hint="--text")
    settings = choice.settings()
    _refuse_export(file)
    with flow_session(choice, settings):
        summary = _ingest(choice, settings.store.path, file, text)
    if choice.as_json:
        print_json(summary.model_dump(mode="json"))
    else:
        _print_summary(summary)
    if summary.rejected and not summary.observed:
        raise typer.Exit(FAILED)


@takes_choice()
def ask(
    choice: Choice,
    questions: Annotated[
        list[str] | None, typer.Argument(metavar="QUESTION...", help="Questions, each in quotes.")
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="Answer with what was valid then: a year or an ISO date."),
    ] = None,
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Read questions from standard input, one a line.")
    ] = False,
) -> None:
    """Answer questions from store and weights, and tell which of the two gave the answer.

    Changes nothing in the store.
    """
    from serving.agent_memory import AgentMemory
    from serving.store_status import require_store

    asked = _questions(questions or [], stdin)
    moment = _moment(as_of)
    settings = choice.settings()
    require_store(settings.store.path)
    with shown_progress(quiet=choice.as_json) as progress:
        fetch_missing(settings.models, progress)
    with AgentMemory.open(settings) as memory:
        answers = memory.ask(asked, as_of=moment)
        read = {fact_id for answer in answers for fact_id in answer.fact_ids}
        words = {
            fact.id: fact.words.text
            for fact in memory.memory.ledger.facts(sorted(read))
            if fact.words is not None
        }
    if choice.as_json:
        print_json([_answer_as_data(answer, words) for answer in answers])
        return
    for number, answer in enumerate(answers):
        if number:
            say()
        _print_answer(answer, words, with_question=len(answers) > 1)


@takes_choice()
def status(choice: Choice) -> None:
    """Show what the store holds, the generations of the weights and the last consolidations.

    Loads no model, and works while another process writes the store. Changes nothing.
    """
    from serving.store_status import read_drift, read_status
    from sharpwave.cli.status_page import print_status

    settings = choice.settings()
    found = read_status(settings.store.path, choice.namespace)
    drift = read_drift(settings)
    if choice.as_json:
        print_json(found.to_dict() | {"drift": drift.to_json()})
    else:
        print_status(found)
        for text in drift.warnings:
            warn(text)


@takes_choice()
def history(
    choice: Choice,
    fact_id: Annotated[
        str,
        typer.Argument(
            metavar="ID|WORDS",
            help="Id of a fact, or its beginning, or words of its text; where several facts fit, they are listed.",
        ),
    ],
) -> None:
    """Show everything that ever happened to a fact, and why.

    Changes nothing.
    """
    from carriers.store_layout import open_ledger
    from serving.fact_lookup import find_fact_id
    from serving.store_status import require_store

    directory = choice.settings().store.path
    require_store(directory)
    with open_ledger(directory) as ledger:
        stored, events = _life(ledger, find_fact_id(ledger, fact_id, choice.namespace))
    reasons = _reasons(stored, events)
    if choice.as_json:
        rows = [
            event.model_dump(mode="json") | {"reason": reason}
            for event, reason in zip(events, reasons, strict=True)
        ]
        print_json({"fact": stored.model_dump(mode="json"), "events": rows})
        return
    say(f"{stored.id}  {stored.status.value}")
    say("(forgotten: only the tombstone is left)" if stored.words is None else shown(stored.words.text))
    print_table(
        ["when (UTC)", "what", "why", "run"],
        [
            [f"{event.at:%Y-%m-%d %H:%M:%S}", event.kind.value, shown(reason), shown(event.run_id)]
            for event, reason in zip(events, reasons, strict=True)
        ],
    )


def _ingest(choice: Choice, store: Path, file: Path, is_text: bool) -> IngestSummary:
    from flows.ingest_stream import ingest_stream
    from tasks.run_settings import new_run_id

    run_id = new_run_id("ingest")
    if str(file) != "-":
        taken: IngestSummary = ingest_stream(str(file), run_id, **choice.flow_arguments())
        return taken
    kept = store / "incoming" / f"{run_id}{'.txt' if is_text else '.jsonl'}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.open("wb") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
    try:
        _refuse_export(kept)
        summary: IngestSummary = ingest_stream(str(kept), run_id, **choice.flow_arguments())
    except BaseException:
        note(f"What came in on standard input is kept: ingest {kept} to go on.")
        raise
    kept.unlink()
    return summary


def _refuse_export(file: Path) -> None:
    from serving.store_transfer import is_export
    from sharpwave.errors import InputError

    if str(file) == "-":
        return
    with file.open("rb") as stream:
        if is_export(stream.readline(1 << 20)):
            raise InputError("is an export of a memory store; use `sharpwave import`", file=str(file))


def _print_summary(summary: IngestSummary) -> None:
    for text in summary.drift_warnings:
        warn(text)
    for text in summary.notes[:_NOTES_SHOWN]:
        warn(text)
    more = summary.changed + summary.rejected - min(len(summary.notes), _NOTES_SHOWN)
    if more > 0:
        warn(f"{counted(more, 'line')} more mended or rejected")
    returning = f", {summary.returning} current again" if summary.returning else ""
    came = f"{summary.new} new, {summary.repeats} repeats{returning}"
    say(f"{counted(summary.observed, 'fact')} taken in ({came}) in {summary.seconds:.1f} s")
    if summary.superseded:
        say(f"superseded: {counted(summary.superseded, 'fact')} with another value on the same slot")
    actions = ", ".join(
        f"{count} {action.replace('_', '-')}" for action, count in sorted(summary.actions.items())
    )
    if actions:
        say(f"routed: {actions}; {summary.escalation_rate:.0%} asked of the large model")
    if summary.changed:
        warn(f"{counted(summary.changed, 'line')} mended on the way in")
    if summary.rejected:
        warn(f"{counted(summary.rejected, 'line')} rejected and kept in {summary.rejects_path}")
        note("Mend the 'original' of each line there and ingest that file.")
    if not summary.lines:
        warn("there was no line to take in")


def _questions(given: list[str], from_stdin: bool) -> list[str]:
    from sharpwave.fact_parsing import clean_text

    lines = sys.stdin.read().splitlines() if from_stdin else []
    asked = [clean_text(question)[0].strip() for question in (*given, *lines)]
    if any(not question for question in asked[: len(given)]):
        raise typer.BadParameter("a question is empty", param_hint="QUESTION")
    asked = [question for question in asked if question]
    if not asked:
        raise typer.BadParameter("give a question, or --stdin and one a line", param_hint="QUESTION")
    return asked


def _moment(text: str | None) -> datetime | None:
    from sharpwave.records import parse_moment

    if text is None:
        return None
    try:
        moment = parse_moment(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--as-of") from error
    assert isinstance(moment, datetime)
    return moment


def _answer_as_data(answer: RecallAnswer, words: dict[str, str]) -> dict[str, Any]:
    facts = [{"id": fact_id, "text": words.get(fact_id)} for fact_id in answer.fact_ids]
    return answer.model_dump(mode="json") | {"facts": facts}


def _print_answer(answer: RecallAnswer, words: dict[str, str], *, with_question: bool) -> None:
    if with_question:
        say(f"? {shown(answer.question)}")
    say(shown(answer.text, 2000) if answer.text.strip() else "(no answer)")
    place = (
        f"generation {answer.generation}"
        if not answer.fact_ids
        else counted(len(answer.fact_ids), "fact") + " read"
    )
    sureness = f"each token above {answer.lowest_token_prob:.2f}"
    if answer.lowest_token_prob < _GUESS:
        sureness = f"a guess: the model gave one of its tokens only {answer.lowest_token_prob:.2f}"
    say(f"  from the {answer.origin.value} ({place}; {sureness})")
    for fact_id in answer.fact_ids:
        say(f"  {fact_id[:12]}  {shown(words.get(fact_id))}")


def _life(ledger: Ledger, fact_id: str) -> tuple[StoredFact, list[Event]]:
    from sharpwave.errors import IntegrityError

    stored = ledger.fact(fact_id)
    if stored is None:
        raise IntegrityError(f"fact {fact_id} has a state but no record; run `sharpwave doctor`")
    return stored, ledger.history(fact_id)


def _reasons(stored: StoredFact, events: list[Event]) -> list[str]:
    """Return a reason per event; the last decision is kept with its own words, the earlier ones as figures."""
    from sharpwave.cli.event_wording import reasons_of

    reasons = reasons_of(events)
    decision = stored.last_decision
    if decision is not None:
        figures = decision.model_dump(mode="json", exclude={"fact_id", "reason"})
        for place in reversed(range(len(events))):
            if events[place].payload == figures:
                reasons[place] = decision.reason
                break
    return reasons
