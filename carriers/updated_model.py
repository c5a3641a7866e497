"""The large model with one update of an adapter: nothing is merged, so all updates share one copy of the weights."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from carriers.language_model import LanguageModel
from carriers.scoped_model import UPDATES_KEPT
from sharpwave.errors import WeightsError

if TYPE_CHECKING:
    import torch

    from carriers.adapters import LowRankUpdate, UpdateStack
    from carriers.language_model import GeneratedAnswer
    from carriers.text_model import AnswerMatch, TextFeatures

    LowRankTensors = dict[str, tuple[torch.Tensor, torch.Tensor]]


class UpdatedModel(LanguageModel):
    """A language model whose linear maps W x give W x + B A x while it is asked; the weights stay as they are.

    Args (of the constructor):
        base: The model, which others may use at the same time from other threads.
        hooks: Of that model.
        update: Its matrices, by module.
    """

    def __init__(self, base: LanguageModel, hooks: LowRankHooks, update: LowRankUpdate) -> None:
        import torch

        super().__init__(base.model, base.tokenizer, name=base.name, fingerprint=base.fingerprint)
        self._hooks = hooks
        self._update = {
            name: (torch.from_numpy(first).to(self.device), torch.from_numpy(second).to(self.device))
            for name, (first, second) in update.items()
        }

    def forward_features(self, texts: Sequence[str]) -> list[TextFeatures]:
        """See `TextModel.forward_features`."""
        with self._hooks.applied(self._update):
            return super().forward_features(texts)

    def match_answers(
        self, prompts: Sequence[str], answers: Sequence[Sequence[str]], prefix: str = ""
    ) -> list[AnswerMatch]:
        """See `TextModel.match_answers`."""
        with self._hooks.applied(self._update):
            return super().match_answers(prompts, answers, prefix)

    def answer(
        self, prompts: Sequence[str], prefix: str = "", max_new_tokens: int = 16
    ) -> list[GeneratedAnswer]:
        """See `LanguageModel.answer`."""
        with self._hooks.applied(self._update):
            return super().answer(prompts, prefix, max_new_tokens)


class LowRankHooks:
    """Hooks on the linear maps of a model, which add what the calling thread has applied; gone when this object is.

    Args (of the constructor):
        model: A transformers model.
        modules: Inputs and outputs of the linear maps that updates change, by name below the model's base.

    Raises:
        WeightsError: The model has no such module, or one of another shape.
    """

    def __init__(self, model: Any, modules: dict[str, tuple[int, int]]) -> None:
        self._applied = _Applied()
        self._handles: list[Any] = []
        for name, shape in modules.items():
            self._handles.append(
                _linear_map(model, name, shape).register_forward_hook(_adding(name, self._applied))
            )

    def __del__(self) -> None:
        for handle in self._handles:
            handle.remove()

    @contextmanager
    def applied(self, update: LowRankTensors) -> Iterator[None]:
        """Add an update to what this thread's passes compute, until the block ends."""
        self._applied.update = update
        try:
            yield
        finally:
            self._applied.update = {}


class _Applied(threading.local):
    """The update that a thread has applied."""

    update: LowRankTensors = {}  # noqa: RUF012 -- never changed, only replaced


def updated_models(base: LanguageModel, stack: UpdateStack) -> Callable[[int], LanguageModel]:
    """Return what gives a model with one update of a stack, by the update's place.

    Args:
        base: The model without updates.
        stack: Updates for it.

    Raises:
        WeightsError: The updates do not fit the model.
    """
    hooks = LowRankHooks(base.model, stack.shapes)

    @lru_cache(maxsize=UPDATES_KEPT)
    def updated(place: int) -> LanguageModel:
        return UpdatedModel(base, hooks, stack.read(place))

    return updated


def _linear_map(model: Any, name: str, shape: tuple[int, int]) -> Any:
    try:
        module = model.base_model.get_submodule(name)
    except AttributeError:
        module = None
    if module is None or tuple(module.weight.shape) != shape[::-1]:
        raise WeightsError(f"the adapter changes {name}, for which the model has no matrix of its shape")
    return module


def _adding(name: str, applied: _Applied) -> Callable[[Any, Any, torch.Tensor], torch.Tensor | None]:
    def add(_: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor | None:
        if name not in applied.update:
            return None
        first, second = applied.update[name]
        return output + inputs[0] @ first.T @ second.T

    return add
