"""Opens any arm of a benchmark at one step of its stream; what an arm of its own keeps lies in `<run>/arms/<name>/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from carriers.recall import Recall, StoreNotes
from carriers.store_layout import open_ledger
from eval.admission import ModelJudge, OracleAdmission
from eval.arms import (
    Arm,
    NotesWithout,
    NoveltyFile,
    always_from_store,
    latest_facts,
    most_novel_facts,
    no_memory_arm,
    plain_arm,
    random_facts,
)
from eval.run_records import (
    CASCADE_ARM,
    FULL_STORE_ARBITER_ARM,
    FULL_STORE_ARM,
    LARGE_ROUTER_ARM,
    LLM_JUDGE_ARM,
    NO_MEMORY_ARM,
    NOVELTY_ARM,
    ORACLE_ADMISSION_ARM,
    RANDOM_ARM,
    RECENCY_ARM,
    SHARPWAVE_ARM,
    SMALL_ROUTER_ARM,
    WITHOUT_READMISSION_ARM,
    NetBytes,
)
from serving.agent_memory import Admission, AgentMemory
from serving.loaded_models import shared_models
from serving.store_status import measure_bytes
from sharpwave.records import EventKind, Fact, FactStatus, RouteDecision, RouteStage
from sharpwave.settings import RecallSettings, Settings, Stages
from tasks.ingest_tasks import read_summary
from tasks.stream_files import RoutingCost, StreamFiles

if TYPE_CHECKING:
    from serving.loaded_models import LoadedModels

ALL_EVENTS = 1_000_000


@dataclass(frozen=True)
class ArmPlace:
    """Where an arm is opened: the run's settings and files, and the step (from 0) whose facts have just arrived."""

    settings: Settings
    files: StreamFiles
    step: int

    @property
    def models(self) -> LoadedModels:
        """The models that all arms share."""
        return shared_models(self.settings.models)

    @property
    def facts(self) -> list[Fact]:
        """The different facts that have arrived so far, in order of first arrival."""
        return self.files.facts(self.step + 1)

    def folder(self, arm: str) -> Path:
        """Return the folder of what an arm keeps for itself."""
        return self.files.run / "arms" / arm

    def hot(self) -> int:
        """Return how many facts the memory holds now: what the arms of equal storage may hold."""
        with open_ledger(self.settings.store.path) as ledger:
            return ledger.counts()[FactStatus.HOT]


@dataclass(frozen=True)
class OpenedArm:
    """An arm with what deciding about this step's facts cost it; None where nothing decides."""

    arm: Arm
    cost: RoutingCost | None = None


def open_arm(name: str, place: ArmPlace) -> AbstractContextManager[OpenedArm]:
    """Open an arm as it stands after the facts of a step; an arm with a store of its own takes them in first."""
    return _OPENERS[name](name, place)


def routing_cost(memory: AgentMemory, run_id: str, *, seconds: float = 0.0, timed: int = 0) -> RoutingCost:
    """Return what the decisions taken under a run id cost, read from the ledger.

    Args:
        memory: The store that took them.
        run_id: The run id of one step.
        seconds: What deciding took, of `timed` facts.
        timed: Fewer than were decided where a killed run was taken up again.
    """
    events = memory.memory.ledger.last_events(EventKind.ROUTED, ALL_EVENTS)
    decisions = [
        RouteDecision(fact_id=event.fact_id, reason="", **event.payload)
        for event in events
        if event.run_id == run_id
    ]
    judged = [decision for decision in decisions if decision.stage is not RouteStage.REPEAT]
    stored = memory.memory.ledger.facts([decision.fact_id for decision in judged])
    words = [item.words for item in stored if item.words is not None]
    return RoutingCost(
        routed=len(judged),
        escalated=sum(decision.stage is RouteStage.LARGE for decision in judged),
        flops=sum(decision.flops for decision in judged),
        large_only_flops=sum(memory.router.large_only_flops(words)),
        seconds=seconds,
        timed=timed,
    )


def step_run_id(run: Path, step: int) -> str:
    """Return the run id under which a step's facts are ingested."""
    return f"{run.name}-step-{step + 1:02d}"


@contextmanager
def _ours(name: str, place: ArmPlace) -> Iterator[OpenedArm]:
    with AgentMemory.open(place.settings) as memory:
        run_id = step_run_id(place.files.run, place.step)
        summary = read_summary(place.settings, run_id)
        cost = routing_cost(
            memory, run_id, seconds=summary.routing_seconds, timed=sum(summary.actions.values())
        )
        yield OpenedArm(_arm_of(name, memory), cost)


@contextmanager
def _without_readmission(name: str, place: ArmPlace) -> Iterator[OpenedArm]:
    """A view of our own store at the time of asking, less the facts that a night has put back into it."""
    with AgentMemory.open(place.settings) as memory:
        ledger = memory.memory.ledger
        put_back = {event.fact_id for event in ledger.last_events(EventKind.READMITTED, ALL_EVENTS)}
        hot = {fact.id: fact.fact.text for fact in ledger.iter_facts(status=FactStatus.HOT)}
        ours = memory.recall
        recall = Recall(
            NotesWithout(StoreNotes(memory.memory), put_back),
            reader=ours.reader,
            weights=ours.weights,
            settings=ours.settings,
            generation=ours.generation,
        )
        held = frozenset(text for fact_id, text in hot.items() if fact_id not in put_back)
        yield OpenedArm(Arm(name, recall, held, None))


def _plain(
    name: str, place: ArmPlace, facts: list[Fact], settings: RecallSettings
) -> AbstractContextManager[Arm]:
    return plain_arm(
        name,
        place.folder(name) / "index",
        facts,
        embedder=place.models.embedder,
        reader=place.models.reader,
        settings=settings,
    )


def _holding(
    choose: Callable[[ArmPlace], list[Fact]], *, believes_store: bool = False
) -> Callable[[str, ArmPlace], AbstractContextManager[OpenedArm]]:
    """Return what opens the plain arm that holds the chosen statements."""

    @contextmanager
    def opened(name: str, place: ArmPlace) -> Iterator[OpenedArm]:
        chosen = place.settings.recall
        settings = always_from_store(chosen) if believes_store else chosen
        with _plain(name, place, choose(place), settings) as arm:
            yield OpenedArm(arm)

    return opened


def _novel(place: ArmPlace) -> list[Fact]:
    novelty = NoveltyFile(place.folder(NOVELTY_ARM) / "novelty.npz", place.models.embedder)
    return most_novel_facts(place.facts, place.hot(), novelty.of(place.facts))


def _nothing(name: str, place: ArmPlace) -> AbstractContextManager[OpenedArm]:
    return nullcontext(OpenedArm(no_memory_arm(name, place.models.reader, place.settings.recall)))


def _memory(
    stages: Stages = "both", admission: Callable[[ArmPlace], Admission] | None = None
) -> Callable[[str, ArmPlace], AbstractContextManager[OpenedArm]]:
    """Return what opens a memory of its own, without nights, that takes in the facts of the step."""

    @contextmanager
    def opened(name: str, place: ArmPlace) -> Iterator[OpenedArm]:
        settings = place.settings.model_copy(
            update={
                "store": place.settings.store.model_copy(update={"path": place.folder(name) / "store"}),
                "router": place.settings.router.model_copy(update={"stages": stages}),
            }
        )
        decide = admission(place) if admission is not None else None
        run_id = step_run_id(place.files.run, place.step)
        with AgentMemory.open(settings, writer=True, admission=decide) as memory:
            receipt = memory.ingest(place.files.arrived(place.step), run_id)
            cost = routing_cost(
                memory, run_id, seconds=receipt.routing_seconds, timed=sum(receipt.actions.values())
            )
            yield OpenedArm(_arm_of(name, memory), cost)

    return opened


def _judge(place: ArmPlace) -> Admission:
    return ModelJudge(place.models.reader).decide


def _oracle(place: ArmPlace) -> Admission:
    return OracleAdmission(place.models.reader, place.files.questions_by_fact()).decide


def _arm_of(name: str, memory: AgentMemory) -> Arm:
    held = frozenset(fact.fact.text for fact in memory.memory.ledger.iter_facts(status=FactStatus.HOT))
    return Arm(name, memory.recall, held, NetBytes(**measure_bytes(memory.memory)))


_OPENERS: dict[str, Callable[[str, ArmPlace], AbstractContextManager[OpenedArm]]] = {
    SHARPWAVE_ARM: _ours,
    FULL_STORE_ARM: _holding(lambda place: place.facts, believes_store=True),
    NO_MEMORY_ARM: _nothing,
    RANDOM_ARM: _holding(lambda place: random_facts(place.facts, place.hot(), place.settings.seed)),
    FULL_STORE_ARBITER_ARM: _holding(lambda place: place.facts),
    NOVELTY_ARM: _holding(_novel),
    RECENCY_ARM: _holding(lambda place: latest_facts(place.files.arrivals(place.step + 1), place.hot())),
    LLM_JUDGE_ARM: _memory(admission=_judge),
    SMALL_ROUTER_ARM: _memory("small"),
    LARGE_ROUTER_ARM: _memory("large"),
    CASCADE_ARM: _memory("both"),
    WITHOUT_READMISSION_ARM: _without_readmission,
    ORACLE_ADMISSION_ARM: _memory(admission=_oracle),
}
