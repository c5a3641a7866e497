"""Ingesting a file of facts: parse, sanitise, record, route, store; rejects and decisions are written down."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from routers.drift import DriftMonitor
from serving.agent_memory import AgentMemory, IngestBatch
from sharpwave.fact_files import AcceptedLine, RejectsFile, read_facts
from sharpwave.progress import current_progress
from sharpwave.records import EventKind, Record, RouteStage, utc_now
from sharpwave.tracking import NullTracker

if TYPE_CHECKING:
    from sharpwave.records import Fact
    from sharpwave.settings import Settings
    from sharpwave.tracking import Tracker


class IngestSummary(Record):
    """What became of a file. `changed` counts lines that were mended, `rejected` those that were refused.

    `returning` facts had been superseded and are current again; `superseded` ones left their slot to a newer value.
    `escalation_rate` is the share of routed facts that the large model was asked about; repeats are not routed.
    `drift_warnings` tell where the facts were unlike those that the router's prices were calibrated on.
    """

    run_id: str
    lines: int
    observed: int
    new: int
    repeats: int
    returning: int
    superseded: int
    changed: int
    rejected: int
    rejects_path: str | None
    actions: dict[str, int]
    stages: dict[str, int]
    escalation_rate: float
    router_flops: float
    routing_seconds: float
    seconds: float
    drift_warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def decisions_path(settings: Settings, run_id: str) -> Path:
    """Return the JSON Lines file that the decisions of a run are written to."""
    return settings.runs_dir / run_id / "decisions.jsonl"


def begun_at(settings: Settings, run_id: str) -> datetime:
    """Return the moment at which a run was first begun; the first call sets it."""
    path = settings.runs_dir / run_id / "begun_at.txt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        temporary.write_text(utc_now().isoformat(), encoding="utf-8")
        temporary.replace(path)
    return datetime.fromisoformat(path.read_text(encoding="utf-8"))


def ingest_file(
    settings: Settings, facts_path: Path, run_id: str, tracker: Tracker | None = None
) -> IngestSummary:
    """Take in a file of facts; bad lines go to a rejects file in the store.

    Running again with the same run id after a kill doubles nothing: lines that do not say when they were observed
    count as observed when the run first began, in the order of the file.

    Raises:
        InputError: The file cannot be read as facts at all.
        StoreBusyError: Another process is writing the store.
    """
    started = time.perf_counter()
    with AgentMemory.open(settings, writer=True) as memory:
        reading = _Reading(settings, facts_path, run_id)
        former = memory.memory.ledger.last_event()
        drift = DriftMonitor(memory.router.heads.references)
        with reading, _DecisionLog(decisions_path(settings, run_id), tracker or NullTracker(), drift) as log:
            current_progress().stage(f"ingesting {facts_path.name}")
            receipt = memory.ingest(reading.facts(), run_id, log.write)
        superseded = memory.memory.ledger.count_events(EventKind.SUPERSEDED, after=former)
    routed = sum(count for stage, count in receipt.stages.items() if stage != RouteStage.REPEAT)
    return IngestSummary(
        run_id=run_id,
        lines=reading.lines,
        observed=receipt.observed,
        new=receipt.new,
        repeats=receipt.repeats,
        returning=receipt.returning,
        superseded=superseded,
        changed=reading.changed,
        rejected=reading.rejected,
        rejects_path=str(reading.rejects_path) if reading.rejected else None,
        actions=receipt.actions,
        stages=receipt.stages,
        escalation_rate=receipt.stages.get(RouteStage.LARGE, 0) / routed if routed else 0.0,
        router_flops=receipt.router_flops,
        routing_seconds=receipt.routing_seconds,
        seconds=time.perf_counter() - started,
        drift_warnings=log.drift.measure().warnings,
        notes=tuple(reading.notes),
    )


class _Reading:
    """Counts what the parser says while the facts pass through."""

    def __init__(self, settings: Settings, path: Path, run_id: str) -> None:
        self.rejects_path = settings.store.path / "rejects" / f"{run_id}.jsonl"
        self.lines = self.changed = self.rejected = 0
        self.notes: list[str] = []
        self._parsed = read_facts(path, namespace=settings.namespace, max_fact_chars=settings.max_fact_chars)
        self._rejects = RejectsFile(self.rejects_path)
        self._begun_at = begun_at(settings, run_id)

    def __enter__(self) -> None:
        self._rejects.__enter__()

    def __exit__(self, *error: object) -> None:
        self._rejects.__exit__(*error)  # type: ignore[arg-type]

    def facts(self) -> Iterator[Fact]:
        """Yield the good facts; write the bad lines away."""
        for parsed in self._parsed:
            self.lines += 1
            if isinstance(parsed, AcceptedLine):
                if parsed.changes:
                    self.changed += 1
                    self._note(f"line {parsed.line}: {'; '.join(parsed.changes)}")
                yield self._dated(parsed)
            else:
                self.rejected += 1
                self._note(str(parsed.error))
                self._rejects.write(parsed)

    def _dated(self, parsed: AcceptedLine) -> Fact:
        """Return the fact with a moment of observation that is the same when the run is started again."""
        if "observed_at" in parsed.fact.model_fields_set:
            return parsed.fact
        moment = self._begun_at + timedelta(microseconds=parsed.line)
        return parsed.fact.model_copy(update={"observed_at": moment})

    def _note(self, text: str) -> None:
        if len(self.notes) < 20:
            self.notes.append(text)


class _DecisionLog:
    """Writes decisions as JSON Lines and reports progress and curves per batch."""

    def __init__(self, path: Path, tracker: Tracker, drift: DriftMonitor) -> None:
        self.drift = drift
        self._path = path
        self._tracker = tracker
        self._observed = self._stored = self._escalated = self._routed = 0

    def __enter__(self) -> _DecisionLog:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._drop_torn_line()
        self._stream = self._path.open("a", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def _drop_torn_line(self) -> None:
        """Cut off what a killed run left of its last line."""
        if self._path.exists():
            content = self._path.read_bytes()
            os.truncate(self._path, content.rfind(b"\n") + 1)

    def write(self, batch: IngestBatch) -> None:
        """Append the decisions of one batch."""
        for decision in batch.decisions:
            self._stream.write(decision.model_dump_json() + "\n")
        self._stream.flush()
        self._observed += len(batch.observations)
        self._routed += len(batch.decisions)
        self._stored += sum(decision.action.is_write for decision in batch.decisions)
        self._escalated += sum(decision.stage is RouteStage.LARGE for decision in batch.decisions)
        figures = {
            "stored": float(self._stored),
            "write_rate": self._stored / max(1, self._observed),
            "escalation_rate": self._escalated / max(1, self._routed),
        }
        self.drift.add(batch.decisions)
        index = self.drift.measure().stability_index
        if index is not None:
            figures["stability_index"] = index
        self._tracker.log_metrics({f"ingest_{key}": value for key, value in figures.items()}, self._observed)
        current_progress().advance(len(batch.observations), **figures)
