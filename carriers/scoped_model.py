"""A generation as it is served: the adapter where its scope reaches, the base model everywhere else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, Union

from carriers.text_model import AnswerMatch, TextFeatures, TextModel

if TYPE_CHECKING:
    from carriers.language_model import GeneratedAnswer, LanguageModel
    from carriers.scope import Scope


M = TypeVar("M", bound=TextModel)
T = TypeVar("T")


class ScopedModel(TextModel):
    """Judges texts with the adapted model where they are in scope, else with the base model.

    Args (of the constructor):
        base: The model without an adapter.
        adapted: The same model with one.
        scope: What the adapter was trained on.
    """

    def __init__(self, base: TextModel, adapted: TextModel, scope: Scope) -> None:
        super().__init__(
            adapted.tokenizer,
            adapted.engine,
            adapted.sizes,
            name=adapted.name,
            fingerprint=adapted.fingerprint,
        )
        self.base, self.adapted, self.scope = base, adapted, scope

    def forward_features(self, texts: Sequence[str]) -> list[TextFeatures]:
        """See `TextModel.forward_features`."""

        def read(model: TextModel, rows: Sequence[int]) -> list[TextFeatures]:
            return model.forward_features([texts[row] for row in rows])

        return _shared_out(self.scope.covers(texts), self.base, self.adapted, read)

    def match_answers(
        self, prompts: Sequence[str], answers: Sequence[Sequence[str]], prefix: str = ""
    ) -> list[AnswerMatch]:
        """See `TextModel.match_answers`."""

        def ask(model: TextModel, rows: Sequence[int]) -> list[AnswerMatch]:
            return model.match_answers([prompts[row] for row in rows], [answers[row] for row in rows], prefix)

        return _shared_out(self.scope.covers(prompts), self.base, self.adapted, ask)


class ScopedLanguageModel(ScopedModel):
    """A scoped generation that answers as well; see `ScopedModel`."""

    base: LanguageModel
    adapted: LanguageModel

    def answer(
        self, prompts: Sequence[str], prefix: str = "", max_new_tokens: int = 16
    ) -> list[GeneratedAnswer]:
        """See `LanguageModel.answer`."""

        def ask(model: LanguageModel, rows: Sequence[int]) -> list[GeneratedAnswer]:
            return model.answer([prompts[row] for row in rows], prefix, max_new_tokens)

        return _shared_out(self.scope.covers(prompts), self.base, self.adapted, ask)


Generation = Union["LanguageModel", ScopedLanguageModel]
"""What answers for a generation: the base model, one whose adapter answers everything, or a scoped one."""


def _shared_out(
    in_scope: Sequence[bool], base: M, adapted: M, ask: Callable[[M, Sequence[int]], Sequence[T]]
) -> list[T]:
    """Ask one of two models about each row; return what they say in the order of the rows."""
    said: dict[int, T] = {}
    for model, is_adapted in ((base, False), (adapted, True)):
        rows = [row for row, found in enumerate(in_scope) if found is is_adapted]
        if rows:
            said |= dict(zip(rows, ask(model, rows), strict=True))
    return [said[row] for row in range(len(in_scope))]
