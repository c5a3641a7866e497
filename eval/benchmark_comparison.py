"""Two benchmarks side by side: what the second gives less the first, in pairs where both ran the same seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eval.benchmark_figures import benchmark_metrics
from eval.comparison import ComparisonRow
from eval.metrics import rows_by_question, subjects
from eval.plot_style import arm_label
from eval.statistics import SeedSample, student_interval, two_level_ratio_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eval.run_records import ArmFigures, Run

BENCHMARK_NOTE = (
    "Intervals of exact match come from a paired bootstrap over seeds and the subjects within each, those of other "
    "figures are Student's over the seeds that both benchmarks ran. No interval: other questions were asked, or one "
    "seed alone."
)

_SEED = 0
_FIGURES: dict[str, tuple[str, Callable[[ArmFigures], float | None]]] = {
    "f1": ("F1", lambda arm: arm.f1),
    "storage_ratio": ("facts stored", lambda arm: arm.storage_ratio),
    "em_oracle": ("EM, oracle retrieval", lambda arm: arm.em_oracle),
    "recall_at_k": ("recall@k", lambda arm: arm.recall_at_k),
    "escalation_rate": ("escalation rate", lambda arm: arm.escalation_rate),
    "routing_cost_ratio": ("router cost against large-only", lambda arm: arm.routing_cost_ratio),
}


def benchmark_comparison(first: Sequence[Run], second: Sequence[Run]) -> list[ComparisonRow]:
    """Return the shares of each arm that both benchmarks have."""
    old, new = benchmark_metrics(first), benchmark_metrics(second)
    rows = []
    for arm in first[0].arms:
        if arm.name not in new:
            continue
        label = arm_label(arm.name)
        rows.append(_em_row(label, arm.name, first, second, (old[arm.name], new[arm.name])))
        rows.append(_retention_row(label, old[arm.name], new[arm.name]))
        for key, (words, read) in _FIGURES.items():
            before, after = old[arm.name][key]["mean"], new[arm.name][key]["mean"]
            if before is not None and after is not None:
                interval = student_interval(_differences(arm.name, read, first, second))
                figure = f"{label}: {words}"
                rows.append(ComparisonRow(figure, before, after, after - before, *(interval or (None, None))))
    return rows


def _em_row(
    label: str,
    name: str,
    first: Sequence[Run],
    second: Sequence[Run],
    figures: tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]],
) -> ComparisonRow:
    before, after = (own["em"]["mean"] for own in figures)
    samples = []
    for one, other in _same_seeds(first, second):
        theirs, ours = rows_by_question(one.answers, name), rows_by_question(other.answers, name)
        if theirs.keys() != ours.keys() or not ours:
            return ComparisonRow(f"{label}: EM", before, after, after - before)
        changes = [float(ours[key].correct) - float(theirs[key].correct) for key in ours]
        samples.append(SeedSample(changes, [1.0] * len(changes), subjects(list(ours.values()))))
    if len(samples) < max(len(first), len(second)):  # the means are not over the same questions
        return ComparisonRow(f"{label}: EM", before, after, after - before)
    low, high = two_level_ratio_interval(samples, _SEED)
    n_pairs = sum(len(sample.numerators) for sample in samples)
    return ComparisonRow(f"{label}: EM", before, after, after - before, low, high, n_pairs)


def _retention_row(
    label: str, old: dict[str, dict[str, float]], new: dict[str, dict[str, float]]
) -> ComparisonRow:
    before, after = old["em_retention"]["mean"], new["em_retention"]["mean"]
    return ComparisonRow(f"{label}: EM kept", before, after, after - before)


def _differences(
    name: str, read: Callable[[ArmFigures], float | None], first: Sequence[Run], second: Sequence[Run]
) -> list[float]:
    found = []
    for pair in _same_seeds(first, second):
        before, after = (read(next(arm for arm in run.arms if arm.name == name)) for run in pair)
        if before is not None and after is not None:
            found.append(after - before)
    return found


def _same_seeds(first: Sequence[Run], second: Sequence[Run]) -> list[tuple[Run, Run]]:
    by_seed = {run.metrics.seed: run for run in second}
    return [(run, by_seed[run.metrics.seed]) for run in first if run.metrics.seed in by_seed]
