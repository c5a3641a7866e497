"""Printing: data to stdout, everything else to stderr, and foreign text made harmless for a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 160
_TEXT_CHARS = 300


def print_json(data: Any) -> None:
    """Print data as JSON on stdout."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    typer.echo(json.dumps(data, indent=2, ensure_ascii=encoding != "utf8", default=str))


def note(text: str) -> None:
    """Print a remark that is no data, such as what to do next, on stderr."""
    typer.echo(shown(text, 2000), err=True)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    note(f"warning: {text}")


def say(text: str = "") -> None:
    """Print a line of the result on stdout."""
    typer.echo(text)


def shown(text: str | None, limit: int = _TEXT_CHARS) -> str:
    """Return text that may come from anywhere, fit for a terminal: no control characters, not too long."""
    from eval.display_text import visible_text

    return visible_text(text, limit)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 fact", "2 facts"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def console() -> Console:
    """Return a console for stdout; wide where nobody sees a line break."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def print_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, title: str | None = None, right: Sequence[int] = ()
) -> None:
    """Print a table; columns whose numbers are in `right` are aligned right. Cells are shown as they are."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console().print(table)


def print_markdown(text: str) -> None:
    """Print Markdown: rendered on a terminal, as it is anywhere else."""
    if not sys.stdout.isatty():
        say(text)
        return
    from rich.markdown import Markdown

    console().print(Markdown(text))
