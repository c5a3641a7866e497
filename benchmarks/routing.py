"""The router beside plainer ones: how well it decides, how fast, at what cost, on facts it never saw.

    .venv/bin/python benchmarks/routing.py --out routing.json

Quality is measured on the report facts, whose subjects lie in no other set. Speed is measured on some of them, each
contender in a process of its own and alone on the machine. Labels and observations are read from the cache that
`sharpwave train-router` fills; what is missing is made, which takes about an hour on two cores.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from machine_rate import sgemm_gflops
from routing_contenders import CONTENDERS, measure, measure_door

from routers.calibration import loss_over_resplits, operating_point
from routers.examples import RoutingExample, cascade_scores
from routers.features import Evidence
from routers.heads import RouterHeads, load_card
from routers.scorecard import score_router
from serving.loaded_models import LoadedModels
from sharpwave.cpu import cpu_budget
from sharpwave.settings import Settings, load_settings
from tasks.router_tasks import corpus_examples, facts_for_router

_SLOW = (
    "plain transformers, one by one",
    "plain transformers, batched",
    "LLM judge",
    "torch engine, one by one",
)
_RESPLITS = 200
_DOOR_FACTS, _DOOR_THREADS = 240, (1, 8)


def main(
    out: Annotated[Path, typer.Option(help="JSON file for all figures.")],
    profile: Annotated[str, typer.Option(help="Profile whose models and heads are measured.")] = "embedded",
    timed: Annotated[int, typer.Option(help="Facts that the slow contenders are timed on.")] = 150,
    limit: Annotated[int, typer.Option(help="Most facts per split; 0 takes all. For trying the script.")] = 0,
    seed: Annotated[
        int, typer.Option(help="Seeds resplits, resampling and the order of the timed facts.")
    ] = 0,
) -> None:
    """Measure everything, print a table and write the figures."""
    settings = load_settings(profile)
    heads = RouterHeads.load(settings.router.heads_folder)
    examples, facts = _examples(settings, limit)
    quality = _quality(settings, heads, examples, seed)
    order = np.random.default_rng(seed).permutation(len(facts))
    shuffled = [facts[row] for row in order]
    contenders = {}
    for name in CONTENDERS:
        count = timed if name in _SLOW else 0
        contenders[name] = _in_process(measure, name, settings, heads, shuffled, count)
    truth = [examples["report"][row] for row in order]
    storage = quality["storage_ratio"]
    table = {
        name: _without_decisions(result) | _decided(result["decisions"], truth, storage)
        for name, result in contenders.items()
    }
    single, batched = (
        table[f"fast engine, {way}"]["facts_per_second"]
        / table[f"plain transformers, {way}"]["facts_per_second"]
        for way in ("one by one", "batched")
    )
    fast, exact = (contenders[f"{name} engine, batched"]["decisions"] for name in ("fast", "torch"))
    figures = quality | {
        "speedup_single": single,
        "speedup_batched": batched,
        "p50_ms": table["fast engine, one by one"]["p50_ms"],
        "p95_ms": table["fast engine, one by one"]["p95_ms"],
        "facts_per_second": table["fast engine, batched"]["facts_per_second"],
        "decision_agreement": _agreement(fast, exact, "action"),
        "store_or_not_agreement": _agreement(fast, exact, "is_write"),
        "n_report": len(facts),
        "seed": seed,
        "sgemm_gflops": sgemm_gflops(),
        "threads": cpu_budget(),
        "contenders": table,
        "front_door": [
            _in_process(measure_door, settings, shuffled[: _DOOR_FACTS + 4 * threads], threads)
            for threads in _DOOR_THREADS
        ],
    }
    out.write_text(json.dumps(figures, indent=2), encoding="utf-8")
    sys.stdout.write(_markdown(figures))


def _examples(settings: Settings, limit: int) -> tuple[dict[str, list[RoutingExample]], list[Any]]:
    models = LoadedModels(settings.models)
    chosen = facts_for_router(settings, limit)
    examples = {split: corpus_examples(models, chosen[split]) for split in ("calibration", "report")}
    return examples, [item.fact for item in chosen["report"]]


def _quality(
    settings: Settings, heads: RouterHeads, examples: Mapping[str, Sequence[RoutingExample]], seed: int
) -> dict[str, Any]:
    """Measure the heads at their calibrated prices, on facts that come with questions and on their bare texts."""
    made_with = load_card(settings.router.heads_folder)["made_with"]
    result: dict[str, Any] = {}
    for kind in (Evidence.PROBE, Evidence.SPAN, Evidence.TEXT):
        report, calibration = (
            cascade_scores(heads, examples[split], kind) for split in ("report", "calibration")
        )
        prices = heads.prices[kind]
        card = score_router(report, prices, seed)
        point = operating_point(report, prices)
        losses = loss_over_resplits(
            calibration.joined(report),
            target_loss=made_with["target_em_loss"],
            confidence=made_with["confidence"],
            max_escalation=made_with["max_escalation"],
            resplits=_RESPLITS,
            seed=seed,
        )
        figures = {name: asdict(figure) for name, figure in card.figures.items()}
        result[kind.value] = {
            **{name: figure["value"] for name, figure in figures.items()},
            **asdict(point),
            "promised_loss": made_with["target_em_loss"],
            "promise_confidence": made_with["confidence"],
            "realised_loss_mean": float(losses.mean()),
            "realised_loss_violations": float((losses > made_with["target_em_loss"]).mean()),
            "resplits": _RESPLITS,
            "intervals": {name: [figure["low"], figure["high"]] for name, figure in figures.items()},
            "confusion": card.confusion,
        }
    return result.pop(Evidence.PROBE.value) | {"by_evidence": result}


def _in_process(task: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Run a task in a fresh process of its own, so that no contender's memory or caches help another."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(task, arguments)


def _without_decisions(result: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key != "decisions"}


def _decided(
    decisions: Sequence[Mapping[str, Any]], truth: Sequence[RoutingExample], storage: float
) -> dict[str, float | None]:
    """Return what decisions lead to. A contender that only ranks stores as large a share as the router does."""
    labels = [item.label for item in truth[: len(decisions)]]
    if "novelty" in decisions[0]:
        novelty = np.array([item["novelty"] for item in decisions])
        writes = novelty >= np.quantile(novelty, 1 - storage)
    else:
        writes = np.array([item["is_write"] for item in decisions])
    known = np.array([label.is_known for label in labels])
    without_fact = np.array([label.em_without for label in labels])
    with_fact = np.array([label.em_with for label in labels])
    full = with_fact.mean()
    return {
        "storage_ratio": float(writes.mean()),
        "prunable_pruned": float((~writes[known]).mean()) if known.any() else None,
        "em_retention": float(np.where(writes, with_fact, without_fact).mean() / full) if full else None,
    }


def _agreement(some: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(np.mean([one[key] == other[key] for one, other in zip(some, others, strict=True)]))


def _markdown(figures: Mapping[str, Any]) -> str:
    rows = ["| figure | value | 95 % interval |", "| --- | --- | --- |"]
    for name, value in figures.items():
        if isinstance(value, int | float):
            low, high = figures["intervals"].get(name) or (None, None)
            interval = f"{low:.3f} to {high:.3f}" if low is not None else ""
            rows.append(f"| {name} | {value:.3f} | {interval} |")
    columns = (
        "facts_per_second",
        "p50_ms",
        "p95_ms",
        "peak_mib",
        "storage_ratio",
        "prunable_pruned",
        "em_retention",
    )
    rows += ["", f"| contender | n | {' | '.join(columns)} |", "| --- " * (len(columns) + 2) + "|"]
    for name, result in figures["contenders"].items():
        cells = ["" if result[column] is None else f"{result[column]:.3g}" for column in columns]
        rows.append(f"| {name} | {result['n']} | {' | '.join(cells)} |")
    rows += [
        "",
        "| front door, threads | n | facts per second | p50_ms | p95_ms |",
        "| --- | --- | --- | --- | --- |",
    ]
    for result in figures["front_door"]:
        cells = [f"{result[column]:.3g}" for column in ("facts_per_second", "p50_ms", "p95_ms")]
        rows.append(f"| {result['threads']} | {result['n']} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    typer.run(main)
