"""The report of a benchmark: every arm over all seeds, as one HTML page, as Markdown and as plots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eval.benchmark_figures import benchmark_differences, benchmark_metrics
from eval.benchmark_folder import mean_steps, pooled_arms, summed_nights
from eval.display_text import DASH, byte_size, markdown_table, percent, percent_range, points
from eval.metrics import rows_by_question
from eval.pages import render_page
from eval.plot_style import arm_label, to_svg
from eval.plots import Drawing, drawings
from eval.report import REPORT_FILE
from eval.run_records import (
    FULL_STORE_ARM,
    NOVELTY_ARM,
    RANDOM_ARM,
    READMITTED,
    RECENCY_ARM,
    SHARPWAVE_ARM,
    WITHOUT_READMISSION_ARM,
    write_atomically,
)
from sharpwave.records import AnswerOrigin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eval.run_records import Run

_SORTS = {
    "em_known": "known facts",
    "em_new": "new facts",
    "em_updated": "updated facts",
    "em_superseded_as_of": "replaced values, asked with a date",
}


class Table(NamedTuple):
    """A table of a report; the first cell of a row names the arm, `ours` is the row of Sharpwave."""

    title: str
    note: str
    head: tuple[str, ...]
    rows: list[list[str]]
    ours: int


class BenchmarkReport:
    """What several runs of one benchmark showed, computed once."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.metrics = benchmark_metrics(runs)
        self.differences = benchmark_differences(runs)
        self.arms = [arm.name for arm in runs[0].arms]

    def sentences(self) -> list[str]:
        """Return what was shown in plain sentences, first the headline, then where Sharpwave loses, then controls."""
        return [
            self._headline(),
            *self._losses(),
            self._why(),
            *self._leaders(),
            *self._controls(),
            self._readmission(),
            self._size(),
        ]

    def tables(self) -> list[Table]:
        """Return the tables: answers, sorts of questions, reading, costs."""
        return [self._answers(), self._sorts(), self._reading(), self._costs()]

    def drawings(self) -> list[Drawing]:
        """Return the plots: frontier, cost, curves over the stream, nights."""
        arms = pooled_arms(self.metrics, self.runs)
        return drawings(arms, mean_steps(self.runs), summed_nights(self.runs))

    def origin(self) -> str:
        """Return the line that says what the figures were made from."""
        seconds = sum(run.metrics.wall_seconds for run in self.runs)
        digests = sorted({run.config.digest[:12] for run in self.runs})
        return (
            f"Profile {self.metrics['profile']}, seeds {', '.join(map(str, self.metrics['seeds']))}, "
            f"{self.metrics['n_facts']} distinct facts observed, {self.metrics['n_questions']} questions about what "
            f"holds now, {seconds / 60:.0f} minutes, configurations {', '.join(digests)}."
        )

    def _mean(self, arm: str, key: str) -> float | None:
        mean: float | None = self.metrics[arm][key]["mean"]
        return mean

    def _headline(self) -> str:
        ours, full = self.metrics[SHARPWAVE_ARM], self.metrics[FULL_STORE_ARM]
        return (
            f"With {percent(ours['storage_ratio']['mean'])} of the distinct facts in its store, Sharpwave answered "
            f"{_share(ours['em'])} of the questions exactly right, the full store {_share(full['em'])}: "
            f"it kept {_share(ours['em_retention'])} of the full store's exact match."
        )

    def _losses(self) -> list[str]:
        """Name every arm that does better, overall or on one sort of question."""
        lost = []
        for name in self.arms:
            if name == SHARPWAVE_ARM:
                continue
            difference = self.differences[name]
            if difference["mean"] < 0:
                ahead = (
                    "answers better" if difference["high"] < 0 else "is ahead by no more than chance explains"
                )
                lost.append(
                    f"{_capital(arm_label(name))} {ahead}: Sharpwave minus it is {_difference(difference)}."
                )
            worse = [
                f"{words} ({percent(theirs)} against {percent(own)})"
                for key, words in _SORTS.items()
                if (own := self._mean(SHARPWAVE_ARM, key)) is not None
                and (theirs := self._mean(name, key)) is not None
                and theirs > own
            ]
            if worse and name == FULL_STORE_ARM:
                lost.append(f"The full store does better on {_listed(worse)}.")
        return lost or ["No arm is ahead of Sharpwave, and the full store is ahead on no sort of question."]

    def _leaders(self) -> list[str]:
        """Name, for each sort of question that Sharpwave does not answer best, the arms that do."""
        led = []
        for key, words in _SORTS.items():
            scores = {name: mean for name in self.arms if (mean := self._mean(name, key)) is not None}
            own, best = scores.get(SHARPWAVE_ARM), max(scores.values(), default=0.0)
            if own is not None and best > own:
                leaders = _listed([arm_label(name) for name, mean in scores.items() if mean == best])
                led.append(f"Best on {words}: {leaders}, {percent(best)} against Sharpwave's {percent(own)}.")
        return led

    def _why(self) -> str:
        """Say how the questions were lost that only the full store answered."""
        lost = []
        for run in self.runs:
            full = rows_by_question(run.answers, FULL_STORE_ARM)
            for key, row in rows_by_question(run.answers, SHARPWAVE_ARM).items():
                if not row.correct and key in full and full[key].correct:
                    lost.append(row)
        held = sum(row.found is not None for row in lost)
        misled = sum(row.found is None and row.origin == AnswerOrigin.STORE for row in lost)
        return (
            f"Of the {len(lost)} questions that the full store answered and Sharpwave did not, {misled} were about "
            f"facts outside its store for which it believed another note, {len(lost) - held - misled} about facts "
            f"outside its store that its weights answered wrongly, {held} about facts in its store."
        )

    def _size(self) -> str:
        ours, full = (self._mean(name, "net_bytes") for name in (SHARPWAVE_ARM, FULL_STORE_ARM))
        if ours is None or full is None:
            return "What the arms take on disk was not measured."
        return (
            f"On disk Sharpwave takes {byte_size(round(ours))} (ledger and adapters of all nights with it), the full "
            f"store {byte_size(round(full))}."
        )

    def _controls(self) -> list[str]:
        return [
            f"Sharpwave minus {arm_label(name)}: {_difference(self.differences[name])}."
            for name in (FULL_STORE_ARM, RANDOM_ARM, NOVELTY_ARM, RECENCY_ARM)
            if name in self.differences
        ]

    def _readmission(self) -> str:
        if WITHOUT_READMISSION_ARM not in self.differences:
            return "The arm without re-admission was not run."
        readmitted = self._mean(SHARPWAVE_ARM, "readmitted") or 0.0
        asked = sum(
            row.kind == READMITTED and row.arm == SHARPWAVE_ARM for run in self.runs for row in run.answers
        )
        text = (
            f"Nights put {readmitted:.1f} facts a run back into the store; without them the exact match changes by "
            f"{_difference(_negative(self.differences[WITHOUT_READMISSION_ARM]))}"
        )
        if not asked:
            return f"{text}."
        own, without = (
            self.metrics[name]["em_readmitted"] for name in (SHARPWAVE_ARM, WITHOUT_READMISSION_ARM)
        )
        return (
            f"{text}. Asked at the end about these facts alone (n = {asked}), it is {_share(own)} with them and "
            f"{_share(without)} without."
        )

    def _answers(self) -> Table:
        head = (
            "arm",
            "facts stored",
            "EM (95%)",
            "F1",
            "of full-store EM (95%)",
            "Sharpwave minus arm (95%)",
            "p",
            "pairs",
        )
        rows = []
        for name in self.arms:
            own, difference = self.metrics[name], self.differences.get(name)
            rows.append([
                arm_label(name),
                _mean_share(own["storage_ratio"]),
                _share(own["em"]),
                _mean_share(own["f1"]),
                _share(own["em_retention"]),
                DASH if difference is None else _difference(difference, with_p=False),
                DASH if difference is None else _p_value(difference["p"]),
                DASH if difference is None else str(difference["n"]),
            ])
        note = (
            "Real retrieval, questions about what holds now. Intervals: bootstrap over seeds and subjects within each; "
            "p: McNemar's exact test on the pairs, not corrected for the number of arms."
        )
        return self._table("Answers", note, head, rows)

    def _sorts(self) -> Table:
        rows = [[arm_label(name), *(_share(self.metrics[name][key]) for key in _SORTS)] for name in self.arms]
        note = "Exact match by sort of question, with real retrieval."
        return self._table("Sorts of questions", note, ("arm", *_SORTS.values()), rows)

    def _reading(self) -> Table:
        head = ("arm", "EM, real retrieval", "EM, oracle retrieval", "recall@k", "tokens read per question")
        rows = []
        for name in self.arms:
            own = self.metrics[name]
            tokens = own["tokens_per_question"]["mean"]
            rows.append([
                arm_label(name),
                _mean_share(own["em"]),
                _mean_share(own["em_oracle"]),
                _mean_share(own["recall_at_k"]),
                DASH if tokens is None else f"{tokens:.0f}",
            ])
        note = (
            "Oracle retrieval hands over the right fact if the arm holds it, which shows admission alone; recall@k "
            "counts questions about held facts. Tokens leave out the worked examples that all prompts share."
        )
        return self._table("Admission and retrieval apart", note, head, rows)

    def _costs(self) -> Table:
        head = (
            "arm",
            "escalated",
            "router cost / large alone",
            "seconds per fact",
            "on disk",
            "internalised",
            "damaged",
            "re-admitted",
        )
        rows = []
        for name in self.arms:
            own = self.metrics[name]
            seconds, size = own["routing_seconds"]["mean"], own["net_bytes"]["mean"]
            counts = [own[key]["mean"] for key in ("internalised", "damaged", "readmitted")]
            rows.append([
                arm_label(name),
                _mean_share(own["escalation_rate"]),
                _mean_share(own["routing_cost_ratio"]),
                DASH if seconds is None else f"{seconds:.3f}",
                DASH if size is None else byte_size(round(size)),
                *(DASH if count is None else f"{count:.1f}" for count in counts),
            ])
        return self._table("Costs and nights", "Means over seeds.", head, rows)

    def _table(self, title: str, note: str, head: Sequence[str], rows: list[list[str]]) -> Table:
        return Table(title, note, tuple(head), rows, self.arms.index(SHARPWAVE_ARM))


def benchmark_markdown(report: BenchmarkReport) -> str:
    """Return sentences and tables as Markdown."""
    parts = ["\n".join(f"- {sentence}" for sentence in report.sentences())]
    for table in report.tables():
        parts += [f"**{table.title}.** {table.note}", markdown_table(table.head, table.rows)]
    return "\n\n".join([*parts, report.origin()])


def render_benchmark(report: BenchmarkReport, title: str) -> str:
    """Return the page as a string."""
    from markupsafe import Markup

    plots = [
        {"drawing": drawing, "svg": Markup(to_svg(drawing.figure, drawing.name))}
        for drawing in report.drawings()
    ]
    return render_page(
        "benchmark.html.j2",
        title=title,
        sentences=report.sentences(),
        tables=report.tables(),
        plots=plots,
        origin=report.origin(),
        seeds=report.metrics["seeds"],
    )


def write_benchmark_report(folder: Path, report: BenchmarkReport) -> Path:
    """Write `report.html` into the folder of the benchmark and return its path."""
    path = folder / REPORT_FILE
    write_atomically(path, render_benchmark(report, folder.name).encode("utf-8"))
    return path


def _share(figure: dict[str, float | None]) -> str:
    mean, low, high = figure["mean"], figure["low"], figure["high"]
    if mean is None:
        return DASH
    return percent(mean) if low is None or high is None else f"{percent(mean)} ({percent_range(low, high)})"


def _mean_share(figure: dict[str, float | None]) -> str:
    return DASH if figure["mean"] is None else percent(figure["mean"])


def _difference(difference: dict[str, float], *, with_p: bool = True) -> str:
    words = f"{points(difference['mean'])} ({points(difference['low'])} to {points(difference['high'])})"
    return f"{words}, p {_p_value(difference['p'])}" if with_p else words


def _negative(difference: dict[str, float]) -> dict[str, float]:
    return difference | {
        "mean": -difference["mean"],
        "low": -difference["high"],
        "high": -difference["low"],
    }


def _p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
