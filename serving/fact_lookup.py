"""Finding facts by what a person types: the beginning of an id is enough if only one fact has it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import select

from carriers.ledger_schema import facts, states
from sharpwave.errors import InputError

if TYPE_CHECKING:
    from carriers.ledger import Ledger

_ID_BEGINNING = re.compile(r"[0-9a-f]{1,32}")
_SHOWN = 5


def find_fact_ids(ledger: Ledger, beginnings: Sequence[str], namespace: str | None = None) -> list[str]:
    """Return the id that each beginning stands for, in order, without repeats; tombstones are found, too.

    Raises:
        InputError: It is no beginning of an id, no fact has it, or several have; the message lists some.
    """
    return list(
        dict.fromkeys(_find(ledger, beginning.strip().lower(), namespace) for beginning in beginnings)
    )


def find_fact_id(ledger: Ledger, given: str, namespace: str | None = None) -> str:
    """Return the id of the fact whose id begins so, or else of the only one whose text holds these words.

    Raises:
        InputError: No fact fits, or several do; the message lists some.
    """
    words = given.strip()
    if _with_beginning(ledger, words.lower(), namespace):
        return _find(ledger, words.lower(), namespace)
    found = _with_words(ledger, words, namespace)
    if len(found) == 1:
        return found[0][0]
    if found:
        listed = "".join(
            f"\n  {fact_id[:12]}  {' '.join(text.split())[:80]}" for fact_id, text in found[:_SHOWN]
        )
        more = "\n  and more" if len(found) > _SHOWN else ""
        raise InputError(f"several facts hold the words {words[:80]!r}; name one by its id:{listed}{more}")
    raise InputError(
        f"no fact{_of(namespace)} has an id that begins with {words[:80]!r}, or holds these words"
    )


def _find(ledger: Ledger, beginning: str, namespace: str | None) -> str:
    if not _ID_BEGINNING.fullmatch(beginning):
        raise InputError(
            f"{beginning[:80]!r} is no fact id: ids are 32 hexadecimal digits, a beginning is enough; "
            "`sharpwave history WORDS` finds ids by words of the text"
        )
    found = _with_beginning(ledger, beginning, namespace)
    if not found:
        raise InputError(f"no fact{_of(namespace)} has an id that begins with {beginning}")
    if len(found) > 1:
        more = ", and more" if len(found) > _SHOWN else ""
        raise InputError(
            f"several facts have an id that begins with {beginning}: {', '.join(found[:_SHOWN])}{more}"
        )
    return found[0]


def _with_beginning(ledger: Ledger, beginning: str, namespace: str | None) -> list[str]:
    if not _ID_BEGINNING.fullmatch(beginning):
        return []
    query = select(states.c.fact_id).where(states.c.fact_id.startswith(beginning))
    if namespace is not None:
        query = query.where(states.c.namespace == namespace)
    with ledger.reading() as connection:
        return list(connection.scalars(query.order_by(states.c.fact_id).limit(_SHOWN + 1)))


def _with_words(ledger: Ledger, words: str, namespace: str | None) -> list[tuple[str, str]]:
    query = select(facts.c.id, facts.c.text).where(facts.c.text.icontains(words, autoescape=True))
    if namespace is not None:
        query = query.where(facts.c.namespace == namespace)
    if not words:
        return []
    with ledger.reading() as connection:
        return [
            (row.id, row.text) for row in connection.execute(query.order_by(facts.c.id).limit(_SHOWN + 1))
        ]


def _of(namespace: str | None) -> str:
    return "" if namespace is None else f" of namespace {namespace!r}"
