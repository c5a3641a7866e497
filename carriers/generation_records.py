"""Records of generations: reading and writing their rows, and the receipts of what changing them did."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, select, update

from carriers.ledger_schema import generations, meta
from sharpwave.errors import StoreError
from sharpwave.records import Generation, GenerationStatus, Record


class ShadowFolder(NamedTuple):
    """The number of a new shadow generation and the empty folder for its adapter."""

    number: int
    folder: Path


class PromotionReceipt(Record):
    """What a promotion did. Counts are facts.

    `kept` facts were proven and stay in the store because a review said so.
    `overridden` facts went (back) to the store because the weights now hold an older value of their slot.
    `skipped` ids were to be evicted or re-admitted but were superseded, forgotten or asserted anew meanwhile.
    """

    number: int
    parent: int
    trained: int
    proven: int
    evicted: int
    damaged: int
    readmitted: int
    overridden: int
    kept: int = 0
    skipped: tuple[str, ...] = ()


class RollbackReceipt(Record):
    """What a move to another generation did. Counts are facts; `left` and `entered` are generations."""

    from_number: int
    to_number: int
    readmitted: int = 0
    internalised: int = 0
    overridden: int = 0
    left: tuple[int, ...] = ()
    entered: tuple[int, ...] = ()


def read_generation(connection: Connection, number: int) -> Generation:
    """Return a generation; 0 is the base. Raises StoreError for a number that does not exist."""
    if number == 0:
        return base_generation(connection)
    row = connection.execute(select(generations).where(generations.c.number == number)).first()
    if row is None:
        raise StoreError(f"there is no generation {number}")
    return generation_of(row)


def base_generation(connection: Connection) -> Generation:
    """Return generation 0, which has no row: the base model that the first adapter was built on."""
    created = connection.execute(select(meta.c.value).where(meta.c.key == "created_at")).scalar_one()
    first = select(generations.c.base_fingerprint).order_by(generations.c.number).limit(1)
    return Generation(
        number=0,
        parent=None,
        base_fingerprint=connection.scalar(first) or "",
        status=GenerationStatus.PROMOTED,
        created_at=created,
    )


def generation_of(row: Row[Any]) -> Generation:
    """Return the record of a row of `generations`."""
    return Generation.model_validate({name: row._mapping[name] for name in Generation.model_fields})


def generation_row(generation: Generation) -> dict[str, Any]:
    """Return the row of a record."""
    lists = {"trained_fact_ids": list(generation.trained_fact_ids), "created_at": generation.created_at}
    return {**generation.model_dump(mode="json"), **lists}


def set_status(connection: Connection, numbers: Sequence[int], status: GenerationStatus) -> None:
    """Give several generations the same status."""
    connection.execute(
        update(generations).where(generations.c.number.in_(numbers)).values(status=status.value)
    )
