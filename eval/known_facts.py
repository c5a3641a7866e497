"""Which corpus facts a model knows, found by asking it: for the known share of a stream and for anchors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carriers.prompts import CLOSED_BOOK_PREFIX, closed_book
from eval.corpora.splits import split_of
from eval.corpora.stable_draw import StableDraw
from eval.corpora.world import load_world_corpus

if TYPE_CHECKING:
    from carriers.language_model import LanguageModel
    from eval.corpora.corpus import CorpusFact

_ASKED_AT_ONCE = 128
_LIKELY_SHARE = 0.04


@dataclass(frozen=True)
class KnownWorldFact:
    """A world fact with the answer, among its aliases, that the model gives to the probe wording."""

    item: CorpusFact
    answer: str


def known_world_facts(
    model: LanguageModel,
    split: str,
    wanted: int,
    seed: int,
    on_found: Callable[[int], None] | None = None,
    *,
    known_elsewhere: Collection[str] = (),
) -> list[KnownWorldFact]:
    """Ask the model facts of a split, in seeded order, until enough are known or all were asked.

    One teacher-forced pass per fact tells whether greedy decoding gives the answer.

    Args:
        model: The answering model.
        split: Name of the split by subject.
        wanted: Stop after the batch in which this many are found.
        seed: Seeds the order.
        on_found: Told after each batch how many more were found.
        known_elsewhere: Probe questions of other facts that the model answers. Relations with a fair share of
            them are asked first, mixed, which finds the same number with a fraction of the questions.
    """
    pool = [item for item in load_world_corpus() if split_of(item.group) == split]
    pool = StableDraw(seed, f"known/{split}").shuffled(pool, "pool")
    likely = likely_relations(known_elsewhere)
    pool.sort(key=lambda item: item.relation not in likely)  # stable: seeded order within both parts
    return known_among(model, pool, on_found, wanted=wanted)


def known_among(
    model: LanguageModel,
    items: Sequence[CorpusFact],
    on_found: Callable[[int], None] | None = None,
    *,
    wanted: int | None = None,
) -> list[KnownWorldFact]:
    """Ask the model the probe wordings of facts in their order, until `wanted` are known or all were asked."""
    known: list[KnownWorldFact] = []
    for start in range(0, len(items), _ASKED_AT_ONCE):
        if wanted is not None and len(known) >= wanted:
            break
        found = _known_in(model, items[start : start + _ASKED_AT_ONCE])
        known += found
        if on_found is not None:
            on_found(len(found))
    return known


def likely_relations(questions: Collection[str]) -> frozenset[str]:
    """Return the relations of which a fair share of the facts, in the whole corpus, has its probe question here."""
    hits: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for item in load_world_corpus():
        sizes[item.relation] += 1
        hits[item.relation] += item.probe_question in questions
    return frozenset(relation for relation, size in sizes.items() if hits[relation] >= _LIKELY_SHARE * size)


def _known_in(model: LanguageModel, items: Sequence[CorpusFact]) -> list[KnownWorldFact]:
    prompts = [closed_book(item.probe_question) for item in items]
    matches = model.match_answers(prompts, [item.fact.answers for item in items], CLOSED_BOOK_PREFIX)
    return [
        KnownWorldFact(item, match.answer)
        for item, match in zip(items, matches, strict=True)
        if match.matched
    ]
