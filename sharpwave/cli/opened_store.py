"""A store opened for writing by a command that needs no language model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from carriers.external_memory import ExternalMemory
    from sharpwave.settings import Settings


def opened_store(settings: Settings) -> ExternalMemory:
    """Open a store that must be there for writing, without loading a language model."""
    from serving.opened_store import open_store
    from serving.store_status import require_store

    require_store(settings.store.path)
    return open_store(settings, writer=True)
