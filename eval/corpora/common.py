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
            'If something is not "{s}" but quite the contrary, what is it?',
            'What is the antonym of the word "{s}"?',
        ),
        _template(
            "author",
            "{a} wrote {s}.",
            "Who wrote {s}?",
            "Who is the author of {s}?",
            "Which writer wrote {s}?",
            "Name the author of {s}.",
            "By whom was {s} written?",
        ),
        _template(
            "painter",
            "{a} painted {s}.",
            "Who painted {s}?",
            "Which artist painted {s}?",
            "Who is the painter of {s}?",
            "Name the artist who made the painting {s}.",
            "By whom was {s} painted?",
        ),
        _template(
            "composer",
            "{a} composed {s}.",
            "Who composed {s}?",
            "Which composer wrote {s}?",
            "Who is the composer of {s}?",
            "Name the composer of {s}.",
            "Whose work is {s}?",
        ),
        _template(
            "discovery",
            "{S} is credited to {a}.",
            "To whom is {s} credited?",
            "Which scientist is credited with {s}?",
            "Whose name is tied to {s}?",
            "Name the person behind {s}.",
            "Who is known for {s}?",
        ),
        _template(
            "young_animal",
            "A young {s} is called a {a}.",
            "What is a young {s} called?",
            "What do you call a baby {s}?",
            "Which word names the young of a {s}?",
            "How does one call the offspring of a {s}?",
            "What is the name for a {s} that is not yet grown up?",
        ),
        _template(
            "animal_sound",
            "The sound that {s} make is called a {a}.",
            "What is the sound that {s} make called?",
            "Which noise do {s} make?",
            "How is the typical sound of {s} named?",
            "What do you hear when {s} make their usual noise?",
            "Name the sound typical of {s}.",
        ),
        _template(
            "colour",
            "The usual colour of {s} is {a}.",
            "What is the usual colour of {s}?",
            "Which colour does {s} normally have?",
            "What colour comes to mind for {s}?",
            "In which colour does one usually see {s}?",
            "What color is {s}, as a rule?",
        ),
        _template(
            "number_of",
            "There are {a} {s}.",
            "How many {s} are there?",
            "What is the number of {s}?",
            "How many {s} does one count?",
            "Say how many {s} there are.",
            "What count of {s} is right?",
        ),
        _template(
            "roman_numeral",
            "The Roman numeral for {s} is {a}.",
            "What is the Roman numeral for {s}?",
            "How is {s} written in Roman numerals?",
            "Which letters stand for {s} in Roman numerals?",
            "Write {s} as a Roman numeral.",
            "How would a Roman have written the number {s}?",
        ),
        _template(
            "next_in_order",
            "{S} is followed by {a}.",
            "What follows {s}?",
            "What comes directly after {s}?",
            "Which one is next after {s}?",
            "Name what comes next after {s}.",
            "By what is {s} followed?",
        ),
        _template(
            "next_president",
            "{a} followed {s} as president of the United States.",
            "Who followed {s} as president of the United States?",
            "Who became U.S. president directly after {s}?",
            "Which president came next after {s}?",
            "Name the successor of {s} in the White House.",
            "To whom did the American presidency pass from {s}?",
        ),
        _template(
            "studies",
            "The scientific study of {s} is called {a}.",
            "What is the scientific study of {s} called?",
            "Which science deals with {s}?",
            "What field of science studies {s}?",
            "Name the science of {s}.",
            "How is the branch of science about {s} called?",
        ),
        _template(
            "made_from",
            "{S} is made from {a}.",
            "What is {s} made from?",
            "Which raw material is {s} made from?",
            "From what is {s} produced?",
            "Name the main ingredient of {s}.",
            "What do you need above all to make {s}?",
        ),
        _template(
            "organ",
            "The organ of the body that {s} is the {a}.",
            "Which organ of the body {s}?",
            "What organ {s}?",
            "Name the organ that {s}.",
            "In the human body, which part {s}?",
            "What part of the body {s}?",
        ),
        _template(
            "landmark_city",
            "{S} is in {a}.",
            "In which city is {s}?",
            "Which city is home to {s}?",
            "Where would you go to see {s}?",
            "In what city does {s} stand?",
            "Name the city in which {s} can be visited.",
        ),
        _template(
            "deity_of",
            "In {myth} mythology, the {s} is {a}.",
            "Who is the {s} in {myth} mythology?",
            "What is the name of the {s} in {myth} mythology?",
            "In {myth} myth, which deity is the {s}?",
            "Name the {s} of the {myth} pantheon.",
            "Which figure of {myth} mythology is the {s}?",
        ),
        _template(
            "unit_of",
            "The SI unit of {s} is the {a}.",
            "What is the SI unit of {s}?",
            "In which SI unit is {s} measured?",
            "Which unit does physics use for {s}?",
            "Name the unit in which {s} is given in the SI.",
            "What unit measures {s}?",
        ),
        _template(
            "chemical_formula",
            "The chemical formula of {s} is {a}.",
            "What is the chemical formula of {s}?",
            "Which formula stands for {s} in chemistry?",
            "How is {s} written as a chemical formula?",
            "Give the chemical formula for {s}.",
            "By what formula do chemists write {s}?",
        ),
        _template(
            "sport_team_size",
            "A {s} team has {a} players on the field at a time.",
            "How many players does a {s} team have on the field at a time?",
            "How many players of one team play {s} at once?",
            "What is the number of players on a {s} side?",
            "With how many players does a {s} team line up?",
            "How big is one team on the field in {s}?",
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
        words={"myth": myth} if role else None,
    )
