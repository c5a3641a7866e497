"""The page of one night: what it changes in weights and store, as a person reviews it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eval.display_text import CROSS, DASH, MINUS
from eval.pages import fact_list, render_page
from eval.run_records import FactLine, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from consolidation.night_diff import DiffLine, NightDiff

FORGOTTEN = "(forgotten)"
_LISTS = (
    ("entered", "internalised", "+", "ins", "Into the weights", "proven in the weights without retrieval"),
    ("evicted", "evicted", MINUS, "del", "Out of the store", "proven, kept word for word in the ledger"),
    ("kept", "evicted", "=", "", "Kept by the review", "proven, and still in the store"),
    ("damaged", "damaged", "!", "del", "Out of the weights", "answered or proven before, no longer after it"),
    ("readmitted", "readmitted", "↩", "", "Back into the store", "the new weights do not answer them"),
    ("not_proven", "rejected", CROSS, "", "Not proven", "trained; they stay in the store"),
    ("left_out", "rejected", DASH, "", "Left out", "not trained; they stay in the store"),
)  # fmt: skip


def when(diff: NightDiff, section: str) -> str:
    """Return what a section's title adds: facts may leave the store only after a second proof."""
    is_later = section == "evicted" and not diff.evict_now
    return ", once they are proven a second time" if is_later else ""


def write_night_page(diff: NightDiff, path: Path) -> None:
    """Write the page; a file of that name is replaced as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render_night(diff).encode("utf-8"))


def render_night(diff: NightDiff) -> str:
    """Return the page as a string."""
    lists = [
        fact_list(
            lines,
            len(lines),
            key=key,
            sign=sign,
            edit=edit,
            title=title + when(diff, name),
            what=what,
        )
        for name, key, sign, edit, title, what in _LISTS
        if (lines := [_fact_line(line) for line in getattr(diff, name)])
    ]
    return render_page("night.html.j2", diff=diff, lists=lists)


def _fact_line(line: DiffLine) -> FactLine:
    return FactLine(
        fact_id=line.fact_id,
        text=FORGOTTEN if line.text is None else line.text,
        question=line.question,
        answer=line.answer,
        reason=line.reason,
    )
