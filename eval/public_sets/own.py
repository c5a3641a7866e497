"""Your own facts as a set: JSON Lines as `sharpwave ingest` reads them, with subject, relation, question and answer.

A later value of a slot (by `valid_from`, else `observed_at`, else by its line) is a change of the earlier one.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from eval.corpora.corpus import CorpusFact
from eval.public_sets.fact_lines import fact_as_mapping
from eval.public_sets.records import SourceRecord
from eval.public_sets.wording import as_history, enough_questions
from sharpwave.errors import InputError
from sharpwave.fact_files import FactLayout, RejectedLine, read_facts
from sharpwave.matching import normalise_answer

if TYPE_CHECKING:
    from eval.public_sets.harvest import Harvest
    from sharpwave.records import Fact, Slot


def read_own(path: Path, harvest: Harvest) -> None:
    """Read each line as one fact; lines about one slot are its history."""
    slots: defaultdict[Slot, list[tuple[SourceRecord, CorpusFact]]] = defaultdict(list)
    for parsed in read_facts(path, layout=FactLayout.JSON_LINES):
        if isinstance(parsed, RejectedLine):
            line = SourceRecord(parsed.line, {})
            harvest.reject(line, parsed.error, parsed.raw.decode("utf-8", errors="replace"))
            continue
        line = SourceRecord(parsed.line, fact_as_mapping(parsed.fact))
        with harvest.rejecting(line):
            item = _corpus_fact(parsed.fact)
            slots[item.slot].append((line, item))
    for history in slots.values():
        history.sort(key=lambda entry: entry[1].fact.starts_at)
        harvest.add(history[0][0], as_history(_without_repeats([item for _, item in history])))


def _corpus_fact(fact: Fact) -> CorpusFact:
    if fact.slot is None:
        raise InputError("is missing; give subject and relation, which changes are found by", field="subject")
    if not fact.questions:
        raise InputError("is missing; give a question and its answer to measure by", field="question")
    *asked, held_out = enough_questions(fact.questions)
    return CorpusFact(
        fact.model_copy(update={"questions": tuple(asked)}),
        f"subject:{fact.slot.subject.casefold()}",
        "world",
        "en",
        held_out,
    )


def _without_repeats(values: list[CorpusFact]) -> list[CorpusFact]:
    kept = values[:1]
    for item in values[1:]:
        if normalise_answer(item.fact.answers[0]) != normalise_answer(kept[-1].fact.answers[0]):
            kept.append(item)
    return kept
