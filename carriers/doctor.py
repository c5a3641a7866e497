"""Compares ledger, index and adapters of a store, says what is wrong and what to do, and mends what it can.

The ledger is never changed to fit the index. Repairs need the write lock; looking does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from carriers.adapter_files import remove_folders
from carriers.doctor_report import DoctorReport, Finding
from carriers.index_entry import IndexEntry
from carriers.index_outbox import drain_outbox
from carriers.memory_index import MemoryIndex
from carriers.store_layout import INDEX_NAME, open_generations, open_ledger
from carriers.write_lock import NIGHT_LOCK_NAME, WriteLock, describe_holder, is_locked
from sharpwave.errors import IntegrityError, SharpwaveError, StoreBusyError, StoreError
from sharpwave.records import FactStatus, GenerationStatus

if TYPE_CHECKING:
    from carriers.embedder import SentenceEmbedder
    from carriers.generations import GenerationStore
    from carriers.ledger import Ledger

__all__ = ["DoctorReport", "Finding", "examine_and_repair", "run_doctor"]

PAGE_SIZE = 1_000
COUNT_LIMIT = 1_000_000


def run_doctor(
    directory: Path,
    embedder: SentenceEmbedder,
    *,
    repair: bool = False,
    reembed: bool = False,
    in_review: Collection[int] = (),
    lock_timeout_seconds: float = 10.0,
) -> DoctorReport:
    """Examine a store that nobody here has open, however broken its index; mend it with `repair`.

    `reembed` drops the index and builds it anew with `embedder`, and mends all else, too. `in_review` are shadows
    that wait for a person and are no remains of a killed run.

    Raises:
        StoreError: there is no store at `directory`.
        StoreBusyError: a repair was asked for while another process writes.
        IntegrityError: the ledger itself cannot be opened.
    """
    directory = Path(directory)
    repair = repair or reembed
    ledger = open_ledger(directory, lock_timeout_seconds=lock_timeout_seconds)
    try:
        with _lock_for(directory, repair, lock_timeout_seconds) as writer:
            generations = open_generations(directory, ledger)
            return examine_and_repair(
                directory,
                ledger,
                generations,
                embedder,
                repair=repair,
                reembed=reembed,
                in_review=in_review,
                writer=writer,
            )
    finally:
        ledger.close()


def examine_and_repair(
    directory: Path,
    ledger: Ledger,
    generations: GenerationStore,
    embedder: SentenceEmbedder,
    *,
    repair: bool,
    reembed: bool = False,
    in_review: Collection[int] = (),
    writer: str | None = None,
) -> DoctorReport:
    """Examine an open store and mend it if asked; the caller holds the write lock for a repair."""
    found = _examine(directory, ledger, generations, embedder, writer, in_review)
    if not repair:
        return found
    index_folder = directory / INDEX_NAME
    must_rebuild = found.index_problem is not None and not found.has_other_embedder
    if reembed or must_rebuild:
        MemoryIndex.rebuild(index_folder, embedder, ledger.iter_facts(status=FactStatus.HOT))
    if reembed or not found.has_other_embedder:
        with MemoryIndex.open(index_folder, embedder) as index:
            _mend_rows(index, ledger, found)
            drain_outbox(ledger, index)
    if not is_locked(directory / NIGHT_LOCK_NAME):
        generations.discard_interrupted(in_review)
    remove_folders(generations.orphan_folders())
    after = _examine(directory, ledger, generations, embedder, writer, in_review, has_sound_files=True)
    return replace(found, remaining=after.findings, is_repair=True)


def _examine(
    directory: Path,
    ledger: Ledger,
    generations: GenerationStore,
    embedder: SentenceEmbedder,
    writer: str | None,
    in_review: Collection[int],
    *,
    has_sound_files: bool = False,
) -> DoctorReport:
    current = generations.current()
    report = DoctorReport(
        hot_facts=ledger.counts()[FactStatus.HOT],
        undrained=len(ledger.outbox(limit=COUNT_LIMIT)),
        unrouted=tuple(ledger.unfinished()),
        # a consolidation in progress has a shadow by right
        interrupted_generations=()
        if writer or is_locked(directory / NIGHT_LOCK_NAME)
        else tuple(
            item.number
            for item in generations.all()
            if item.status is GenerationStatus.SHADOW and item.number not in in_review
        ),
        orphan_adapters=tuple(str(path) for path in generations.orphan_folders()),
        adapter_problem=_adapter_problem(generations, current.number),
        way_back=generations.way_back(current.number),
        ledger_problems=_ledger_problems(ledger),
        writer=writer,
    )
    folder = directory / INDEX_NAME
    return _compare_index(report, folder, ledger, embedder, has_sound_files=has_sound_files)


def _compare_index(
    report: DoctorReport, folder: Path, ledger: Ledger, embedder: SentenceEmbedder, *, has_sound_files: bool
) -> DoctorReport:
    """Add to the report what the index lacks, has too much or has wrong; torn files crash it unless probed."""
    if not MemoryIndex.exists(folder):
        if not report.hot_facts:
            return report
        missing = tuple(fact.id for fact in ledger.iter_facts(status=FactStatus.HOT))
        return replace(report, index_problem="the index is missing", missing_in_index=missing)
    if not has_sound_files and (damage := MemoryIndex.find_damage(folder)):
        return replace(report, index_problem=f"the index is damaged ({damage})")
    try:
        with MemoryIndex.open(folder, embedder) as index:
            return _compare_rows(report, index, ledger)
    except StoreError as error:
        return replace(report, index_problem=str(error), has_other_embedder=True)
    except IntegrityError as error:
        return replace(report, index_problem=str(error))


def _compare_rows(report: DoctorReport, index: MemoryIndex, ledger: Ledger) -> DoctorReport:
    left_over = index.ids()
    missing: list[str] = []
    stale: list[str] = []
    facts = ledger.iter_facts(status=FactStatus.HOT)
    while page := list(islice(facts, PAGE_SIZE)):
        entries = index.entries([fact.id for fact in page])
        for fact in page:
            if fact.id not in entries:
                missing.append(fact.id)
            elif entries[fact.id] != IndexEntry.of(fact):
                stale.append(fact.id)
        left_over.difference_update(fact.id for fact in page)
    return replace(
        report,
        missing_in_index=tuple(missing),
        stale_metadata=tuple(stale),
        extra_in_index=tuple(sorted(left_over)),
    )


@contextmanager
def _lock_for(directory: Path, repair: bool, timeout_seconds: float) -> Iterator[str | None]:
    """Hold the write lock; if only looking and somebody else has it, go without and yield who that is."""
    lock = WriteLock(directory, timeout_seconds if repair else 0.0)
    writer = None
    try:
        lock.acquire()
    except StoreBusyError:
        if repair:
            raise
        writer = describe_holder(lock.file)
    try:
        yield writer
    finally:
        lock.release()


def _mend_rows(index: MemoryIndex, ledger: Ledger, found: DoctorReport) -> None:
    wrong = [*found.missing_in_index, *found.stale_metadata]
    for start in range(0, len(wrong), PAGE_SIZE):
        facts = ledger.facts(wrong[start : start + PAGE_SIZE])
        index.upsert([fact for fact in facts if fact.status is FactStatus.HOT])
    if found.extra_in_index:
        index.delete(found.extra_in_index)
        index.compact()  # they may be facts that were forgotten


def _adapter_problem(generations: GenerationStore, number: int) -> str | None:
    try:
        generations.adapter_folder(number)
    except SharpwaveError as error:
        return str(error)
    return None


def _ledger_problems(ledger: Ledger) -> tuple[str, ...]:
    if ledger.engine.dialect.name != "sqlite":
        return ()
    with ledger.reading() as connection:
        answers = [str(row[0]) for row in connection.exec_driver_sql("PRAGMA integrity_check")]
        foreign = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
    problems = [answer for answer in answers if answer != "ok"]
    problems += [f"row {row[1]} of table {row[0]} points to a missing row of {row[2]}" for row in foreign]
    return tuple(problems)
