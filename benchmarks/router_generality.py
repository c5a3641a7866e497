"""How far a router reaches: relations it never saw in training, and facts from elsewhere, without retraining.

    .venv/bin/python benchmarks/router_generality.py --known-1000 known_1000.json --out generality.json

For each relation with enough report facts a router is made without it and judged on that relation's report facts,
beside the router made from all. Facts of known_1000 are labelled by this model's own behaviour. Labels and observations
are read from the cache that `sharpwave train-router` fills.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eval.public_sets.reading import read_public_set
from routers.calibration import operating_point
from routers.examples import RoutingExample, cascade_scores, collect_examples
from routers.features import Evidence
from routers.heads import RouterHeads, load_card
from routers.scorecard import score_router
from routers.training import RouterTraining, train_router
from serving.loaded_models import LoadedModels
from sharpwave.settings import load_settings
from tasks.router_tasks import corpus_examples, facts_for_router

if TYPE_CHECKING:
    from routers.calibration import CascadeScores

_LEAST_FACTS, _LEAST_KNOWN = 15, 4
Set = tuple[list[RoutingExample], list[str]]


def main(
    out: Annotated[Path, typer.Option(help="JSON file for all figures.")],
    known_1000: Annotated[Path | None, typer.Option(help="The file known_1000.json, if at hand.")] = None,
    profile: Annotated[str, typer.Option(help="Profile whose models and heads are used.")] = "embedded",
    relations: Annotated[int, typer.Option(help="Relations to leave out, those with most facts first.")] = 12,
) -> None:
    """Print both tables as Markdown and write all figures."""
    settings = load_settings(profile)
    models = LoadedModels(settings.models)
    heads = RouterHeads.load(settings.router.heads_folder)
    result: dict[str, Any] = {}
    if known_1000 is not None:
        facts = [
            item.fact.model_copy(update={"questions": item.fact.questions[:2]})
            for item in read_public_set("known_1000", known_1000).facts
        ]
        seen = collect_examples(
            models.small, models.large_screen(None), models.reader, facts, [fact.id for fact in facts]
        )
        result["known_1000"] = {
            kind.value: _figures(cascade_scores(heads, seen, kind), heads, kind) for kind in Evidence
        }
    sets = {
        split: (corpus_examples(models, items), [item.relation for item in items])
        for split, items in facts_for_router(settings, 0).items()
        if items
    }
    made_with = load_card(settings.router.heads_folder)["made_with"]
    training = RouterTraining(**{
        **made_with,
        "small_limit": Evidence(made_with["small_limit"]),
        "large_limit": Evidence(made_with["large_limit"]),
        "resplits": 1,
    })
    result["left_out"] = {
        relation: _left_out(sets, relation, training, heads)
        for relation in _relations(sets["report"])[:relations]
    }
    out.write_text(json.dumps(result, indent=2), encoding="utf-8")
    sys.stdout.write(_markdown(result))


def _relations(report: Set) -> list[str]:
    """Return the relations with enough facts and enough known ones, the most frequent first."""
    examples, names = report
    known = Counter(name for item, name in zip(examples, names, strict=True) if item.label.is_known)
    return [
        name
        for name, count in Counter(names).most_common()
        if count >= _LEAST_FACTS and _LEAST_KNOWN <= known[name] <= count - _LEAST_KNOWN
    ]


def _left_out(
    sets: Mapping[str, Set], relation: str, training: RouterTraining, heads: RouterHeads
) -> dict[str, Any]:
    sys.stderr.write(f"without {relation}\n")
    others = {
        split: [item for item, name in zip(*parts, strict=True) if name != relation]
        for split, parts in sets.items()
    }
    own = [item for item, name in zip(*sets["report"], strict=True) if name == relation]
    trained = train_router(
        others["train"],
        others["calibration"],
        own,
        training,
        small_fingerprint=heads.small_fingerprint,
        large_fingerprint=heads.large_fingerprint,
    ).heads
    return {
        "with": _figures(cascade_scores(heads, own, Evidence.PROBE), heads, Evidence.PROBE),
        "without": _figures(cascade_scores(trained, own, Evidence.PROBE), trained, Evidence.PROBE),
    }


def _figures(scores: CascadeScores, heads: RouterHeads, kind: Evidence) -> dict[str, Any]:
    prices = heads.prices[kind]
    card = score_router(scores, prices, 0, resamples=200)
    return {
        "n": len(scores),
        "n_known": int(scores.known.sum()),
        **{name: asdict(figure) for name, figure in card.figures.items()},
        **asdict(operating_point(scores, prices)),
    }


def _markdown(result: Mapping[str, Any]) -> str:
    lines = []
    if "known_1000" in result:
        lines += [
            "| known_1000, evidence | n | known | AUC | pruned of known | EM retention | escalated |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        lines += [f"| {kind} {_cells(row)}" for kind, row in result["known_1000"].items()]
    lines += [
        "",
        "| relation left out | n | known | AUC with | AUC without | EM retention with | without |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for relation, row in result["left_out"].items():
        some, other = row["with"], row["without"]
        aucs = [_three(part["auc_cascade"]["value"]) for part in (some, other)]
        kept = [_three(part["em_retention"]) for part in (some, other)]
        lines.append(f"| {relation} | {some['n']} | {some['n_known']} | {' | '.join([*aucs, *kept])} |")
    return "\n".join(lines) + "\n"


def _cells(row: Mapping[str, Any]) -> str:
    auc_cascade = row["auc_cascade"]
    interval = (
        f"{_three(auc_cascade['value'])} ({_three(auc_cascade['low'])} to {_three(auc_cascade['high'])})"
    )
    figures = [_three(row[name]) for name in ("prunable_pruned", "em_retention", "escalation_rate")]
    return f"| {row['n']} | {row['n_known']} | {interval} | {' | '.join(figures)} |"


def _three(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    typer.run(main)
