"""Which of a fact's questions a router may ask, and which are kept for finding out what the model really knows.

A model that answers one wording of a question often fails at another, so two of each are used where a fact has them. No
question is ever both: a head must not see the very prompt whose outcome it predicts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sharpwave.records import Fact

MOST_WORDINGS = 2


def probed_questions(fact: Fact) -> tuple[str, ...]:
    """Return the questions of the self-probe: the first two, or the first one of a fact with one or two questions."""
    return fact.questions[: MOST_WORDINGS if len(fact.questions) > MOST_WORDINGS else 1]


def labelling_questions(fact: Fact) -> tuple[str, ...]:
    """Return the questions that behaviour is judged by: the last ones that are not probed, at most two."""
    return fact.questions[len(probed_questions(fact)) :][-MOST_WORDINGS:] or fact.questions
