"""A store opened as settings say, without loading a language model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carriers.external_memory import ExternalMemory
from serving.loaded_models import shared_models

if TYPE_CHECKING:
    from serving.loaded_models import LoadedModels
    from sharpwave.settings import Settings


def open_store(settings: Settings, *, writer: bool, models: LoadedModels | None = None) -> ExternalMemory:
    """Open the store of these settings; only its embedder is loaded, of the models this process shares by default.

    Raises:
        StoreError: There is no store (readers) or it does not fit the settings.
        StoreBusyError: Another process is writing.
    """
    return ExternalMemory.open(
        settings.store.path,
        (models or shared_models(settings.models)).embedder,
        writer=writer,
        lock_timeout_seconds=settings.store.lock_timeout_seconds,
    )
