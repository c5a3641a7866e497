"""The world corpus: real facts from every source, checked, de-duplicated, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from eval.corpora.corpus import CorpusFact, keep_unambiguous


def _sources() -> tuple[Callable[[], Iterator[CorpusFact | None]], ...]:
    from eval.corpora import (
        cldr_countries,
        cldr_languages,
        codes,
        common,
        elements,
        factbook_geography,
        factbook_government,
        factbook_offices,
        factbook_society,
        words,
    )

    return (
        factbook_geography.facts,
        factbook_government.facts,
        factbook_offices.facts,
        factbook_society.facts,
        cldr_countries.facts,
        cldr_languages.facts,
        codes.facts,
        elements.facts,
        words.facts,
        common.facts,
    )


@cache
def _world() -> tuple[CorpusFact, ...]:
    accepted = [item for source in _sources() for item in source() if item is not None]
    kept = keep_unambiguous(accepted)
    return tuple(sorted(kept, key=lambda item: (item.relation, item.slot.subject)))


def load_world_corpus() -> list[CorpusFact]:
    """Return every fact of the world corpus, ordered by relation and subject.

    Nothing is fetched or cached on disk; the first call reads the data files of the installed packages (about
    two seconds), later calls in the same process are free.
    """
    return list(_world())
