"""What can be said about the agent's own people and projects, and how values for it are drawn."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from eval.corpora import agent_names as names
from eval.corpora.stable_draw import StableDraw

Value = tuple[tuple[str, ...], dict[str, str]]
"""Answers, the canonical one first, and further words for the template."""
ValueMaker = Callable[[StableDraw, str], Value]
"""Draws a value for a key."""


@dataclass(frozen=True, slots=True)
class AgentRelation:
    """One kind of fact: how it is said, how a later change is said, and how it is asked for.

    The last question is the held-out one. `news` is empty where the value does not change.
    """

    name: str
    language: str
    about: str
    statements: tuple[str, ...]
    news: tuple[str, ...]
    questions: tuple[str, ...]
    value: ValueMaker


_SPANISH_ARTICLE = re.compile(r"^(el|la|los|las) ")


def one_of(items: tuple[str, ...]) -> ValueMaker:
    """Draw one of the items; a Spanish one may be answered without its article."""

    def value(draw: StableDraw, key: str) -> Value:
        item = draw.choice(items, "value", key)
        return (item, _SPANISH_ARTICLE.sub("", item)), {"an": "an" if item[0] in "aeiou" else "a"}

    return value


def date_of_year(language: str) -> ValueMaker:
    """Draw a day and a month, written as the language does."""

    def value(draw: StableDraw, key: str) -> Value:
        day, month = draw.number("day", key) % 28 + 1, draw.choice(names.MONTHS[language], "month", key)
        if language == "es":
            return (f"{day} de {month}", f"el {day} de {month}"), {}
        suffix = "th" if 10 < day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
        return (f"{day} {month}", f"{month} {day}", f"{day}{suffix} of {month}", f"{month} {day}{suffix}"), {}

    return value


def room_number(low: int, high: int) -> ValueMaker:
    """Draw the number of a room, from `low` up to, but not including, `high`."""

    def value(draw: StableDraw, key: str) -> Value:
        number = low + draw.number("number", key) % (high - low)
        return (str(number), f"room {number}"), {}

    return value


def full_name(language: str) -> ValueMaker:
    """Draw a first name and a surname; the surname alone is an alias."""

    def value(draw: StableDraw, key: str) -> Value:
        first = draw.choice(names.FIRST_NAMES[language], "first", key)
        last = draw.choice(names.SURNAMES[language], "last", key)
        return (f"{first} {last}", last), {}

    return value


def pet(language: str) -> ValueMaker:
    """Draw a name for a pet; the template's `{animal}` is its kind."""

    def value(draw: StableDraw, key: str) -> Value:
        animal = draw.choice(names.PETS[language], "animal", key)
        return (draw.choice(names.PET_NAMES[language], "pet", key),), {"animal": animal}

    return value


def address(language: str) -> ValueMaker:
    """Draw a street and a house number."""

    def value(draw: StableDraw, key: str) -> Value:
        number, street = (
            draw.number("house", key) % 120 + 1,
            draw.choice(names.STREETS[language], "street", key),
        )
        return (f"{number} {street}" if language == "en" else f"{street} {number}",), {}

    return value
