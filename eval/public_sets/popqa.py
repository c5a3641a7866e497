"""PopQA (Mallen et al., 2023): questions about subjects of very different fame.

Format: a TSV file with a head, or rows of a hub. Read: `subj`, `prop` (the relation's name), `obj`, `question`,
`possible_answers` (a JSON list as text: the answer and its aliases). Not used: ids, URIs, titles, `s_aliases`,
`o_aliases` (they are in `possible_answers`), and the popularity of subject and object.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from eval.public_sets.records import SourceRecord
from eval.public_sets.wording import related_fact, relation_wordings, worded_fact
from sharpwave.errors import InputError

if TYPE_CHECKING:
    from eval.corpora.corpus import CorpusFact
    from eval.public_sets.harvest import Harvest
    from eval.public_sets.records import Records


def read_popqa(records: Records, harvest: Harvest) -> None:
    """Read each row as one fact."""
    for record in harvest.usable(records):
        with harvest.rejecting(record):
            harvest.add(record, [_fact(record, harvest.name)])


def _fact(record: SourceRecord, source: str) -> CorpusFact:
    subject, answer, question = (record.text(key) for key in ("subj", "obj", "question"))
    relation = record.text("prop").replace(" ", "_")
    aliases = _aliases(record)
    wording = next((item for item in relation_wordings().values() if item.name == relation), None)
    if wording is not None:
        return related_fact(wording, subject, answer, aliases, source=source, question=question)
    return worded_fact(
        f"{question} The answer is {answer}.",
        [question],
        answer,
        aliases,
        subject=subject,
        relation=relation,
        source=source,
    )


def _aliases(record: SourceRecord) -> list[str]:
    given = record.value("possible_answers")
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise InputError(f"is no JSON list of texts: {error}", field="possible_answers") from error
    return SourceRecord(record.number, {"possible_answers": given}).texts("possible_answers")
