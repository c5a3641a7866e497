"""Opens the ledger's database: connection settings, first creation, schema check, translated errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, make_url, select
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from carriers.ledger_schema import SCHEMA_VERSION, create_tables, meta, moment_text
from sharpwave.errors import IntegrityError, StoreBusyError, StoreError
from sharpwave.records import utc_now

_WRITES = "sharpwave_writes"
_SQLITE_BUSY, _SQLITE_LOCKED, _SQLITE_CORRUPT, _SQLITE_CANTOPEN, _SQLITE_NOTADB = 5, 6, 11, 14, 26
_POSTGRES_LOCK_NOT_AVAILABLE = "55P03"
_POSTGRES_WRITE_LOCK = 0x5A4B57


def database_url(target: str | Path) -> URL:
    """Return the URL of a database given as a path or already as a URL."""
    if isinstance(target, str) and "://" in target:
        return make_url(target)
    return URL.create("sqlite", database=str(Path(target).absolute()))


def open_database(target: str | Path, *, lock_timeout_seconds: float, create: bool) -> Engine:
    """Open the ledger's database, creating its tables if there are none and `create` is true.

    Raises:
        StoreError: there is no ledger, or it has another schema version.
        StoreBusyError: another process holds the database longer than the timeout.
        IntegrityError: the file is damaged or is not a database.
    """
    url = database_url(target)
    if url.get_backend_name() == "sqlite":
        if not url.database or url.database == ":memory:":
            raise StoreError("the ledger needs a file: a database in memory would be forgotten")
        path = Path(url.database)
        if not path.exists() and not create:
            raise StoreError(f"no ledger at {path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        engine = _sqlite_engine(url, lock_timeout_seconds)
    else:
        engine = create_engine(url)
        _serialise_postgres_writers(engine, lock_timeout_seconds)
    try:
        with translated_errors(url):
            _check_schema(engine, url, create)
    except BaseException:
        engine.dispose()
        raise
    return engine


def writing(engine: Engine) -> Engine:
    """Return a view of the engine whose transactions take the write lock when they begin."""
    return engine.execution_options(**{_WRITES: True})


@contextmanager
def translated_errors(url: URL) -> Iterator[None]:
    """Turn "locked" into StoreBusyError and "damaged" into IntegrityError; let all else pass."""
    try:
        yield
    except DBAPIError as error:
        translated = _translate(error, url)
        if translated is None:
            raise
        raise translated from error


def _translate(error: DBAPIError, url: URL) -> Exception | None:
    place = url.database or url.render_as_string(hide_password=True)
    code = getattr(error.orig, "sqlite_errorcode", None)
    if getattr(error.orig, "sqlstate", None) == _POSTGRES_LOCK_NOT_AVAILABLE:
        return StoreBusyError(f"{place}: another process is writing to the ledger; try again later")
    if code is None:
        return None
    primary = code & 0xFF
    if primary in (_SQLITE_BUSY, _SQLITE_LOCKED):
        return StoreBusyError(f"{place}: another process is writing to the ledger; try again later")
    if primary in (_SQLITE_CORRUPT, _SQLITE_NOTADB):
        return IntegrityError(
            f"{place}: damaged or not a ledger ({error.orig}); restore it, or `sharpwave import` an export"
        )
    if primary == _SQLITE_CANTOPEN:
        return StoreError(f"{place}: cannot be opened ({error.orig})")
    return None


def _sqlite_engine(url: URL, lock_timeout_seconds: float) -> Engine:
    engine = create_engine(url, connect_args={"timeout": lock_timeout_seconds, "check_same_thread": False})

    def configure(connection: Any, _record: Any) -> None:
        # The driver must not open transactions by itself: BEGIN below decides which kind.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            f"busy_timeout={round(lock_timeout_seconds * 1000)}",
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            "secure_delete=ON",
            # Else INSERT OR REPLACE would slip past the trigger that refuses DELETE.
            "recursive_triggers=ON",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    def begin(connection: Connection) -> None:
        # IMMEDIATE: a reader that upgrades to a writer can fail at once, whatever the timeout says.
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", configure)
    event.listen(engine, "begin", begin)
    return engine


def _serialise_postgres_writers(engine: Engine, lock_timeout_seconds: float) -> None:
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get(_WRITES, False):
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {round(lock_timeout_seconds * 1000)}")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_POSTGRES_WRITE_LOCK})")

    event.listen(engine, "begin", begin)


def _check_schema(engine: Engine, url: URL, create: bool) -> None:
    with engine.connect() as connection:
        found = _schema_version(connection)
    if found is None:
        if not create:
            raise StoreError(f"no ledger in {url.database}")
        with writing(engine).begin() as connection:
            found = _schema_version(connection) or _create_tables(connection, url)
    if found != str(SCHEMA_VERSION):
        raise StoreError(
            f"the ledger {url.database} has schema version {found}; this program reads "
            f"version {SCHEMA_VERSION}. Run `sharpwave export` with the version "
            "that wrote it and `sharpwave import` with this one"
        )


def _schema_version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(meta.name):
        return None
    return connection.scalar(select(meta.c.value).where(meta.c.key == "schema_version"))


def _create_tables(connection: Connection, url: URL) -> str:
    strangers = inspect(connection).get_table_names()
    if strangers:
        raise StoreError(
            f"{url.database} is a database of something else: it has the tables {', '.join(strangers[:5])}"
        )
    create_tables(connection)
    first = {
        "schema_version": str(SCHEMA_VERSION),
        "created_at": moment_text(utc_now()),
        "current_generation": "0",
    }
    connection.execute(insert(meta), [{"key": key, "value": value} for key, value in first.items()])
    return first["schema_version"]
