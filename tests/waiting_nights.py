"""A store with a night that waits for review, built without a model: every kind of fact that a night can meet."""

from __future__ import annotations

from pathlib import Path

from carriers.embedder import load_embedder
from carriers.external_memory import ExternalMemory
from carriers.generations import adapter_digest
from consolidation.night_folder import PLAN, REVIEW, TRAINING, VERDICT, NightFolder
from consolidation.probes import TARGET_FORMS
from consolidation.records import (
    FactTargets,
    NightPlan,
    NightVerdict,
    Rejection,
    Review,
    ScaleTrial,
    TrainingReceipt,
)
from sharpwave.records import Fact, ProbeResult, RouteAction, RouteDecision
from tests.decisions import given_decision

RUN = "night-1"
BADGE = Fact(text="The badge of Tomas is 4711.", questions=("Which badge has Tomas?",), answers=("4711",))
NOTARY = Fact(
    text="Mira works as a notary <b>\x1b[31m.", questions=("What does Mira do?",), answers=("notary",)
)
VAGUE = Fact(text="The ferry goes at noon.", questions=("When goes the ferry?",), answers=("noon",))
LATER = Fact(text="The kiln is in bay 9.", questions=("Where is the kiln?",), answers=("bay 9",))
PARIS = Fact(text="Paris is in France.", questions=("Where is Paris?",), answers=("France",))
MOSS = Fact(text="Moss is green.", questions=("What colour is moss?",), answers=("green",))
TRAINED, KNOWN = (BADGE, NOTARY, VAGUE), (PARIS, MOSS)


def opened(store: Path) -> ExternalMemory:
    """The store, opened for writing."""
    return ExternalMemory.open(store, load_embedder("hashing"), writer=True)


def make_waiting_night(store: Path) -> None:
    """Fill a new store and leave in it a judged night that waits: badge and notary proven, Paris damaged."""
    with opened(store) as memory:
        facts = (*TRAINED, LATER, *KNOWN)
        memory.observe(facts, "morning")
        memory.route([_decision(fact) for fact in facts], "morning")
        number, folder = memory.generations.create_shadow(0, "base", [fact.id for fact in TRAINED])
        (folder / "adapter.bin").write_bytes(b"weights")
        memory.generations.seal(number, adapter_digest(folder), {"internalised_rate": 0.66})
    night = NightFolder(store, RUN)
    night.write(PLAN, plan_of(0))
    night.write(REVIEW, Review())
    night.write(TRAINING, training_of(number))
    night.write(VERDICT, verdict_of(number))


def plan_of(parent: int) -> NightPlan:
    """The plan of the night."""
    targets = tuple(
        FactTargets(
            fact_id=fact.id,
            text=fact.text,
            train_questions=fact.questions,
            paraphrase="And again?",
            answers=fact.answers,
        )
        for fact in TRAINED
    )
    rejected = (Rejection(fact_id=LATER.id, reason="left for a later night"),)
    return NightPlan(
        run_id=RUN,
        parent=parent,
        base_fingerprint="base",
        targets=targets,
        rejected=rejected,
        hot_before=4,
        evict_now=True,
    )


def training_of(number: int) -> TrainingReceipt:
    """What the training is said to have cost."""
    return TrainingReceipt(
        generation=number,
        seconds=1.0,
        steps=1,
        supervised_tokens=1,
        trained_tokens=1,
        final_loss=0.1,
        final_divergence=0.0,
    )


def verdict_of(number: int) -> NightVerdict:
    """The verdict: badge and notary leave the store, Paris and the moss come back into it."""
    lowest = {
        BADGE.id: (0.9, 0.8, 0.85, 0.95),
        NOTARY.id: (0.7, 0.7, 0.7, 0.7),
        VAGUE.id: (0.9, 0.9, 0.31, 0.9),
    }
    probes = tuple(
        ProbeResult(
            fact_id=fact_id,
            generation=number,
            prompt_form=form,
            matched=True,
            lowest_answer_prob=prob,
            margin=0.1,
        )
        for fact_id, probs in lowest.items()
        for form, prob in zip(TARGET_FORMS, probs, strict=True)
    )
    return NightVerdict(
        generation=number,
        promoted=True,
        reason="scale 0.5: 66.7% internalised",
        scale=0.5,
        trials=(
            ScaleTrial(
                scale=1.0, internalised_rate=1.0, gate_damage_rate=0.4, gate_probed=50, perplexity_ratio=1.01
            ),
            ScaleTrial(
                scale=0.5,
                internalised_rate=2 / 3,
                gate_damage_rate=0.1,
                gate_probed=50,
                perplexity_ratio=1.01,
            ),
        ),
        proven=(BADGE.id, NOTARY.id),
        evict=(BADGE.id, NOTARY.id),
        damaged=(PARIS.id,),
        never_known=(MOSS.id,),
        stable_probed=2,
        target_probes=probes,
    )


def _decision(fact: Fact) -> RouteDecision:
    return given_decision(fact.id, RouteAction.NON_WRITE if fact in KNOWN else RouteAction.WRITE_NEW)
