"""Back and forward between generations at random, on a real ledger and a real index.

A random oracle says what the weights of each generation hold; the store must never rely on weights that do not.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from carriers.embedder import HashingEmbedder
from carriers.external_memory import ExternalMemory
from carriers.generations import adapter_digest
from consolidation.confirmation import awaiting_proof
from sharpwave.records import (
    IN_WEIGHTS,
    Fact,
    FactStatus,
    GenerationStatus,
    RouteAction,
    RouteDecision,
    RouteStage,
    Slot,
)
from tests.decisions import given_decision

EMBEDDER = HashingEmbedder(16)
START = datetime(2020, 1, 1, tzinfo=UTC)
VALUES = ("Rome", "Oslo", "Bern")


class Traveller:
    """Drives one store at random and knows what each generation answers."""

    def __init__(self, memory: ExternalMemory, seed: int, *, confirms: bool) -> None:
        self.memory = memory
        self.confirms = confirms
        self.seed = seed
        self.random = random.Random(seed)
        self.parents: dict[int, int] = {}
        self.proven: dict[int, set[str]] = {}
        self.told: set[str] = set()
        self.forgotten: set[str] = set()
        self.steps = 0

    @property
    def current(self) -> int:
        return self.memory.generations.current().number

    def holds(self, number: int, fact_id: str) -> bool:
        """Whether a generation answers a fact: what it proved, and what its parent did, but for some luck."""
        draw = random.Random(f"{self.seed} {number} {fact_id}").random()
        if number == 0:
            return draw < 0.3
        return fact_id in self.proven[number] or self.holds(self.parents[number], fact_id) != (draw < 0.25)

    def run(self, steps: int) -> None:
        chances = {self.tell: 5, self.sleep: 3, self.travel: 4, self.doubt: 1, self.forget: 1}
        if self.confirms:
            chances[self.confirm] = 3
        for _ in range(steps):
            self.steps += 1
            self.random.choices([*chances], [*chances.values()])[0]()
            self.check()

    def tell(self) -> None:
        """New facts, values that change and values that come back, judged by the current generation."""
        moment = START + timedelta(days=self.steps)
        slots = self.random.sample(range(6), 3)
        facts = [
            Fact(
                text=f"Person {number} lives in {self.random.choice(VALUES)}.",
                slot=Slot(subject=f"person {number}", relation="home"),
                observed_at=moment,
            )
            for number in slots
        ]
        facts.append(Fact(text=f"Note {self.steps}.", observed_at=moment))
        run_id = f"run {self.steps}"
        self.memory.observe(facts, run_id)
        self.told |= {fact.id for fact in facts}
        self.forgotten -= {fact.id for fact in facts}
        self._route(self.memory.ledger.unfinished(), run_id)

    def doubt(self) -> None:
        """The router looks again at what counts on the weights, and wants some of it stored."""
        ids = self._having(*IN_WEIGHTS)
        chosen = self.random.sample(ids, min(len(ids), 2))
        decisions = [self._decision(fact_id, RouteAction.WRITE_NEW) for fact_id in chosen]
        self.memory.route(decisions, f"run {self.steps}")

    def forget(self) -> None:
        ids = self._having(FactStatus.HOT, FactStatus.SUPERSEDED, *IN_WEIGHTS)
        chosen = self.random.sample(ids, min(len(ids), 1))
        self.memory.forget(chosen)
        self.forgotten |= set(chosen)

    def sleep(self) -> None:
        """A night: some hot facts are proven, most of these evicted, and what was damaged comes back."""
        generations, parent = self.memory.generations, self.current
        hot = self._having(FactStatus.HOT)
        trained = self.random.sample(hot, min(len(hot), 6))
        proven = [fact_id for fact_id in trained if self.random.random() < 0.8]
        evict = [fact_id for fact_id in proven if self.random.random() < 0.8]
        number, folder = generations.create_shadow(parent, "base", trained)
        (folder / "adapter.bin").write_bytes(f"{number}".encode())
        generations.seal(number, adapter_digest(folder), {})
        self.parents[number], self.proven[number] = parent, set(proven)
        damaged = [fact_id for fact_id in self._having(*IN_WEIGHTS) if not self.holds(number, fact_id)]
        self.memory.promote(
            number,
            evict=evict,
            proven=proven,
            trained=trained,
            damaged=damaged,
            readmit=damaged,
            run_id=f"night {number}",
        )

    def confirm(self) -> None:
        """A run begins: what was proven once and is still answered leaves the store."""
        waiting = [fact.id for fact in awaiting_proof(self.memory) if self.holds(self.current, fact.id)]
        assert self.memory.confirm(waiting, f"confirm {self.steps}") == len(waiting)

    def travel(self) -> None:
        reachable = (GenerationStatus.PROMOTED, GenerationStatus.ROLLED_BACK)
        numbers = [item.number for item in self.memory.generations.all() if item.status in reachable]
        self.memory.rollback(self.random.choice(numbers), f"travel {self.steps}")

    def check(self) -> None:
        states = {fact.id: fact for fact in self.memory.ledger.iter_facts()}
        assert states.keys() == self.told - self.forgotten
        hot = {fact_id for fact_id, fact in states.items() if fact.status is FactStatus.HOT}
        assert self.memory.index.ids() == hot
        lineage = self.memory.generations.lineage()
        on_slot: dict[int, list[str]] = {}
        for fact_id, fact in states.items():
            if fact.status in IN_WEIGHTS:
                assert self.holds(lineage[-1], fact_id), f"{fact.status} but not in generation {lineage[-1]}"
            if fact.status is FactStatus.INTERNALISED:
                assert fact.proven_generation in lineage
            elif fact.status is not FactStatus.SUPERSEDED and fact.slot_number is not None:
                assert not (fact.status is FactStatus.KNOWN and self._stale_value(fact_id, lineage))
            if fact.status in (FactStatus.HOT, *IN_WEIGHTS) and fact.slot_number is not None:
                on_slot.setdefault(fact.slot_number, []).append(fact_id)
        assert all(len(ids) == 1 for ids in on_slot.values()), "one current value per slot"

    def _stale_value(self, fact_id: str, lineage: list[int]) -> list[str]:
        """Other values of the fact's slot that the lineage was proven to hold and not damaged since."""
        slot = self.memory.ledger.fact(fact_id).fact.slot
        others = [item.id for item in self.memory.ledger.on_slot("default", slot) if item.id != fact_id]
        own = self._last_proof(fact_id, lineage)
        return [other for other in others if self._last_proof(other, lineage) > own]

    def _last_proof(self, fact_id: str, lineage: list[int]) -> int:
        """The last generation that proved a fact, if none was found later not to answer it."""
        last = 0
        for event in self.memory.ledger.history(fact_id):
            tells = event.kind in {"proven", "damaged"} or event.payload.get("reason") == "rerouted"
            if tells and event.payload["generation"] in lineage:
                last = event.payload["generation"] if event.kind == "proven" else 0
        return last

    def _route(self, ids: list[str], run_id: str) -> None:
        actions = [
            RouteAction.NON_WRITE if self.holds(self.current, fact_id) else RouteAction.WRITE_NEW
            for fact_id in ids
        ]
        decisions = [self._decision(*pair) for pair in zip(ids, actions, strict=True)]
        self.memory.route(decisions, run_id)

    def _decision(self, fact_id: str, action: RouteAction) -> RouteDecision:
        return given_decision(fact_id, action, stage=RouteStage.LARGE, generation=self.current)

    def _having(self, *statuses: FactStatus) -> list[str]:
        return sorted(fact.id for fact in self.memory.ledger.iter_facts() if fact.status in statuses)


@pytest.mark.parametrize(
    ("seed", "confirms"), [(1, False), (8, False), (11, False), (14, False), (2, True), (3, True), (5, True)]
)
def test_no_travel_loses_a_fact_or_believes_weights_that_do_not_hold_it(
    tmp_path: Path, seed: int, confirms: bool
) -> None:
    with ExternalMemory.open(tmp_path / "store", EMBEDDER, writer=True) as memory:
        traveller = Traveller(memory, seed, confirms=confirms)
        traveller.run(30)
        assert len(memory.generations.all()) > 4
        assert memory.doctor().clean
