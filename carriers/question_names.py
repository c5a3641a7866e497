"""Whether a note speaks of what a question names: a near note about another subject is the commonest wrong find."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+")
_STEM_LETTERS = 5  # Mongolia and Mongolian, Madrid and madrileño are the same name


def missing_names(question: str, note: str) -> float:
    """Return the share of the question's names that do not stand in the note; 0 if it names nothing.

    A name is a word with a capital letter or a digit, the question's first word left out. Questions in scripts without
    capitals name nothing.

    >>> missing_names("What is the largest city of France?", "The largest city of Chile is Santiago.")
    1.0
    """
    names = {_stem(word) for word in _WORD.findall(question)[1:] if _is_name(word)}
    said = {_stem(word) for word in _WORD.findall(note)}
    return len(names - said) / len(names) if names else 0.0


def _is_name(word: str) -> bool:
    return word[0].isupper() or any(letter.isdigit() for letter in word)


def _stem(word: str) -> str:
    return word.casefold()[:_STEM_LETTERS]
