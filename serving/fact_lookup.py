"""Finding facts by what a person types: the beginning of an id is enough if only one fact has it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import select

from carriers.ledger_schema import states
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


def _find(ledger: Ledger, beginning: str, namespace: str | None) -> str:
    if not _ID_BEGINNING.fullmatch(beginning):
        raise InputError(
            f"{beginning[:80]!r} is no fact id: ids are 32 hexadecimal digits, a beginning is enough"
        )
    query = select(states.c.fact_id).where(states.c.fact_id.startswith(beginning))
    if namespace is not None:
        query = query.where(states.c.namespace == namespace)
    with ledger.reading() as connection:
        found: list[str] = list(connection.scalars(query.order_by(states.c.fact_id).limit(_SHOWN + 1)))
    if not found:
        where = "" if namespace is None else f" of namespace {namespace!r}"
        raise InputError(f"no fact{where} has an id that begins with {beginning}")
    if len(found) > 1:
        more = ", and more" if len(found) > _SHOWN else ""
        raise InputError(
            f"several facts have an id that begins with {beginning}: {', '.join(found[:_SHOWN])}{more}"
        )
    return found[0]
