"""How a question about a statement is worded: openings and examples for the model, and wordings by rule. Pure.

A small model knows how to go on better than how to begin, so the code begins: the kind of the answer (a date, a
number, a name) names the question words that may fit, and the model completes each.
"""

# ruff: noqa: RUF001 -- the marks of Chinese and Spanish are meant
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from consolidation.answer_spans import content_words, copula_parts, language_of

if TYPE_CHECKING:
    from sharpwave.records import Slot

Kind = Literal["date", "day", "year", "time", "number", "name", "other"]

_OPENINGS: Mapping[str, Mapping[Kind, tuple[str, ...]]] = {
    "en": {
        "date": ("On which date", "When", "What is the date"),
        "day": ("On which day", "When"),
        "year": ("In which year", "When"),
        "time": ("At what time", "When"),
        "number": ("What is the", "How many", "Which number"),
        "name": ("What is the name of", "Who", "Where", "Which"),
        "other": ("What is the", "What does", "Which", "Where"),
    },
    "es": {
        "date": ("¿Cuándo", "¿En qué fecha"),
        "day": ("¿Qué día", "¿Cuándo"),
        "year": ("¿En qué año", "¿Cuándo"),
        "time": ("¿A qué hora", "¿Cuándo"),
        "number": ("¿Cuál es", "¿Cuántos", "¿Qué número"),
        "name": ("¿Quién", "¿Cómo se llama", "¿Dónde", "¿Cuál es"),
        "other": ("¿Qué", "¿Cuál es", "¿Dónde"),
    },
}
_EXAMPLES: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "en": (
        ("Ilse's bicycle is green.", "green", "What is the colour of Ilse's bicycle?"),
        (
            "The keeper of Dunmore lighthouse is Edda Marsh.",
            "Edda Marsh",
            "Who keeps the lighthouse at Dunmore?",
        ),
        (
            "In winter, the ferry to Aldsund leaves at 7:45.",
            "7:45",
            "When does the ferry to Aldsund leave in winter?",
        ),
        ("The choir of Velmora meets in the old mill.", "old mill", "Where does the choir of Velmora meet?"),
        ("Tomas Ruhl repairs clocks.", "clocks", "What does Tomas Ruhl repair?"),
    ),
    "es": (
        ("La bicicleta de Ilse es verde.", "verde", "¿Cuál es el color de la bicicleta de Ilse?"),
        ("El faro de Dunmar lo cuida Edda Marsal.", "Edda Marsal", "¿Quién cuida el faro de Dunmar?"),
        ("El puente de Velmora se abrió en 1931.", "1931", "¿Cuándo se abrió el puente de Velmora?"),
        ("Tomás Ruiz repara relojes.", "relojes", "¿Qué repara Tomás Ruiz?"),
    ),
    "zh": (
        ("邓莫灯塔的看守人是马爱达。", "马爱达", "谁看守邓莫灯塔？"),
        ("伊尔的自行车是绿色的。", "绿色", "伊尔的自行车是什么颜色的？"),
        ("维莫拉桥建于1931年。", "1931年", "维莫拉桥是什么时候建的？"),
        ("唐默睡在帐篷里。", "帐篷", "唐默在什么地方睡觉？"),
    ),
}
_EXAMPLE_WORDS = frozenset(
    word
    for language in ("en", "es")
    for text, _, question in _EXAMPLES[language]
    for word in content_words(f"{text} {question}")
    if word not in {"colour", "color", "winter", "old", "leave", "leaves", "meet", "meets", "keeps"}
)
_HEADINGS = {
    "en": "Write a question about the text that the answer replies to.",
    "es": "Escribe una pregunta sobre el texto a la que corresponde la respuesta.",
    "zh": "根据文本写一个问题，使其答案为给出的答案。",
}
_LABELS = {
    "en": ("Text", "Answer", "Question"),
    "es": ("Texto", "Respuesta", "Pregunta"),
    "zh": ("文本", "答案", "问题"),
}
_MONTHS = (
    "january|february|march|april|may|june|july|august|september|october|november|december|"
    "enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre"
)
_DAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday|lunes|martes|miércoles|jueves|viernes|sábado|domingo"
_IN_PLACE: Mapping[str, Mapping[Kind, str]] = {
    "en": {"date": "what date", "day": "what day", "year": "which year", "time": "what time"},
    "es": {"date": "qué fecha", "day": "qué día", "year": "qué año", "time": "qué hora"},
}
_EN_PREPOSITIONS = frozenset([
    "of",
    "in",
    "on",
    "at",
    "by",
    "for",
    "from",
    "to",
    "with",
    "about",
    "under",
    "over",
])
_EN_VERB = re.compile(r"^(?P<subject>.+?) (?P<verb>[a-z]{2,}s) (?P<rest>.*)$")
_OPENERS = frozenset({"The", "A", "An", "My", "Our", "His", "Her", "El", "La", "Lo", "Los", "Las", "Mi"})
_NO_SUBJECTS = frozenset({"These", "Those", "This", "That", "Some", "Many", "All", "Every"})


def kind_of(answer: str) -> Kind:
    """Tell what an answer is, from its form.

    >>> kind_of("17 February"), kind_of("1931"), kind_of("Edda Marsh")
    ('date', 'year', 'name')
    """
    lowered = answer.casefold()
    if re.search(rf"\b(?:{_MONTHS})\b", lowered):
        return "date"
    if re.fullmatch(_DAYS, lowered):
        return "day"
    if re.fullmatch(r"1\d{3}|20\d{2}", answer):
        return "year"
    if re.fullmatch(r"\d{1,2}[:.]\d{2}(?: ?[ap]\.?m\.?)?", lowered):
        return "time"
    if re.fullmatch(r"[+\d][\d,. ]*%?", answer):
        return "number"
    return "name" if answer[:1].isupper() else "other"


def openings(language: str, text: str, answer: str) -> tuple[str, ...]:
    """Return the beginnings that the model completes; in Chinese, whose questions keep the order, none at all."""
    if language == "zh":
        return ("",)
    chosen = _OPENINGS[language][kind_of(answer)]
    if kind_of(answer) == "number" and not re.match(r" \w", text.partition(answer)[2]):
        chosen = tuple(opening for opening in chosen if opening not in {"How many", "¿Cuántos"})
    before = text.partition(answer)[0].split()
    if before and before[-1].casefold() in {"in", "en", "at"} and kind_of(answer) in {"name", "other"}:
        where = "¿Dónde" if language == "es" else "Where"
        return (where, *(opening for opening in chosen if opening != where))
    return chosen


def worked_examples(language: str) -> str:
    """Return the constant text before every prompt of a language."""
    blocks = [
        f"{example(language, text, answer)} {question}\n" for text, answer, question in _EXAMPLES[language]
    ]
    return f"{_HEADINGS[language]}\n{''.join(blocks)}"


def example(language: str, text: str, answer: str) -> str:
    """Return the prompt for one statement and answer; the question follows."""
    text_label, answer_label, question_label = _LABELS[language]
    return f"{text_label}: {text}\n{answer_label}: {answer}\n{question_label}:"


def is_copied(question: str, text: str) -> bool:
    """Tell whether a question speaks of the worked examples, as small models do when a statement says little to them.

    >>> is_copied("What does Tomas Ruhl study?", "The study of heredity is called genetics.")
    True
    """
    return bool(content_words(question) & _EXAMPLE_WORDS - content_words(text))


def turned_around(text: str, answer: str, slot: Slot | None) -> Iterator[str]:
    """Yield wordings by rule that move the question word to the front, and the one made of the slot's words."""
    language = language_of(text)
    clause, setting = _main_clause(text)
    parts = copula_parts(clause)
    if parts is not None and parts[2].endswith(answer) and "," not in parts[0]:
        subject, copula, rest = _within_sentence(parts[0]), parts[1], rest_before(parts[2], answer)
        made = _turned_copula(language, subject, copula, rest, answer)
    else:
        made = _turned_verb(clause.strip().rstrip("."), answer) if language == "en" else iter(())
    for question in made:
        bare = question.removesuffix("?")
        if not (setting and bare.split()[-1] in _EN_PREPOSITIONS):
            yield f"{bare}{setting}?"
    if slot is not None and language == "en":
        yield f"What is the {slot.relation.replace('_', ' ')} of {slot.subject}?"


def _main_clause(text: str) -> tuple[str, str]:
    """Split off an opening like "In 2023, ..." and return the rest with a capital, and the opening in lower case."""
    found = re.match(r"((?:In|On|At|By|For|En|Por) [^,.]{2,40}), (\w.*)$", text.strip())
    if found is None:
        return text, ""
    opening, clause = found.groups()
    return f"{clause[0].upper()}{clause[1:]}", f" {opening[0].lower()}{opening[1:]}"


def in_place(text: str, answer: str) -> Iterator[str]:
    """Yield the statement with a question word where the answer stands; in Chinese the plain way to ask."""
    language, bare = language_of(text), text.strip().rstrip("。！.!")
    before, _, after = bare.rpartition(answer)
    if language == "zh":
        word = "哪里" if before.endswith(("在", "于")) else "多少" if answer.isdigit() else "什么"
        yield f"{before}{word}{after}？"
        yield f"请问，{before}{word}{after}？"
        return
    word = _IN_PLACE[language].get(kind_of(answer), "what" if language == "en" else "qué")
    if kind_of(answer) == "number" and after:
        word = "how many" if language == "en" else "cuántos"
    if language == "es" and before.endswith(" en ") and kind_of(answer) == "name":
        word = "dónde"
    before = re.sub(r"\b(?:an?|the|el|la|los|las|una?) $", "", before)
    if len(re.findall(r"[.!?]", bare)) == 0 and before:
        yield f"{before}{word}{after}?" if language == "en" else f"¿{before}{word}{after}?"


def rest_before(rest: str, answer: str) -> str:
    """Return what stands between a copula and the answer, articles taken off."""
    before = rest[: -len(answer)].strip(' "“«')
    return re.sub(r"\b(?:an?|the|el|la|los|las|una?)$", "", before, flags=re.IGNORECASE).strip()


def _turned_copula(language: str, subject: str, copula: str, rest: str, answer: str) -> Iterator[str]:
    if language == "es":
        if subject.endswith(" que") or " tiene " in subject:
            return
        if copula == "se llama" and not rest:
            yield f"¿Cómo se llama {subject}?"
        elif not rest:
            yield f"¿Cuál {copula} {subject}?"
        return
    if copula not in {"is", "are", "was", "were"}:
        if copula == "answers to the name" and not rest:
            yield f"What name does {subject} answer to?"
        if copula in {"is called", "is named", "answers to the name"} and not rest:
            yield f"What is {subject} called?"
        return
    words = rest.split()
    if not words or {words[0], words[-1]} & _EN_PREPOSITIONS:
        yield _fronted(f"{copula} {subject}", rest, answer)


def _turned_verb(text: str, answer: str) -> Iterator[str]:
    """Yield "What does X verb ...?" for "X verbs ... answer"."""
    found = _EN_VERB.match(text)
    if (
        found is None
        or not text.endswith(answer)
        or found["verb"] in {"is", "was", "has", "this", "his", "as"}
    ):
        return
    if (
        found["subject"] in _NO_SUBJECTS
        or not found["subject"][0].isupper()
        or len(found["subject"].split()) > 6
        or "," in found["subject"]
    ):
        return
    rest = rest_before(found["rest"], answer)
    if rest and rest.split()[-1] not in {*_EN_PREPOSITIONS, "every"}:
        return
    auxiliary = f"does {_within_sentence(found['subject'])} {_base_form(found['verb'])}"
    yield _fronted(auxiliary, rest, answer)


def _fronted(clause: str, rest: str, answer: str) -> str:
    """Put the question word, with its preposition for dates, days, years and times, before a clause."""
    words, kind = rest.split(), kind_of(answer)
    last = words[-1] if words else ""
    noun = _IN_PLACE["en"].get(kind)
    if noun is not None and last in {*_EN_PREPOSITIONS, "every"}:
        joint = "on" if last == "every" else last
        return f"{joint.capitalize()} {noun} {clause} {' '.join(words[:-1])}".rstrip() + "?"
    if rest in {"in", "at"} and kind == "name" and not clause.startswith("does"):
        return f"Where {clause}?"
    word = "Who" if kind == "name" and last in {"by", "for", "with"} else "What"
    return f"{word} {clause} {rest}".rstrip() + "?"


def _base_form(verb: str) -> str:
    if verb.endswith("ies"):
        return f"{verb[:-3]}y"
    return verb[:-2] if verb.endswith(("shes", "ches", "sses", "xes", "oes", "zzes")) else verb[:-1]


def _within_sentence(subject: str) -> str:
    first, _, others = subject.partition(" ")
    return f"{first.casefold()} {others}" if first in _OPENERS and others else subject
