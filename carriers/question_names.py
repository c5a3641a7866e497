"""Whether a note speaks of what a question names: a near note about another subject is the commonest wrong find."""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"[^\W_]+")
_STEM_LETTERS = 5  # Mongolia and Mongolian, Madrid and madrileño are the same name


def missing_names(question: str, note: str) -> float:
    """Return the share of the question's names that do not stand in the note; 0 if it names nothing.

    A name is a word with a capital letter or a digit, the question's first word left out. Questions in scripts without
    capitals name nothing.

    >>> missing_names("What is the largest city of France?", "The largest city of Chile is Santiago.")
    1.0
    """
    names, said = names_in(question), stems_in(note)
    return len(names - said) / len(names) if names else 0.0


def names_in(question: str) -> set[str]:
    """Return the stems of the names in a question."""
    return {_stem(word) for word in _WORD.findall(question)[1:] if _is_name(word)}


def stems_in(text: str) -> set[str]:
    """Return the stems of all words of a text."""
    return {_stem(word) for word in _WORD.findall(text)}


def _is_name(word: str) -> bool:
    return word[0].isupper() or any(letter.isdigit() for letter in word)


def _stem(word: str) -> str:
    letters = unicodedata.normalize("NFKD", word.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))[:_STEM_LETTERS]
