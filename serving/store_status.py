"""What a store holds and weighs, read without loading any model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from carriers.external_memory import ExternalMemory


def measure_bytes(memory: ExternalMemory) -> dict[str, int]:
    """Return the bytes of vectors, of the stored facts' text, of ledger files and of adapters."""
    from sharpwave.records import FactStatus

    hot = memory.ledger.iter_facts(status=FactStatus.HOT)
    ledger_files = [path for path in memory.directory.glob("ledger.db*") if path.is_file()]
    return {
        "vectors": memory.index.vector_bytes(),
        "text": sum(len(fact.words.text.encode("utf-8")) for fact in hot if fact.words is not None),
        "ledger": sum(path.stat().st_size for path in ledger_files),
        "adapters": folder_bytes(memory.directory / "generations"),
    }


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder; 0 if there is none."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
