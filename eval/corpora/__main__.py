"""Counts, samples and exports of the corpora: `python -m eval.corpora --help`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eval.corpora.corpus import CORPUS_NAMES, CorpusFact, load_corpus, relation_counts
from eval.corpora.splits import split_by_subject
from eval.corpora.stable_draw import StableDraw
from sharpwave.errors import InputError


def main(arguments: Sequence[str] | None = None) -> int:
    """Print counts or random samples of a corpus, or write it as JSON Lines; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m eval.corpora", description=__doc__)
    parser.add_argument("corpus", nargs="?", default="world", choices=CORPUS_NAMES)
    parser.add_argument("--count", type=int, default=1000, help="size of a generated corpus")
    parser.add_argument("--seed", type=int, default=0, help="seed of a generated corpus and of the samples")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.add_argument(
        "--samples", type=int, default=0, help="print this many random facts per relation instead"
    )
    parser.add_argument("--relation", help="only this relation")
    parser.add_argument("--export", type=Path, help="write the facts to this file, one JSON object per line")
    options = parser.parse_args(arguments)
    try:
        items = load_corpus(options.corpus, count=options.count, seed=options.seed)
    except InputError as error:
        parser.error(str(error))
    items = [item for item in items if options.relation in {None, item.relation}]
    if options.export:
        lines = "".join(json.dumps(item.to_json(), ensure_ascii=False) + "\n" for item in items)
        options.export.write_text(lines, encoding="utf-8")
    sys.stdout.write(
        _samples(items, options.samples, options.seed) if options.samples else _counts(items, options.json)
    )
    return 0


def describe(items: Sequence[CorpusFact]) -> dict[str, Any]:
    """Count a corpus: facts, relations, groups, kinds, languages, sources, dated facts, splits."""
    return {
        "facts": len(items),
        "relations": len({item.relation for item in items}),
        "groups": len({item.group for item in items}),
        "dated": sum(item.fact.valid_from is not None for item in items),
        "kinds": dict(sorted(Counter(item.kind for item in items).items())),
        "languages": dict(sorted(Counter(item.language for item in items).items())),
        "sources": dict(sorted(Counter(item.fact.source or "" for item in items).items())),
        "splits": {name: len(part) for name, part in split_by_subject(items).items()},
        "per_relation": relation_counts(items),
    }


def _counts(items: Sequence[CorpusFact], as_json: bool) -> str:
    counts = describe(items)
    if as_json:
        return json.dumps(counts, ensure_ascii=False, indent=2) + "\n"
    lines = []
    for name, value in counts.items():
        if isinstance(value, dict):
            lines += [f"{name}:", *(f"  {key:28}{number:>6}" for key, number in value.items())]
        else:
            lines.append(f"{name:30}{value:>6}")
    return "\n".join(lines) + "\n"


def _samples(items: Sequence[CorpusFact], count: int, seed: int) -> str:
    draw, lines = StableDraw(seed, "samples"), []
    for relation in relation_counts(items):
        lines.append(f"== {relation}")
        for item in draw.shuffled([item for item in items if item.relation == relation], relation)[:count]:
            dates = f" [{item.fact.valid_from:%Y-%m-%d}]" if item.fact.valid_from else ""
            answers = " | ".join(item.fact.answers)
            lines.append(f"{item.fact.text}{dates}\n    {item.heldout_question}  ->  {answers}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
