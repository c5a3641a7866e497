"""What a command's failure looks like: an exit code, one clear line, and with `--json` an object on stdout.

| code | meaning |
| --- | --- |
| 0 | done, possibly with warnings |
| 1 | failed; the message says what to do |
| 2 | usage: wrong arguments or configuration |
| 130 | stopped with Ctrl-C |
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from sharpwave.errors import ConfigError, SharpwaveError

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

_SAFE_AFTER_INTERRUPT = {
    "ingest": "What was taken in is safe. Ingest the same file again to go on; nothing is doubled.",
    "consolidate": "The former generation is still current and no fact has moved. "
    "Run the command again to go on after the last finished stage.",
    "demo": "The run folder is unfinished; the next demo starts anew.",
    "benchmark": "Give the same --out again to go on where it stopped.",
    "train-router": "The heads in use were not touched. Run the command again.",
    "schedule": "Runs are no longer started. Serve again to go on; missed runs are done by one.",
    "models": "What is complete in the cache is kept; the rest is fetched again.",
}
_SAFE = "The store is as the last finished step left it: every change is one transaction."


class FailureReportingGroup(TyperGroup):
    """The group of all commands: turns whatever they raise into the right message and exit code."""

    _arguments: tuple[str, ...] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember the arguments: how to report an error in them must be known before they are parsed."""
        self._arguments = tuple(args[: args.index("--")] if "--" in args else args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the arguments name."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            command = ctx.invoked_subcommand or ""
            typer.echo(f"Stopped. {_SAFE_AFTER_INTERRUPT.get(command, _SAFE)}", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except (Exception, typer.Abort) as error:
            self._report(ctx.invoked_subcommand, error)
            raise typer.Exit(exit_code(error)) from None

    def _report(self, command: str | None, error: BaseException) -> None:
        if "--debug" in self._arguments and not isinstance(error, typer.TyperException):
            traceback.print_exception(error)
        name = f"sharpwave {command}" if command else "sharpwave"
        message = describe(error, name)
        if "--json" in self._arguments:
            shown = _cause(error)
            typer.echo(json.dumps({"error": {"kind": type(shown).__name__, "message": message}}, indent=2))
        else:
            typer.echo(f"{name}: {message}", err=True)


def exit_code(error: BaseException) -> int:
    """Return the exit code that an error leads to."""
    if isinstance(error, typer.TyperException):
        return error.exit_code
    return USAGE if isinstance(_cause(error), ConfigError) else FAILED


def describe(error: BaseException, command: str) -> str:
    """Say what went wrong and what to do, in one line where the error has one."""
    if isinstance(error, typer.TyperException):
        return f"{error.format_message().rstrip('.')}. See `{command} --help`."
    if isinstance(error, typer.Abort):
        return "stopped at the question; nothing was changed"
    cause = _cause(error)
    if isinstance(cause, SharpwaveError):
        return str(cause)
    first_line = (str(cause).strip().splitlines() or ["no details"])[0]
    return (
        f"unexpected {type(cause).__name__}: {first_line}. "
        "This should not happen: please run the command again with --debug and report what it prints."
    )


def _cause(error: BaseException) -> BaseException:
    """Return the error of ours that another one wraps, as Prefect may do; else the error itself."""
    return next((link for link in _chain(error) if isinstance(link, SharpwaveError)), error)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__
