"""Options that several commands share, and the choice of settings they add up to.

`takes_choice` gives a command these options and hands them over as one `Choice`, so no command repeats them.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

if TYPE_CHECKING:
    from sharpwave.settings import Settings

P = ParamSpec("P")

_SETTINGS_PANEL = "Settings"
_OUTPUT_PANEL = "Output"


@dataclass(frozen=True)
class Choice:
    """What the shared options say; fields of options that a command lacks keep their defaults."""

    profile: str = "embedded"
    config: Path | None = None
    set_values: tuple[str, ...] = ()
    store: Path | None = None
    namespace: str | None = None
    as_json: bool = False
    debug: bool = False

    @property
    def overrides(self) -> list[str]:
        """The `--set` values, then what `--store` and `--namespace` stand for."""
        short = {"store.path": self.store, "namespace": self.namespace}
        return [*self.set_values, *(f"{key}={value}" for key, value in short.items() if value is not None)]

    def with_override(self, assignment: str) -> Choice:
        """Return the choice with one more setting, which wins over all others."""
        return replace(self, set_values=(*self.set_values, assignment))

    def settings(self) -> Settings:
        """Return the resolved settings. Raises ConfigError."""
        from sharpwave.settings import load_settings

        return load_settings(self.profile, self.overrides, file=self.config)

    def flow_arguments(self) -> dict[str, Any]:
        """Return the settings as every flow takes them: names and paths."""
        config = None if self.config is None else str(self.config.absolute())
        return {"profile": self.profile, "overrides": self.overrides, "config": config}


def _shared(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_SETTINGS = (
    _shared(
        "profile",
        Annotated[
            str,
            typer.Option(help="Set-up to use: a file of configs/.", rich_help_panel=_SETTINGS_PANEL),
        ],
        "embedded",
    ),
    _shared(
        "config",
        Annotated[
            Path | None,
            typer.Option(
                exists=True,
                dir_okay=False,
                help="YAML file with your own settings; wins over the profile.",
                rich_help_panel=_SETTINGS_PANEL,
            ),
        ],
    ),
    _shared(
        "set_values",
        Annotated[
            list[str] | None,
            typer.Option(
                "--set",
                metavar="KEY=VALUE",
                help="One setting, for example recall.top_k=5; wins over files. Repeatable.",
                rich_help_panel=_SETTINGS_PANEL,
            ),
        ],
    ),
)
_STORE = (
    _shared(
        "store",
        Annotated[
            Path | None,
            typer.Option(
                file_okay=False,
                help="Folder of the memory store; the setting store.path, by default memory-store.",
                rich_help_panel=_SETTINGS_PANEL,
            ),
        ],
    ),
)
_NAMESPACE = (
    _shared(
        "namespace",
        Annotated[
            str | None,
            typer.Option(help="Whose memory; the setting namespace.", rich_help_panel=_SETTINGS_PANEL),
        ],
    ),
)
_JSON = (
    _shared(
        "as_json",
        Annotated[
            bool,
            typer.Option("--json", help="Print data as JSON on stdout.", rich_help_panel=_OUTPUT_PANEL),
        ],
        False,
    ),
)
_DEBUG = (
    _shared(
        "debug",
        Annotated[
            bool,
            typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=_OUTPUT_PANEL),
        ],
        False,
    ),
)


def takes_choice(
    *, settings: bool = True, store: bool = True, namespace: bool = True, json: bool = True
) -> Callable[[Callable[Concatenate[Choice, P], None]], Callable[..., None]]:
    """Give a command whose first parameter is a `Choice` the shared options that make it up.

    Args:
        settings: `--profile`, `--config` and `--set`.
        store: `--store`.
        namespace: `--namespace`.
        json: `--json`. Every command has `--debug`.
    """
    groups = ((settings, _SETTINGS), (store, _STORE), (namespace, _NAMESPACE), (json, _JSON), (True, _DEBUG))
    added = [parameter for is_wanted, group in groups if is_wanted for parameter in group]

    def decorate(command: Callable[Concatenate[Choice, P], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_options(**values: Any) -> None:
            chosen = {parameter.name: values.pop(parameter.name) for parameter in added}
            chosen["set_values"] = tuple(chosen.get("set_values") or ())
            command(Choice(**chosen), **values)  # type: ignore[call-arg]  # Typer gives every option by name

        with_options.__doc__ = _one_line_per_paragraph(command.__doc__ or "")
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        named = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        with_options.__signature__ = inspect.Signature([*named, *added])  # type: ignore[attr-defined]
        with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *added]}
        return with_options

    return decorate


def input_file(path: Path) -> Path:
    """Check an argument that names a file to read, or `-` for standard input; for `callback=`."""
    if str(path) != "-" and not path.exists():
        raise typer.BadParameter(f"file {str(path)!r} does not exist.")
    return path


def _one_line_per_paragraph(text: str) -> str:
    """Join the lines of each paragraph, so that Typer wraps help to the terminal and not to the source."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(text))


def examples(*lines: str) -> str:
    """Return the examples of a command as Typer prints them below its help, each on a line of its own."""
    return "\n\n".join(["Examples:" if len(lines) > 1 else "Example:", *lines])
