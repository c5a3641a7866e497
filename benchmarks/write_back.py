"""Try a write-back recipe: how much is learnt, and how much of what the model knew is damaged.

    .venv/bin/python benchmarks/write_back.py --set consolidation.write_back.distill_weight=8 --out trials.jsonl

Facts to learn come from the head-training split and are unknown to the model. Damage is measured on the gate
questions of the anchor bank and on known facts of the calibration split, which no training sees. Nothing of the report
split is used. Appends one line of figures per trial to `--out`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carriers.adapters import stack_adapters
from carriers.prompts import CLOSED_BOOK_PREFIX, closed_book
from consolidation.anchors import read_anchors, training_anchors
from consolidation.damage import find_damage
from consolidation.general_text import perplexity
from consolidation.judging import gate_facts
from consolidation.probes import TARGET_FORMS, probe_known, probe_targets, proven_ids
from consolidation.records import FactTargets, KnownFact
from consolidation.targets import check_targets, training_targets
from consolidation.write_back import train_update
from eval.known_facts import known_world_facts
from eval.router_data import router_facts
from serving.loaded_models import shared_models
from sharpwave.settings import load_settings
from sharpwave.statistics import wilson_interval

if TYPE_CHECKING:
    from carriers.language_model import LanguageModel
    from eval.corpora.corpus import CorpusFact
    from sharpwave.records import ProbeResult


def main(
    out: Annotated[Path, typer.Option(help="JSON Lines file; a line is appended for each scale.")],
    facts: Annotated[int, typer.Option(help="Facts to learn.")] = 64,
    known: Annotated[int, typer.Option(help="Known calibration facts to measure damage on.")] = 120,
    seed: Annotated[int, typer.Option(help="Seeds the draw of facts and the training.")] = 0,
    scale: Annotated[list[float] | None, typer.Option(help="Scales to probe. Repeatable.")] = None,
    profile: Annotated[str, typer.Option(help="Profile whose models are used.")] = "embedded",
    overrides: Annotated[list[str] | None, typer.Option("--set", help="Settings of the recipe.")] = None,
) -> None:
    """Train once, probe at each scale, and print the figures."""
    settings = load_settings(profile, overrides or [])
    recipe, min_prob = settings.consolidation.write_back, settings.consolidation.probe.min_token_prob
    models = shared_models(settings.models)
    bank = read_anchors(settings.consolidation.anchors_file)
    targets = _unknown_targets(models.reader, facts, seed)
    kept = {"gate": gate_facts(bank), "calibration": _known(models.reader, known, seed, bank)}
    before = {name: probe_known(models.reader, asked, 0) for name, asked in kept.items()}
    anchors = training_anchors(bank, recipe, seed)
    prose_before = perplexity(models.reader)
    with tempfile.TemporaryDirectory() as folder:
        update, stacked = Path(folder) / "update", Path(folder) / "stacked"
        receipt = train_update(
            models.load_large(None),
            training_targets(targets),
            anchors,
            recipe,
            update,
            seed=seed,
            on_log=_show,
        )
        for factor in scale or [1.0]:
            stack_adapters(None, update, stacked, factor)
            model = models.load_large(stacked)
            probes = probe_targets(model, targets, 1)
            figures: dict[str, Any] = {
                "scale": factor,
                "facts": len(targets),
                "proven": share(len(proven_ids(probes, min_prob)), len(targets)),
                "forms": {form: _passed(probes, form, min_prob) for form in TARGET_FORMS},
            }
            for name, asked in kept.items():
                findings = find_damage(before[name], probe_known(model, asked, 1))
                figures[f"damaged_{name}"] = share(len(findings.damaged), findings.stable_probed)
            figures |= {
                "perplexity_ratio": perplexity(model) / prose_before,
                "tokens_per_second": round(receipt.trained_tokens / receipt.seconds),
                **receipt.figures(),
                "recipe": recipe.model_dump(),
                "seed": seed,
            }
            sys.stdout.write(json.dumps(figures, indent=2) + "\n")
            with out.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(figures) + "\n")


def _show(losses: Mapping[str, float], step: int) -> None:
    parts = ", ".join(f"{name} {value:.4f}" for name, value in losses.items())
    sys.stderr.write(f"\rstep {step}: {parts}   ")


def _unknown_targets(model: LanguageModel, wanted: int, seed: int) -> list[FactTargets]:
    """Return targets for facts of the head-training split that the model does not know."""
    pool = router_facts({"train": 2 * wanted + 40}, seed)["train"]
    matches = model.match_answers(
        [closed_book(item.probe_question) for item in pool],
        [item.fact.answers for item in pool],
        CLOSED_BOOK_PREFIX,
    )
    unknown = [item for item, match in zip(pool, matches, strict=True) if not match.matched]
    kept, _ = check_targets([_targets(item) for item in unknown])
    return [kept[place * len(kept) // wanted] for place in range(wanted)]


def _targets(item: CorpusFact) -> FactTargets:
    *train, paraphrase = item.fact.questions
    return FactTargets(
        fact_id=item.id,
        text=item.fact.text,
        answers=item.fact.answers,
        train_questions=tuple(train),
        paraphrase=paraphrase,
    )


def _known(model: LanguageModel, wanted: int, seed: int, bank: Sequence[Any]) -> list[KnownFact]:
    found = known_world_facts(
        model, "calibration", wanted, seed, known_elsewhere={item.question for item in bank}
    )
    return [
        KnownFact(fact_id=known.item.id, question=known.item.probe_question, answers=known.item.fact.answers)
        for known in found[:wanted]
    ]


def _passed(probes: Sequence[ProbeResult], form: str, min_prob: float) -> dict[str, float]:
    chosen = [probe for probe in probes if probe.prompt_form == form]
    return share(len(proven_ids(chosen, min_prob)), len(chosen))


def share(hits: int, n: int) -> dict[str, float]:
    """Return a share of n with its 95 % interval, rounded."""
    low, high = wilson_interval(hits, n)
    return {"share": round(hits / n, 3), "low": round(low, 3), "high": round(high, 3), "n": n}


if __name__ == "__main__":
    typer.run(main)
