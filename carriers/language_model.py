"""The parametric carrier: a causal language model that answers, and judges texts on the reference engine.

Greedy decoding lives here; the verbs that only judge are `text_model`'s. Few-shot prefixes are encoded once per model
and their key-value cache is reused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carriers.recent import remember
from carriers.text_model import TextModel, batches, padded
from carriers.torch_engine import PrefixCaches, TorchEngine, model_sizes

if TYPE_CHECKING:
    import torch

_TOKENS_PER_DECODE = 6144  # each decoding step reads all weights once: wide batches share that
_ANSWERS_KEPT = 4096


@dataclass(frozen=True)
class GeneratedAnswer:
    """A greedily decoded answer up to the line break, and the lowest probability among its tokens.

    `token_count` tokens were decoded after a prompt of `prompt_tokens`, the shared prefix left out.
    """

    text: str
    lowest_prob: float
    token_count: int
    prompt_tokens: int = 0


class LanguageModel(TextModel):
    """A causal language model in evaluation mode, optionally with one adapter merged in memory."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str, fingerprint: str) -> None:
        self._prefixes = PrefixCaches(model)
        engine = TorchEngine(model, self._prefixes)
        super().__init__(tokenizer, engine, model_sizes(model), name=name, fingerprint=fingerprint)
        self.model = model
        self._answers: dict[tuple[str, str, int], GeneratedAnswer] = {}

    @classmethod
    def load(cls, folder: Path, adapter: Path | None = None, *, name: str | None = None) -> LanguageModel:
        """Load a model folder (Hugging Face format, float32) onto the GPU, if there is one, with an adapter merged.

        Args:
            folder: Folder with config, tokenizer and safetensors.
            adapter: PEFT adapter folder; a key that fits nowhere is an error.
            name: Shown in reports; the folder's name by default.

        Raises:
            WeightsError: A weight is missing, left over or damaged, or the adapter does not apply.
        """
        import torch

        from carriers.adapters import merge_adapter, weights_fingerprint
        from carriers.model_weights import load_causal_lm
        from sharpwave.cpu import set_up_torch

        set_up_torch()
        model, tokenizer = load_causal_lm(folder)
        if adapter is not None:
            model = merge_adapter(model, adapter)
        model.to("cuda" if torch.cuda.is_available() else "cpu")
        return cls(model, tokenizer, name=name or folder.name, fingerprint=weights_fingerprint(folder))

    @property
    def device(self) -> torch.device:
        """Where the weights lie; inputs are moved there."""
        device: torch.device = self.model.device
        return device

    def answer(
        self, prompts: Sequence[str], prefix: str = "", max_new_tokens: int = 16
    ) -> list[GeneratedAnswer]:
        """Decode each prompt greedily up to the line break, in the order given; equal prompts only once.

        The last few thousand answers are remembered, since the same questions come back again and again.
        """
        import torch

        keys = [(prefix, prompt, max_new_tokens) for prompt in prompts]
        found = {key: self._answers[key] for key in keys if key in self._answers}
        new = [key for key in dict.fromkeys(keys) if key not in found]
        encoded = [self.prompt_ids(prompt, prefix) for _, prompt, _ in new]
        with torch.inference_mode():
            for batch in batches([len(ids) + max_new_tokens for ids in encoded], _TOKENS_PER_DECODE):
                decoded = self._batch_decode([encoded[i] for i in batch], prefix, max_new_tokens)
                found |= {new[i]: generated for i, generated in zip(batch, decoded, strict=True)}
        remember(self._answers, {key: found[key] for key in new}, _ANSWERS_KEPT)
        return [found[key] for key in keys]

    def _batch_decode(
        self, prompts: list[list[int]], prefix: str, max_new_tokens: int
    ) -> list[GeneratedAnswer]:
        """Greedy decoding of left-padded prompts; rows that reached the line break leave the batch."""
        import torch

        before = self.prefix_ids(prefix)
        length = len(before)
        cache = self._prefixes.fresh(before, len(prompts))
        ids, mask = (torch.from_numpy(array).to(self.device) for array in padded(prompts, on_left=True))
        mask = torch.cat(
            [torch.ones(len(prompts), length, dtype=mask.dtype, device=mask.device), mask], dim=1
        )
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, length:]
        state = _Decoding(len(prompts))
        for _ in range(max_new_tokens):
            output = self.model.base_model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                cache=cache,
                use_cache=True,
            )
            cache = output.cache
            logits = self.model.lm_head(output.last_hidden_state[:, -1])
            chosen = logits.argmax(1)
            probs = (logits.gather(1, chosen[:, None])[:, 0] - torch.logsumexp(logits, 1)).exp()
            keep = state.extend(chosen.tolist(), probs.tolist(), self._is_end)
            if not keep:
                break
            if len(keep) < len(chosen):
                kept = torch.tensor(keep, device=self.device)
                cache.batch_select_indices(kept)
                mask, positions, chosen = mask[kept], positions[kept], chosen[kept]
            ids = chosen[:, None]
            mask = torch.cat([mask, torch.ones(len(ids), 1, dtype=mask.dtype, device=mask.device)], dim=1)
            positions = positions[:, -1:] + 1
        return [
            GeneratedAnswer(self._first_line(tokens), lowest, len(tokens), len(prompt))
            for prompt, tokens, lowest in zip(prompts, state.tokens, state.lowest, strict=True)
        ]

    def _is_end(self, token: int) -> bool:
        return token == self.tokenizer.eos_token_id or "\n" in self.tokenizer.decode([token])

    def _first_line(self, tokens: list[int]) -> str:
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return text.strip("\n").split("\n")[0].strip() if text.strip() else ""


class _Decoding:
    """Tokens and lowest probabilities of a batch whose rows finish at different steps."""

    def __init__(self, rows: int) -> None:
        self.tokens: list[list[int]] = [[] for _ in range(rows)]
        self.lowest = [1.0] * rows
        self._open = list(range(rows))

    def extend(self, chosen: list[int], probs: list[float], is_end: Any) -> list[int]:
        """Append one token per open row; return the positions, within the batch, of rows still open."""
        keep = []
        for place, (token, prob) in enumerate(zip(chosen, probs, strict=True)):
            row = self._open[place]
            self.tokens[row].append(token)
            self.lowest[row] = min(self.lowest[row], prob)
            if not is_end(token):
                keep.append(place)
        self._open = [self._open[place] for place in keep]
        return keep
