"""The whole memory as one object: give it facts, ask it questions.

from serving.agent_memory import AgentMemory
from sharpwave.settings import load_settings

with AgentMemory.open(load_settings("embedded"), writer=True) as memory:
    memory.ingest([Fact(text="Mira works as a notary.")], run_id="morning")
    memory.ask(["What does Mira do?"])
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from carriers.recall import Recall, StoreNotes
from carriers.scoped_model import ScopedModel
from serving.loaded_models import LoadedModels, shared_models
from serving.opened_store import open_store
from sharpwave.records import IN_WEIGHTS, RouteDecision

if TYPE_CHECKING:
    from carriers.external_memory import ExternalMemory
    from carriers.ledger_records import Observation
    from carriers.text_model import TextModel
    from routers.cascade import CascadeRouter
    from sharpwave.records import Fact, RecallAnswer
    from sharpwave.settings import Settings

FACTS_PER_BATCH = 64
OnBatch = Callable[["IngestBatch"], None]
Admission = Callable[["list[Fact]", int, "set[str]"], "list[RouteDecision]"]
"""Decides about facts under a generation; the ids are of facts whose slot holds another value in the weights."""


@dataclass(frozen=True)
class IngestBatch:
    """What became of one batch: its facts in order, whether each was new, and the decisions that were taken.

    `routing_seconds` went by until all of the batch had been decided, storing left out.
    """

    facts: tuple[Fact, ...]
    observations: tuple[Observation, ...]
    decisions: tuple[RouteDecision, ...]
    routing_seconds: float = 0.0


@dataclass(frozen=True)
class IngestReceipt:
    """What became of a stream of facts; `actions` counts decisions by action, `stages` by who decided.

    Every observed fact is either new, a repeat, or returning: superseded earlier, and now current again. The
    `routing_seconds` are those in which the decisions were taken.
    """

    observed: int
    new: int
    repeats: int
    returning: int
    actions: dict[str, int]
    stages: dict[str, int]
    router_flops: float
    routing_seconds: float


class AgentMemory:
    """Store, models, router and recall of one profile, opened for reading or by one process for writing."""

    def __init__(
        self,
        settings: Settings,
        memory: ExternalMemory,
        models: LoadedModels,
        admission: Admission | None = None,
    ) -> None:
        self.settings = settings
        self.memory = memory
        self.models = models
        self._decide = admission or self._by_router
        self._recall: Recall | None = None
        self._router: tuple[int, CascadeRouter] | None = None

    @classmethod
    def open(
        cls,
        settings: Settings,
        *,
        writer: bool = False,
        models: LoadedModels | None = None,
        admission: Admission | None = None,
    ) -> Self:
        """Open the store of these settings.

        Args:
            settings: Profile, store path, prices.
            writer: Whether facts will be ingested; only one process may write at a time.
            models: Models already loaded; by default those that this process shares.
            admission: Decides in the router's place what is stored.

        Raises:
            StoreError: There is no store (readers) or it does not fit the settings.
            StoreBusyError: Another process is writing.
        """
        models = models or shared_models(settings.models)
        return cls(settings, open_store(settings, writer=writer, models=models), models, admission)

    def close(self) -> None:
        """Close the store; harmless twice."""
        self.memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def recall(self) -> Recall:
        """Answers from store and weights, for the generation that is current now."""
        current = self.memory.generations.current().number
        if self._recall is None or self._recall.generation != current:
            adapter = self.memory.generations.adapter_folder(current)
            self._recall = Recall(
                StoreNotes(self.memory),
                reader=self.models.reader,
                weights=self.models.generation(adapter),
                settings=self.settings.recall,
                generation=current,
            )
        return self._recall

    @property
    def router(self) -> CascadeRouter:
        """The cascade, whose large stage is the generation that is current now."""
        current = self.memory.generations.current().number
        if self._router is None or self._router[0] != current:
            self._router = (current, self.router_of(self.memory.generations.adapter_folder(current)))
        return self._router[1]

    def router_of(self, adapter: Path | None) -> CascadeRouter:
        """Return a cascade whose large stage is the generation with this adapter, the base model for None."""
        from routers.cascade import CascadeRouter
        from routers.heads import RouterHeads

        small, large = self.models.small, self.models.large_screen(adapter)
        chosen = self.settings.router
        heads = RouterHeads.load(
            chosen.heads_folder,
            small_fingerprint=small.feature_fingerprint,
            large_fingerprint=large.feature_fingerprint,
        )
        return CascadeRouter(
            small,
            large,
            heads,
            storage_price=chosen.storage_price,
            escalation_price=chosen.escalation_price,
            update_price=chosen.update_price,
            use_self_probe=chosen.use_self_probe,
            stages=chosen.stages,
        )

    def ask(
        self, questions: Sequence[str], namespace: str | None = None, as_of: datetime | None = None
    ) -> list[RecallAnswer]:
        """Answer questions from store and weights; see `Recall.answer`."""
        return self.recall.answer(questions, namespace or self.settings.namespace, as_of)

    def ingest(
        self,
        facts: Iterator[Fact] | Sequence[Fact],
        run_id: str,
        on_batch: OnBatch | None = None,
    ) -> IngestReceipt:
        """Record facts, route those that need it, and store what the router admits.

        Facts whose routing was interrupted earlier are routed first. Calling again with the same run id after a
        kill records and decides nothing twice.
        """
        tally = _Tally()
        self._finish_interrupted(run_id, tally, on_batch)
        stream = iter(facts)
        while batch := list(islice(stream, FACTS_PER_BATCH)):
            observations = self.memory.observe(batch, run_id)
            waiting = {item.fact_id for item in observations if item.needs_routing}
            unique = {fact.id: fact for fact in batch if fact.id in waiting}
            decisions, seconds = self._route(list(unique.values()), run_id)
            done = IngestBatch(tuple(batch), tuple(observations), tuple(decisions), seconds)
            tally.add(done)
            if on_batch is not None:
                on_batch(done)
        return tally.receipt()

    def _finish_interrupted(self, run_id: str, tally: _Tally, on_batch: OnBatch | None) -> None:
        pending = self.memory.ledger.unfinished()
        for start in range(0, len(pending), FACTS_PER_BATCH):
            stored = self.memory.ledger.facts(pending[start : start + FACTS_PER_BATCH])
            facts = [item.words for item in stored if item.words is not None]
            decisions, seconds = self._route(facts, run_id)
            done = IngestBatch(tuple(facts), (), tuple(decisions), seconds)
            tally.add(done)
            if on_batch is not None:
                on_batch(done)

    def _route(self, facts: list[Fact], run_id: str) -> tuple[list[RouteDecision], float]:
        """Decide about facts and store what is admitted; return the decisions and the seconds they took."""
        if not facts:
            return [], 0.0
        begun = time.perf_counter()
        decisions = self._decide(facts, self.memory.generations.current().number, self._conflicting(facts))
        seconds = time.perf_counter() - begun
        self.memory.route(decisions, run_id)
        return decisions, seconds

    def _by_router(self, facts: list[Fact], generation: int, conflicting: set[str]) -> list[RouteDecision]:
        router = self.router
        learnt = in_scope(router.large_model, facts)
        return router.decide(facts, generation, conflicting_ids=conflicting, learnt_ids=learnt)

    def _conflicting(self, facts: Sequence[Fact]) -> set[str]:
        """Return the facts whose slot holds another value that the weights believe."""
        return {
            fact.id
            for fact in facts
            if fact.slot is not None
            and any(
                other.id != fact.id and other.status in IN_WEIGHTS
                for other in self.memory.ledger.on_slot(fact.namespace, fact.slot)
            )
        }


def in_scope(model: TextModel, facts: Sequence[Fact]) -> set[str]:
    """Return the facts that a model's adapter answers for, by statement or first question; none without a scope."""
    if not isinstance(model, ScopedModel):
        return set()
    asked = [(fact.id, text) for fact in facts for text in (fact.text, *fact.questions[:1])]
    covered = model.scope.covers([text for _, text in asked])
    return {fact_id for (fact_id, _), is_covered in zip(asked, covered, strict=True) if is_covered}


class _Tally:
    def __init__(self) -> None:
        self._observed = self._new = self._returning = 0
        self._actions: Counter[str] = Counter()
        self._stages: Counter[str] = Counter()
        self._flops = self._seconds = 0.0

    def add(self, batch: IngestBatch) -> None:
        self._observed += len(batch.observations)
        self._seconds += batch.routing_seconds
        new = {item.fact_id for item in batch.observations if item.is_new}
        self._new += len(new)
        self._returning += len({item.fact_id for item in batch.observations if item.needs_routing} - new)
        for decision in batch.decisions:
            self._actions[decision.action.value] += 1
            self._stages[decision.stage.value] += 1
            self._flops += decision.flops

    def receipt(self) -> IngestReceipt:
        counts: dict[str, Any] = {"actions": dict(self._actions), "stages": dict(self._stages)}
        repeats = self._observed - self._new - self._returning
        return IngestReceipt(
            self._observed,
            self._new,
            repeats,
            self._returning,
            router_flops=self._flops,
            routing_seconds=self._seconds,
            **counts,
        )
