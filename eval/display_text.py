"""How figures and foreign text are written for people, in pages and in Markdown alike."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_TEXT_CHARS = 400
MINUS, DASH, CROSS = "\u2212", "\u2013", "\u00d7"


def visible_text(text: str | None, limit: int = MAX_TEXT_CHARS) -> str:
    r"""Return text fit to be shown: control and reordering characters spelt out, long text cut with a note.

    >>> visible_text("a\u202eb")
    'a⟨U+202E⟩b'
    """
    if text is None:
        return DASH
    cut = text[:limit]
    shown = "".join(_spelt(character) for character in cut)
    return shown if len(text) <= limit else f"{shown}… ({len(text):,} characters, cut here)"


def _spelt(character: str) -> str:
    if character in "\n\r\t":
        return " "
    # Cf holds the marks that reorder or hide text; joiners are left, as Persian and emoji need them.
    if unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp"} and character not in "\u200c\u200d":
        return f"⟨U+{ord(character):04X}⟩"
    return character


def percent(share: float) -> str:
    """Return a share in per cent with one decimal."""
    return f"{100 * share:.1f}%"


def percent_range(low: float, high: float) -> str:
    """Return an interval of shares in per cent."""
    return f"{100 * low:.1f}{DASH}{100 * high:.1f}%"


def points(difference: float) -> str:
    """Return a difference of shares in points, with a true minus sign; what rounds to zero has no minus."""
    return f"{round(100 * difference, 1) + 0.0:+.1f} pts".replace("-", MINUS)


def byte_size(n_bytes: int) -> str:
    """Return a size in the unit that fits it."""
    size = float(n_bytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def markdown_cell(text: str) -> str:
    """Return text that cannot break out of a Markdown table cell."""
    escaped = visible_text(text).replace("\\", "\\\\").replace("<", "&lt;")
    return escaped.replace("|", "\\|").replace("`", "\\`")


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first are aligned right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(markdown_cell(cell) for cell in line)} |" for line in lines)
