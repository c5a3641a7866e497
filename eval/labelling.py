"""Labels of a whole corpus by the answering model's behaviour, and what shares the three classes have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eval.corpora.splits import split_of
from routers.labels import BehaviourLabel, label_facts
from routers.stage_heads import ACTIONS
from routers.wordings import labelling_questions
from sharpwave.statistics import wilson_interval

if TYPE_CHECKING:
    from carriers.language_model import LanguageModel
    from sharpwave.records import Fact

NO_RELATION = "no relation"


@dataclass(frozen=True)
class LabelledFact:
    """A fact, the split by subject it belongs to, and how the answering model behaved on it."""

    fact: Fact
    split: str
    label: BehaviourLabel

    @property
    def relation(self) -> str:
        """The slot's relation, if the fact has one."""
        return self.fact.slot.relation if self.fact.slot else NO_RELATION

    def to_json(self) -> dict[str, Any]:
        """Return plain data: one line of a labels file."""
        return {
            "fact_id": self.fact.id,
            "text": self.fact.text,
            "questions": list(labelling_questions(self.fact)),
            "answers": list(self.fact.answers),
            "relation": self.relation,
            "split": self.split,
            "answers_without": list(self.label.answers_without),
            "probs_without": list(self.label.probs_without),
            "right_without": list(self.label.right_without),
            "right_with": list(self.label.right_with),
            "action": self.label.action.value,
        }


def label_corpus(
    model: LanguageModel,
    facts: Sequence[Fact],
    splits: Sequence[str],
    on_count: Callable[[int, int], None] | None = None,
) -> list[LabelledFact]:
    """Label facts that have a question, in the order given; what was asked before is read from the cache."""
    labels = label_facts(model, facts, on_count=on_count)
    return [LabelledFact(*parts) for parts in zip(facts, splits, labels, strict=True)]


def split_of_fact(fact: Fact) -> str:
    """Return the split of a fact from elsewhere: that of its slot's subject, or of its text without one."""
    return split_of(fact.slot.subject if fact.slot else fact.text)


def label_shares(labelled: Sequence[LabelledFact]) -> dict[str, Any]:
    """Count classes in all, per split and per relation; shares in all carry their 95 % Wilson interval."""
    return {
        "n": len(labelled),
        "right_with_fact": _share(all(item.label.right_with) for item in labelled),
        "classes": {
            action.value: _share(item.label.action is action for item in labelled) for action in ACTIONS
        },
        "splits": _counts_by(labelled, lambda item: item.split),
        "relations": _counts_by(labelled, lambda item: item.relation),
    }


def _share(flags: Iterable[bool]) -> dict[str, float]:
    values = list(flags)
    low, high = wilson_interval(sum(values), len(values))
    return {"n": sum(values), "share": sum(values) / len(values) if values else 0.0, "low": low, "high": high}


def _counts_by(
    labelled: Sequence[LabelledFact], key: Callable[[LabelledFact], str]
) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for item in labelled:
        row = table.setdefault(
            key(item), {"n": 0, "right_with_fact": 0, **{action.value: 0 for action in ACTIONS}}
        )
        row["n"] += 1
        row["right_with_fact"] += all(item.label.right_with)
        row[item.label.action.value] += 1
    return dict(sorted(table.items()))
