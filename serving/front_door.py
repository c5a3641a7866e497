"""Single facts from many threads, routed in small groups: one pass over eight facts costs far less than eight passes.

with AgentMemory.open(settings, writer=True) as memory, FrontDoor(memory, run_id="agent") as door:
    outcome = door.submit(Fact(text="Mira works as a notary.")).result()
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Self

from sharpwave.errors import StoreError

if TYPE_CHECKING:
    from serving.agent_memory import AgentMemory, IngestBatch
    from sharpwave.records import Fact, RouteDecision

GROUPED_WITHIN_SECONDS = 0.004
MOST_GROUPED = 64


@dataclass(frozen=True)
class FactOutcome:
    """What became of one fact. `decision` is None for a repeat of a fact on record, which is not routed."""

    fact_id: str
    is_new: bool
    decision: RouteDecision | None


class FrontDoor:
    """Takes facts from any thread and lets one thread, the only one that touches the memory, take them in.

    The first fact of a group waits `within_seconds` for others; while a group is taken in, the next one gathers.

    Args:
        memory: Opened for writing; not to be used by anyone else until the door is closed.
        run_id: The run that the facts are recorded under.
        within_seconds: How long a fact may wait for company.
        most: Largest group.
    """

    def __init__(
        self,
        memory: AgentMemory,
        run_id: str,
        *,
        within_seconds: float = GROUPED_WITHIN_SECONDS,
        most: int = MOST_GROUPED,
    ) -> None:
        self._memory = memory
        self._run_id = run_id
        self._within = within_seconds
        self._most = most
        self._waiting: SimpleQueue[tuple[Fact, Future[FactOutcome]] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_open = True
        self._thread = threading.Thread(target=self._serve, name="front-door", daemon=True)
        self._thread.start()

    def submit(self, fact: Fact) -> Future[FactOutcome]:
        """Hand in a fact; the future ends when it is on record and decided about.

        Raises:
            StoreError: The door is closed.
        """
        future: Future[FactOutcome] = Future()
        with self._lock:
            if not self._is_open:
                raise StoreError("the front door is closed; open another one to hand in facts")
            self._waiting.put((fact, future))
        return future

    def close(self) -> None:
        """Take in what was handed in, then stop; harmless twice."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                self._waiting.put(None)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        is_last = False
        while not is_last:
            group, is_last = self._next_group()
            if group:
                self._take_in(group)

    def _next_group(self) -> tuple[list[tuple[Fact, Future[FactOutcome]]], bool]:
        """Return the next facts, and whether they are the last ones."""
        item = self._waiting.get()
        group: list[tuple[Fact, Future[FactOutcome]]] = []
        until = time.monotonic() + self._within
        while item is not None:
            group.append(item)
            if len(group) == self._most:
                return group, False
            try:
                item = self._waiting.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                return group, False
        return group, True

    def _take_in(self, group: list[tuple[Fact, Future[FactOutcome]]]) -> None:
        waiting = [(fact, future) for fact, future in group if future.set_running_or_notify_cancel()]
        done: list[IngestBatch] = []
        try:
            self._memory.ingest([fact for fact, _ in waiting], self._run_id, done.append)
        except BaseException as error:
            for _, future in waiting:
                future.set_exception(error)
            return
        decisions = {decision.fact_id: decision for batch in done for decision in batch.decisions}
        observations = [observation for batch in done for observation in batch.observations]
        for observation, (_, future) in zip(observations, waiting, strict=True):
            own = decisions.get(observation.fact_id) if observation.needs_routing else None
            future.set_result(FactOutcome(observation.fact_id, observation.is_new, own))
