"""Where the parts of a store lie in its directory."""

from __future__ import annotations

from pathlib import Path

from carriers.generations import GenerationStore
from carriers.ledger import Ledger

LEDGER_NAME = "ledger.db"
INDEX_NAME = "index"
GENERATIONS_NAME = "generations"


def open_ledger(directory: Path, *, lock_timeout_seconds: float = 10.0, create: bool = False) -> Ledger:
    """Open the ledger of a store directory; see `Ledger.open` for the errors."""
    return Ledger.open(directory / LEDGER_NAME, lock_timeout_seconds=lock_timeout_seconds, create=create)


def open_generations(directory: Path, ledger: Ledger) -> GenerationStore:
    """Return the generations of a store directory."""
    return GenerationStore(ledger, directory / GENERATIONS_NAME)
