"""Several runs of one benchmark as one table: figures of every arm with intervals, and differences to ours in pairs.

Shares of questions get a bootstrap in two levels, seeds and then subjects within each, so that neither a lucky stream
nor a lucky subject counts as many questions. Figures with one value a seed get Student's interval over seeds, none with
a single seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from eval.metrics import em_retention, headline_rows, mean_f1, rows_by_question, subjects
from eval.run_records import (
    FULL_STORE_ARM,
    READMITTED,
    SHARPWAVE_ARM,
    SUPERSEDED,
    AnswerRow,
    ArmFigures,
    Run,
    write_atomically,
)
from eval.statistics import (
    Interval,
    SeedSample,
    exact_mcnemar_p_value,
    student_interval,
    two_level_ratio_interval,
    wilson_interval,
)

BENCHMARK_METRICS_FILE = "metrics.json"
DIFFERENCES_FILE = "differences.json"

_SEED = 0
_KINDS = {"em_known": "known", "em_new": "new", "em_updated": "update"}
_ASKED_APART = {"em_superseded_as_of": SUPERSEDED, "em_readmitted": READMITTED}
_PER_SEED: dict[str, Callable[[ArmFigures], float | None]] = {
    "storage_ratio": lambda arm: arm.storage_ratio,
    "escalation_rate": lambda arm: arm.escalation_rate,
    "routing_cost_ratio": lambda arm: arm.routing_cost_ratio,
    "routing_seconds": lambda arm: arm.routing_seconds,
    "net_bytes": lambda arm: None if arm.net_bytes is None else arm.net_bytes.total,
    "internalised": lambda arm: arm.internalised,
    "damaged": lambda arm: arm.damaged,
    "readmitted": lambda arm: arm.readmitted,
    "em_oracle": lambda arm: arm.em_oracle,
    "recall_at_k": lambda arm: arm.recall_at_k,
    "tokens_per_question": lambda arm: arm.tokens_per_question,
}

Figure = dict[str, float | None]


def benchmark_metrics(runs: Sequence[Run]) -> dict[str, Any]:
    """Return one object per arm, each figure as `mean`, `low`, `high`, and what the benchmark was made of.

    A figure that means nothing for an arm, or was not measured, is None throughout. `n_facts` and `n_questions` are
    sums over the runs.
    """
    if not runs:
        raise ValueError("a benchmark has at least one run")
    return {
        **{arm.name: _arm(runs, arm.name) for arm in runs[0].arms},
        "n_facts": sum(run.metrics.n_facts for run in runs),
        "n_questions": sum(run.metrics.n_questions for run in runs),
        "seeds": [run.metrics.seed for run in runs],
        "profile": runs[0].metrics.profile,
    }


def benchmark_differences(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Return, for each other arm, our EM minus its own on the questions both were asked.

    `low` and `high` come from the two-level bootstrap, `p` from McNemar's exact test on the pairs that differ, which
    takes questions for independent; `n` counts the pairs.
    """
    return {arm.name: _difference(runs, arm.name) for arm in runs[0].arms if arm.name != SHARPWAVE_ARM}


def write_benchmark(
    folder: Path, metrics: dict[str, Any], differences: dict[str, dict[str, float]]
) -> tuple[Path, Path]:
    """Write `metrics.json` and `differences.json` of a benchmark into its folder and return their paths."""
    paths = folder / BENCHMARK_METRICS_FILE, folder / DIFFERENCES_FILE
    for path, content in zip(paths, (metrics, differences), strict=True):
        write_atomically(path, (json.dumps(content, indent=2) + "\n").encode("utf-8"))
    return paths


def _arm(runs: Sequence[Run], name: str) -> dict[str, Figure]:
    real = [headline_rows(run.answers, name) for run in runs]
    found: dict[str, Figure] = {
        "em": _share_of(real),
        "em_retention": _retention(runs, name),
        "f1": _mean([[mean_f1([row]) for row in rows] for rows in real], [subjects(rows) for rows in real]),
    }
    for key, kind in _KINDS.items():
        found[key] = _share_of([[row for row in rows if row.kind == kind] for rows in real])
    for key, kind in _ASKED_APART.items():
        found[key] = _share_of([_of_kind(run, name, kind) for run in runs])
    figures = [next(arm for arm in run.arms if arm.name == name) for run in runs]
    return found | {key: _over_seeds([read(arm) for arm in figures]) for key, read in _PER_SEED.items()}


def _of_kind(run: Run, name: str, kind: str) -> list[AnswerRow]:
    return [row for row in run.answers if row.arm == name and row.read == "real" and row.kind == kind]


def _share_of(rows: Sequence[Sequence[AnswerRow]]) -> Figure:
    """Return the share of right answers; of answers all alike a bootstrap says nothing, so Wilson's interval stands in.

    Its n is the number of subjects, as in `eval.metrics.em_interval`.
    """
    hits = [float(row.correct) for own in rows for row in own]
    if hits and len(set(hits)) == 1:
        n = sum(len(set(subjects(own))) for own in rows)
        return _figure(hits[0], wilson_interval(n if hits[0] else 0, n))
    return _mean([[float(row.correct) for row in own] for own in rows], [subjects(own) for own in rows])


def _mean(values: Sequence[Sequence[float]], groups: Sequence[Sequence[str]]) -> Figure:
    flat = [value for own in values for value in own]
    if not flat:
        return _figure(None, None)
    samples = [
        SeedSample(own, [1.0] * len(own), labels) for own, labels in zip(values, groups, strict=True) if own
    ]
    return _figure(sum(flat) / len(flat), two_level_ratio_interval(samples, _SEED))


def _retention(runs: Sequence[Run], name: str) -> Figure:
    samples = []
    for run in runs:
        ours, full = rows_by_question(run.answers, name), rows_by_question(run.answers, FULL_STORE_ARM)
        shared = [key for key in ours if key in full]
        if shared:
            samples.append(
                SeedSample(
                    [float(ours[key].correct) for key in shared],
                    [float(full[key].correct) for key in shared],
                    subjects([ours[key] for key in shared]),
                )
            )
    if not samples:
        return _figure(None, None)
    own, full_store = (
        sum(sum(part) for part in parts)
        for parts in ([sample.numerators for sample in samples], [sample.denominators for sample in samples])
    )
    return _figure(em_retention(own, full_store), two_level_ratio_interval(samples, _SEED))


def _over_seeds(values: Sequence[float | None]) -> Figure:
    known = [float(value) for value in values if value is not None]
    if not known:
        return _figure(None, None)
    return _figure(sum(known) / len(known), student_interval(known))


def _figure(mean: float | None, interval: Interval | None) -> Figure:
    low, high = interval or (None, None)
    return {"mean": mean, "low": low, "high": high}


def _difference(runs: Sequence[Run], name: str) -> dict[str, float]:
    samples, pairs = [], []
    for run in runs:
        ours, theirs = rows_by_question(run.answers, SHARPWAVE_ARM), rows_by_question(run.answers, name)
        shared = [key for key in ours if key in theirs]
        if not shared:
            continue
        hits = [(ours[key].correct, theirs[key].correct) for key in shared]
        pairs += hits
        samples.append(
            SeedSample(
                [float(own) - float(other) for own, other in hits],
                [1.0] * len(hits),
                subjects([ours[key] for key in shared]),
            )
        )
    if not pairs:
        return {"mean": 0.0, "low": 0.0, "high": 0.0, "p": 1.0, "n": 0}
    low, high = two_level_ratio_interval(samples, _SEED)
    mean = sum(own - other for own, other in pairs) / len(pairs)
    return {"mean": mean, "low": low, "high": high, "p": exact_mcnemar_p_value(pairs), "n": len(pairs)}
