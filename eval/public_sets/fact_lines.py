"""Facts of a set as JSON Lines that `sharpwave ingest` takes, and beside them what could not be used."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eval.public_sets.harvest import RejectedRecord
    from sharpwave.records import Fact


def fact_lines(facts: Iterable[Fact]) -> str:
    """Return one line per fact, in order; without `observed_at`, so that a fact is observed when it is taken in."""
    return "".join(json.dumps(fact_as_mapping(fact), ensure_ascii=False) + "\n" for fact in facts)


def reject_lines(rejects: Iterable[RejectedRecord]) -> str:
    """Return one line per reject: record, error, field and original."""
    return "".join(json.dumps(reject.to_json(), ensure_ascii=False) + "\n" for reject in rejects)


def fact_as_mapping(fact: Fact) -> dict[str, Any]:
    """Return a fact under the keys of a line of facts."""
    values = fact.model_dump(mode="json", exclude_defaults=True, exclude={"slot", "observed_at"})
    return values | (fact.slot.model_dump() if fact.slot else {})
