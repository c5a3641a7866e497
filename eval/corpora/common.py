"""Common knowledge in the project's own words: authors, inventors, opposites, animals, counts of daily life.

The values stand in `data/common_knowledge.tsv`, written for this project and checked by hand; a row is a
relation, a subject, and the answers separated by "|".
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

from eval.corpora.corpus import CorpusFact, RelationTemplate
from sharpwave.errors import InputError

SOURCE = "sharpwave-common-knowledge"


def _template(name: str, statement: str, *questions: str) -> RelationTemplate:
    return RelationTemplate(name, statement, questions)


TEMPLATES = {
    template.name: template
    for template in (
        _template(
            "opposite",
            'The opposite of "{s}" is "{a}".',
            'What is the opposite of "{s}"?',
            'Which word means the reverse of "{s}"?',
            'Name an antonym of "{s}".',
            'Which word is the opposite of "{s}"?',
            'What is the antonym of "{s}"?',
        ),
        _template(
            "author",
            "{a} wrote {s}.",
            "Who wrote {s}?",
            "Who is the author of {s}?",
            "Which writer wrote {s}?",
            "Which author wrote {s}?",
            "Who was the writer of {s}?",
        ),
        _template(
            "painter",
            "{a} painted {s}.",
            "Who painted {s}?",
            "Which artist painted {s}?",
            "Who is the painter of {s}?",
            "Which painter painted {s}?",
            "Who was the artist that painted {s}?",
        ),
        _template(
            "composer",
            "{a} composed {s}.",
            "Who composed {s}?",
            "Which composer wrote {s}?",
            "Who is the composer of {s}?",
            "Which composer composed {s}?",
            "Who was the composer of {s}?",
        ),
        _template(
            "discovery",
            "Credit for {s} goes to {a}.",
            "To whom is {s} credited?",
            "Which scientist is credited with {s}?",
            "Whose name is tied to {s}?",
            "Which person is credited with {s}?",
            "Who is credited with {s}?",
        ),
        _template(
            "young_animal",
            "A young {s} is called {an} {a}.",
            "What is a young {s} called?",
            "What do you call a baby {s}?",
            "Which word names the young of a {s}?",
            "What is the name for a young {s}?",
            "What is a baby {s} called?",
        ),
        _template(
            "animal_sound",
            "The sound that {s} make is called {an} {a}.",
            "What is the sound that {s} make called?",
            "Which noise do {s} make?",
            "How is the typical sound of {s} named?",
            "What is the sound of {s} called?",
            "Which sound do {s} make?",
        ),
        _template(
            "colour",
            "The usual colour of {s} is {a}.",
            "What is the usual colour of {s}?",
            "Which colour does {s} normally have?",
            "What colour comes to mind for {s}?",
            "What colour is {s}?",
            "What color is {s}?",
        ),
        _template(
            "number_of",
            "There are {a} {s}.",
            "How many {s} are there?",
            "What is the number of {s}?",
            "How many {s} does one count?",
            "What is the total number of {s}?",
            "What number of {s} is there?",
        ),
        _template(
            "roman_numeral",
            "The Roman numeral for {s} is {a}.",
            "What is the Roman numeral for {s}?",
            "How is {s} written in Roman numerals?",
            "Which letters stand for {s} in Roman numerals?",
            "What is {s} in Roman numerals?",
            "Which Roman numeral stands for {s}?",
        ),
        _template(
            "next_in_order",
            "{S} is followed by {a}.",
            "What follows {s}?",
            "What comes directly after {s}?",
            "Which one is next after {s}?",
            "What is next after {s}?",
            "What comes after {s}?",
        ),
        _template(
            "next_president",
            "{a} followed {s} as president of the United States.",
            "Who followed {s} as president of the United States?",
            "Who became U.S. president directly after {s}?",
            "Which president came next after {s}?",
            "Who was the U.S. president after {s}?",
            "Who came after {s} as president of the United States?",
        ),
        _template(
            "studies",
            "The scientific study of {s} is called {a}.",
            "What is the scientific study of {s} called?",
            "Which science deals with {s}?",
            "What field of science studies {s}?",
            "What is the study of {s} called?",
            "What is the name of the science that studies {s}?",
        ),
        _template(
            "made_from",
            "{S} is made from {a}.",
            "What is {s} made from?",
            "Which raw material is {s} made from?",
            "From what is {s} produced?",
            "What is the main ingredient of {s}?",
            "{S} is made from what?",
        ),
        _template(
            "organ",
            "The organ of the body that {s} is the {a}.",
            "Which organ of the body {s}?",
            "What organ {s}?",
            "Name the organ that {s}.",
            "Which part of the body {s}?",
            "What part of the body {s}?",
        ),
        _template(
            "landmark_city",
            "{S} is in {a}.",
            "In which city is {s}?",
            "Which city is home to {s}?",
            "Where would you go to see {s}?",
            "What city is {s} in?",
            "In what city is {s}?",
        ),
        _template(
            "deity_of",
            "In {myth} mythology, the {s} is {a}.",
            "Who is the {s} in {myth} mythology?",
            "What is the name of the {s} in {myth} mythology?",
            "In {myth} myth, which deity is the {s}?",
            "In {myth} mythology, who is the {s}?",
            "Who was the {s} in {myth} mythology?",
        ),
        _template(
            "unit_of",
            "The SI unit of {s} is the {a}.",
            "What is the SI unit of {s}?",
            "In which SI unit is {s} measured?",
            "Which unit does physics use for {s}?",
            "What is the name of the SI unit of {s}?",
            "Which SI unit measures {s}?",
        ),
        _template(
            "chemical_formula",
            "The chemical formula of {s} is {a}.",
            "What is the chemical formula of {s}?",
            "Which formula stands for {s} in chemistry?",
            "How is {s} written as a chemical formula?",
            "What is the formula of {s}?",
            "What is the chemical formula for {s}?",
        ),
        _template(
            "sport_team_size",
            "A {s} team has {a} players on the field at a time.",
            "How many players does a {s} team have on the field at a time?",
            "How many players of one team play {s} at once?",
            "What is the number of players on a {s} side?",
            "How many players are on the field for a {s} team?",
            "How many players are in a {s} team on the field?",
        ),
    )
}


def facts() -> Iterator[CorpusFact | None]:
    """Yield every fact of this module; None where a rule refused one.

    Raises:
        InputError: A row of the table does not have three columns or names an unknown relation.
    """
    table = resources.files("eval.corpora") / "data" / "common_knowledge.tsv"
    for number, line in enumerate(table.read_text(encoding="utf-8").splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        columns = line.split("\t")
        if len(columns) != 3 or columns[0] not in TEMPLATES:
            raise InputError("expected a known relation, a subject and answers", file=table.name, line=number)
        yield _build(TEMPLATES[columns[0]], columns[1], columns[2].split("|"))


def _build(template: RelationTemplate, subject: str, answers: list[str]) -> CorpusFact | None:
    myth, _, role = subject.partition(":")
    shown = role or subject
    return template.build(
        f"{shown} ({myth})" if role else shown,
        answers,
        group=f"common:{template.name}:{subject.casefold()}",
        source=SOURCE,
        in_text=shown,
        words={"myth": myth, "an": "an" if answers[0][0] in "aeiou" else "a"},
    )
