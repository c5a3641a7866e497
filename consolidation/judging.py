"""Judging a trained shadow: probe the saved and reloaded model at each scale, decide, and name the consequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from carriers.adapter_files import adapter_digest, generation_folder, remove_folders
from carriers.adapters import stack_adapters
from carriers.scope import stack_scopes
from consolidation import night_folder as files
from consolidation.anchors import AnchorQuestion, gate_questions
from consolidation.damage import find_damage, plan_damage_probes
from consolidation.eviction import plan_evictions
from consolidation.exhaustion import exhaustion_told
from consolidation.general_text import perplexity
from consolidation.in_weights import known_in_weights, risk_of, taught_among
from consolidation.night_folder import NightFolder
from consolidation.probes import failed_probes, probe_known, probe_targets, proven_ids
from consolidation.promotion import decide, learns_too_little, passes
from consolidation.records import FactTargets, KnownFact, NightPlan, NightVerdict, ScaleTrial, TrainingReceipt
from sharpwave.errors import TrainingError
from sharpwave.records import FactStatus, ProbeResult

if TYPE_CHECKING:
    from carriers.external_memory import ExternalMemory
    from carriers.text_model import TextModel
    from sharpwave.settings import ConsolidationSettings

LoadGeneration = Callable[[Path | None], "TextModel"]
OnLog = Callable[[Mapping[str, float], int], None]


class _Questions(NamedTuple):
    """What the former generation was asked, and how it did: gate facts, facts known all along, prose.

    `taught` are facts that earlier nights have proven. They are to pass the same proof again, whatever the former
    generation would say: they left the store because of it.
    """

    gate: list[KnownFact]
    known: list[KnownFact]
    taught: list[FactTargets]
    gate_before: list[ProbeResult]
    known_before: list[ProbeResult]
    perplexity_before: float


class _Shadow(NamedTuple):
    """The shadow reloaded at one scale, with its probes on the targets."""

    scale: float
    model: TextModel
    probes: list[ProbeResult]


def judge_shadow(
    memory: ExternalMemory,
    plan: NightPlan,
    training: TrainingReceipt,
    settings: ConsolidationSettings,
    bank: Sequence[AnchorQuestion],
    load_generation: LoadGeneration,
    on_log: OnLog | None = None,
) -> NightVerdict:
    """Save and reload the model at each scale until one passes, probe it, and decide. Evicts nothing.

    A shadow that disk or memory do not suffice for is refused, with the reason.

    Args:
        memory: The store.
        plan: What the shadow was trained on.
        training: Where its update lies.
        settings: Scales, gate and probe budget.
        bank: Its gate questions measure damage before the decision.
        load_generation: Loads the generation with an adapter folder as it is served; the base model for None.
        on_log: Called with the figures of each scale and its place, from 1.
    """
    folder = NightFolder(memory.directory, plan.run_id)
    former = folder.read(files.VERDICT, NightVerdict)
    if former is not None:
        return former
    try:
        with exhaustion_told():
            verdict = _verdict(memory, plan, training, settings, bank, load_generation, on_log)
    except TrainingError as error:
        remove_folders([generation_folder(memory.generations.directory, training.generation)])
        folder.drop_update()
        verdict = refusal(training.generation, str(error))
    folder.write(files.VERDICT, verdict)
    return verdict


def refusal(generation: int, reason: str) -> NightVerdict:
    """Return the verdict on a shadow that could not be trained or judged."""
    return NightVerdict(generation=generation, promoted=False, reason=reason, scale=None, trials=())


def _verdict(
    memory: ExternalMemory,
    plan: NightPlan,
    training: TrainingReceipt,
    settings: ConsolidationSettings,
    bank: Sequence[AnchorQuestion],
    load_generation: LoadGeneration,
    on_log: OnLog | None,
) -> NightVerdict:
    update = NightFolder(memory.directory, plan.run_id).update
    parent = memory.generations.adapter_folder(plan.parent)
    target = generation_folder(memory.generations.directory, training.generation) / "adapter"

    def reload(scale: float) -> _Shadow:
        stack_adapters(parent, update, target, scale)
        stack_scopes(parent, update, target, memory.index.embedder)
        model = load_generation(target)
        return _Shadow(scale, model, probe_targets(model, plan.targets, training.generation))

    asked = _ask_former(memory, plan, settings, bank, load_generation(parent))
    shadow, trials = _try_scales(reload, asked, plan, training.generation, settings, on_log)
    choice = decide(trials, settings.promotion)
    verdict = NightVerdict(
        generation=training.generation,
        promoted=choice.scale is not None,
        reason=choice.reason,
        scale=choice.scale,
        trials=tuple(trials),
    )
    if choice.scale is not None:
        verdict = _with_consequences(memory, plan, settings, verdict, asked, shadow)
        figures = _gate_figures(trials, choice.scale)
        memory.generations.seal(training.generation, adapter_digest(target), figures)
    return verdict


def gate_facts(bank: Sequence[AnchorQuestion]) -> list[KnownFact]:
    """Return the gate questions of a bank as facts to probe."""
    return [
        KnownFact(fact_id=f"gate-{number}", question=item.question, answers=(item.answer, *item.aliases))
        for number, item in enumerate(gate_questions(bank))
    ]


def _ask_former(
    memory: ExternalMemory,
    plan: NightPlan,
    settings: ConsolidationSettings,
    bank: Sequence[AnchorQuestion],
    model: TextModel,
) -> _Questions:
    gate = gate_facts(bank)
    known = known_in_weights(memory, plan)
    risk = risk_of(memory, plan, known) if len(known) > settings.damage.max_probes else {}
    chosen = plan_damage_probes(known, risk, settings.damage, plan.seed)
    taught = taught_among(memory, chosen)
    taught_ids = {item.fact_id for item in taught}
    known = [fact for fact in chosen if fact.fact_id not in taught_ids]
    return _Questions(
        gate=gate,
        known=known,
        taught=taught,
        gate_before=probe_known(model, gate, plan.parent),
        known_before=probe_known(model, known, plan.parent),
        perplexity_before=perplexity(model),
    )


def _try_scales(
    reload: Callable[[float], _Shadow],
    asked: _Questions,
    plan: NightPlan,
    generation: int,
    settings: ConsolidationSettings,
    on_log: OnLog | None,
) -> tuple[_Shadow, list[ScaleTrial]]:
    """Try the scales in turn until one passes or the rest is hopeless; return the last one and all figures."""
    first, *smaller = settings.promotion.scales
    shadow = reload(first)
    trials: list[ScaleTrial] = []
    while True:
        trials.append(_trial(shadow, asked, generation, settings))
        if on_log is not None:
            on_log(trials[-1].model_dump(), len(trials))
        is_hopeless = not smaller or learns_too_little(trials[-1], settings.promotion)
        if is_hopeless or passes(trials[-1], settings.promotion):
            return shadow, trials
        shadow = reload(smaller.pop(0))


def _trial(
    shadow: _Shadow, asked: _Questions, generation: int, settings: ConsolidationSettings
) -> ScaleTrial:
    gate = find_damage(asked.gate_before, probe_known(shadow.model, asked.gate, generation))
    targets = {probe.fact_id for probe in shadow.probes}
    return ScaleTrial(
        scale=shadow.scale,
        internalised_rate=len(proven_ids(shadow.probes, settings.probe.min_token_prob)) / len(targets),
        gate_damage_rate=len(gate.damaged) / max(1, gate.stable_probed),
        gate_probed=gate.stable_probed,
        perplexity_ratio=perplexity(shadow.model) / asked.perplexity_before,
    )


def _with_consequences(
    memory: ExternalMemory,
    plan: NightPlan,
    settings: ConsolidationSettings,
    verdict: NightVerdict,
    asked: _Questions,
    shadow: _Shadow,
) -> NightVerdict:
    proven = proven_ids(shadow.probes, settings.probe.min_token_prob)
    hot = {fact.id for fact in memory.ledger.facts(proven) if fact.status is FactStatus.HOT}
    known_after = probe_known(shadow.model, asked.known, verdict.generation)
    findings = find_damage(asked.known_before, known_after)
    proofs = probe_targets(shadow.model, asked.taught, verdict.generation)
    disproven = failed_probes(proofs, settings.probe.min_token_prob)
    return verdict.model_copy(
        update={
            "proven": tuple(proven),
            "evict": tuple(plan_evictions(proven, hot, plan.hot_before, settings.shrink_limit)),
            "damaged": (*findings.damaged, *disproven),
            "never_known": tuple(findings.never_known),
            "stable_probed": findings.stable_probed + len(asked.taught),
            "target_probes": tuple(shadow.probes),
            "damage_probes": (*known_after, *proofs),
        }
    )


def _gate_figures(trials: Sequence[ScaleTrial], scale: float) -> dict[str, float]:
    chosen = next(trial for trial in trials if trial.scale == scale)
    return {key: float(value) for key, value in chosen.model_dump().items()}
