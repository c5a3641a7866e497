"""A generation as it is served: where its scope reaches, the update that the scope names; elsewhere the base model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, Union

from carriers.text_model import AnswerMatch, TextFeatures, TextModel

if TYPE_CHECKING:
    from carriers.language_model import GeneratedAnswer, LanguageModel
    from carriers.scope import Scope


UPDATES_KEPT = 8  # models with one update each, of which each keeps encoded prefixes and answers

M = TypeVar("M", bound=TextModel)
T = TypeVar("T")


class ScopedModel(TextModel):
    """Judges each text with the update whose scope it is in, else with the base model.

    Args (of the constructor):
        base: The model without an adapter.
        updated: Gives the same model with one update of the adapter, by the update's place.
        scope: What the updates were trained on.
    """

    def __init__(self, base: TextModel, updated: Callable[[int], TextModel], scope: Scope) -> None:
        super().__init__(
            base.tokenizer, base.engine, base.sizes, name=base.name, fingerprint=base.fingerprint
        )
        self.base, self.updated, self.scope = base, updated, scope

    def forward_features(self, texts: Sequence[str]) -> list[TextFeatures]:
        """See `TextModel.forward_features`."""

        def read(model: TextModel, rows: Sequence[int]) -> list[TextFeatures]:
            return model.forward_features([texts[row] for row in rows])

        return _shared_out(self.scope.updates_for(texts), self.base, self.updated, read)

    def match_answers(
        self, prompts: Sequence[str], answers: Sequence[Sequence[str]], prefix: str = ""
    ) -> list[AnswerMatch]:
        """See `TextModel.match_answers`."""

        def ask(model: TextModel, rows: Sequence[int]) -> list[AnswerMatch]:
            return model.match_answers([prompts[row] for row in rows], [answers[row] for row in rows], prefix)

        return _shared_out(self.scope.updates_for(prompts), self.base, self.updated, ask)


class ScopedLanguageModel(ScopedModel):
    """A scoped generation that answers as well; see `ScopedModel`."""

    base: LanguageModel
    updated: Callable[[int], LanguageModel]

    def answer(
        self, prompts: Sequence[str], prefix: str = "", max_new_tokens: int = 16
    ) -> list[GeneratedAnswer]:
        """See `LanguageModel.answer`."""

        def ask(model: LanguageModel, rows: Sequence[int]) -> list[GeneratedAnswer]:
            return model.answer([prompts[row] for row in rows], prefix, max_new_tokens)

        return _shared_out(self.scope.updates_for(prompts), self.base, self.updated, ask)


Generation = Union["LanguageModel", ScopedLanguageModel]
"""What answers for a generation: the base model, one whose adapter answers everything, or a scoped one."""


def _shared_out(
    updates: Sequence[int | None],
    base: M,
    updated: Callable[[int], M],
    ask: Callable[[M, Sequence[int]], Sequence[T]],
) -> list[T]:
    """Ask about each row the model that answers it; return what they say in the order of the rows."""
    said: dict[int, T] = {}
    for update in dict.fromkeys(updates):
        model = base if update is None else updated(update)
        rows = [row for row, chosen in enumerate(updates) if chosen == update]
        said |= dict(zip(rows, ask(model, rows), strict=True))
    return [said[row] for row in range(len(updates))]
