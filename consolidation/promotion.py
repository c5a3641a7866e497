"""The promotion gate: from the figures of each adapter scale to promote, shrink or discard. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from consolidation.records import ScaleTrial
    from sharpwave.settings import PromotionSettings


class GateDecision(NamedTuple):
    """The chosen scale, None to discard, and the reason in words."""

    scale: float | None
    reason: str


def passes(trial: ScaleTrial, settings: PromotionSettings) -> bool:
    """Tell whether one scale learns enough and damages little enough: gate facts and general text."""
    return (
        trial.internalised_rate >= settings.min_internalised_rate
        and trial.gate_damage_rate <= settings.max_damage_rate
        and trial.perplexity_ratio <= settings.max_perplexity_ratio
    )


def learns_too_little(trial: ScaleTrial, settings: PromotionSettings) -> bool:
    """Tell whether smaller scales are hopeless: a smaller update never holds more of what was trained."""
    return not trial.internalised_rate >= settings.min_internalised_rate


def decide(trials: Sequence[ScaleTrial], settings: PromotionSettings) -> GateDecision:
    """Choose the largest scale that passes; discard if none does."""
    probed = min(trial.gate_probed for trial in trials)
    if probed < settings.min_gate_facts:
        return GateDecision(
            None,
            f"the model answers only {probed} questions of the gate, {settings.min_gate_facts} are needed to measure "
            "damage; write the anchor bank anew with `sharpwave train-router`",
        )
    passing = [trial for trial in trials if passes(trial, settings)]
    if passing:
        best = max(passing, key=lambda trial: trial.scale)
        return GateDecision(
            best.scale,
            f"scale {best.scale:g}: {best.internalised_rate:.1%} internalised, "
            f"{best.gate_damage_rate:.1%} of {best.gate_probed} gate facts damaged, "
            f"perplexity times {best.perplexity_ratio:.3f}",
        )
    tried = "; ".join(
        f"scale {trial.scale:g}: {trial.internalised_rate:.1%} internalised, {trial.gate_damage_rate:.1%} damaged, "
        f"perplexity times {trial.perplexity_ratio:.3f}"
        for trial in trials
    )
    return GateDecision(
        None,
        f"no scale internalises at least {settings.min_internalised_rate:.0%}, damages at most "
        f"{settings.max_damage_rate:.0%} and keeps perplexity within {settings.max_perplexity_ratio:g} times the "
        f"former ({tried})",
    )
