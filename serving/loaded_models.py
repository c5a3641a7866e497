"""The models of one profile, each loaded once and only when it is first needed."""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from carriers.model_weights import ensure_model

if TYPE_CHECKING:
    from carriers.embedder import SentenceEmbedder
    from carriers.language_model import LanguageModel
    from carriers.text_model import TextModel
    from sharpwave.settings import ModelSettings


class LoadedModels:
    """Small model, reader, embedder and the current generation.

    The reader is the large base model without any adapter: it reads stored facts, so reading cannot be damaged by
    what was written into the weights. A generation is the same base with its adapter merged in memory.
    """

    def __init__(self, names: ModelSettings) -> None:
        self.names = names
        self._generation: tuple[Path, LanguageModel] | None = None
        self._screen: tuple[Path | None, TextModel] | None = None

    @cached_property
    def small(self) -> TextModel:
        """The model that screens every fact, on the engine for routing."""
        from carriers.language_model import LanguageModel

        folder, name = ensure_model(self.names.small), self.names.small
        if self.names.engine == "torch":
            return LanguageModel.load(folder, name=name)
        from carriers.openvino_engine import fast_model

        return fast_model(lambda: LanguageModel.load(folder, name=name), folder, None)

    def large_screen(self, adapter: Path | None) -> TextModel:
        """Return the generation that judges escalated facts, on the engine for routing; the last one used is kept."""
        if self._screen is None or self._screen[0] != adapter:
            self._screen = None
            if self.names.engine == "torch":
                self._screen = (adapter, self.generation(adapter))
            else:
                from carriers.openvino_engine import fast_model

                folder = ensure_model(self.names.large)
                self._screen = (adapter, fast_model(lambda: self.reader, folder, adapter))
        return self._screen[1]

    @cached_property
    def reader(self) -> LanguageModel:
        """The large base model, which answers from notes."""
        return self.load_large(None)

    @cached_property
    def embedder(self) -> SentenceEmbedder:
        """The sentence embedder behind the index."""
        from carriers.embedder import load_embedder

        return load_embedder(self.names.embedder)

    def generation(self, adapter: Path | None) -> LanguageModel:
        """Return the large model with this adapter, the reader if None; the last one used is kept."""
        if adapter is None:
            return self.reader
        if self._generation is None or self._generation[0] != adapter:
            self._generation = None
            self._generation = (adapter, self.load_large(adapter))
        return self._generation[1]

    def load_large(self, adapter: Path | None) -> LanguageModel:
        """Load a fresh copy of the large model, for training and probing."""
        from carriers.language_model import LanguageModel

        name = self.names.large
        return LanguageModel.load(ensure_model(name), adapter, name=name)


@lru_cache(maxsize=1)
def shared_models(names: ModelSettings) -> LoadedModels:
    """Return the models of these names, loaded once for all that this process does with them."""
    return LoadedModels(names)
