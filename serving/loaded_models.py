"""The models of one profile, each loaded once and only when it is first needed."""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from carriers.model_weights import ensure_model

if TYPE_CHECKING:
    from carriers.embedder import SentenceEmbedder
    from carriers.language_model import LanguageModel
    from carriers.scope import Scope
    from carriers.scoped_model import Generation
    from carriers.text_model import TextModel
    from sharpwave.settings import ModelSettings


class LoadedModels:
    """Small model, reader, embedder and the current generation.

    The reader is the large base model without any adapter: it reads stored facts, so reading cannot be damaged by
    what was written into the weights. A generation is the same base, to which the updates of its adapter are added
    one at a time, each for what lies in its scope; the base alone answers the rest.
    """

    def __init__(self, names: ModelSettings) -> None:
        self.names = names
        self._generation: tuple[Path, Generation] | None = None
        self._screen: tuple[Path, TextModel] | None = None

    @cached_property
    def small(self) -> TextModel:
        """The model that screens every fact, on the engine for routing."""
        from carriers.language_model import LanguageModel

        folder, name = ensure_model(self.names.small), self.names.small
        if self.names.engine == "torch":
            return LanguageModel.load(folder, name=name)
        from carriers.openvino_engine import fast_model

        return fast_model(lambda: LanguageModel.load(folder, name=name), folder)

    def large_screen(self, adapter: Path | None) -> TextModel:
        """Return the generation that judges escalated facts, on the engine for routing; the last one used is kept."""
        if self.names.engine == "torch":
            return self.generation(adapter)
        if adapter is None:
            return self._base_screen
        if self._screen is None or self._screen[0] != adapter:
            self._screen = None
            self._screen = (adapter, self._screen_of(adapter))
        return self._screen[1]

    def _screen_of(self, adapter: Path) -> TextModel:
        from carriers.adapters import UpdateStack
        from carriers.openvino_engine import fast_updates
        from carriers.scoped_model import ScopedModel

        scope = self._scope(adapter)
        updated = fast_updates(self._base_screen, UpdateStack(adapter, scope.ranks if scope else None))
        return updated(0) if scope is None else ScopedModel(self._base_screen, updated, scope)

    @cached_property
    def _base_screen(self) -> TextModel:
        from carriers.openvino_engine import fast_model

        return fast_model(lambda: self.reader, ensure_model(self.names.large))

    @cached_property
    def reader(self) -> LanguageModel:
        """The large base model, which answers from notes."""
        return self.load_large(None)

    @cached_property
    def embedder(self) -> SentenceEmbedder:
        """The sentence embedder behind the index."""
        from carriers.embedder import load_embedder

        return load_embedder(self.names.embedder)

    def generation(self, adapter: Path | None) -> Generation:
        """Return the generation with this adapter, the reader if None; the last one used is kept."""
        if adapter is None:
            return self.reader
        if self._generation is None or self._generation[0] != adapter:
            self._generation = None
            self._generation = (adapter, self.load_generation(adapter))
        return self._generation[1]

    def load_generation(self, adapter: Path | None) -> Generation:
        """Load the generation with this adapter as it is served, freshly from disk; the reader if None."""
        if adapter is None:
            return self.reader
        from carriers.adapters import UpdateStack
        from carriers.scoped_model import ScopedLanguageModel
        from carriers.updated_model import updated_models

        scope = self._scope(adapter)
        if scope is None:
            return self.load_large(adapter)
        updated = updated_models(self.reader, UpdateStack(adapter, scope.ranks))
        return ScopedLanguageModel(self.reader, updated, scope)

    def _scope(self, adapter: Path) -> Scope | None:
        from carriers.scope import Scope

        return Scope.read(adapter, self.embedder)

    def load_large(self, adapter: Path | None) -> LanguageModel:
        """Load a fresh copy of the large model whose adapter, if any, answers everything: what a training needs."""
        from carriers.language_model import LanguageModel

        name = self.names.large
        return LanguageModel.load(ensure_model(name), adapter, name=name)


@lru_cache(maxsize=1)
def shared_models(names: ModelSettings) -> LoadedModels:
    """Return the models of these names, loaded once for all that this process does with them."""
    return LoadedModels(names)
