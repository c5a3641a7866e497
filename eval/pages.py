"""What all HTML pages share: how a template is filled, and lists of facts in it.

A page loads nothing: style and plots are inside, and its content security policy forbids the rest. What facts and
models say is shown as text, never as markup; characters that would reorder or hide it are spelt out.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.display_text import byte_size, percent, visible_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eval.run_records import FactLine

MAX_LINES_PER_LIST = 300
_SHOWN_AT_ONCE = 6
_TEMPLATES = Path(__file__).parent / "templates"


def render_page(template: str, **values: Any) -> str:
    """Return a page as a string."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shown": visible_text, "percent": percent, "size": byte_size}
    return environment.get_template(template).render(**values)


def fact_list(lines: Sequence[FactLine], total: int, **looks: str) -> dict[str, Any]:
    """Return a list of facts as the templates take it, long ones folded and cut.

    Args:
        lines: What can be listed.
        total: How many there are.
        looks: `key` chooses the colour, `sign` stands before each fact, `title` and `what` are the heading, `edit` is
            the element around the words: "ins", "del" or nothing.
    """
    kept = lines[:MAX_LINES_PER_LIST]
    return looks | {
        "first": kept[:_SHOWN_AT_ONCE],
        "more": kept[_SHOWN_AT_ONCE:],
        "total": total,
        "left_out": total - len(kept),
    }
