"""Which generation is current, and which generations it was built on."""

from __future__ import annotations

from sqlalchemy import Connection, select, update

from carriers.ledger_schema import generations, meta

_POINTER = "current_generation"


def current_number(connection: Connection) -> int:
    """Return the number of the current generation; 0 is the base model alone."""
    return int(connection.execute(select(meta.c.value).where(meta.c.key == _POINTER)).scalar_one())


def point_to(connection: Connection, number: int) -> None:
    """Make a generation the current one."""
    connection.execute(update(meta).where(meta.c.key == _POINTER).values(value=str(number)))


def lineage_of(connection: Connection, number: int) -> list[int]:
    """Return a generation and all it was built on, ascending, beginning with the base (0)."""
    numbers = [number]
    while numbers[-1] != 0:
        parent = select(generations.c.parent).where(generations.c.number == numbers[-1])
        numbers.append(connection.execute(parent).scalar_one())
    return numbers[::-1]
