"""The console script `sharpwave`: all commands, in the order in which a newcomer needs them."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from sharpwave.cli import (
    fact_commands,
    memory_commands,
    model_commands,
    review_commands,
    router_commands,
    run_commands,
    sleep_commands,
    store_commands,
)
from sharpwave.cli.failures import FailureReportingGroup

TRY, USE, SLEEP, CARE = "Try and measure", "Use the memory", "Consolidate and train", "Care for the store"
EXIT_CODES = (
    "Exit codes: 0 done, perhaps with warnings (a file taken in part is one); 1 failed, or nothing of a file could "
    "be taken; 2 wrong arguments or configuration; 130 stopped with Ctrl-C."
)

app = typer.Typer(
    cls=FailureReportingGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from sharpwave import __version__

        typer.echo(f"sharpwave {__version__}")
        raise typer.Exit


@app.callback()
def sharpwave(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version.")
    ] = False,
) -> None:
    """A memory for language-model agents: new facts fast into a store, lasting ones slowly into the weights.

    Every command that prints data takes --json, and says in its --help what it changes on disk.
    """


run_commands.register(app, TRY)
fact_commands.register(app, TRY)
memory_commands.register(app, USE)
sleep_commands.register(app, SLEEP)
review_commands.register(app, SLEEP)
router_commands.register(app, SLEEP)
store_commands.register(app, CARE)
model_commands.register(app, CARE)


def main() -> None:
    """Run the command that the arguments name; the console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # facts may hold letters that the terminal's encoding lacks
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="sharpwave")
