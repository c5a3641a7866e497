"""The folder of a benchmark: one run per seed below it, read back together and averaged for plots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from eval.run_records import (
    CONFIG_FILE,
    METRICS_FILE,
    ArmFigures,
    ConsolidationSummary,
    Run,
    StepRecord,
    read_run,
)
from sharpwave.errors import InputError

_SEED_FOLDER = re.compile(r"seed-(\d+)")


def seed_folder(folder: Path, seed: int) -> Path:
    """Return where the run of a seed lies."""
    return folder / f"seed-{seed}"


def is_benchmark(folder: Path) -> bool:
    """Tell whether the folder is a benchmark's: no run itself, with runs of seeds below it."""
    return not (folder / CONFIG_FILE).exists() and bool(_seed_folders(folder))


def unfinished_seeds(folder: Path) -> list[int]:
    """Return the seeds whose runs have been begun and not finished."""
    return [seed for seed, run in _seed_folders(folder).items() if not (run / METRICS_FILE).is_file()]


def read_benchmark(folder: Path) -> list[Run]:
    """Read the finished runs of a benchmark, by seed.

    Raises:
        InputError: No run is finished, a file is damaged, or the runs have not the same arms.
    """
    left_out = unfinished_seeds(folder)
    runs = [read_run(run) for seed, run in _seed_folders(folder).items() if seed not in left_out]
    if not runs:
        raise InputError("no seed of this benchmark is finished; run it again to go on", file=str(folder))
    names = [[arm.name for arm in run.arms] for run in runs]
    if any(own != names[0] for own in names):
        raise InputError("the runs of this benchmark have not the same arms", file=str(folder))
    return runs


def pooled_arms(metrics: Mapping[str, Any], runs: Sequence[Run]) -> list[ArmFigures]:
    """Return each arm as one point: the benchmark's figures where it has them, with the interval of its EM."""
    pooled = []
    for arm in runs[0].arms:
        own = metrics[arm.name]
        means = {key: own[key]["mean"] for key in ("storage_ratio", "em", "f1", "routing_cost_ratio")}
        low, high = own["em"]["low"], own["em"]["high"]
        asked = sum(each.n_questions for run in runs for each in run.arms if each.name == arm.name)
        pooled.append(ArmFigures(name=arm.name, **means, em_low=low, em_high=high, n_questions=asked))
    return pooled


def mean_steps(runs: Sequence[Run]) -> list[StepRecord]:
    """Return the curves of the runs as one: shares are means over runs, counts are rounded means."""
    return [_mean_step(same) for same in zip(*(run.steps for run in runs), strict=False)]


def summed_nights(runs: Sequence[Run]) -> list[ConsolidationSummary]:
    """Return one summary per place in the order of nights, its counts summed over the runs that got there."""
    longest = max(len(run.consolidations) for run in runs)
    return [
        _summed([run.consolidations[place] for run in runs if place < len(run.consolidations)])
        for place in range(longest)
    ]


def _seed_folders(folder: Path) -> dict[int, Path]:
    found = {}
    for path in folder.glob("seed-*"):
        match = _SEED_FOLDER.fullmatch(path.name)
        if match and path.is_dir():
            found[int(match[1])] = path
    return dict(sorted(found.items()))


def _mean_step(same: Sequence[StepRecord]) -> StepRecord:
    arms = list(same[0].em)
    counts = {
        key: round(fmean(getattr(step, key) for step in same))
        for key in ("n_observed", "n_distinct", "hot", "n_questions", "generation")
    }
    return StepRecord(
        step=same[0].step,
        **counts,
        storage_ratio=fmean(step.storage_ratio for step in same),
        em={arm: _mean(step.em.get(arm) for step in same) for arm in arms},
        em_weights=_mean(step.em_weights for step in same),
        escalation_rate=fmean(step.escalation_rate for step in same),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _summed(nights: Sequence[ConsolidationSummary]) -> ConsolidationSummary:
    first = nights[0]
    counts = {
        key: sum(getattr(night, key) for night in nights)
        for key in ("selected", "internalised", "evicted", "damaged", "readmitted", "stable_probed")
    }
    statuses = {night.status for night in nights}
    return ConsolidationSummary(
        run_id=first.run_id,
        step=first.step,
        generation=first.generation,
        parent=first.parent,
        status=first.status if len(statuses) == 1 else "mixed",
        **counts,
    )
