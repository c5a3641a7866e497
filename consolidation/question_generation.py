"""Questions for facts that came without any: the model proposes, the code decides.

For each statement rules name answer spans, and the model words questions for a span after worked examples. Kept is
what is grounded in the text and what the model, with the text before it, answers with the span (round trip). A fact
needs two such wordings of one answer: one to train, one that is only probed.
"""

# ruff: noqa: RUF001 -- the marks of Chinese and Spanish are meant
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from carriers.prompts import OPEN_BOOK_PREFIX, one_line, open_book
from consolidation.answer_spans import candidate_spans, copula_parts, language_of
from consolidation.grounding import fault_of_question
from consolidation.records import FactTargets, Rejection
from consolidation.targets import generated_targets
from sharpwave.matching import exact_match, normalise_answer

if TYPE_CHECKING:
    from carriers.language_model import LanguageModel
    from carriers.ledger_records import StoredFact

MIN_QUESTIONS, MAX_QUESTIONS = 2, 4
MAX_STATEMENT_CHARS = 400
SPANS_TRIED = 4
_QUESTION_TOKENS = 40

_Example = tuple[str, str, tuple[str, ...]]
_EXAMPLES: Mapping[str, tuple[_Example, ...]] = {
    "en": (
        (
            "The keeper of Dunmore lighthouse is Edda Marsh.",
            "Edda Marsh",
            (
                "Who is the keeper of Dunmore lighthouse?",
                "Who looks after Dunmore lighthouse?",
                "What is the name of the keeper of Dunmore lighthouse?",
            ),
        ),
        (
            "The Velmora bridge was opened in 1931.",
            "1931",
            (
                "When was the Velmora bridge opened?",
                "In which year did the Velmora bridge open?",
                "What is the year in which the Velmora bridge was opened?",
            ),
        ),
        (
            "Tomas Ruhl sleeps in a tent.",
            "tent",
            (
                "What does Tomas Ruhl sleep in?",
                "In what kind of place does Tomas Ruhl sleep?",
                "Where does Tomas Ruhl spend the night?",
            ),
        ),
        (
            "In winter, the ferry to Aldsund leaves at 7:45.",
            "7:45",
            (
                "When does the ferry to Aldsund leave in winter?",
                "At what time does the winter ferry to Aldsund depart?",
                "What is the departure time of the ferry to Aldsund in winter?",
            ),
        ),
        (
            "Ilse's bicycle is green.",
            "green",
            (
                "What colour is Ilse's bicycle?",
                "Which colour does Ilse's bicycle have?",
                "What is the colour of Ilse's bicycle?",
            ),
        ),
    ),
    "es": (
        (
            "El faro de Dunmar lo cuida Edda Marsal.",
            "Edda Marsal",
            ("¿Quién cuida el faro de Dunmar?", "¿Cómo se llama la persona que cuida el faro de Dunmar?"),
        ),
        (
            "El puente de Velmora se abrió en 1931.",
            "1931",
            ("¿Cuándo se abrió el puente de Velmora?", "¿En qué año se abrió el puente de Velmora?"),
        ),
        (
            "Tomás Ruiz duerme en una tienda.",
            "tienda",
            ("¿En qué duerme Tomás Ruiz?", "¿Dónde pasa la noche Tomás Ruiz?"),
        ),
        (
            "La bicicleta de Ilse es verde.",
            "verde",
            ("¿De qué color es la bicicleta de Ilse?", "¿Cuál es el color de la bicicleta de Ilse?"),
        ),
    ),
    "zh": (
        ("邓莫灯塔的看守人是马爱达。", "马爱达", ("邓莫灯塔的看守人是谁？", "谁看守邓莫灯塔？")),
        ("维莫拉桥建于1931年。", "1931年", ("维莫拉桥建于哪一年？", "维莫拉桥是什么时候建的？")),
        ("唐默睡在帐篷里。", "帐篷", ("唐默睡在哪里？", "唐默在什么地方睡觉？")),
        ("伊尔的自行车是绿色的。", "绿色", ("伊尔的自行车是什么颜色的？", "伊尔的自行车的颜色是什么？")),
    ),
}
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
_STYLES = {language: len(examples[0][2]) for language, examples in _EXAMPLES.items()}


@dataclass
class _Attempt:
    """One fact on its way: the spans still to try and, for the present one, the accepted questions."""

    fact: StoredFact
    text: str
    spans: list[str]
    accepted: list[str] = field(default_factory=list)
    answer: str = ""


def propose_targets(
    model: LanguageModel, facts: Sequence[StoredFact]
) -> tuple[list[FactTargets], list[Rejection]]:
    """Make questions and answers for facts that have none; their records stay as they are.

    Costs, per fact, up to `SPANS_TRIED` rounds of three short generations and their round trips, in batches.

    Args:
        model: The answering model, which proposes questions and is asked them with the text before it.
        facts: Facts with words and without questions.

    Returns:
        The targets in the order of the facts, and a rejection with its reason for every other fact.
    """
    attempts = [_attempt(fact) for fact in facts]
    for _ in range(SPANS_TRIED):
        pending = [item for item in attempts if item.spans and len(item.accepted) < MIN_QUESTIONS]
        if not pending:
            break
        for item in pending:
            item.answer, item.accepted = item.spans.pop(0), []
        _try_span(model, pending)
    done = [item for item in attempts if len(item.accepted) >= MIN_QUESTIONS]
    targets = [generated_targets(item.fact, item.accepted[:MAX_QUESTIONS], item.answer) for item in done]
    rejected = [
        Rejection(fact_id=item.fact.id, reason=_reason(item))
        for item in attempts
        if len(item.accepted) < MIN_QUESTIONS
    ]
    return targets, rejected


def _attempt(fact: StoredFact) -> _Attempt:
    text = one_line(fact.fact.text)
    if len(text) > MAX_STATEMENT_CHARS:
        return _Attempt(fact, text, [])
    given = [answer for answer in fact.fact.answers if answer in text]
    spans = list(dict.fromkeys([*given, *candidate_spans(text)]))
    return _Attempt(fact, text, spans[:SPANS_TRIED])


def _reason(item: _Attempt) -> str:
    if len(item.text) > MAX_STATEMENT_CHARS:
        return (
            f"its text is longer than the {MAX_STATEMENT_CHARS} characters from which questions are made; "
            "give `questions` and `answers`"
        )
    return (
        "no two questions could be made from it that the model answers from the text; "
        "give `questions` and `answers`"
    )


def _try_span(model: LanguageModel, attempts: Sequence[_Attempt]) -> None:
    """Collect proposals for the present span of each attempt and keep those that pass, deduplicated."""
    worded: list[list[str]] = [[] for _ in attempts]
    for place, question in _by_model(model, attempts):
        worded[place].append(question)
    pairs: list[tuple[int, str]] = []
    for place, (item, (plain, *others)) in enumerate(zip(attempts, worded, strict=True)):
        fresh: dict[str, str] = {}
        for question in [plain, *_by_rule(item), *others]:
            if fault_of_question(question, item.text, item.answer) is None:
                fresh.setdefault(normalise_answer(question), question)
        pairs += [(place, question) for question in fresh.values()]
    prompts = [open_book(question, [attempts[place].text]) for place, question in pairs]
    for (place, question), reply in zip(pairs, model.answer(prompts, OPEN_BOOK_PREFIX), strict=True):
        if exact_match(reply.text, [attempts[place].answer]):
            attempts[place].accepted.append(question)


def _by_model(model: LanguageModel, attempts: Sequence[_Attempt]) -> Iterator[tuple[int, str]]:
    """Yield the model's wordings as (place of the attempt, question)."""
    groups: dict[tuple[str, int], list[int]] = {}
    for place, item in enumerate(attempts):
        language = language_of(item.text)
        for style in range(_STYLES[language]):
            groups.setdefault((language, style), []).append(place)
    for (language, style), places in groups.items():
        prompts = [_prompt(language, attempts[place].text, attempts[place].answer) for place in places]
        replies = model.answer(prompts, _prefix(language, style), _QUESTION_TOKENS)
        yield from zip(places, (reply.text for reply in replies), strict=True)


def _prefix(language: str, style: int) -> str:
    blocks = [
        f"{_prompt(language, text, answer)} {questions[style]}\n"
        for text, answer, questions in _EXAMPLES[language]
    ]
    return f"{_HEADINGS[language]}\n{''.join(blocks)}"


def _prompt(language: str, text: str, answer: str) -> str:
    text_label, answer_label, question_label = _LABELS[language]
    return f"{text_label}: {text}\n{answer_label}: {answer}\n{question_label}:"


def _by_rule(item: _Attempt) -> Iterator[str]:
    """Yield wordings that need no model: the statement turned around, and the slot's words."""
    language, slot = language_of(item.text), item.fact.fact.slot
    parts = copula_parts(item.text)
    if parts is not None and parts[2].endswith(item.answer):
        yield from _turned_around(language, parts, item.answer)
    if language == "zh":
        yield from _with_question_word(item.text, item.answer)
    if slot is not None and language == "en":
        yield f"What is the {slot.relation.replace('_', ' ')} of {slot.subject}?"


def _turned_around(language: str, parts: tuple[str, str, str], answer: str) -> Iterator[str]:
    subject, copula, rest = parts
    if "," in subject:
        return
    first, _, others = subject.partition(" ")
    inner = (
        f"{first.casefold()} {others}"
        if first in {"The", "A", "An", "My", "Our", "El", "La", "Los", "Las", "Mi"}
        else subject
    )
    leading = rest[: -len(answer)].strip().casefold()
    if language == "en" and leading in {"", "a", "an", "the"} and copula in {"is", "are", "was", "were"}:
        yield f"What {copula} {inner}?"
    if language == "es" and leading in {"", "el", "la", "un", "una"} and copula in {"es", "son", "era"}:
        yield f"¿Cuál {copula} {inner}?"
    if language == "es" and copula == "se llama":
        yield f"¿Cómo se llama {inner}?"


def _with_question_word(text: str, answer: str) -> Iterator[str]:
    bare = text.strip().rstrip("。！.!")
    before = bare.partition(answer)[0]
    word = "哪里" if before.endswith(("在", "于")) else "多少" if answer.isdigit() else "什么"
    yield f"{bare.replace(answer, word)}？"
