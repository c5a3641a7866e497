"""The page that `sharpwave status` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consolidation.review import DECIDES
from eval.display_text import byte_size, percent
from sharpwave.cli.display import counted, print_table, say, shown, warn

if TYPE_CHECKING:
    from consolidation.records import NightReport
    from serving.store_status import StoreStatus
    from sharpwave.records import Generation

_MEANINGS = {
    "observed": "recorded, waiting to be routed",
    "known": "the model answers them by itself",
    "hot": "in the store",
    "internalised": "proven in the weights, out of the store",
    "superseded": "a newer value holds their slot",
    "forgotten": "only a tombstone is left",
}


def print_status(status: StoreStatus) -> None:
    """Print the state of a store for a person."""
    whose = "" if status.namespace is None else f", namespace {shown(status.namespace)}"
    facts = counted(status.observed, "fact")
    say(f"store {status.store}{whose}: {facts}, {percent(status.storage_ratio)} of them stored")
    print_table(
        ["status", "facts", "meaning"],
        [[name, str(count), _MEANINGS[name]] for name, count in status.counts.items()],
        right=(1,),
    )
    print_table(
        ["generation", "status", "adapter", "trained facts", "made (UTC)", "promotion gate"],
        [_generation_row(item, status.current.number) for item in status.generations],
        right=(3,),
    )
    if status.nights:
        print_table(
            [
                "consolidation",
                "outcome",
                "selected",
                "internalised",
                "evicted",
                "damaged",
                "re-admitted",
                "why",
            ],
            [_night_row(night) for night in status.nights],
            right=(2, 3, 4, 5, 6),
        )
    indexed = "unreadable just now" if status.indexed is None else f"{status.indexed} vectors"
    sizes = ", ".join(
        f"{name} {'?' if size is None else byte_size(size)}" for name, size in status.bytes.items()
    )
    say(f"index: {indexed}; net size: {sizes}")
    _print_remarks(status)


def _print_remarks(status: StoreStatus) -> None:
    if status.writer:
        say(f"being written by {status.writer}")
    if status.is_night_running:
        say(f"a consolidation is running: {', '.join(status.interrupted_nights) or 'planning'}")
    elif status.interrupted_nights:
        warn(
            f"interrupted consolidations: {', '.join(status.interrupted_nights)}; "
            "`sharpwave consolidate` goes on with them"
        )
    if status.waiting_night:
        warn(f"the consolidation {status.waiting_night} waits for review: {DECIDES}")
    if status.counts["observed"] and not status.writer:
        warn(
            f"{counted(status.counts['observed'], 'fact')} not routed yet; the next `sharpwave ingest` does it"
        )


def _generation_row(item: Generation, current: int) -> list[str]:
    mark = " (current)" if item.number == current else ""
    gate = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in item.gate.items())
    made = f"{item.created_at:%Y-%m-%d %H:%M}"
    trained = str(len(item.trained_fact_ids))
    adapter = "none" if item.number == 0 else "kept" if item.is_reachable else ""
    if item.is_retired:
        adapter = "deleted"
    return [f"{item.number}{mark}", item.status.value, adapter, trained, made, gate or item.reason]


def _night_row(night: NightReport) -> list[str]:
    counts = (night.selected, night.internalised, night.evicted, night.damaged, night.readmitted)
    return [night.run_id, night.status, *map(str, counts), shown(night.reason)]
