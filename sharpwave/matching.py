"""Answer matching in the SQuAD manner, shared by labels, probes and metrics.

Rules follow the normaliser of Rajpurkar et al., 2016 (SQuAD): lower case, punctuation out, the English
articles out, white space collapsed. Two additions for other scripts: Unicode is brought to NFKC first, and
"punctuation" means every Unicode punctuation or symbol character, so that Spanish and Chinese marks count.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise_answer(text: str) -> str:
    """Return the form in which two answers are compared.

    >>> normalise_answer("The  U.S. Dollar!")
    'us dollar'
    """
    lowered = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(c for c in lowered if unicodedata.category(c)[0] not in "PS")
    return " ".join(_ARTICLES.sub(" ", kept).split())


def exact_match(prediction: str, answers: Iterable[str]) -> bool:
    """Tell whether the prediction equals one of the answers after normalisation.

    >>> exact_match("Paris.", ["Lutetia", "paris"])
    True
    """
    given = normalise_answer(prediction)
    return any(given == normalise_answer(answer) for answer in answers)


def token_f1(prediction: str, answers: Iterable[str]) -> float:
    """Return the best token-overlap F1 against any answer, in [0, 1]."""
    given = normalise_answer(prediction).split()
    return max((_f1(given, normalise_answer(answer).split()) for answer in answers), default=0.0)


def _f1(given: list[str], expected: list[str]) -> float:
    if not given or not expected:
        return float(given == expected)
    common = sum((Counter(given) & Counter(expected)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(given), common / len(expected)
    return 2 * precision * recall / (precision + recall)
