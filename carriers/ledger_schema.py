"""The ledger's tables and triggers.

Moments are kept as fixed-width UTC text, so that they sort as text in every database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)

SCHEMA_VERSION = 1
IN_LIST_LIMIT = 500

_Item = TypeVar("_Item")


def moment_text(moment: datetime) -> str:
    """Return the moment as fixed-width UTC text, which sorts in time order."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


class UtcText(TypeDecorator[datetime]):
    """An aware date-time kept as sortable UTC text."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        """Write the moment as text."""
        return None if value is None else moment_text(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Read the text back as an aware moment."""
        return None if value is None else datetime.fromisoformat(value)


_json = JSON(none_as_null=True)
metadata = MetaData()

meta = Table(
    "meta", metadata, Column("key", String(64), primary_key=True), Column("value", Text, nullable=False)
)

# slot_key is NULL once every fact of the slot is forgotten: then nothing may tell what it was about.
slots = Table(
    "slots",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("slot_key", Text, unique=True),
)

facts = Table(
    "facts",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("text", Text),
    Column("subject", Text),
    Column("relation", Text),
    Column("questions", _json),
    Column("answers", _json),
    Column("valid_from", UtcText),
    Column("valid_to", UtcText),
    Column("observed_at", UtcText, nullable=False),
    Column("source", Text),
    Column("metadata", _json),
)

states = Table(
    "states",
    metadata,
    Column("fact_id", String(32), ForeignKey("facts.id"), primary_key=True),
    Column("seq", Integer, nullable=False, unique=True),
    Column("namespace", Text, nullable=False),
    Column("slot_number", Integer, ForeignKey("slots.number")),
    Column("status", String(16), nullable=False),
    Column("valid_to", UtcText),
    Column("superseded_by", String(32)),
    Column("observed_count", Integer, nullable=False),
    Column("last_decision", _json),
    Column("known_generation", Integer),
    Column("proven_generation", Integer),
    Column("trained_generation", Integer),
    Index("states_by_namespace", "namespace", "status", "seq"),
    Index("states_by_status", "status", "seq"),
    Index("states_by_namespace_seq", "namespace", "seq"),
    Index("states_by_slot", "slot_number", "proven_generation"),
    Index("states_by_proof", "proven_generation", "status"),
    Index("states_by_judge", "known_generation", "status"),
)

# One row per moment at which a fact was asserted of its slot; not active until that assertion is routed.
assertions = Table(
    "assertions",
    metadata,
    Column("order_key", String(96), primary_key=True),
    Column("fact_id", String(32), ForeignKey("facts.id"), nullable=False),
    Column("namespace", Text, nullable=False),
    Column("slot_number", Integer, ForeignKey("slots.number")),
    Column("starts_at", UtcText, nullable=False),
    Column("observed_at", UtcText, nullable=False),
    Column("active", Boolean, nullable=False),
    Index("assertions_by_slot", "slot_number", "active", "order_key"),
    Index("assertions_by_fact", "fact_id", "active", "order_key"),
    Index("assertions_by_start", "namespace", "starts_at"),
)

# event_key makes a repeated call recognisable; generation repeats the payload's figure for look-ups.
events = Table(
    "events",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("fact_id", String(32), ForeignKey("facts.id"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("at", UtcText, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("payload", _json, nullable=False),
    Column("generation", Integer),
    Column("event_key", Text, unique=True),
    Index("events_by_fact", "fact_id", "seq"),
    Index("events_by_generation", "generation", "kind"),
    sqlite_autoincrement=True,
)

generations = Table(
    "generations",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("parent", Integer, nullable=False),
    Column("base_fingerprint", Text, nullable=False),
    Column("adapter_path", Text),
    Column("adapter_digest", String(64)),
    Column("trained_fact_ids", _json, nullable=False),
    Column("gate", _json, nullable=False),
    Column("status", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", UtcText, nullable=False),
    Column("run_id", Text),
    Column("receipt", _json),
)

index_outbox = Table(
    "index_outbox",
    metadata,
    Column("row_id", Integer, primary_key=True),
    Column("fact_id", String(32), ForeignKey("facts.id"), nullable=False),
    Column("op", String(8), nullable=False),
    sqlite_autoincrement=True,
)

_CREATE_TRIGGERS = {
    "sqlite": [
        f"CREATE TRIGGER events_refuse_{act.lower()} BEFORE {act} ON events "
        "BEGIN SELECT RAISE(ABORT, 'events are append-only'); END"
        for act in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        "CREATE FUNCTION refuse_event_change() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'events are append-only'; END $$",
        "CREATE TRIGGER events_refuse_change BEFORE UPDATE OR DELETE OR TRUNCATE ON events "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_event_change()",
    ],
}


def create_tables(connection: Connection) -> None:
    """Create all tables, and the triggers that keep the journal append-only."""
    metadata.create_all(connection)
    for statement in _CREATE_TRIGGERS[connection.dialect.name]:
        connection.exec_driver_sql(statement)


def chunks(items: Sequence[_Item], size: int = IN_LIST_LIMIT) -> Iterator[Sequence[_Item]]:
    """Yield the items in slices short enough for one IN list."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
