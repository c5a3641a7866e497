"""What a store holds and weighs, read from ledger and files without loading any model or the index."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carriers.store_layout import GENERATIONS_NAME, INDEX_NAME, LEDGER_NAME, open_generations, open_ledger
from carriers.write_lock import LOCK_NAME, NIGHT_LOCK_NAME, describe_holder, is_locked
from consolidation.night_folder import REPORT, NightFolder, unfinished_nights, waiting_night
from consolidation.records import NightReport
from routers.drift import Drift, DriftMonitor
from routers.heads import HEADS_FILE, RouterHeads
from sharpwave.errors import StoreError
from sharpwave.records import EventKind, FactStatus, Generation, RouteDecision

if TYPE_CHECKING:
    from carriers.external_memory import ExternalMemory
    from carriers.ledger import Ledger
    from sharpwave.settings import Settings

FLOAT_BYTES = 4
NIGHTS_SHOWN = 5
DECISIONS_COMPARED = 1000


@dataclass(frozen=True)
class StoreStatus:
    """The state of one store; counts are facts, sizes bytes.

    `storage_ratio` is hot facts per distinct fact that was not forgotten. `indexed` and `bytes["vectors"]` are
    None where the index cannot be read just now. `waiting_night` is the consolidation that waits for a person's
    review. `writer` names the process that holds the write lock.
    """

    store: str
    namespace: str | None
    counts: dict[str, int]
    observed: int
    storage_ratio: float
    current: Generation
    generations: tuple[Generation, ...]
    nights: tuple[NightReport, ...]
    interrupted_nights: tuple[str, ...]
    waiting_night: str | None
    is_night_running: bool
    indexed: int | None
    bytes: dict[str, int | None]
    writer: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the status as plain data."""
        records = {"current", "generations", "nights"}
        plain = {name: value for name, value in vars(self).items() if name not in records}
        return {
            **plain,
            "current": self.current.model_dump(mode="json"),
            "generations": [item.model_dump(mode="json") for item in self.generations],
            "nights": [item.model_dump(mode="json") for item in self.nights],
        }


@dataclass(frozen=True)
class IndexSize:
    """How many vectors the index holds, of how many dimensions; None where it cannot be read just now."""

    count: int | None
    dimension: int | None

    @property
    def vector_bytes(self) -> int | None:
        """Size of the vectors alone."""
        if self.count == 0:
            return 0
        return (
            None
            if self.count is None or self.dimension is None
            else self.count * self.dimension * FLOAT_BYTES
        )


def require_store(directory: Path) -> None:
    """Refuse a folder without a ledger. Raises StoreError that says how a store is made."""
    if not (directory / LEDGER_NAME).is_file():
        raise StoreError(
            f"there is no memory store at {directory.absolute()}; `sharpwave ingest FILE` makes one, "
            "--store names another"
        )


def read_status(directory: Path, namespace: str | None = None) -> StoreStatus:
    """Describe a store, also one that another process is writing.

    Args:
        directory: The store.
        namespace: Count only the facts of this namespace; all else is about the whole store.

    Raises:
        StoreError: There is no store.
        IntegrityError: Its ledger or a record of a consolidation is damaged.
    """
    require_store(directory)
    index = index_size(directory / INDEX_NAME)
    with open_ledger(directory) as ledger:
        counts = ledger.counts(namespace)
        generations = open_generations(directory, ledger)
        observed = sum(counts.values()) - counts[FactStatus.FORGOTTEN]
        return StoreStatus(
            store=str(directory),
            namespace=namespace,
            counts={status.value: count for status, count in counts.items()},
            observed=observed,
            storage_ratio=counts[FactStatus.HOT] / observed if observed else 0.0,
            current=generations.current(),
            generations=tuple(generations.all()),
            nights=_last_nights(directory),
            interrupted_nights=tuple(unfinished_nights(directory)),
            waiting_night=waiting_night(directory),
            is_night_running=is_locked(directory / NIGHT_LOCK_NAME),
            indexed=index.count,
            bytes={"vectors": index.vector_bytes, **_bytes_beside_vectors(directory, ledger)},
            writer=lock_holder(directory),
        )


def read_drift(settings: Settings) -> Drift:
    """Compare the latest decisions of the heads in use with the facts these were calibrated on; loads no model."""
    folder = settings.router.heads_folder
    if not (folder / HEADS_FILE).is_file():
        return Drift({})
    heads = RouterHeads.load(folder)
    monitor = DriftMonitor(heads.references)
    with open_ledger(settings.store.path) as ledger:
        for event in ledger.last_events(EventKind.ROUTED, DECISIONS_COMPARED):
            if event.payload.get("router_version") == heads.version:
                monitor.add([RouteDecision(fact_id=event.fact_id, reason="", **event.payload)])
    return monitor.measure()


def lock_holder(directory: Path) -> str | None:
    """Return in words who holds the write lock of a store; None if nobody does."""
    file = directory / LOCK_NAME
    return describe_holder(file) if is_locked(file) else None


def index_size(folder: Path) -> IndexSize:
    """Measure the index by its database alone, without opening Chroma."""
    database = folder / "chroma.sqlite3"
    if not database.is_file():
        return IndexSize(0, None)
    try:
        with closing(
            sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=1)
        ) as reader:
            count = reader.execute("SELECT count(*) FROM embeddings").fetchone()[0]
            row = reader.execute("SELECT dimension FROM collections LIMIT 1").fetchone()
    except sqlite3.Error:  # locked, just being replaced, or damaged, which is the doctor's business
        return IndexSize(None, None)
    return IndexSize(count, None if row is None else row[0])


def measure_bytes(memory: ExternalMemory) -> dict[str, int]:
    """Return the bytes of vectors, of the stored facts' text, of ledger files and of adapters."""
    return {
        "vectors": memory.index.vector_bytes(),
        **_bytes_beside_vectors(memory.directory, memory.ledger),
    }


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder; 0 if there is none."""
    return sum(map(_file_bytes, folder.rglob("*"))) if folder.is_dir() else 0


def _bytes_beside_vectors(directory: Path, ledger: Ledger) -> dict[str, int]:
    hot = ledger.iter_facts(status=FactStatus.HOT)
    return {
        "text": sum(len(fact.words.text.encode("utf-8")) for fact in hot if fact.words is not None),
        "ledger": sum(map(_file_bytes, directory.glob(f"{LEDGER_NAME}*"))),
        "adapters": folder_bytes(directory / GENERATIONS_NAME),
    }


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # another process has just removed it
        return 0


def _last_nights(directory: Path) -> tuple[NightReport, ...]:
    files = sorted(
        (directory / "consolidations").glob(f"*/{REPORT}"), key=lambda path: path.stat().st_mtime_ns
    )
    found = (
        NightFolder(directory, path.parent.name).read(REPORT, NightReport) for path in files[-NIGHTS_SHOWN:]
    )
    return tuple(report for report in found if report is not None)
