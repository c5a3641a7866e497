"""Probes: does a model answer a fact from its weights alone, in which form, and how surely?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from carriers.prompts import CLOSED_BOOK_PREFIX, closed_book
from sharpwave.records import ProbeResult

if TYPE_CHECKING:
    from carriers.text_model import TextModel
    from consolidation.records import FactTargets, KnownFact

TARGET_FORMS = ("trained", "trained_few_shot", "paraphrase", "paraphrase_few_shot")


def probe_targets(model: TextModel, targets: Sequence[FactTargets], generation: int) -> list[ProbeResult]:
    """Ask each fact in four forms: a trained and an unseen wording, each with and without the few-shot prefix."""
    results: list[ProbeResult] = []
    for form in TARGET_FORMS:
        unseen, prefix = (
            form.startswith("paraphrase"),
            CLOSED_BOOK_PREFIX if form.endswith("few_shot") else "",
        )
        questions = [item.paraphrase if unseen else item.train_questions[0] for item in targets]
        results += _ask(
            model,
            [
                (item.fact_id, question, item.answers)
                for item, question in zip(targets, questions, strict=True)
            ],
            form,
            prefix,
            generation,
        )
    return results


def probe_known(model: TextModel, facts: Sequence[KnownFact], generation: int) -> list[ProbeResult]:
    """Ask each formerly known fact once, with the few-shot prefix."""
    rows = [(fact.fact_id, fact.question, fact.answers) for fact in facts]
    return _ask(model, rows, "known_few_shot", CLOSED_BOOK_PREFIX, generation)


def _ask(
    model: TextModel,
    rows: Sequence[tuple[str, str, tuple[str, ...]]],
    form: str,
    prefix: str,
    generation: int,
) -> list[ProbeResult]:
    prompts = [closed_book(question) for _, question, _ in rows]
    matches = model.match_answers(prompts, [answers for _, _, answers in rows], prefix)
    return [
        ProbeResult(
            fact_id=fact_id,
            generation=generation,
            prompt_form=form,
            matched=match.matched,
            lowest_answer_prob=match.lowest_prob,
            margin=match.margin,
        )
        for (fact_id, _, _), match in zip(rows, matches, strict=True)
    ]


def proven_ids(probes: Iterable[ProbeResult], min_token_prob: float) -> list[str]:
    """Return the facts answered in every form with every answer token above the probability; order kept."""
    results = list(probes)
    failed = failed_probes(results, min_token_prob)
    return [fact_id for fact_id in dict.fromkeys(probe.fact_id for probe in results) if fact_id not in failed]


def failed_probes(probes: Iterable[ProbeResult], min_token_prob: float) -> dict[str, list[ProbeResult]]:
    """Return, by fact, the probes that keep it from being proven."""
    failed: dict[str, list[ProbeResult]] = {}
    for probe in probes:
        if not (probe.matched and probe.lowest_answer_prob > min_token_prob):
            failed.setdefault(probe.fact_id, []).append(probe)
    return failed


def why_not_proven(failed: Sequence[ProbeResult]) -> str:
    """Return in words which forms failed, each with its lowest token probability."""
    forms = [f"{probe.prompt_form.replace('_', ' ')} ({probe.lowest_answer_prob:.2f})" for probe in failed]
    return "not proven: " + (", ".join(forms) or "not probed")


def matched_ids(probes: Iterable[ProbeResult]) -> set[str]:
    """Return the facts that at least one probe found answered."""
    return {probe.fact_id for probe in probes if probe.matched}
