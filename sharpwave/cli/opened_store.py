"""A store opened for writing by a command that needs no language model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from carriers.external_memory import ExternalMemory
    from sharpwave.settings import Settings


@contextmanager
def opened_store(settings: Settings, *, create: bool = False) -> Iterator[ExternalMemory]:
    """Open a store for writing without loading a language model; with `create` a missing one is made."""
    from carriers.external_memory import ExternalMemory
    from serving.loaded_models import shared_models
    from serving.store_status import require_store

    if not create:
        require_store(settings.store.path)
    with ExternalMemory.open(
        settings.store.path,
        shared_models(settings.models).embedder,
        writer=True,
        lock_timeout_seconds=settings.store.lock_timeout_seconds,
    ) as memory:
        yield memory
