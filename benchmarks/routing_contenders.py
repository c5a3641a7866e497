"""Ways to decide about facts that `routing.py` compares, each measured in a process of its own."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from carriers.text_model import FloatArray, TextModel, TokenIds, judged_places, padded, split_by_row
from carriers.torch_engine import PrefixCaches, pooled_layers
from eval.admission import ModelJudge
from routers.cascade import CascadeRouter
from serving.agent_memory import AgentMemory
from serving.front_door import FrontDoor
from serving.loaded_models import LoadedModels
from sharpwave.cpu import set_up_torch
from sharpwave.records import Fact

if TYPE_CHECKING:
    from routers.heads import RouterHeads
    from sharpwave.settings import Settings

_PLAIN_ROWS = 16
_GROUPED = 64


class PlainEngine:
    """What anybody would write with transformers: padded rows as they come, log-softmax over the whole vocabulary.

    The few-shot prefix's key-value cache is reused, as a careful user would.
    """

    name = "plain"

    def __init__(self, model: Any) -> None:
        self._model = model
        self._prefixes = PrefixCaches(model)

    def forward(
        self, sequences: Sequence[TokenIds], starts: Sequence[int], prefix: TokenIds
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Run one batch, a few rows at a time; see `text_model.PassEngine`."""
        pooled, statistics = [], []
        for start in range(0, len(sequences), _PLAIN_ROWS):
            rows = slice(start, start + _PLAIN_ROWS)
            states, part = self._forward(sequences[rows], starts[rows], prefix)
            pooled.append(states)
            statistics += part
        return np.concatenate(pooled), statistics

    def _forward(
        self, sequences: Sequence[TokenIds], starts: Sequence[int], prefix: TokenIds
    ) -> tuple[FloatArray, list[FloatArray]]:
        import torch

        with torch.inference_mode():
            ids, mask = (torch.from_numpy(array) for array in padded(sequences))
            cache = self._prefixes.fresh(prefix, len(ids))
            output = self._model(
                input_ids=ids,
                attention_mask=torch.cat([torch.ones(len(ids), len(prefix), dtype=mask.dtype), mask], dim=1),
                cache=cache,
                use_cache=cache is not None,
                output_hidden_states=True,
            )
            log_probs = torch.log_softmax(output.logits, dim=-1)
            entropy = -(log_probs.exp() * log_probs).sum(-1)
            rows, columns, targets = (torch.from_numpy(array) for array in judged_places(sequences, starts))
            logits, scores = output.logits[rows, columns], log_probs[rows, columns]
            true = logits.gather(1, targets[:, None])
            rank = (logits > true).sum(1, keepdim=True)
            best = logits.topk(2, dim=1).values
            curves = torch.cat(
                [
                    -scores.gather(1, targets[:, None]),
                    entropy[rows, columns][:, None],
                    torch.log1p(rank),
                    true - torch.where(rank == 0, best[:, 1:], best[:, :1]),
                    -scores.max(1, keepdim=True).values,
                ],
                dim=1,
            )
            weights = mask.float()
            weights[:, 0] = 0
            weights /= weights.sum(1, keepdim=True).clamp(min=1)
            states = pooled_layers(output.hidden_states)
            pooled = torch.stack([(state * weights[:, :, None]).sum(1) for state in states], 1)
        return pooled.numpy(), split_by_row(curves.numpy(), sequences, starts)


def measure(
    name: str, settings: Settings, heads: RouterHeads, facts: Sequence[Fact], limit: int
) -> dict[str, Any]:
    """Decide about facts in one way and return how fast it went and what was decided.

    Args:
        name: One of `CONTENDERS`.
        settings: Names the models.
        heads: For those ways that use them.
        facts: What to decide about.
        limit: Decide about the first so many only; 0 takes all.

    Returns:
        `facts_per_second`, `p50_ms`, `p95_ms` per call, `peak_mib`, and `decisions`, [facts] dictionaries.
    """
    set_up_torch()
    chosen = list(facts[:limit] if limit else facts)
    decide, per_call = CONTENDERS[name](settings, heads)
    decide(chosen[:per_call])  # loads models and encodes prefixes
    decisions: list[dict[str, Any]] = []
    seconds = []
    for start in range(0, len(chosen), per_call):
        begun = time.perf_counter()
        decisions += decide(chosen[start : start + per_call])
        seconds.append(time.perf_counter() - begun)
        sys.stderr.write(f"\r{name}: {len(decisions)} of {len(chosen)}")
    sys.stderr.write("\n")
    p50, p95 = np.quantile(np.array(seconds) * 1000, [0.5, 0.95])
    return {
        "n": len(chosen),
        "facts_per_call": per_call,
        "facts_per_second": len(chosen) / sum(seconds),
        "p50_ms": float(p50),
        "p95_ms": float(p95),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "decisions": decisions,
    }


def measure_door(settings: Settings, facts: Sequence[Fact], threads: int) -> dict[str, Any]:
    """Hand single facts to the front door from several threads: recorded, routed, embedded and stored, one by one.

    Returns:
        `facts_per_second` over all threads, `p50_ms` and `p95_ms` from handing a fact in to its outcome.
    """
    set_up_torch()
    warm, timed = facts[: 4 * threads], facts[4 * threads :]
    with tempfile.TemporaryDirectory() as folder:
        store = settings.store.model_copy(update={"path": Path(folder) / "store"})
        own = settings.model_copy(update={"store": store})
        with AgentMemory.open(own, writer=True) as memory, FrontDoor(memory, "door") as door:

            def hand_in(fact: Fact) -> float:
                begun = time.perf_counter()
                door.submit(fact).result()
                return time.perf_counter() - begun

            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(hand_in, warm))
                begun = time.perf_counter()
                seconds = list(pool.map(hand_in, timed))
                elapsed = time.perf_counter() - begun
    p50, p95 = np.quantile(np.array(seconds) * 1000, [0.5, 0.95])
    return {
        "threads": threads,
        "n": len(timed),
        "facts_per_second": len(timed) / elapsed,
        "p50_ms": float(p50),
        "p95_ms": float(p95),
    }


Decide = Callable[[Sequence[Fact]], list[dict[str, Any]]]


def _cascade(small: TextModel, large: TextModel, heads: RouterHeads) -> Decide:
    router = CascadeRouter(small, large, heads)

    def decide(facts: Sequence[Fact]) -> list[dict[str, Any]]:
        return [
            {"action": item.action.value, "is_write": item.action.is_write, "stage": item.stage.value}
            for item in router.decide(facts, 0)
        ]

    return decide


def _on_fast_engine(settings: Settings, heads: RouterHeads) -> Decide:
    models = LoadedModels(settings.models)
    return _cascade(models.small, models.large_screen(None), heads)


def _on_torch(settings: Settings, heads: RouterHeads) -> Decide:
    models = LoadedModels(settings.models.model_copy(update={"engine": "torch"}))
    return _cascade(models.small, models.large_screen(None), heads)


def _on_plain(settings: Settings, heads: RouterHeads) -> Decide:
    models = LoadedModels(settings.models.model_copy(update={"engine": "torch"}))
    plain = [
        TextModel(model.tokenizer, PlainEngine(model.model), model.sizes, name="plain", fingerprint="plain")
        for model in (models.small, models.large_screen(None))
    ]
    return _cascade(*plain, heads)


def _judge(settings: Settings, heads: RouterHeads) -> Decide:
    """The small model is asked in words whether it knows the fact; anything but yes stores it."""
    del heads
    judge = ModelJudge(LoadedModels(settings.models.model_copy(update={"engine": "torch"})).small)

    def decide(facts: Sequence[Fact]) -> list[dict[str, Any]]:
        return [{"is_write": not is_known} for is_known in judge.says_known(facts)]

    return decide


def _novelty(settings: Settings, heads: RouterHeads) -> Decide:
    """How unlike a fact is to all before it: one minus the highest cosine; the caller sets the bar."""
    del heads
    embedder = LoadedModels(settings.models).embedder
    seen: list[FloatArray] = []

    def decide(facts: Sequence[Fact]) -> list[dict[str, Any]]:
        rows = []
        for vector in np.asarray(embedder.embed([fact.text for fact in facts]), dtype=np.float32):
            likeness = float((np.stack(seen) @ vector).max()) if seen else 0.0
            rows.append({"novelty": 1 - likeness})
            seen.append(vector)
        return rows

    return decide


CONTENDERS: dict[str, Callable[[Settings, RouterHeads], tuple[Decide, int]]] = {
    "plain transformers, one by one": lambda settings, heads: (_on_plain(settings, heads), 1),
    "plain transformers, batched": lambda settings, heads: (_on_plain(settings, heads), _GROUPED),
    "torch engine, one by one": lambda settings, heads: (_on_torch(settings, heads), 1),
    "torch engine, batched": lambda settings, heads: (_on_torch(settings, heads), _GROUPED),
    "fast engine, one by one": lambda settings, heads: (_on_fast_engine(settings, heads), 1),
    "fast engine, batched": lambda settings, heads: (_on_fast_engine(settings, heads), _GROUPED),
    "LLM judge": lambda settings, heads: (_judge(settings, heads), 1),
    "embedding novelty": lambda settings, heads: (_novelty(settings, heads), 1),
}
