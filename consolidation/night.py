"""One night in four stages: plan, train, judge, apply. Orchestration-free; flows call the stages one by one.

Until `apply_verdict` nothing a reader can see has changed. That stage is one ledger transaction: it moves the
current pointer, the evicted facts and the damaged ones together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from carriers.adapter_files import adapter_digest
from carriers.adapters import merge_adapter, stack_adapters
from consolidation import night_folder as files
from consolidation.anchors import AnchorQuestion, anchor_prompt, draw_anchors, gate_questions
from consolidation.damage import find_damage, known_facts, plan_damage_probes
from consolidation.eviction import plan_evictions
from consolidation.night_folder import NightFolder
from consolidation.probes import probe_known, probe_targets, proven_ids
from consolidation.promotion import decide, is_clear
from consolidation.records import (
    FactTargets,
    KnownFact,
    NightPlan,
    NightReport,
    NightVerdict,
    Rejection,
    ScaleTrial,
    TrainingReceipt,
)
from consolidation.selection import select_facts
from consolidation.targets import check_targets, given_targets, training_targets
from sharpwave.errors import StoreBusyError
from sharpwave.records import FactStatus, utc_now

if TYPE_CHECKING:
    from carriers.external_memory import ExternalMemory
    from carriers.ledger_records import StoredFact
    from carriers.language_model import LanguageModel
    from sharpwave.settings import ConsolidationSettings

LoadModel = Callable[[Path | None], "LanguageModel"]
Propose = Callable[[Sequence["StoredFact"]], tuple[list[FactTargets], list[Rejection]]]
OnLog = Callable[[Mapping[str, float], int], None]


@contextmanager
def night_lease(store: Path) -> Iterator[None]:
    """Hold the right to run a night on this store; a killed holder gives it up by dying.

    Raises StoreBusyError if another night is running.
    """
    from filelock import FileLock, Timeout

    store.mkdir(parents=True, exist_ok=True)
    lock = FileLock(str(store / "night.lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise StoreBusyError(f"{store}: another consolidation is running on this store") from error
    try:
        yield
    finally:
        lock.release()


def plan_night(
    memory: ExternalMemory,
    settings: ConsolidationSettings,
    run_id: str,
    base_fingerprint: str,
    propose: Propose,
    *,
    seed: int,
    save: bool = True,
) -> NightPlan:
    """Choose facts and their targets; with `save` the plan is kept and shadows of dead runs are discarded.

    Args:
        memory: The store.
        settings: Selection limits.
        run_id: Name of the night.
        base_fingerprint: Of the model that will be trained.
        propose: Makes targets for facts without questions (a model proposes, a validator decides).
        seed: Seeds the draw of anchors and the training.
        save: False for a dry run, which changes nothing on disk.
    """
    folder = NightFolder(memory.directory, run_id)
    former = folder.read(files.PLAN, NightPlan)
    current = memory.generations.current().number
    if former is not None and former.parent == current:
        return former
    if save:
        memory.generations.discard_interrupted()
    hot = list(memory.ledger.iter_facts(status=FactStatus.HOT))
    chosen, rejected = select_facts(hot, settings.selection, utc_now())
    given = [(fact, given_targets(fact)) for fact in chosen]
    targets = [item for _, item in given if item is not None]
    bare = [fact for fact, item in given if item is None]
    if bare:
        proposed, refused = propose(bare)
        targets += proposed
        rejected += refused
    targets, refused = check_targets(targets)
    plan = NightPlan(
        run_id=run_id,
        parent=current,
        base_fingerprint=base_fingerprint,
        targets=tuple(targets),
        rejected=tuple(rejected + refused),
        hot_before=len(hot),
        seed=seed,
    )
    if save:
        folder.write(files.PLAN, plan)
    return plan


def is_worthwhile(plan: NightPlan, settings: ConsolidationSettings) -> bool:
    """Tell whether enough facts were found to train on."""
    return len(plan.targets) >= settings.selection.min_facts


def train_shadow(
    memory: ExternalMemory,
    plan: NightPlan,
    settings: ConsolidationSettings,
    bank: Sequence[AnchorQuestion],
    load_model: LoadModel,
    on_log: OnLog | None = None,
) -> TrainingReceipt:
    """Train an update on the parent generation and keep it in the night's folder."""
    from consolidation.write_back import Anchor, train_update

    folder = NightFolder(memory.directory, plan.run_id)
    former = folder.read(files.TRAINING, TrainingReceipt)
    if former is not None and (folder.update / "adapter_config.json").exists():
        return former
    memory.generations.discard_interrupted()
    shadow = memory.generations.create_shadow(
        plan.parent, plan.base_fingerprint, [item.fact_id for item in plan.targets]
    )
    drawn = draw_anchors(bank, settings.write_back.anchor_count, plan.seed)
    anchors = [
        Anchor(anchor_prompt(item), item.answer, prefixed=number % 2 == 1) for number, item in enumerate(drawn)
    ]
    receipt = train_update(
        load_model(memory.generations.adapter_folder(plan.parent)),
        training_targets(plan.targets),
        anchors,
        settings.write_back,
        folder.update,
        seed=plan.seed,
        on_log=on_log,
    )
    record = TrainingReceipt(generation=shadow.number, **receipt.figures())
    folder.write(files.TRAINING, record)
    return record


def judge_shadow(
    memory: ExternalMemory,
    plan: NightPlan,
    training: TrainingReceipt,
    settings: ConsolidationSettings,
    bank: Sequence[AnchorQuestion],
    load_model: LoadModel,
    on_log: OnLog | None = None,
) -> NightVerdict:
    """Save and reload the model at each scale until one is clearly good, probe it, and decide. Evicts nothing."""
    folder = NightFolder(memory.directory, plan.run_id)
    former = folder.read(files.VERDICT, NightVerdict)
    if former is not None:
        return former
    parent_adapter = memory.generations.adapter_folder(plan.parent)
    gate = [
        KnownFact(fact_id=f"gate-{number}", question=item.question, answers=(item.answer,))
        for number, item in enumerate(gate_questions(bank))
    ]
    known = plan_damage_probes(
        _known_in_weights(memory), _risk(memory, plan), settings.damage, plan.seed
    )
    former_model = load_model(parent_adapter)
    gate_before = probe_known(former_model, gate, plan.parent) if gate else []
    known_before = probe_known(former_model, known, plan.parent) if known else []
    del former_model
    target_folder = memory.directory / "generations" / f"{training.generation:04d}" / "adapter"
    trials: list[ScaleTrial] = []
    for scale in settings.promotion.scales:
        stack_adapters(parent_adapter, folder.update, target_folder, scale)
        model = load_model(target_folder)
        probes = probe_targets(model, plan.targets, training.generation)
        findings = find_damage(gate_before, probe_known(model, gate, training.generation) if gate else [])
        trials.append(
            ScaleTrial(
                scale=scale,
                internalised_rate=len(proven_ids(probes, settings.probe.min_token_prob)) / len(plan.targets),
                gate_damage_rate=len(findings.damaged) / max(1, findings.stable_probed),
                gate_probed=findings.stable_probed,
            )
        )
        if on_log is not None:
            on_log(trials[-1].model_dump(), len(trials))
        if is_clear(trials[-1], settings.promotion):
            break
    choice = decide(trials, settings.promotion)
    verdict = NightVerdict(
        generation=training.generation,
        promoted=choice.scale is not None,
        reason=choice.reason,
        scale=choice.scale,
        trials=tuple(trials),
    )
    if choice.scale is not None:
        if choice.scale != trials[-1].scale:
            stack_adapters(parent_adapter, folder.update, target_folder, choice.scale)
            model = load_model(target_folder)
            probes = probe_targets(model, plan.targets, training.generation)
        known_after = probe_known(model, known, training.generation) if known else []
        verdict = _with_consequences(memory, plan, settings, verdict, probes, known_before, known_after)
        memory.generations.seal(
            training.generation, adapter_digest(target_folder), _gate_figures(trials, choice.scale)
        )
    folder.write(files.VERDICT, verdict)
    return verdict


def apply_verdict(
    memory: ExternalMemory,
    plan: NightPlan,
    training: TrainingReceipt | None,
    verdict: NightVerdict | None,
) -> NightReport:
    """Do what the verdict says: promote with evictions and re-admissions in one transaction, or discard."""
    folder = NightFolder(memory.directory, plan.run_id)
    former = folder.read(files.REPORT, NightReport)
    if former is not None:
        return former
    counts = {"evicted": 0, "damaged": 0, "readmitted": 0}
    skipped: tuple[str, ...] = ()
    if verdict is None or training is None:
        status, reason, generation = "skipped", f"only {len(plan.targets)} facts to write back", plan.parent
    elif not verdict.promoted:
        memory.generations.discard(verdict.generation, verdict.reason)
        status, reason, generation = "discarded", verdict.reason, plan.parent
    else:
        receipt = memory.promote(
            verdict.generation,
            evict=verdict.evict,
            proven=verdict.proven,
            trained=[item.fact_id for item in plan.targets],
            damaged=[*verdict.damaged, *verdict.never_known],
            readmit=[*verdict.damaged, *verdict.never_known],
            run_id=plan.run_id,
        )
        counts = {
            "evicted": receipt.evicted,
            "damaged": len(verdict.damaged),
            "readmitted": receipt.readmitted,
        }
        skipped = receipt.skipped
        status, reason, generation = "promoted", verdict.reason, verdict.generation
    report = NightReport(
        run_id=plan.run_id,
        status=status,
        reason=reason,
        generation=generation,
        parent=plan.parent,
        scale=verdict.scale if verdict else None,
        selected=len(plan.targets),
        internalised=len(verdict.proven) if verdict else 0,
        stable_probed=verdict.stable_probed if verdict else 0,
        rejected=plan.rejected,
        skipped=skipped,
        training=training,
        trials=verdict.trials if verdict else (),
        **counts,
    )
    folder.write(files.REPORT, report)
    folder.drop_update()
    return report


def _known_in_weights(memory: ExternalMemory) -> list[KnownFact]:
    found = [known_facts(memory.ledger.iter_facts(status=status)) for status in (FactStatus.KNOWN, FactStatus.INTERNALISED)]
    return [fact for group in found for fact in group]


def _risk(memory: ExternalMemory, plan: NightPlan) -> dict[str, float]:
    """Return each known fact's cosine similarity to the nearest trained fact."""
    known = _known_in_weights(memory)
    if not known or not plan.targets:
        return {}
    embed = memory.index.embedder.embed
    nearest = (embed([fact.question for fact in known]) @ embed([item.text for item in plan.targets]).T).max(axis=1)
    return {fact.fact_id: float(similarity) for fact, similarity in zip(known, nearest, strict=True)}


def _with_consequences(
    memory: ExternalMemory,
    plan: NightPlan,
    settings: ConsolidationSettings,
    verdict: NightVerdict,
    target_probes: Sequence[object],
    known_before: Sequence[object],
    known_after: Sequence[object],
) -> NightVerdict:
    proven = proven_ids(target_probes, settings.probe.min_token_prob)  # type: ignore[arg-type]
    hot = {fact.id for fact in memory.ledger.facts(proven) if fact.status is FactStatus.HOT}
    findings = find_damage(known_before, known_after)  # type: ignore[arg-type]
    return verdict.model_copy(
        update={
            "proven": tuple(proven),
            "evict": tuple(plan_evictions(proven, hot, plan.hot_before, settings.shrink_limit)),
            "damaged": tuple(findings.damaged),
            "never_known": tuple(findings.never_known),
            "stable_probed": findings.stable_probed,
            "target_probes": tuple(target_probes),
            "damage_probes": tuple(known_after),
        }
    )


def _gate_figures(trials: Sequence[ScaleTrial], scale: float) -> dict[str, float]:
    chosen = next(trial for trial in trials if trial.scale == scale)
    return {key: float(value) for key, value in chosen.model_dump().items()}
