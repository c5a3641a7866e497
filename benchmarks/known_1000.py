"""Reads the file known_1000.json (Meng et al., ROME, 2022: facts that a GPT-2 XL completes) as facts with questions.

The file's prompts are continuations of a language model, some of them odd, so statements and questions are worded here,
once per relation; only subject and attribute are taken from the file.
"""

from __future__ import annotations

import json
from pathlib import Path

from sharpwave.errors import InputError
from sharpwave.records import Fact, Slot

WORDINGS: dict[str, tuple[str, str, str]] = {
    "P17": ("{s} is in {a}.", "In which country is {s}?", "Which country is {s} in?"),
    "P19": ("{s} was born in {a}.", "Where was {s} born?", "What is the birthplace of {s}?"),
    "P20": ("{s} died in {a}.", "Where did {s} die?", "In which place did {s} die?"),
    "P27": (
        "{s} is a citizen of {a}.",
        "Of which country is {s} a citizen?",
        "What is the citizenship of {s}?",
    ),
    "P30": ("{s} is in {a}.", "On which continent is {s}?", "Which continent does {s} belong to?"),
    "P36": ("The capital of {s} is {a}.", "What is the capital of {s}?", "Which city is the capital of {s}?"),
    "P37": (
        "A language spoken in {s} is {a}.",
        "Which language is spoken in {s}?",
        "What do people speak in {s}?",
    ),
    "P39": ("{s} was a {a}.", "Which position did {s} hold?", "What office did {s} have?"),
    "P101": ("{s} works in {a}.", "In which field does {s} work?", "What is the field of {s}?"),
    "P103": (
        "The native language of {s} is {a}.",
        "What is the native language of {s}?",
        "Which language did {s} learn first?",
    ),
    "P106": ("{s} is a {a}.", "What is the profession of {s}?", "What does {s} do for a living?"),
    "P108": ("{s} works for {a}.", "Who employs {s}?", "Which company does {s} work for?"),
    "P127": ("{s} is owned by {a}.", "Who owns {s}?", "Which company is the owner of {s}?"),
    "P131": ("{s} is in {a}.", "Where is {s}?", "In which region is {s}?"),
    "P136": ("{s} is known for {a}.", "Which genre is {s} known for?", "What genre does {s} belong to?"),
    "P138": ("{s} is named after {a}.", "What is {s} named after?", "After what was {s} named?"),
    "P140": (
        "The religion of {s} is {a}.",
        "What is the religion of {s}?",
        "Which religion does {s} follow?",
    ),
    "P159": (
        "The headquarters of {s} are in {a}.",
        "Where are the headquarters of {s}?",
        "In which city is {s} headquartered?",
    ),
    "P176": ("{s} is made by {a}.", "Who makes {s}?", "Which company is the maker of {s}?"),
    "P178": ("{s} was developed by {a}.", "Who developed {s}?", "Which company is the developer of {s}?"),
    "P190": ("{s} is a twin city of {a}.", "Which city is twinned with {s}?", "What is a twin city of {s}?"),
    "P276": ("{s} is in {a}.", "Where is {s}?", "What is the location of {s}?"),
    "P364": (
        "The original language of {s} is {a}.",
        "What is the original language of {s}?",
        "In which language was {s} made?",
    ),
    "P407": ("{s} is written in {a}.", "In which language is {s} written?", "What is the language of {s}?"),
    "P413": (
        "{s} plays as {a}.",
        "In which position does {s} play?",
        "What position does {s} have on the team?",
    ),
    "P449": (
        "{s} was first shown on {a}.",
        "On which network was {s} first shown?",
        "Which channel showed {s}?",
    ),
    "P463": ("{s} is a member of {a}.", "Of what is {s} a member?", "Which organisation does {s} belong to?"),
    "P495": (
        "{s} comes from {a}.",
        "From which country does {s} come?",
        "What is the country of origin of {s}?",
    ),
    "P641": ("{s} plays {a}.", "Which sport does {s} play?", "What is the sport of {s}?"),
    "P740": ("{s} was founded in {a}.", "Where was {s} founded?", "In which place did {s} begin?"),
    "P937": ("{s} worked in {a}.", "Where did {s} work?", "In which city did {s} work?"),
    "P1303": ("{s} plays the {a}.", "Which instrument does {s} play?", "What is the instrument of {s}?"),
    "P1412": ("{s} speaks {a}.", "Which language does {s} speak?", "In which language does {s} write?"),
}


def read_known_1000(path: Path) -> list[Fact]:
    """Return the file's facts, each with a question to probe and another to label with.

    Raises:
        InputError: A relation of the file has no wording here.
    """
    facts = []
    for row in json.loads(path.read_text(encoding="utf-8")):
        subject, answer, relation = row["subject"], row["attribute"], row["relation_id"]
        if relation not in WORDINGS:
            raise InputError(f"no wording for relation {relation}", file=str(path), field="relation_id")
        statement, *questions = (wording.format(s=subject, a=answer) for wording in WORDINGS[relation])
        facts.append(
            Fact(
                text=statement,
                questions=tuple(questions),
                answers=(answer,),
                slot=Slot(subject=subject, relation=relation),
            )
        )
    return facts
