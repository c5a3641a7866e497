"""The reference engine: a transformers model run as it is, on the CPU or a GPU, in float32."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from carriers.text_model import (
    LOGIT_ROWS,
    STATISTICS,
    FloatArray,
    ModelSizes,
    TokenIds,
    judged_places,
    padded,
    split_by_row,
)

if TYPE_CHECKING:
    import torch


def model_sizes(model: Any) -> ModelSizes:
    """Read off a model what the cost of a pass depends on."""
    return ModelSizes(
        width=int(model.config.hidden_size),
        vocabulary=int(model.config.vocab_size),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        positions=int(model.config.max_position_embeddings),
    )


def pooled_layers(states: Sequence[Any]) -> list[Any]:
    """Choose the hidden states at one half, three quarters and the end of the depth."""
    depth = len(states) - 1
    return [states[depth // 2], states[(3 * depth) // 4], states[-1]]


def token_statistics(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Reduce logits [n, vocabulary] and the tokens that should come, [n], to `STATISTICS`, [n, 5]."""
    import torch

    true = logits.gather(1, targets[:, None])
    best = logits.topk(2, dim=1).values
    first, second = best[:, :1], best[:, 1:]
    log_normaliser = torch.logsumexp(logits, dim=1, keepdim=True)
    rank = (logits > true).sum(1, keepdim=True).to(logits.dtype)
    mean_logit = (torch.exp(logits - log_normaliser) * logits).sum(1, keepdim=True)
    margin = true - torch.where(rank == 0, second, first)
    nll, entropy, own = (log_normaliser - logit for logit in (true, mean_logit, first))
    return torch.cat([nll, entropy, torch.log1p(rank), margin, own], dim=1)


class PrefixCaches:
    """Key-value caches of constant prefixes, each encoded once per model."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._kept: dict[tuple[int, ...], Any] = {}

    def fresh(self, prefix: TokenIds, rows: int) -> Any:
        """Return a cache of the prefix for a batch of `rows` that may be written to; None without a prefix."""
        import torch

        if not prefix:
            return None
        key = tuple(prefix)
        if key not in self._kept:
            ids = torch.tensor([list(prefix)], device=self._model.device)
            self._kept[key] = self._model.base_model(input_ids=ids, use_cache=True).cache
        cache = copy.deepcopy(self._kept[key])
        cache.batch_repeat_interleave(rows)
        return cache


class TorchEngine:
    """Runs a transformers model; see `PassEngine`."""

    name = ""

    def __init__(self, model: Any, prefixes: PrefixCaches) -> None:
        self._model = model
        self._prefixes = prefixes

    def forward(
        self, sequences: Sequence[TokenIds], starts: Sequence[int], prefix: TokenIds
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Run one batch; see `PassEngine`."""
        import torch

        device = self._model.device
        with torch.inference_mode():
            ids, mask = (torch.from_numpy(array).to(device) for array in padded(sequences))
            before = torch.ones(len(ids), len(prefix), dtype=mask.dtype, device=device)
            cache = self._prefixes.fresh(prefix, len(ids))
            output = self._model.base_model(
                input_ids=ids,
                attention_mask=torch.cat([before, mask], dim=1),
                position_ids=len(prefix) + torch.arange(ids.shape[1], device=device).expand(len(ids), -1),
                cache=cache,
                use_cache=cache is not None,
                output_hidden_states=True,
            )
            rows, columns, targets = (
                torch.from_numpy(array).to(device) for array in judged_places(sequences, starts)
            )
            statistics = self._statistics(output.last_hidden_state[rows, columns], targets)
            weights = mask.to(output.last_hidden_state.dtype)
            weights[:, 0] = 0
            weights /= weights.sum(1, keepdim=True).clamp(min=1)
            states = pooled_layers([*output.hidden_states[:-1], output.last_hidden_state])
            pooled = torch.stack([torch.einsum("btd,bt->bd", layer, weights) for layer in states], 1)
        return pooled.cpu().numpy(), split_by_row(statistics, sequences, starts)

    def _statistics(self, hidden: torch.Tensor, targets: torch.Tensor) -> FloatArray:
        parts = [
            token_statistics(
                self._model.lm_head(hidden[start : start + LOGIT_ROWS]), targets[start : start + LOGIT_ROWS]
            )
            .cpu()
            .numpy()
            for start in range(0, len(hidden), LOGIT_ROWS)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(STATISTICS)), dtype=np.float32)
