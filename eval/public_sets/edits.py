"""Sets of edits: known_1000 and CounterFact (Meng et al., 2022), MQuAKE (Zhong et al., 2023), zsRE as MEND edits it.

Formats: JSON arrays.

- known_1000: `subject`, `attribute`, `relation_id` are read; the cloze prompts, some of them odd, are not.
- CounterFact: `requested_rewrite` with `subject`, `relation_id`, `target_true.str` and `target_new.str`. Not used: all
  prompts (paraphrases, neighbours, attributes, generations) and ids.
- MQuAKE: `requested_rewrite` is a list of such edits, each with a `question` and a cloze `prompt`; `single_hops` and
  `new_single_hops` (`question`, `answer`, `answer_alias`) give the aliases. Not used: multi-hop questions and `orig`.
- zsRE: `subject`, `src` and `rephrase` (two wordings of a question), `answers`, `alt` (what an edit puts in their
  place). Not used: `pred`, `loc`, `loc_ans`, `cond`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eval.public_sets.wording import related_fact, relation_wordings, worded_fact, wording_of

if TYPE_CHECKING:
    from eval.corpora.corpus import CorpusFact, Kind
    from eval.corpora.updates import Origin
    from eval.public_sets.harvest import Harvest
    from eval.public_sets.records import Records, SourceRecord


def read_known_1000(records: Records, harvest: Harvest) -> None:
    """Read each record as one fact."""
    for record in harvest.usable(records):
        with harvest.rejecting(record):
            wording = wording_of(record.text("relation_id"), "relation_id")
            fact = related_fact(
                wording, record.text("subject"), record.text("attribute"), source=harvest.name
            )
            harvest.add(record, [fact])


def read_counterfact(records: Records, harvest: Harvest) -> None:
    """Read each record as a true fact and the false value that is to replace it."""
    edit = "requested_rewrite"
    for record in harvest.usable(records):
        with harvest.rejecting(record):
            wording = wording_of(record.text(edit, "relation_id"), f"{edit}.relation_id")
            subject = record.text(edit, "subject")
            old, new = (record.text(edit, target, "str") for target in ("target_true", "target_new"))
            values = [
                related_fact(wording, subject, old, source=harvest.name),
                related_fact(wording, subject, new, source=harvest.name, kind="counterfactual"),
            ]
            harvest.add(record, values, origin="counterfactual")


def read_mquake_t(records: Records, harvest: Harvest) -> None:
    """Read each edit of each record as a change that happened."""
    _read_mquake(records, harvest, ("update_old", "update_new"), "real")


def read_mquake_cf(records: Records, harvest: Harvest) -> None:
    """Read each edit of each record as a true fact and the false value that is to replace it."""
    _read_mquake(records, harvest, ("world", "counterfactual"), "counterfactual")


def _read_mquake(records: Records, harvest: Harvest, kinds: tuple[Kind, Kind], origin: Origin) -> None:
    for record in harvest.usable(records):
        with harvest.rejecting(record):
            for place, edit in enumerate(record.filled("requested_rewrite")):
                with harvest.rejecting(record, edit):
                    values = _mquake_values(record, place, kinds, harvest.name)
                    harvest.add(record, values, origin=origin, part=edit)


def _mquake_values(
    record: SourceRecord, place: int, kinds: tuple[Kind, Kind], source: str
) -> list[CorpusFact]:
    edit = ("requested_rewrite", place)
    subject, question = record.text(*edit, "subject"), record.text(*edit, "question")
    property_id = record.text(*edit, "relation_id")
    values = []
    for target, hops, kind in zip(
        ("target_true", "target_new"), ("single_hops", "new_single_hops"), kinds, strict=True
    ):
        answer = record.text(*edit, target, "str")
        aliases = _hop_aliases(record, hops, question, answer)
        if property_id in relation_wordings():
            wording = relation_wordings()[property_id]
            fact = related_fact(
                wording, subject, answer, aliases, source=source, kind=kind, question=question
            )
        else:
            cloze = record.text(*edit, "prompt").replace("{}", subject)
            fact = worded_fact(
                f"{cloze} {answer}.",
                [question],
                answer,
                aliases,
                subject=subject,
                relation=property_id,
                source=source,
                kind=kind,
            )
        values.append(fact)
    return values


def _hop_aliases(record: SourceRecord, hops: str, question: str, answer: str) -> list[str]:
    for place in range(len(record.items(hops))):
        said = (record.value(hops, place, "question"), record.value(hops, place, "answer"))
        if said == (question, answer):
            return record.texts(hops, place, "answer_alias")
    return []


def read_zsre(records: Records, harvest: Harvest) -> None:
    """Read each record as a fact and the value that an edit puts in its place."""
    for record in harvest.usable(records):
        with harvest.rejecting(record):
            harvest.add(record, _zsre_values(record, harvest.name), origin="counterfactual")


def _zsre_values(record: SourceRecord, source: str) -> list[CorpusFact]:
    subject, question, rephrased = (record.text(key) for key in ("subject", "src", "rephrase"))
    record.filled("answers")
    answers = record.texts("answers")
    relation = question.replace(subject, "{}")
    parts: list[tuple[str, list[str], Kind]] = [
        (answers[0], answers[1:], "world"),
        (record.text("alt"), [], "counterfactual"),
    ]
    return [
        worded_fact(
            f"{question} The answer is {answer}.",
            [question, rephrased],
            answer,
            aliases,
            subject=subject,
            relation=relation,
            source=source,
            kind=kind,
        )
        for answer, aliases, kind in parts
    ]
