"""Chemical elements: symbols, densities and crystals from `periodictable`, places in the table computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import periodictable

from eval.corpora.corpus import CorpusFact, RelationTemplate

SOURCE = "periodictable"

SYMBOL = RelationTemplate(
    "element_symbol",
    "The chemical symbol of {s} is {a}.",
    (
        "What is the chemical symbol of {s}?",
        "Which symbol stands for the element {s}?",
        "How is {s} abbreviated in the periodic table?",
        "What is the symbol for the element {s}?",
        "What is the symbol of {s} in the periodic table?",
    ),
)
ELEMENT_OF_SYMBOL = RelationTemplate(
    "element_of_symbol",
    "The chemical symbol {s} stands for {a}.",
    (
        "Which element does the chemical symbol {s} stand for?",
        "What is the name of the element with the symbol {s}?",
        "In the periodic table, what does {s} mean?",
        "Which element has the symbol {s}?",
        "What element is represented by the symbol {s}?",
    ),
)
NUMBER = RelationTemplate(
    "atomic_number",
    "The atomic number of {s} is {a}.",
    (
        "What is the atomic number of {s}?",
        "How many protons does an atom of {s} have?",
        "Which number does {s} have in the periodic table?",
        "What atomic number does {s} have?",
        "What is the atomic number of the element {s}?",
    ),
)
ELEMENT_OF_NUMBER = RelationTemplate(
    "element_of_number",
    "The element with atomic number {s} is {a}.",
    (
        "Which element has atomic number {s}?",
        "What is the element with {s} protons?",
        "Name the chemical element number {s}.",
        "What element has the atomic number {s}?",
        "What is the name of the element with atomic number {s}?",
    ),
)
PERIOD = RelationTemplate(
    "element_period",
    "{S} is in period {a} of the periodic table.",
    (
        "In which period of the periodic table is {s}?",
        "Which row of the periodic table holds {s}?",
        "What period does the element {s} belong to?",
        "Which period of the periodic table is {s} in?",
        "What is the period of {s} in the periodic table?",
    ),
)
GROUP = RelationTemplate(
    "element_group",
    "{S} is in group {a} of the periodic table.",
    (
        "In which group of the periodic table is {s}?",
        "Which column of the periodic table holds {s}?",
        "What is the group number of the element {s}?",
        "Which group of the periodic table is {s} in?",
        "What is the group of {s} in the periodic table?",
    ),
)
DENSITY = RelationTemplate(
    "element_density",
    "The density of {s} is {a} grams per cubic centimetre.",
    (
        "What is the density of {s} in grams per cubic centimetre?",
        "How dense is {s}, in grams per cubic centimetre?",
        "How many grams does a cubic centimetre of {s} weigh?",
        "What density does {s} have, in grams per cubic centimetre?",
        "In grams per cubic centimetre, what is the density of {s}?",
    ),
)
CRYSTAL = RelationTemplate(
    "crystal_structure",
    "{S} crystallises in the {a} structure.",
    (
        "In which structure does {s} crystallise?",
        "What is the crystal structure of {s}?",
        "How is the crystal lattice of {s} called?",
        "Which crystal structure does {s} have?",
        "What structure does {s} crystallise in?",
    ),
)

_NOBLE_GASES = (2, 10, 18, 36, 54, 86, 118)
_PERIOD_LENGTHS = (2, 8, 8, 18, 18, 32, 32)
_SPELLINGS: dict[str, tuple[str, ...]] = {
    "aluminum": ("aluminium",),
    "cesium": ("caesium",),
    "sulfur": ("sulphur",),
}
_STRUCTURES: dict[str, tuple[str, ...]] = {
    "bcc": ("body-centred cubic", "body-centered cubic", "BCC"),
    "diamond": ("diamond", "diamond cubic"),
    "fcc": ("face-centred cubic", "face-centered cubic", "FCC"),
    "hcp": ("hexagonal close-packed", "HCP"),
    "orthorhombic": ("orthorhombic",),
    "rhombohedral": ("rhombohedral",),
    "tetragonal": ("tetragonal",),
}
_LAST_WITH_KNOWN_DENSITY = 92
# Gases, for which the source gives the liquid, and elements whose forms differ in density.
_CRYSTAL_UNCLEAR = frozenset({5, 6, 34, 52, 57, 59, 60, 61, 62, 84})
_DENSITY_UNCLEAR = frozenset({1, 2, 6, 7, 8, 9, 10, 15, 16, 17, 18, 34, 36, 50, 54, 85, 86, 87})


def period_of(number: int) -> int:
    """Return the period of the element with this atomic number.

    >>> [period_of(n) for n in (1, 2, 3, 26, 118)]
    [1, 1, 2, 4, 7]
    """
    return next(index for index, last in enumerate(_NOBLE_GASES, start=1) if number <= last)


def group_of(number: int) -> int | None:
    """Return the group (1 to 18), or None for lanthanides and actinides, whose place is debated.

    >>> [group_of(n) for n in (1, 2, 8, 26, 57, 79, 118)]
    [1, 18, 16, 8, None, 11, 18]
    """
    period = period_of(number)
    length = _PERIOD_LENGTHS[period - 1]
    place = number - (_NOBLE_GASES[period - 1] - length)
    if place <= 2 and number != 2:
        return place
    from_right = 18 - (length - place)
    if length == 32 and (place <= 17):
        return None
    return from_right


def facts() -> Iterator[CorpusFact | None]:
    """Yield every fact of this module; None where a rule refused one."""
    elements: list[Any] = [element for element in periodictable.elements if element.number > 0]
    for element in elements:
        name, number = str(element.name), int(element.number)
        for template, subject, answers in (*_places(element, name, number), *_matter(element, name, number)):
            yield template.build(subject, answers, group=f"element:{number}", source=SOURCE)


def _places(element: Any, name: str, number: int) -> Iterator[tuple[RelationTemplate, str, Sequence[str]]]:
    names = (name, *_SPELLINGS.get(name, ()))
    yield SYMBOL, name, [str(element.symbol)]
    yield ELEMENT_OF_SYMBOL, str(element.symbol), names
    yield NUMBER, name, [str(number)]
    yield ELEMENT_OF_NUMBER, str(number), names
    yield PERIOD, name, [str(period_of(number)), f"period {period_of(number)}"]
    group = group_of(number)
    if group is not None:
        yield GROUP, name, [str(group), f"group {group}"]


def _matter(element: Any, name: str, number: int) -> Iterator[tuple[RelationTemplate, str, Sequence[str]]]:
    if number > _LAST_WITH_KNOWN_DENSITY:
        return
    if number not in _DENSITY_UNCLEAR and element.density:
        yield (
            DENSITY,
            name,
            [f"{element.density:g}", f"{element.density:g} g/cm3", f"{element.density:g} grams"],
        )
    crystal = getattr(element, "crystal_structure", None) or {}
    answers = _STRUCTURES.get(str(crystal.get("symmetry")).lower(), ())
    if number not in _CRYSTAL_UNCLEAR and answers:
        yield CRYSTAL, name, answers
