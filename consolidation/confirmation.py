"""The second proof: what one night proved leaves the store when the next run finds that the weights still answer it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consolidation.eviction import plan_evictions
from consolidation.night_folder import generated_wordings
from consolidation.probes import probe_targets, proven_ids
from consolidation.targets import known_targets
from sharpwave.records import EventKind, FactStatus

if TYPE_CHECKING:
    from carriers.external_memory import ExternalMemory
    from carriers.ledger_records import StoredFact
    from consolidation.judging import LoadGeneration
    from sharpwave.settings import ConsolidationSettings


def awaiting_proof(memory: ExternalMemory) -> list[StoredFact]:
    """Return the stored facts that the current generation was proven to hold, without those that a review keeps."""
    lineage = set(memory.generations.lineage())
    return [
        fact
        for fact in memory.ledger.iter_facts(status=FactStatus.HOT)
        if fact.proven_generation in lineage and not _is_kept(memory, fact.id)
    ]


def confirm_proofs(
    memory: ExternalMemory, settings: ConsolidationSettings, load_generation: LoadGeneration, run_id: str
) -> tuple[str, ...]:
    """Probe again, in every form, what awaits its second proof; take out of the store what passes, and return it.

    Args:
        memory: The store, open for writing.
        settings: What counts as proof, and how much may leave at a time.
        load_generation: Loads the current generation as it is served; not called where nothing waits.
        run_id: The run, for the events.
    """
    waiting = awaiting_proof(memory)
    targets = known_targets(waiting, generated_wordings(memory.directory)) if waiting else []
    if not targets:
        return ()
    current = memory.generations.current().number
    model = load_generation(memory.generations.adapter_folder(current))
    proven = proven_ids(probe_targets(model, targets, current), settings.probe.min_token_prob)
    hot_count = memory.ledger.counts()[FactStatus.HOT]
    evict = plan_evictions(proven, set(proven), hot_count, settings.shrink_limit)
    memory.confirm(evict, run_id)
    return tuple(evict)


def _is_kept(memory: ExternalMemory, fact_id: str) -> bool:
    proofs = [event for event in memory.ledger.history(fact_id) if event.kind == EventKind.PROVEN]
    return bool(proofs) and proofs[-1].payload.get("reason") == "kept"
