"""The validator of proposed questions: which of them are grounded in the text they were made from. Pure.

A question passes if it is one line of reasonable length that ends in a question mark, speaks about what the text
speaks about, and does not give the answer away. The round trip through the model is the caller's.
"""

# ruff: noqa: RUF001 -- the marks of Chinese and Spanish are meant
from __future__ import annotations

import re

from consolidation.answer_spans import content_words, language_of, names_in
from sharpwave.matching import normalise_answer

MIN_QUESTION_CHARS, MAX_QUESTION_CHARS = 6, 200
_CJK_CHAR = re.compile(r"[\u3400-\u9fff]")


def fault_of_question(question: str, text: str, answer: str) -> str | None:
    """Return in words what is wrong with a proposed question, None if it is grounded.

    >>> fault_of_question("Who is Edda Marsh?", "The keeper of Dunmore is Edda Marsh.", "Edda Marsh")
    'it gives the answer away'
    """
    if answer not in text:
        return "the answer is not a span of the text"
    if not question.endswith(("?", "？")) or len(question.splitlines()) != 1:
        return "it is not one line that ends in a question mark"
    if len(re.findall(r"[?？]", question)) > 1:
        return "it asks more than one thing"
    least = 4 if _CJK_CHAR.search(question) else MIN_QUESTION_CHARS
    if not least <= len(question) <= MAX_QUESTION_CHARS:
        return "it is too short or too long"
    if gives_away(question, answer):
        return "it gives the answer away"
    if language_of(question) != language_of(text):
        return "it is in another language than the text"
    if re.search(r"\b(?:following|siguientes)\b", question, re.IGNORECASE):
        return "it refers to something that is not there"
    if language_of(text) != "zh" and not all(_is_known(name, text) for name in names_in(question)):
        return "it names somebody whom the text does not name"
    return None if _speaks_of(question, text, answer) else "it does not say what it asks about"


def gives_away(question: str, answer: str) -> bool:
    """Tell whether the answer stands in the question, as whole words; in Chinese as characters.

    >>> gives_away("What is the capital of Georgia?", "Or")
    False
    """
    asked, wanted = normalise_answer(question), normalise_answer(answer)
    if not wanted:
        return False
    if _CJK_CHAR.search(wanted):
        return wanted in asked
    return f" {wanted} " in f" {asked} "


def _is_known(name: str, text: str) -> bool:
    """Tell whether all capitalised words of a name stand in the text, though perhaps not side by side."""
    words = re.findall(r"\w+", text.casefold())
    return all(part.casefold() in words for part in re.findall(r"\w+", name) if not part.islower())


def _speaks_of(question: str, text: str, answer: str) -> bool:
    """Tell whether the question names the subject: a whole name of the text, else a content word."""
    before, _, after = text.rpartition(answer)
    rest = f"{before} {after}"
    if language_of(text) == "zh":
        characters = set(_CJK_CHAR.findall(rest))
        return len(characters & set(question)) * 2 >= len(characters)
    asked = question.casefold()
    quoted = re.findall(r"[\"“«]([^\"”»]*\w[^\"”»]*)[\"”»]", rest)
    if quoted and not any(word.casefold() in asked for word in quoted):
        return False
    names = [name for name in names_in(before) if name.casefold() != answer.casefold()] or names_in(after)
    if names:
        return any(name.casefold() in asked for name in names)
    first = re.search(r"\w+", rest)
    opening = content_words(first.group()) if first else set()
    shared = content_words(rest) & content_words(question)
    return bool(shared) and opening <= content_words(question)
