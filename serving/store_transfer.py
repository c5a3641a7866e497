"""A store as one JSON Lines file and back: every fact with its full life, and what the generations were.

The first line is a header, then comes one line per fact, then a last line with the number of facts, by which a
file that was cut short is noticed. Adapters are no text and stay in the store's `generations` folder.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pydantic import ValidationError

from carriers.adapter_files import remove_folders
from carriers.ledger_records import Event, FactLife, StoredFact
from carriers.ledger_schema import SCHEMA_VERSION
from carriers.store_layout import GENERATIONS_NAME
from sharpwave.errors import InputError, StoreBusyError, StoreError
from sharpwave.records import Generation, GenerationStatus, Moment, Record, utc_now

if TYPE_CHECKING:
    from carriers.external_memory import ExternalMemory
    from carriers.generations import GenerationStore
    from carriers.ledger import Ledger

EXPORT_VERSION = 1


class ExportHeader(Record):
    """The first line of an export. The base model, generation 0, is not among `generations`."""

    sharpwave_export: int
    ledger_schema: int
    exported_at: Moment
    namespace: str | None
    current_generation: int
    generations: tuple[Generation, ...] = ()


class ImportReceipt(Record):
    """What an import did. With `same_weights` the generations of the export were taken over, too."""

    read: int
    new: int
    same_weights: bool
    generations: int


def export_lines(ledger: Ledger, generations: GenerationStore, namespace: str | None = None) -> Iterator[str]:
    """Yield the lines of an export, without line ends; facts are as of one moment.

    Raises:
        StoreBusyError: A consolidation or a rollback changed the current generation meanwhile.
    """
    header = _header(generations, namespace)
    yield header.model_dump_json()
    count = 0
    for life in ledger.export():
        if namespace is None or life.stored.namespace == namespace:
            count += 1
            yield _life_line(life)
    if _header(generations, namespace).current_generation != header.current_generation:
        raise StoreBusyError("the current generation changed during the export; export again")
    yield json.dumps({"sharpwave_export_end": count})


def import_lines(
    memory: ExternalMemory,
    stream: IO[bytes],
    name: str,
    *,
    weights: Path | None = None,
    namespace: str | None = None,
) -> ImportReceipt:
    """Take in an export; either all of it, or nothing. Facts that the store has already are left as they are.

    Args:
        memory: The store, opened for writing.
        stream: The export.
        name: Of the file, for errors.
        weights: Store, or `generations` folder, to copy the adapters from. Without it, what only an adapter
            knew becomes hot here, since this store's weights have never learnt it.
        namespace: Take only the facts of this namespace.

    Raises:
        InputError: It is no export, of another version, cut short, or a line is damaged.
        StoreError: Generations are to be taken over, but this store has its own or an adapter is missing.
        IntegrityError: An adapter is not the one that was exported.
    """
    lines = ((number, line) for number, line in enumerate(stream, start=1) if line.strip())
    header = _read_header(next(lines, (1, b"")), name)
    reader = _LifeReader(lines, name, namespace)
    takes_generations = bool(header.generations) and weights is not None
    has_own = len(memory.generations.all()) > 1
    same_weights = takes_generations or not (header.generations or has_own)
    if takes_generations and weights is not None:
        if has_own:
            raise StoreError(
                f"{memory.directory} has generations of its own; import with --weights into a new store"
            )
        _copy_adapters(header.generations, weights, memory.generations.directory)
    try:
        with memory.ledger.transaction():
            if takes_generations:
                memory.generations.restore(header.generations, header.current_generation)
                for item in header.generations:
                    if not item.is_retired:
                        memory.generations.adapter_folder(item.number)  # checks the digest
            new = memory.ledger.restore(reader, same_weights=same_weights)
    except BaseException:
        remove_folders(memory.generations.orphan_folders())
        raise
    memory.drain_outbox()
    return ImportReceipt(
        read=reader.count,
        new=new,
        same_weights=same_weights,
        generations=len(header.generations) if takes_generations else 0,
    )


def is_export(line: bytes) -> bool:
    """Tell whether the first line of a file is the header of an export."""
    content = _parsed(line)
    return isinstance(content, dict) and "sharpwave_export" in content


def _header(generations: GenerationStore, namespace: str | None) -> ExportHeader:
    kept = (GenerationStatus.PROMOTED, GenerationStatus.ROLLED_BACK)
    return ExportHeader(
        sharpwave_export=EXPORT_VERSION,
        ledger_schema=SCHEMA_VERSION,
        exported_at=utc_now(),
        namespace=namespace,
        current_generation=generations.current().number,
        generations=tuple(item for item in generations.all() if item.number and item.status in kept),
    )


def _life_line(life: FactLife) -> str:
    content = {
        "fact": life.stored.model_dump(mode="json"),
        "events": [event.model_dump(mode="json") for event in life.events],
    }
    return json.dumps(content, ensure_ascii=False)


def _read_header(first: tuple[int, bytes], name: str) -> ExportHeader:
    number, line = first
    content = _parsed(line)
    if not isinstance(content, dict) or "sharpwave_export" not in content:
        advice = "; for a file of facts use `sharpwave ingest`" if line.strip() else "; it is empty"
        raise InputError(f"is no export of a memory store{advice}", file=name)
    for key, known in (("sharpwave_export", EXPORT_VERSION), ("ledger_schema", SCHEMA_VERSION)):
        if content.get(key) != known:
            raise InputError(f"has {key} {content.get(key)!r}, and this version reads {known}", file=name)
    try:
        return ExportHeader.model_validate(content)
    except ValidationError as error:
        raise InputError(f"damaged header: {_first(error)}", file=name, line=number) from error


class _LifeReader:
    """Yields the lives of an export and checks that none is missing."""

    def __init__(self, lines: Iterable[tuple[int, bytes]], name: str, namespace: str | None) -> None:
        self._lines = lines
        self._name = name
        self._namespace = namespace
        self._read = 0
        self.count = 0

    def __iter__(self) -> Iterator[FactLife]:
        declared: int | None = None
        for number, line in self._lines:
            content = _parsed(line)
            if declared is not None or not isinstance(content, dict):
                raise InputError("is no line of an export; the file is damaged", file=self._name, line=number)
            if "sharpwave_export_end" in content:
                declared = content["sharpwave_export_end"]
                continue
            life = self._life(content, number)
            self._read += 1
            if self._namespace is None or life.stored.namespace == self._namespace:
                self.count += 1
                yield life
        if declared != self._read:
            whole = "an unknown number of" if declared is None else str(declared)
            raise InputError(f"is cut short: it has {self._read} of {whole} facts", file=self._name)

    def _life(self, content: dict[str, Any], number: int) -> FactLife:
        try:
            stored = StoredFact.model_validate(content.get("fact"))
            events = [Event.model_validate(event) for event in content.get("events", ())]
        except (ValidationError, TypeError) as error:
            why = _first(error) if isinstance(error, ValidationError) else str(error)
            raise InputError(f"damaged fact: {why}", file=self._name, line=number) from error
        return FactLife(stored, events)


def _copy_adapters(generations: Iterable[Generation], weights: Path, target: Path) -> None:
    nested = weights / GENERATIONS_NAME
    source = nested if nested.is_dir() else weights
    for item in generations:
        if item.adapter_path is None:
            continue
        adapter = source / item.adapter_path
        if not adapter.is_dir():
            raise StoreError(f"{adapter}: the adapter of generation {item.number} is not there")
        shutil.copytree(adapter, target / item.adapter_path, dirs_exist_ok=True)


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:  # also bytes that are no UTF-8
        return None


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc'])) or 'line'}: {problem['msg']}"
