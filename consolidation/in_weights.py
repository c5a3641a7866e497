"""The store's own facts that live in the weights: which there are, which are endangered, and replaying them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from carriers.prompts import CLOSED_BOOK_PREFIX, closed_book
from consolidation.damage import known_facts
from consolidation.night_folder import generated_wordings
from consolidation.targets import known_targets
from sharpwave.records import IN_WEIGHTS, FactStatus

if TYPE_CHECKING:
    from carriers.external_memory import ExternalMemory
    from carriers.language_model import LanguageModel
    from carriers.ledger_records import StoredFact
    from carriers.scope import Scope
    from consolidation.anchors import AnchorQuestion
    from consolidation.records import FactTargets, KnownFact, NightPlan
    from consolidation.write_back import Anchor


def known_in_weights(memory: ExternalMemory, plan: NightPlan | None = None) -> list[KnownFact]:
    """Return known and internalised facts that have a question, without those that a night trains."""
    trained = {item.fact_id for item in plan.targets} if plan else set()
    stored = [
        fact
        for status in IN_WEIGHTS
        for fact in memory.ledger.iter_facts(status=status)
        if fact.id not in trained
    ]
    return known_facts(stored, generated_wordings(memory.directory))


def taught_among(memory: ExternalMemory, known: Sequence[KnownFact]) -> list[FactTargets]:
    """Return, of facts that live in the weights, those that nights put there, as targets to prove anew."""
    stored = memory.ledger.facts([fact.fact_id for fact in known])
    taught = [fact for fact in stored if fact.status is FactStatus.INTERNALISED]
    return known_targets(taught, generated_wordings(memory.directory))


def risk_to_known(
    memory: ExternalMemory, facts: Sequence[StoredFact], bank: Sequence[AnchorQuestion]
) -> dict[str, float]:
    """Return how near each stored fact is to what the weights know: its cosine similarity to the nearest question.

    Args:
        memory: Its known and internalised facts are looked at.
        facts: Facts with words.
        bank: Its anchors are looked at as well; its gate questions are not, for they are to tell of damage.
    """
    known = [fact.question for fact in known_in_weights(memory)]
    known += [item.question for item in bank if item.role == "anchor"]
    if not known:
        return {fact.id: 0.0 for fact in facts}
    asked = [(*fact.fact.questions, fact.fact.text)[0] for fact in facts]
    return dict(zip((fact.id for fact in facts), _nearest(memory, asked, known), strict=True))


def risk_of(memory: ExternalMemory, plan: NightPlan, known: Sequence[KnownFact]) -> dict[str, float]:
    """Return each known fact's cosine similarity to the nearest trained fact."""
    nearest = _nearest(memory, [fact.question for fact in known], [item.text for item in plan.targets])
    return dict(zip((fact.fact_id for fact in known), nearest, strict=True))


def _nearest(memory: ExternalMemory, asked: Sequence[str], others: Sequence[str]) -> list[float]:
    """Return for each text its cosine similarity to the nearest of the others."""
    embed = memory.index.embedder.embed
    nearest: list[float] = (embed(asked) @ embed(others).T).max(axis=1).tolist()
    return nearest


def replayed_anchors(
    memory: ExternalMemory, plan: NightPlan, model: LanguageModel, count: int, scope: Scope | None
) -> list[Anchor]:
    """Return what a model about to be trained answers among the facts that live in the weights, as anchors.

    Args:
        memory: The store.
        plan: The night, whose facts endanger them.
        model: What will be trained.
        count: Most facts; if there are more, the most endangered.
        scope: Of the update: no training endangers what is out of it. None if everything is in scope.
    """
    from consolidation.write_back import Anchor

    known = known_in_weights(memory, plan) if count else []
    if scope is not None:
        covered = scope.covers([fact.question for fact in known])
        known = [fact for fact, is_covered in zip(known, covered, strict=True) if is_covered]
    if len(known) > count:
        risk = risk_of(memory, plan, known)
        known = sorted(known, key=lambda fact: (-risk[fact.fact_id], fact.fact_id))[:count]
    prompts = [closed_book(fact.replay_question) for fact in known]
    matches = model.match_answers(prompts, [fact.answers for fact in known], CLOSED_BOOK_PREFIX)
    return [
        Anchor(prompt, match.answer, replayed=True)
        for prompt, match in zip(prompts, matches, strict=True)
        if match.matched
    ]
