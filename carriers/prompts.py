"""The prompt forms: closed book (weights alone) and open book (facts in the context).

Both are few-shot completions, since the embedded models are small and partly not instruction-tuned. A question
ends in a cue line and the answer ends at the line break, so "the answer is complete" is one checkable token.
The worked examples use things found in no corpus here, so that they cannot leak an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

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


class PromptForm(StrEnum):
    """How a question is put to a model."""

    CLOSED_BOOK = "closed_book"  # four worked examples, then the question
    BARE = "bare"  # the question alone
    OPEN_BOOK = "open_book"  # four worked examples with notes, then the notes and the question


def prefix_of(form: PromptForm) -> str:
    """Return the constant text that precedes every prompt of this form."""
    if form is PromptForm.CLOSED_BOOK:
        return CLOSED_BOOK_PREFIX
    return OPEN_BOOK_PREFIX if form is PromptForm.OPEN_BOOK else ""


def closed_book(question: str) -> str:
    """Return the prompt that asks the weights alone."""
    return f"Question: {one_line(question)}\nAnswer:"


def open_book(question: str, texts: Sequence[str]) -> str:
    """Return the prompt that asks with the given facts as notes, in the given order."""
    notes = " ".join(one_line(text) for text in texts)
    return f"Notes: {notes}\nQuestion: {one_line(question)}\nAnswer:"


def one_line(text: str) -> str:
    """Collapse white space, since a line break would end the notes or the question."""
    return " ".join(text.split())
