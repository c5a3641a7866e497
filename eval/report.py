"""The report of a run: one self-contained HTML page, and a Markdown form for terminals."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.comparison import difference_to
from eval.display_text import (
    CROSS,
    DASH,
    MINUS,
    byte_size,
    markdown_cell,
    markdown_table,
    percent,
    percent_range,
    points,
)
from eval.metrics import em_by_kind, em_retention, headline_rows, mean_em, weights_share
from eval.pages import fact_list, render_page
from eval.plot_style import arm_label, to_svg
from eval.plots import figures
from eval.run_records import FULL_STORE_ARM, RANDOM_ARM, SHARPWAVE_ARM, write_atomically
from eval.statistics import wilson_interval

if TYPE_CHECKING:
    from eval.run_records import ArmFigures, ConsolidationSummary, Run

REPORT_FILE = "report.html"
_LISTS = (
    ("internalised", "internalised_facts", "+", "ins", "Internalised", "proven in the weights without retrieval"),
    ("evicted", "evicted_facts", MINUS, "del", "Evicted", "out of the store after that proof, kept in the ledger"),
    ("damaged", "damaged_facts", "!", "", "Damaged", "answered before the training, no longer after it"),
    ("readmitted", "readmitted_facts", "↩", "", "Re-admitted", "put back into the store in the same run"),
    ("rejected", "rejected", CROSS, "", "Rejected", "selected, but not proven: they stay in the store"),
)  # fmt: skip


def write_report(run: Run, folder: Path) -> Path:
    """Write `report.html` into the folder of the run and return its path."""
    path = folder / REPORT_FILE
    write_atomically(path, render_report(run).encode("utf-8"))
    return path


def render_report(run: Run) -> str:
    """Return the page as a string."""
    from markupsafe import Markup

    plots = [
        {"drawing": drawing, "svg": Markup(to_svg(drawing.figure, drawing.name))} for drawing in figures(run)
    ]
    return render_page(
        "report.html.j2",
        run=run,
        metrics=run.metrics,
        verdict=verdict(run),
        cards=_cards(run),
        arms=_arm_rows(run),
        plots=plots,
        nights=[_night(night) for night in run.consolidations],
        routes=_routes(run),
        kinds=_kinds(run),
        sizes=run.metrics.net_bytes,
        resolved=json.dumps(run.config.resolved, indent=2, sort_keys=True),
    )


def verdict(run: Run) -> str:
    """Return what the run showed in two or three plain sentences, whoever won."""
    figures_ = run.metrics
    text = (
        f"With {percent(figures_.storage_ratio)} of {figures_.n_facts} facts in its store, Sharpwave "
        f"answered {percent(figures_.em)} of {figures_.n_questions} questions exactly right. "
        f"Storing every fact gave {percent(figures_.em_full_store)}; "
    )
    full = difference_to(run, FULL_STORE_ARM)
    if full and full.excludes_zero:
        text += f"the difference of {points(full.mean)} is larger than chance explains. "
    elif full:
        text += f"the difference of {points(full.mean)} is within what chance explains. "
    else:
        text += f"the difference is {points(figures_.em - figures_.em_full_store)}. "
    if figures_.em_random >= figures_.em:
        return text + "A random choice of equally many facts did as well or better on this run."
    return text + f"A random choice of equally many facts gave {percent(figures_.em_random)}."


def report_markdown(run: Run) -> str:
    """Return the headline table and the counts as Markdown, for a terminal or a README."""
    figures_ = run.metrics
    rows = [
        [row["label"], row["storage"], f"{row['em']} ({row['interval']})", row["f1"], row["retention"],
         row["difference"], str(row["n"])]
        for row in _arm_rows(run)
    ]  # fmt: skip
    head = ["arm", "facts stored", "EM (95%)", "F1", "EM kept", "Sharpwave minus arm", "questions"]
    counts = [
        ["storage before consolidation", percent(figures_.storage_ratio_before_consolidation)],
        ["escalated to the large model", percent(figures_.escalation_rate)],
        ["router cost against large-only", percent(figures_.routing_cost_ratio)],
        ["internalised / selected", f"{figures_.internalised} / {figures_.selected}"],
        ["evicted", str(figures_.evicted)],
        ["damaged / probed stable facts",
         f"{figures_.damaged} / {figures_.stable_probed} ({percent(figures_.damage_rate)})"],
        ["damaged share of the gate questions", percent(figures_.gate_damage_rate)],
        ["re-admitted", str(figures_.readmitted)],
        ["EM before / after consolidation",
         f"{percent(figures_.em_before_consolidation)} / {percent(figures_.em_after_consolidation)}"],
        ["memory on disk", byte_size(figures_.net_bytes.total)],
        ["wall time", f"{figures_.wall_seconds:.0f} s"],
    ]  # fmt: skip
    origin = (
        f"Run {markdown_cell(run.config.run_id)}, profile {markdown_cell(figures_.profile)}, "
        f"seed {', '.join(map(str, run.config.seeds))}, configuration {run.config.digest[:12]}."
    )
    return "\n\n".join([
        verdict(run),
        markdown_table(head, rows),
        markdown_table(["figure", "value"], counts),
        origin,
    ])


def _cards(run: Run) -> list[dict[str, str]]:
    figures_ = run.metrics
    damage = wilson_interval(figures_.damaged, figures_.stable_probed)
    ours = headline_rows(run.answers, SHARPWAVE_ARM)
    share = f"{percent(weights_share(ours))} of right answers came from the weights" if ours else ""
    return [
        {"title": "facts stored", "value": percent(figures_.storage_ratio),
         "note": f"{percent(figures_.storage_ratio_before_consolidation)} before consolidation"},
        {"title": "of full-store EM kept", "value": percent(figures_.em_retention),
         "note": f"95% interval {percent_range(figures_.em_retention_low, figures_.em_retention_high)}"},
        {"title": "escalated to the large model", "value": percent(figures_.escalation_rate),
         "note": f"router cost {percent(figures_.routing_cost_ratio)} of large-only"},
        {"title": "internalised of those selected", "value": f"{figures_.internalised} / {figures_.selected}",
         "note": share or f"{figures_.evicted} evicted from the store"},
        {"title": "stable facts damaged", "value": f"{figures_.damaged} / {figures_.stable_probed}",
         "note": f"{percent(figures_.damage_rate)}, 95% interval {percent_range(*damage)}; "
                 f"{figures_.readmitted} put back"},
        {"title": "EM around consolidation",
         "value": f"{percent(figures_.em_before_consolidation)} → "
                  f"{percent(figures_.em_after_consolidation)}",
         "note": "same questions before and after"},
    ]  # fmt: skip


def _arm_rows(run: Run) -> list[dict[str, Any]]:
    return [_arm_row(run, arm) for arm in run.arms]


def _arm_row(run: Run, arm: ArmFigures) -> dict[str, Any]:
    difference = None if arm.name == SHARPWAVE_ARM else difference_to(run, arm.name)
    return {
        "name": arm.name,
        "label": arm_label(arm.name),
        "is_ours": arm.name == SHARPWAVE_ARM,
        "is_control": arm.name == RANDOM_ARM,
        "storage": percent(arm.storage_ratio),
        "storage_width": 100 * min(1.0, max(0.0, arm.storage_ratio)),
        "em": percent(arm.em),
        "em_at": 100 * arm.em,
        "interval": percent_range(arm.em_low, arm.em_high),
        "interval_at": 100 * arm.em_low,
        "interval_width": 100 * (arm.em_high - arm.em_low),
        "f1": percent(arm.f1),
        "retention": percent(em_retention(arm.em, run.metrics.em_full_store)),
        "difference": points(difference.mean) if difference else DASH,
        "difference_range": f"{points(difference.low)} to {points(difference.high)}" if difference else "",
        "n": arm.n_questions,
    }


def _night(night: ConsolidationSummary) -> dict[str, Any]:
    return {
        "summary": night,
        "lists": [
            fact_list(
                getattr(night, field),
                _total(night, key, field),
                key=key,
                sign=sign,
                edit=edit,
                title=title,
                what=what,
            )
            for key, field, sign, edit, title, what in _LISTS
        ],
    }


def _total(night: ConsolidationSummary, key: str, field: str) -> int:
    listed = len(getattr(night, field))
    return listed if key == "rejected" else max(listed, getattr(night, key))


def _routes(run: Run) -> list[dict[str, Any]]:
    counts = Counter((decision.action, decision.stage) for decision in run.decisions)
    stages = sorted({stage for _, stage in counts})
    return [
        {
            "action": action.replace("_", "-"),
            "stages": [(stage, counts[action, stage]) for stage in stages],
            "total": sum(counts[action, stage] for stage in stages),
        }
        for action in sorted({action for action, _ in counts})
    ]


def _kinds(run: Run) -> list[dict[str, Any]]:
    """EM by kind of fact, our arm beside the full store."""
    ours, full = (headline_rows(run.answers, arm) for arm in (SHARPWAVE_ARM, FULL_STORE_ARM))
    theirs = em_by_kind(full)
    return [
        {
            "kind": kind,
            "em": percent(em),
            "full": percent(theirs[kind][0]) if kind in theirs else DASH,
            "from_weights": percent(mean_em([row.origin == "weights" for row in ours if row.kind == kind])),
            "n": n,
        }
        for kind, (em, n) in em_by_kind(ours).items()
    ]
