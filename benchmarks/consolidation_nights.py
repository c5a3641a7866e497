"""Measure whole consolidations on a real store: what is learnt, what is damaged, what many nights leave.

    .venv/bin/python benchmarks/consolidation_nights.py --out consolidation.json

Per seed two nights on one store, then a row of nights on another. Facts to learn come from the report
split and from an agent's own world; facts that the store keeps as known, and may therefore
replay, come from the calibration split. Stable facts, on which damage is counted, are facts of the report split that
the base model answers in at least two of their four wordings; no training sees, replays or gates on them. What is
finished is kept beside `--out`, so a killed run goes on. (A script named like the package would hide it.)
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from machine_rate import sgemm_gflops
from trainer_overhead import trainer_overhead

from carriers.prompts import CLOSED_BOOK_PREFIX, closed_book
from carriers.scoped_model import ScopedLanguageModel
from consolidation import night
from consolidation.anchors import read_anchors
from consolidation.general_text import perplexity
from eval.corpora.agent_world import SPANISH_SHARE, AgentInventor, agent_world
from eval.corpora.splits import split_of
from eval.corpora.stable_draw import StableDraw
from eval.corpora.world import load_world_corpus
from serving.agent_memory import AgentMemory, in_scope
from serving.loaded_models import shared_models
from sharpwave.matching import exact_match
from sharpwave.records import Fact, FactStatus, RouteAction, RouteDecision, RouteStage
from sharpwave.settings import Settings, load_settings
from sharpwave.statistics import wilson_interval

if TYPE_CHECKING:
    from carriers.external_memory import ExternalMemory
    from carriers.text_model import TextModel
    from consolidation.records import NightPlan, NightReport, NightVerdict
    from eval.corpora.corpus import CorpusFact

_NEEDED_WORDINGS = 2
_REFUSED_SHARE = 0.25  # of the stored facts a night may leave, so that it has a choice


@dataclass(frozen=True)
class Knowledge:
    """What the base model answers, each wording of each world fact, and its perplexity on general text."""

    answered: Mapping[str, Sequence[bool]]
    perplexity: float

    def known(self, items: Sequence[CorpusFact]) -> list[CorpusFact]:
        """Return the facts answered in at least two wordings."""
        return [item for item in items if sum(self.answered[item.id]) >= _NEEDED_WORDINGS]

    def unknown(self, items: Sequence[CorpusFact]) -> list[CorpusFact]:
        """Return the facts answered in no wording."""
        return [item for item in items if not any(self.answered[item.id])]


def main(
    out: Annotated[Path, typer.Option(help="JSON file for the figures.")],
    seeds: Annotated[int, typer.Option(min=1, help="Seeds: 3 means 0, 1 and 2.")] = 3,
    facts: Annotated[int, typer.Option(help="Facts that one night writes back.")] = 200,
    nights: Annotated[int, typer.Option(help="Nights in a row, with each seed.")] = 10,
    night_facts: Annotated[int, typer.Option(help="Facts that each night of the row writes back.")] = 32,
    updates: Annotated[
        int, typer.Option(help="Learnt facts whose value changes before the second night.")
    ] = 40,
    profile: Annotated[str, typer.Option(help="Profile whose models are used.")] = "embedded",
    overrides: Annotated[list[str] | None, typer.Option("--set", help="Settings of the recipe.")] = None,
) -> None:
    """Run the nights and print the figures."""
    settings = load_settings(profile, overrides or [])
    models = shared_models(settings.models)
    parts = out.with_suffix(".parts")
    parts.mkdir(parents=True, exist_ok=True)
    knowledge = _knowledge(models.reader, parts / "knowledge.json")
    runs = [
        _once(
            parts / f"seed-{seed}.json",
            lambda seed=seed: _two_nights(settings, knowledge, facts, updates, seed),
        )
        for seed in range(seeds)
    ]
    rows = [
        _once(
            parts / f"nights-{seed}.json",
            lambda seed=seed: _row_of_nights(settings, knowledge, nights, night_facts, seed),
        )
        for seed in range(seeds)
    ]
    overhead = _once(parts / "overhead.json", lambda: trainer_overhead(settings, facts=64, repeats=2))
    figures = _summary(runs, rows, settings) | {"trainer_overhead": overhead["trainer_overhead"]}
    out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(
        json.dumps({**figures, "nights": "see the file", "per_seed": "see the file"}, indent=2) + "\n"
    )


def _once(file: Path, measure: Any) -> dict[str, Any]:
    """Return what a file holds; measure and write it if it is not there."""
    if not file.exists():
        temporary = file.with_suffix(".new")
        temporary.write_text(json.dumps(measure()), encoding="utf-8")
        temporary.replace(file)
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _knowledge(model: TextModel, file: Path) -> Knowledge:
    items = [item for item in load_world_corpus() if split_of(item.group) in ("report", "calibration")]

    def ask() -> dict[str, list[bool]]:
        answered: dict[str, list[bool]] = {}
        for start in range(0, len(items), 128):
            answered |= _answered(model, items[start : start + 128])
            sys.stderr.write(f"\rasking the base model: {len(answered)} of {len(items)}")
        return answered

    return Knowledge(_once(file, ask), perplexity(model))


def _answered(model: TextModel, items: Sequence[CorpusFact]) -> dict[str, list[bool]]:
    """Ask every wording of each fact, after the few-shot prefix; one teacher-forced pass each."""
    rows = [(item, question) for item in items for question in item.fact.questions]
    matches = model.match_answers(
        [closed_book(question) for _, question in rows],
        [item.fact.answers for item, _ in rows],
        CLOSED_BOOK_PREFIX,
    )
    found: dict[str, list[bool]] = {}
    for (item, _), match in zip(rows, matches, strict=True):
        found.setdefault(item.id, []).append(bool(match.matched))
    return found


def _two_nights(
    settings: Settings, knowledge: Knowledge, facts: int, updates: int, seed: int
) -> dict[str, Any]:
    """Learn facts in one night; change some of their values and learn those in a second."""
    settings = _evicting_at_once(settings)
    world = _split("report", seed)
    stable = knowledge.known(world)
    changes = _changes(updates, seed)
    pool = _new_facts(knowledge, world, round(facts / (1 - _REFUSED_SHARE)) - len(changes), seed)
    pool += [old for old, _ in changes]
    known = knowledge.known(_split("calibration", seed))
    with _store(settings, facts, seed) as (own, memory):
        _admit(memory.memory, pool, RouteAction.WRITE_NEW, "first")
        _admit(memory.memory, known, RouteAction.NON_WRITE, "known")
        asked = [*pool, *known]
        before = {"em": _em(memory, asked), "storage": _storage(memory.memory)}
        plan, verdict, report, train_wall = _night(memory, own, "night-1", seed)
        figures = _weights_figures(memory, stable, knowledge, plan, pool)
        figures |= _scope_figures(memory, stable, knowledge)
        figures |= {
            "status": report.status,
            "scale": report.scale,
            "n_selected": report.selected,
            "internalised": report.internalised,
            "damaged_of_store": report.damaged,
            "stable_of_store": report.stable_probed,
            "readmitted": report.readmitted,
            "em_before": before["em"],
            "em_after": _em(memory, asked),
            "em_after_without_readmission": _em_without_readmission(own, memory, asked, verdict),
            "storage_before": before["storage"],
            "storage_after": _storage(memory.memory),
            "n_asked": len(asked),
            "train_seconds": train_wall,
            "tokens_per_second": report.training.trained_tokens / report.training.seconds
            if report.training
            else 0,
            "trainer_seconds": report.training.seconds if report.training else 0,
            "trained_tokens": report.training.trained_tokens if report.training else 0,
        }
        figures |= _changed_values(own, memory, changes, verdict, seed)
    return figures


def _changed_values(
    settings: Settings,
    memory: AgentMemory,
    changes: Sequence[tuple[CorpusFact, CorpusFact]],
    verdict: NightVerdict,
    seed: int,
) -> dict[str, Any]:
    """Let newer values of learnt facts arrive; tell what is answered at once, and what after a night."""
    learnt = set(verdict.proven)
    pairs = [(old, new) for old, new in changes if old.id in learnt]
    if not pairs:
        return {"updates": 0, "updates_proven": 0}
    new_values = [new for _, new in pairs]
    _admit(memory.memory, new_values, RouteAction.WRITE_UPDATE, "changed")
    at_once = _em(memory, new_values)
    _, second, report, _ = _night(memory, _taking(settings, len(pairs)), "night-2", seed)
    trained = [old for old, new in pairs if new.id in set(second.proven)]
    return {
        "updates": len(pairs),
        "em_updates_before_their_night": at_once,
        "em_updates_after_their_night": _em(memory, new_values),
        "updates_proven": len(trained),
        "old_values_answered": _share_answered(_weights(memory), trained),
        "second_night": report.status,
    }


def _row_of_nights(
    settings: Settings, knowledge: Knowledge, nights: int, night_facts: int, seed: int
) -> dict[str, Any]:
    """Let facts arrive and consolidate, night after night; ask after each what all nights so far have proven."""
    world = _split("report", seed)
    stable = knowledge.known(world)
    pool = _new_facts(knowledge, world, nights * night_facts, seed)
    known = knowledge.known(_split("calibration", seed))
    proven: dict[str, CorpusFact] = {}
    rows: list[dict[str, Any]] = []
    with _store(settings, night_facts, seed) as (own, memory):
        _admit(memory.memory, known, RouteAction.NON_WRITE, "known")
        for number in range(nights):
            arrived = pool[number * night_facts : (number + 1) * night_facts]
            _admit(memory.memory, arrived, RouteAction.WRITE_NEW, f"day-{number}")
            plan, verdict, report, seconds = _night(memory, own, f"night-{number + 1:02d}", number)
            proven |= {item.id: item for item in pool if item.id in set(verdict.proven)}
            is_looked_at = number in {0, nights // 2, nights - 1}  # asking all stable facts takes a minute
            figures = _weights_figures(memory, stable, knowledge, plan, pool) if is_looked_at else {}
            earlier = list(proven.values())
            rows.append(
                figures
                | {
                    "seed": seed,
                    "night": number + 1,
                    "status": report.status,
                    "n_selected": report.selected,
                    "internalised": report.internalised,
                    "proven_so_far": len(earlier),
                    "proven_still_in_weights": _share_answered(_weights(memory), earlier),
                    "proven_still_answered": _em(memory, earlier) if earlier else None,
                    "damaged_of_store": report.damaged,
                    "readmitted": report.readmitted,
                    "storage": _storage(memory.memory),
                    "train_seconds": seconds,
                }
            )
            sys.stderr.write(f"\nnight {number + 1}: {json.dumps(rows[-1])}\n")
        again = _arriving_again(memory, list(proven.values())) if proven else {}
    return {"nights": rows, **again}


def _split(name: str, seed: int) -> list[CorpusFact]:
    items = [item for item in load_world_corpus() if split_of(item.group) == name]
    return StableDraw(seed, f"consolidation-benchmark/{name}").shuffled(items, "items")


def _new_facts(knowledge: Knowledge, world: Sequence[CorpusFact], count: int, seed: int) -> list[CorpusFact]:
    """Return facts that the base model does not know: half about the world, half an agent's own, mixed."""
    unknown = knowledge.unknown(world)[: count // 2]
    own = [item for item in agent_world(4 * count, seed) if split_of(item.group) == "report"][
        : count - len(unknown)
    ]
    return StableDraw(seed, "consolidation-benchmark/new").shuffled([*unknown, *own], "mix")


def _changes(count: int, seed: int) -> list[tuple[CorpusFact, CorpusFact]]:
    """Return facts of the report split about an agent's own people, each with the value that replaces it later."""
    inventor = AgentInventor(seed, spanish_share=SPANISH_SHARE, part=1)
    pairs = (inventor.change(index) for index in range(10 * count))
    chosen = [pair for pair in pairs if split_of(pair[0].group) == "report"][:count]
    # Both carry the corpus's stamp; of two values that began to hold at one moment neither is the newer.
    return [(old, replace(new, fact=_a_day_later(new.fact))) for old, new in chosen]


def _a_day_later(fact: Fact) -> Fact:
    return fact.model_copy(update={"observed_at": fact.observed_at + timedelta(days=1)})


@contextmanager
def _store(settings: Settings, facts: int, seed: int) -> Iterator[tuple[Settings, AgentMemory]]:
    """Open an empty store whose nights take at most so many facts."""
    with tempfile.TemporaryDirectory() as folder:
        place = settings.store.model_copy(update={"path": Path(folder) / "store"})
        own = _taking(settings, facts).model_copy(update={"seed": seed, "store": place})
        with AgentMemory.open(own, writer=True) as memory:
            yield own, memory


def _admit(memory: ExternalMemory, items: Sequence[CorpusFact], action: RouteAction, run_id: str) -> None:
    """Let facts arrive with a decision made beforehand: consolidation is measured here, not the router."""
    chance = {kind: float(kind is action) for kind in RouteAction}
    memory.observe([item.fact for item in items], run_id)
    memory.route(
        [
            RouteDecision(
                fact_id=item.id,
                action=action,
                stage=RouteStage.POLICY,
                p_non_write=chance[RouteAction.NON_WRITE],
                p_write_new=chance[RouteAction.WRITE_NEW],
                p_write_update=chance[RouteAction.WRITE_UPDATE],
                expected_gain=1.0 - chance[RouteAction.NON_WRITE],
                storage_price=0.0,
                escalation_price=0.0,
                router_version="given",
                generation=memory.generations.current().number,
                reason="given by the benchmark",
            )
            for item in items
        ],
        run_id,
    )


def _night(
    memory: AgentMemory, settings: Settings, run_id: str, seed: int
) -> tuple[NightPlan, NightVerdict, NightReport, float]:
    """Run one night; return its records and the seconds of its training, the teacher's reading included."""
    chosen, load = settings.consolidation, memory.models.load_large
    bank = read_anchors(chosen.anchors_file)
    plan = night.plan_night(
        memory.memory,
        chosen,
        run_id,
        memory.models.reader.fingerprint,
        lambda facts: ([], []),
        bank=bank,
        seed=seed,
        load_generation=memory.models.generation,
    )
    begun = time.perf_counter()
    training = night.train_shadow(memory.memory, plan, chosen, bank, load, _show)
    seconds = time.perf_counter() - begun
    verdict = night.judge_shadow(memory.memory, plan, training, chosen, bank, memory.models.load_generation)
    return plan, verdict, night.apply_verdict(memory.memory, plan, training, verdict), seconds


def _show(losses: Mapping[str, float], step: int) -> None:
    parts = ", ".join(f"{name} {value:.4f}" for name, value in losses.items())
    sys.stderr.write(f"\rstep {step}: {parts}   ")


def _weights(memory: AgentMemory) -> TextModel:
    return memory.models.generation(
        memory.memory.generations.adapter_folder(memory.memory.generations.current().number)
    )


def _weights_figures(
    memory: AgentMemory,
    stable: Sequence[CorpusFact],
    knowledge: Knowledge,
    plan: NightPlan,
    pool: Sequence[CorpusFact],
) -> dict[str, Any]:
    """Return what the current generation answers by itself: what was taught, in unseen words, and stable facts."""
    weights = _weights(memory)
    taught = {item.fact_id for item in plan.targets}
    after = _answered(weights, stable)
    wordings = [
        pair for item in stable for pair in zip(knowledge.answered[item.id], after[item.id], strict=True)
    ]
    return {
        "n_stable": len(stable),
        "stable_kept": sum(sum(flags) >= _NEEDED_WORDINGS for flags in after.values()),
        "wordings_answered": sum(was for was, _ in wordings),
        "wordings_kept": sum(was and still for was, still in wordings),
        "wordings_answered_after": sum(still for _, still in wordings),
        "paraphrase_rate": _share_answered(weights, [item for item in pool if item.id in taught]),
        "perplexity_ratio": perplexity(weights) / knowledge.perplexity,
    }


def _scope_figures(memory: AgentMemory, stable: Sequence[CorpusFact], knowledge: Knowledge) -> dict[str, Any]:
    """Return how many questions about stable facts the updates answer, and what the last would damage without scope."""
    model = _weights(memory)
    if not isinstance(model, ScopedLanguageModel):
        return {"stable_questions_in_scope": None, "stable_kept_without_scope": None}
    asked = [question for item in stable for question in item.fact.questions]
    last = model.updated(len(model.scope.ranks) - 1)
    after = _answered(last, stable)
    return {
        "stable_questions": len(asked),
        "stable_questions_in_scope": sum(model.scope.covers(asked)),
        "stable_kept_without_scope": sum(sum(flags) >= _NEEDED_WORDINGS for flags in after.values()),
        "perplexity_ratio_without_scope": perplexity(last) / knowledge.perplexity,
    }


def _arriving_again(memory: AgentMemory, learnt: Sequence[CorpusFact]) -> dict[str, Any]:
    """Route what was proven as if it arrived for the first time: by the base model, and by the current generation."""
    facts, current = [item.fact for item in learnt], memory.memory.generations.current().number
    shares = {}
    for who, adapter in (("base", None), ("current", memory.memory.generations.adapter_folder(current))):
        router = memory.router_of(adapter)
        decisions = router.decide(facts, current, learnt_ids=in_scope(router.large_model, facts))
        actions = [decision.action for decision in decisions]
        shares[f"non_write_by_{who}"] = actions.count(RouteAction.NON_WRITE) / len(facts)
    return {"n_arriving_again": len(facts), **shares}


def _taking(settings: Settings, facts: int) -> Settings:
    """Return settings whose nights take at most so many facts."""
    selection = settings.consolidation.selection.model_copy(update={"max_facts": facts})
    consolidation = settings.consolidation.model_copy(update={"selection": selection})
    return settings.model_copy(update={"consolidation": consolidation})


def _evicting_at_once(settings: Settings) -> Settings:
    consolidation = settings.consolidation.model_copy(update={"evict_now": True})
    return settings.model_copy(update={"consolidation": consolidation})


def _share_answered(model: TextModel, items: Sequence[CorpusFact]) -> float | None:
    """Return the share of facts that a model answers by itself in a wording no memory has seen."""
    if not items:
        return None
    matches = model.match_answers(
        [closed_book(item.heldout_question) for item in items],
        [item.fact.answers for item in items],
        CLOSED_BOOK_PREFIX,
    )
    return float(np.mean([match.matched for match in matches]))


def _em(memory: AgentMemory, items: Sequence[CorpusFact]) -> float:
    """Return the exact match of the whole memory, store and weights, on wordings no memory has seen."""
    answers = memory.ask([item.heldout_question for item in items])
    return float(
        np.mean([exact_match(got.text, item.fact.answers) for got, item in zip(answers, items, strict=True)])
    )


def _em_without_readmission(
    settings: Settings, memory: AgentMemory, items: Sequence[CorpusFact], verdict: NightVerdict
) -> float:
    """Return the exact match had the damaged facts stayed out of the store: a copy of it without them."""
    damaged = set(verdict.damaged) | set(verdict.never_known)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "store"
        shutil.copytree(settings.store.path, copy)
        own = settings.model_copy(update={"store": settings.store.model_copy(update={"path": copy})})
        with AgentMemory.open(own, writer=True, models=memory.models) as other:
            other.memory.index.delete(sorted(damaged))
            return _em(other, items)


def _storage(memory: ExternalMemory) -> float:
    counts = memory.ledger.counts()
    return counts[FactStatus.HOT] / sum(counts.values())


def _summary(
    runs: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], settings: Settings
) -> dict[str, Any]:
    """Put the seeds together: shares over all facts with their intervals, the mean of the rest."""
    figures: dict[str, Any] = {"seed": list(range(len(runs)))}
    intervals: dict[str, tuple[float, float]] = {}

    def share(name: str, hits: float, n: int) -> None:
        interval = wilson_interval(round(hits), n)
        figures[name], intervals[name] = hits / n, (interval.low, interval.high)

    selected, stable = (sum(run[key] for run in runs) for key in ("n_selected", "n_stable"))
    internalised = sum(run["internalised"] for run in runs)
    lost = stable - sum(run["stable_kept"] for run in runs)
    figures["n_selected"], figures["n_stable"] = selected, stable
    share("internalised_rate", internalised, selected)
    share("paraphrase_rate", sum(run["paraphrase_rate"] * run["n_selected"] for run in runs), selected)
    # All seeds ask about the same stable facts, so their number counts once.
    share("stable_kept_rate", (stable - lost) / len(runs), stable // len(runs))
    share(
        "wordings_kept_rate",
        *(sum(run[key] for run in runs) / len(runs) for key in ("wordings_kept", "wordings_answered")),
    )
    scoped = [run for run in runs if run["stable_questions_in_scope"] is not None]
    if scoped:
        figures["stable_in_scope_rate"] = float(
            np.mean([run["stable_questions_in_scope"] / run["stable_questions"] for run in scoped])
        )
        figures["stable_kept_rate_without_scope"] = float(
            np.mean([run["stable_kept_without_scope"] / run["n_stable"] for run in scoped])
        )
        figures["perplexity_ratio_without_scope"] = float(
            np.mean([run["perplexity_ratio_without_scope"] for run in scoped])
        )
    proven_rows = [row for row in rows if "n_arriving_again" in row]
    if proven_rows:
        lasts = [row["nights"][-1] for row in proven_rows]
        still = sum(last["proven_still_answered"] * last["proven_so_far"] for last in lasts)
        share("still_answered_after_nights", still, sum(last["proven_so_far"] for last in lasts))
        arriving = sum(row["n_arriving_again"] for row in proven_rows)
        for key in ("non_write_by_base", "non_write_by_current"):
            share(key, sum(row[key] * row["n_arriving_again"] for row in proven_rows), arriving)
    figures["damage_per_internalised"] = lost / stable / (internalised / selected) if internalised else None
    means = (
        "perplexity_ratio em_before em_after em_after_without_readmission storage_before storage_after train_seconds "
        "tokens_per_second"
    )
    for key in means.split():
        figures[key] = float(np.mean([run[key] for run in runs]))
    changed = [run for run in runs if run["updates"]]
    for key in ("em_updates_before_their_night", "em_updates_after_their_night"):
        figures[key] = float(np.mean([run[key] for run in changed])) if changed else None
    proven = sum(run["updates_proven"] for run in runs)
    if proven:
        answered = sum((run["old_values_answered"] or 0) * run["updates_proven"] for run in runs)
        share("old_values_answered", answered, proven)
    gflops = sgemm_gflops()
    needed = _flops_per_token(settings) * figures["tokens_per_second"] / 1e9
    figures |= {"sgemm_gflops": gflops, "sgemm_share": needed / gflops}
    figures |= {
        "intervals": intervals,
        "nights": [night for row in rows for night in row["nights"]],
        "per_seed": list(runs),
    }
    return figures


def _flops_per_token(settings: Settings) -> float:
    """Return what a training token costs at least: forward and backward through the frozen maps, 4 per parameter."""
    model = shared_models(settings.models).reader.model
    names = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    return 4.0 * sum(
        int(parameter.numel())
        for name, parameter in model.named_parameters()
        if any(part in name for part in names)
    )


if __name__ == "__main__":
    typer.run(main)
