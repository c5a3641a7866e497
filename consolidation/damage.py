"""Regression detection: which formerly known facts to probe, and which of them the training damaged. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from consolidation.probes import matched_ids
from consolidation.records import KnownFact

if TYPE_CHECKING:
    from carriers.ledger_records import StoredFact
    from consolidation.records import FactTargets
    from sharpwave.records import ProbeResult
    from sharpwave.settings import DamageSettings


class DamageFindings(NamedTuple):
    """Facts the former generation answered and the new one does not; facts that neither answers."""

    damaged: list[str]
    never_known: list[str]
    stable_probed: int


def known_facts(stored: Iterable[StoredFact], wordings: Mapping[str, FactTargets]) -> list[KnownFact]:
    """Return the facts that live in the weights and have a question to probe them with.

    Args:
        stored: Known and internalised facts.
        wordings: By fact id, the targets that a former night made for a fact without questions.
    """
    found = []
    for fact in stored:
        if fact.words is None:
            continue
        if fact.words.questions:
            questions, answers = fact.words.questions, fact.words.answers
        elif fact.id in wordings:
            questions, answers = wordings[fact.id].train_questions, wordings[fact.id].answers
        else:
            continue
        found.append(
            KnownFact(
                fact_id=fact.id, question=questions[0], answers=answers, replay_question=questions[:2][-1]
            )
        )
    return found


def plan_damage_probes(
    known: Sequence[KnownFact], risk: Mapping[str, float], settings: DamageSettings, seed: int
) -> list[KnownFact]:
    """Choose what to probe: everything if the budget allows, else a random sample and the most endangered.

    Args:
        known: Facts that live in the weights.
        risk: Similarity of each fact to the nearest trained one; a missing fact counts as 0.
        settings: Budget and size of the random sample, which gives the damage rate its interval.
        seed: Seeds the sample.
    """
    if len(known) <= settings.max_probes:
        return list(known)
    sample = random.Random(seed).sample(list(known), min(settings.sample_size, settings.max_probes))
    drawn = {fact.fact_id for fact in sample}
    rest = [fact for fact in known if fact.fact_id not in drawn]
    rest.sort(key=lambda fact: (-risk.get(fact.fact_id, 0.0), fact.fact_id))
    return sample + rest[: settings.max_probes - len(sample)]


def find_damage(before: Sequence[ProbeResult], after: Sequence[ProbeResult]) -> DamageFindings:
    """Compare the probes of the former and the new generation on the same facts."""
    knew, knows = matched_ids(before), matched_ids(after)
    probed = list(dict.fromkeys(probe.fact_id for probe in after))
    return DamageFindings(
        damaged=[fact_id for fact_id in probed if fact_id in knew and fact_id not in knows],
        never_known=[fact_id for fact_id in probed if fact_id not in knew and fact_id not in knows],
        stable_probed=len(knew & set(probed)),
    )
