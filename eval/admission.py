"""Other ways to decide what is stored, to set beside the router: a language model as the judge, and an oracle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from carriers.prompts import CLOSED_BOOK_PREFIX, closed_book
from sharpwave.matching import exact_match
from sharpwave.records import RouteAction, RouteDecision, RouteStage

if TYPE_CHECKING:
    from carriers.language_model import LanguageModel
    from eval.reading import AskedQuestion
    from sharpwave.records import Fact

Decide = Callable[["list[Fact]", int, "set[str]"], "list[RouteDecision]"]

_JUDGE_TOKENS = 4
_JUDGE = (
    "Here is a fact: {text}\nDo you know this fact already, so that you could answer questions about it by yourself? "
    "Answer with one word, yes or no."
)


class ModelJudge:
    """Asks a language model in words whether it knows a fact; anything but yes stores it."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._template = getattr(model.tokenizer, "chat_template", None)

    def decide(
        self, facts: Sequence[Fact], generation: int, conflicting: Collection[str]
    ) -> list[RouteDecision]:
        """Decide about facts, in the order given; a fact whose slot holds another value is stored unasked."""
        asked = [fact for fact in facts if fact.id not in conflicting]
        verdicts = self._model.answer([self._prompt(fact) for fact in asked], "", _JUDGE_TOKENS)
        known: dict[str, bool] = {}
        flops: dict[str, float] = {}
        for fact, verdict in zip(asked, verdicts, strict=True):
            known[fact.id] = verdict.text.strip().lower().startswith("yes")
            tokens = verdict.prompt_tokens + verdict.token_count
            flops[fact.id] = self._model.flops(tokens, verdict.token_count)
        return [
            policy_decision(
                fact.id,
                generation,
                is_known=known.get(fact.id, False),
                is_update=fact.id in conflicting,
                flops=flops.get(fact.id, 0.0),
                reason="asked in words, the model says that it knows it"
                if known.get(fact.id, False)
                else "asked in words, the model does not say that it knows it",
            )
            for fact in facts
        ]

    def says_known(self, facts: Sequence[Fact]) -> list[bool]:
        """Tell of each fact whether the model says that it knows it."""
        decisions = self.decide(facts, 0, ())
        return [not decision.action.is_write for decision in decisions]

    def _prompt(self, fact: Fact) -> str:
        asked = _JUDGE.format(text=fact.text)
        if not self._template:
            return f"{asked}\nAnswer:"
        turns = [{"role": "user", "content": asked}]
        return str(
            self._model.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        )


class OracleAdmission:
    """Stores exactly what the base model answers wrongly, asked what the stream is going to ask.

    It sees questions and right answers, so it is a bound and no competitor. Facts that are never asked about are judged
    by their own questions, and stored if they have none.
    """

    def __init__(self, model: LanguageModel, asked: Mapping[str, Sequence[AskedQuestion]]) -> None:
        self._model = model
        self._asked = asked

    def decide(
        self, facts: Sequence[Fact], generation: int, conflicting: Collection[str]
    ) -> list[RouteDecision]:
        """Decide about facts, in the order given."""
        questions = [(fact, question) for fact in facts for question in self._questions(fact)]
        prompts = [closed_book(question) for _, question in questions]
        said = self._model.answer(prompts, CLOSED_BOOK_PREFIX)
        hits: dict[str, list[bool]] = {}
        for (fact, _), answer in zip(questions, said, strict=True):
            hits.setdefault(fact.id, []).append(exact_match(answer.text, fact.answers))
        return [
            policy_decision(
                fact.id,
                generation,
                is_known=all(hits.get(fact.id, [False])) and fact.id not in conflicting,
                is_update=fact.id in conflicting,
                reason="the oracle knows what the base model answers",
            )
            for fact in facts
        ]

    def _questions(self, fact: Fact) -> list[str]:
        asked = dict.fromkeys(item.question for item in self._asked.get(fact.id, ()))
        return list(asked) or list(fact.questions[:1])


def policy_decision(
    fact_id: str,
    generation: int,
    *,
    is_known: bool,
    is_update: bool,
    reason: str,
    flops: float = 0.0,
) -> RouteDecision:
    """Return a decision that no router took: known facts are not stored, others as new or as an update."""
    stored_as = RouteAction.WRITE_UPDATE if is_update else RouteAction.WRITE_NEW
    action = RouteAction.NON_WRITE if is_known else stored_as
    return RouteDecision(
        fact_id=fact_id,
        action=action,
        stage=RouteStage.POLICY,
        p_non_write=float(action is RouteAction.NON_WRITE),
        p_write_new=float(action is RouteAction.WRITE_NEW),
        p_write_update=float(action is RouteAction.WRITE_UPDATE),
        expected_gain=float(action.is_write),
        storage_price=0.0,
        escalation_price=0.0,
        router_version="policy",
        generation=generation,
        flops=flops,
        reason=reason,
    )
