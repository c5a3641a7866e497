"""Lists of single words, written in lines as text is."""

from __future__ import annotations


def word_list(text: str) -> tuple[str, ...]:
    """Return the words of a text that are separated by spaces.

    >>> word_list("one two")
    ('one', 'two')
    """
    return tuple(text.split())
