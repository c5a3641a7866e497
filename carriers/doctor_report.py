"""What the doctor found, in figures and in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

REPAIR = "run `sharpwave doctor --repair`"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or worth knowing, and what to do about it."""

    problem: str
    remedy: str
    is_fault: bool = True

    def __str__(self) -> str:
        return f"{self.problem}: {self.remedy}"


@dataclass(frozen=True)
class DoctorReport:
    """What an examination found. After a repair, `remaining` says what is still wrong.

    `index_problem` and `adapter_problem` are None if there is none. `writer` names a process that was
    writing the store
    meanwhile: differences may then be changes in flight.
    """

    hot_facts: int = 0
    missing_in_index: tuple[str, ...] = ()
    extra_in_index: tuple[str, ...] = ()
    stale_metadata: tuple[str, ...] = ()
    undrained: int = 0
    unrouted: tuple[str, ...] = ()
    interrupted_generations: tuple[int, ...] = ()
    orphan_adapters: tuple[str, ...] = ()
    adapter_problem: str | None = None
    way_back: int = 0
    ledger_problems: tuple[str, ...] = ()
    index_problem: str | None = None
    has_other_embedder: bool = False
    writer: str | None = None
    remaining: tuple[Finding, ...] = ()
    is_repair: bool = False

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything found, each with its remedy; notices (`is_fault` false) are no fault of the store."""
        return tuple(_findings(self))

    @property
    def clean(self) -> bool:
        """Whether no fault was found."""
        return not any(finding.is_fault for finding in self.findings)

    @property
    def repaired(self) -> bool:
        """Whether faults were found and a second look after the repair finds none."""
        return self.is_repair and not self.clean and not any(finding.is_fault for finding in self.remaining)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "remaining"}
        return {
            **plain,
            "clean": self.clean,
            "repaired": self.repaired,
            "findings": [vars(finding) for finding in self.findings],
            "remaining": [vars(finding) for finding in self.remaining],
        }


def _findings(report: DoctorReport) -> Iterator[Finding]:
    reembed = "run `sharpwave doctor --reembed`, or set the former embedder again"
    possible = (
        (
            report.ledger_problems,
            f"the ledger is damaged ({'; '.join(report.ledger_problems[:3])})",
            "run `sharpwave export`, then `sharpwave import` into a new store",
        ),
        (report.index_problem, report.index_problem, reembed if report.has_other_embedder else REPAIR),
        (report.missing_in_index, _count(report.missing_in_index, "hot fact", "not in the index"), REPAIR),
        (report.extra_in_index, _count(report.extra_in_index, "fact", "in the index but not hot"), REPAIR),
        (report.stale_metadata, _count(report.stale_metadata, "fact", "outdated in the index"), REPAIR),
        (
            report.undrained,
            f"{report.undrained} changes have not reached the index yet",
            "the next command that writes carries them out; or " + REPAIR,
        ),
        (
            report.interrupted_generations,
            f"write-backs were interrupted (generations {_listed(report.interrupted_generations)})",
            REPAIR,
        ),
        (
            report.orphan_adapters,
            _count(report.orphan_adapters, "adapter folder", "used by no generation"),
            REPAIR,
        ),
        (report.adapter_problem, report.adapter_problem, f"run `sharpwave rollback {report.way_back}`"),
    )
    for is_found, problem, remedy in possible:
        if is_found:
            yield Finding(str(problem), remedy)
    if report.unrouted:
        problem = _count(report.unrouted, "fact", "recorded but not routed yet")
        yield Finding(problem, "run `sharpwave ingest` with the same file again", is_fault=False)
    if report.writer:
        problem = f"{report.writer} was writing meanwhile"
        yield Finding(
            problem, "look again when it is done: differences may be changes in flight", is_fault=False
        )


def _count(items: Sequence[str], noun: str, condition: str) -> str:
    number = len(items)
    return f"{number} {noun}{'' if number == 1 else 's'} {'is' if number == 1 else 'are'} {condition}"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
