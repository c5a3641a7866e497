"""The prompt forms: closed book (weights alone) and open book (facts in the context).

Both are few-shot completions, since the embedded models are small and partly not instruction-tuned. A question
ends in a cue line and the answer ends at the line break, so "the answer is complete" is one checkable token.
The worked examples use things found in no corpus here, so an answer taken from them can be told: `is_from_examples`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from sharpwave.matching import normalise_answer

CLOSED_BOOK_PREFIX = (
    "Answer each question in a few words.\n"
    "Question: What is the freezing point of water in degrees Celsius?\nAnswer: 0\n"
    "Question: Who wrote the play Romeo and Juliet?\nAnswer: William Shakespeare\n"
    "Question: ¿De qué color es la nieve?\nAnswer: blanca\n"
    "Question: Which animal is known as man's best friend?\nAnswer: dog\n"
)

OPEN_BOOK_PREFIX = (
    "Answer each question in a few words, using the notes.\n"
    "Notes: The keeper of Dunmore lighthouse is Edda Marsh.\n"
    "Question: Who looks after the lighthouse at Dunmore?\nAnswer: Edda Marsh\n"
    "Notes: Tomas prefers tea without sugar. The station code of Velmora is VLM.\n"
    "Question: Which letters stand for Velmora on a train ticket?\nAnswer: VLM\n"
    "Notes: Ramiro vive en la calle Luna 12. El perro de Ramiro se llama Trueno.\n"
    "Question: ¿Qué nombre tiene el perro de Ramiro?\nAnswer: Trueno\n"
    "Notes: In the Orlan language, water is called suvi.\n"
    "Question: How do speakers of Orlan say water?\nAnswer: suvi\n"
    "Notes: The old mill of Velmora has 4 floors. The Velmora bridge is 310 metres long.\n"
    "Question: What length in metres does the bridge at Velmora have?\nAnswer: 310\n"
)

ANSWER_END = "\n"
_ASK, _CUE = "Question: ", "\nAnswer:"
_SHORT_WORD = 2


class PromptForm(StrEnum):
    """How a question is put to a model."""

    CLOSED_BOOK = "closed_book"  # four worked examples, then the question
    BARE = "bare"  # the question alone
    OPEN_BOOK = "open_book"  # five worked examples with notes, then the notes and the question


def prefix_of(form: PromptForm) -> str:
    """Return the constant text that precedes every prompt of this form."""
    if form is PromptForm.CLOSED_BOOK:
        return CLOSED_BOOK_PREFIX
    return OPEN_BOOK_PREFIX if form is PromptForm.OPEN_BOOK else ""


def closed_book(question: str) -> str:
    """Return the prompt that asks the weights alone."""
    return f"{_ASK}{one_line(question)}{_CUE}"


def question_of(prompt: str) -> str:
    """Return the question that a closed-book prompt asks; any other text as it is."""
    return prompt.removeprefix(_ASK).removesuffix(_CUE)


def open_book(question: str, texts: Sequence[str]) -> str:
    """Return the prompt that asks with the given facts as notes, in the given order."""
    notes = " ".join(one_line(text) for text in texts)
    return f"Notes: {notes}\n{_ASK}{one_line(question)}{_CUE}"


def is_from_examples(answer: str, prompt: str) -> bool:
    """Tell whether all that an answer adds to its own prompt are words of the open-book examples.

    Small models do so when the notes have no answer. Words of one or two letters are not looked at.
    """
    own, examples = (set(normalise_answer(text).split()) for text in (prompt, OPEN_BOOK_PREFIX))
    added = {word for word in normalise_answer(answer).split() if len(word) > _SHORT_WORD} - own
    return bool(added) and added <= examples


def one_line(text: str) -> str:
    """Collapse white space, since a line break would end the notes or the question."""
    return " ".join(text.split())
