"""One night in four stages: plan, train, judge, apply. Orchestration-free; flows call the stages one by one.

Until `apply_verdict` nothing a reader can see has changed. That stage is one ledger transaction: it moves the
current pointer, the evicted facts and the damaged ones together. A night under review waits before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from carriers.scope import SCOPE_FILE
from carriers.write_lock import NIGHT_LOCK_NAME
from consolidation import night_folder as files
from consolidation.anchors import AnchorQuestion, training_anchors
from consolidation.confirmation import awaiting_proof, confirm_proofs
from consolidation.exhaustion import exhaustion_told
from consolidation.in_weights import replayed_anchors, risk_to_known
from consolidation.judging import LoadGeneration, OnLog, judge_shadow, refusal
from consolidation.night_folder import NightFolder
from consolidation.records import (
    WAITING,
    FactTargets,
    NightPlan,
    NightReport,
    NightVerdict,
    Rejection,
    Review,
    TrainingReceipt,
)
from consolidation.review import DECIDES, reviewed
from consolidation.scopes import scope_of
from consolidation.selection import select_facts
from consolidation.targets import check_targets, given_targets, training_targets
from sharpwave.errors import StoreBusyError, StoreError, TrainingError
from sharpwave.records import FactStatus, GenerationStatus, utc_now

if TYPE_CHECKING:
    from carriers.external_memory import ExternalMemory
    from carriers.generations import PromotionReceipt
    from carriers.language_model import LanguageModel
    from carriers.ledger_records import StoredFact
    from carriers.scope import Scope
    from sharpwave.settings import ConsolidationSettings

__all__ = [
    "LoadGeneration",
    "LoadModel",
    "OnLog",
    "Propose",
    "apply_verdict",
    "judge_shadow",
    "night_lease",
    "plan_night",
    "train_shadow",
]

AWAITS = "proven once; it leaves the store if the next consolidation finds it proven again"
LoadModel = Callable[[Path | None], "LanguageModel"]
Propose = Callable[[Sequence["StoredFact"]], tuple[list[FactTargets], list[Rejection]]]


@contextmanager
def night_lease(store: Path) -> Iterator[None]:
    """Hold the right to run a night on this store; a killed holder gives it up by dying.

    Raises StoreBusyError if another night is running.
    """
    from filelock import FileLock, Timeout

    store.mkdir(parents=True, exist_ok=True)
    lock = FileLock(str(store / NIGHT_LOCK_NAME), timeout=0)
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
    bank: Sequence[AnchorQuestion] = (),
    seed: int,
    load_generation: LoadGeneration | None = None,
) -> NightPlan:
    """Choose facts and their targets, keep the plan, and discard shadows of dead runs.

    Facts that await their second proof are probed first; those that pass leave the store.

    Args:
        memory: The store.
        settings: Selection limits.
        run_id: Name of the night.
        base_fingerprint: Of the model that will be trained.
        propose: Makes targets for facts without questions (a model proposes, a validator decides).
        bank: Its anchors tell, beside the store's own known facts, what the model knows and a training endangers.
        seed: Seeds the draw of anchors and the training.
        load_generation: Loads the generation with an adapter folder as it is served, for the second proof. Without it
            this is a dry run, which changes nothing on disk.

    Raises:
        StoreError: another night waits for review; a new one would take its shadow away.
    """
    waiting = files.waiting_night(memory.directory)
    if load_generation is not None and waiting not in {None, run_id}:
        raise StoreError(f"the consolidation {waiting} waits for review; {DECIDES}")
    folder = NightFolder(memory.directory, run_id)
    former = _resumable(memory, folder, base_fingerprint)
    if former is not None:
        return former
    confirmed, awaiting = _second_proofs(memory, settings, load_generation, run_id)
    hot = list(memory.ledger.iter_facts(status=FactStatus.HOT))
    passed_once = {fact.id for fact in awaiting}
    failed = memory.generations.failed()
    tried = Counter(fact_id for generation in failed for fact_id in generation.trained_fact_ids)
    chosen, rejected = select_facts(
        [fact for fact in hot if fact.id not in passed_once],
        settings.selection,
        utc_now(),
        failed_nights=tried,
        urgent=_replacing_learnt(memory, hot),
        risk_of=lambda facts: risk_to_known(memory, facts, bank),
    )
    targets, refused = check_targets(_make_targets(chosen, propose, rejected))
    plan = NightPlan(
        run_id=run_id,
        parent=memory.generations.current().number,
        base_fingerprint=base_fingerprint,
        targets=tuple(targets),
        rejected=(*rejected, *refused, *(Rejection(fact_id=fact.id, reason=AWAITS) for fact in awaiting)),
        hot_before=len(hot),
        min_facts=settings.selection.min_facts,
        seed=seed + len(failed),  # the same facts may come again, the same order and draws would fail again
        evict_now=settings.evict_now,
        confirmed=confirmed,
    )
    if load_generation is not None:
        memory.generations.discard_interrupted()
        for night in files.unfinished_nights(memory.directory):  # without its shadow none of them can go on
            NightFolder(memory.directory, night).drop_update()
        folder.start_anew()
        folder.write(files.PLAN, plan)
    return plan


def _second_proofs(
    memory: ExternalMemory,
    settings: ConsolidationSettings,
    load_generation: LoadGeneration | None,
    run_id: str,
) -> tuple[tuple[str, ...], list[StoredFact]]:
    """Return what passed its second proof and left the store; for a dry run what still awaits it."""
    if load_generation is None:
        return (), awaiting_proof(memory)
    return confirm_proofs(memory, settings, load_generation, run_id), []


def _replacing_learnt(memory: ExternalMemory, hot: Sequence[StoredFact]) -> set[str]:
    """Return the stored facts whose slot had another value that went into the weights or was known to them."""
    outdated = {
        fact.slot_number
        for fact in memory.ledger.iter_facts(status=FactStatus.SUPERSEDED)
        if fact.proven_generation is not None or fact.known_generation is not None
    }
    return {fact.id for fact in hot if fact.slot_number is not None and fact.slot_number in outdated}


def _make_targets(
    chosen: Sequence[StoredFact], propose: Propose, rejected: list[Rejection]
) -> list[FactTargets]:
    """Return the targets in the order chosen; facts for which none could be proposed go to `rejected`."""
    found = {fact.id: given_targets(fact) for fact in chosen}
    bare = [fact for fact in chosen if found[fact.id] is None]
    if bare:
        proposed, refused = propose(bare)
        found |= {item.fact_id: item for item in proposed}
        rejected += refused
    return [item for item in found.values() if item is not None]


def _resumable(memory: ExternalMemory, folder: NightFolder, base_fingerprint: str) -> NightPlan | None:
    """Return the plan of a night that is finished, waits or can go on; None where it has to begin anew.

    A night cannot go on when the store has moved on since: another generation is current, its shadow is gone, or,
    before its training, one of its facts has left the store.
    """
    plan = folder.read(files.PLAN, NightPlan)
    if plan is None or folder.read(files.REPORT, NightReport) is not None or folder.is_waiting:
        return plan
    training = folder.read(files.TRAINING, TrainingReceipt)
    current = memory.generations.current().number
    if training is None:
        stored = memory.ledger.facts([item.fact_id for item in plan.targets])
        is_fresh = current == plan.parent and base_fingerprint == plan.base_fingerprint
        return plan if is_fresh and all(fact.status is FactStatus.HOT for fact in stored) else None
    if current == training.generation:
        return plan
    verdict = reviewed(folder.read(files.VERDICT, NightVerdict), folder.read(files.REVIEW, Review))
    is_decided_against = verdict is not None and not verdict.promoted
    is_shadow = memory.generations.get(training.generation).status is GenerationStatus.SHADOW
    return plan if current == plan.parent and (is_shadow or is_decided_against) else None


def train_shadow(
    memory: ExternalMemory,
    plan: NightPlan,
    settings: ConsolidationSettings,
    bank: Sequence[AnchorQuestion],
    load_model: LoadModel,
    on_log: OnLog | None = None,
) -> TrainingReceipt:
    """Train an update and keep it in the night's folder.

    An update with a scope answers alone, so it is trained on the base model, unless an ancestor without one answers
    everything; else it is trained on the parent generation.

    Raises TrainingError if the training fails; the night is then reported as discarded.
    """
    from consolidation.write_back import train_update

    folder = NightFolder(memory.directory, plan.run_id)
    former = folder.read(files.TRAINING, TrainingReceipt)
    if former is not None:
        return former
    memory.generations.discard_interrupted()
    shadow = memory.generations.create_shadow(
        plan.parent, plan.base_fingerprint, [item.fact_id for item in plan.targets]
    )
    try:
        with exhaustion_told():
            parent = memory.generations.adapter_folder(plan.parent)
            scope = _scope(memory, plan, settings)
            is_alone = scope is not None and (parent is None or (parent / SCOPE_FILE).is_file())
            model = load_model(None if is_alone else parent)
            reach = scope if is_alone else None
            anchors = [
                *replayed_anchors(memory, plan, model, settings.write_back.replay_count, reach),
                *training_anchors(bank, settings.write_back, plan.seed),
            ]
            receipt = train_update(
                model,
                training_targets(plan.targets),
                anchors,
                settings.write_back,
                folder.update,
                seed=plan.seed,
                on_log=on_log,
            )
            if scope is not None:
                scope.write(folder.update)
    except TrainingError as error:
        folder.drop_update()  # on a full disk there may be no room to say so before
        apply_verdict(memory, plan, None, refusal(shadow.number, str(error)))
        raise
    record = TrainingReceipt(generation=shadow.number, **receipt.figures())
    folder.write(files.TRAINING, record)
    return record


def _scope(memory: ExternalMemory, plan: NightPlan, settings: ConsolidationSettings) -> Scope | None:
    """Return the scope of the update; None if it is to answer everything."""
    if not settings.scope_similarity:
        return None
    rank = settings.write_back.lora_rank
    return scope_of(memory, plan.targets, rank, settings.scope_similarity)


def apply_verdict(
    memory: ExternalMemory,
    plan: NightPlan,
    training: TrainingReceipt | None,
    verdict: NightVerdict | None,
) -> NightReport:
    """Do what verdict and review say: promote with evictions and re-admissions in one transaction, or discard.

    A night that waits for review is reported as such; nothing is done and no report is kept.
    """
    folder = NightFolder(memory.directory, plan.run_id)
    former = folder.read(files.REPORT, NightReport)
    if former is not None:
        return former
    if verdict is not None and folder.is_waiting:
        return _report(plan, training, verdict, (WAITING, f"{verdict.reason}; {DECIDES}", plan.parent))
    verdict = reviewed(verdict, folder.read(files.REVIEW, Review))
    receipt: PromotionReceipt | None = None
    if verdict is None:
        status, reason, generation = "skipped", plan.shortage, plan.parent
    elif not verdict.promoted:
        memory.generations.discard(verdict.generation, verdict.reason)
        status, reason, generation = "discarded", verdict.reason, plan.parent
    else:
        receipt = _promote(memory, plan, verdict)
        status, reason, generation = "promoted", verdict.reason, verdict.generation
    report = _report(plan, training, verdict, (status, reason, generation), receipt)
    folder.drop_update()  # before the report, after which nobody would come back for it
    folder.write(files.REPORT, report)
    return report


def _report(
    plan: NightPlan,
    training: TrainingReceipt | None,
    verdict: NightVerdict | None,
    outcome: tuple[str, str, int],
    receipt: PromotionReceipt | None = None,
) -> NightReport:
    """Return the report of an outcome: status, reason and the generation that is current after it."""
    status, reason, generation = outcome
    awaiting = verdict.evict if verdict and receipt and not plan.evict_now else ()
    return NightReport(
        run_id=plan.run_id,
        status=status,
        reason=reason,
        generation=generation,
        parent=plan.parent,
        scale=verdict.scale if verdict else None,
        selected=len(plan.targets),
        internalised=len(verdict.proven) if verdict else 0,
        evicted=receipt.evicted if receipt else 0,
        confirmed=len(plan.confirmed),
        awaiting=len(awaiting),
        damaged=len(verdict.damaged) if verdict else 0,
        readmitted=receipt.readmitted if receipt else 0,
        stable_probed=verdict.stable_probed if verdict else 0,
        kept=receipt.kept if receipt else 0,
        rejected=plan.rejected,
        skipped=receipt.skipped if receipt else (),
        training=training,
        trials=verdict.trials if verdict else (),
    )


def _promote(memory: ExternalMemory, plan: NightPlan, verdict: NightVerdict) -> PromotionReceipt:
    gone = [*verdict.damaged, *verdict.never_known]
    return memory.promote(
        verdict.generation,
        evict=verdict.evict if plan.evict_now else (),
        proven=verdict.proven,
        trained=[item.fact_id for item in plan.targets],
        kept=verdict.kept,
        damaged=gone,
        readmit=gone,
        run_id=plan.run_id,
    )
