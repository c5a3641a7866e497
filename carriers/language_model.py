"""The parametric carrier: everything that touches a causal language model goes through this module.

Three verbs: `forward_features` (what one pass over a text reveals), `match_answers` (would greedy decoding give
this answer? one teacher-forced pass) and `answer` (greedy decoding). Few-shot prefixes are encoded once per model
and their key-value cache is reused; logits are computed only at the positions that need them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from carriers.prompts import ANSWER_END

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

_TOKENS_PER_BATCH = 2048
_TOKENS_PER_DECODE = 6144  # each decoding step reads all weights once: wide batches share that
_LOGIT_ROWS = 192
_ANSWERS_KEPT = 4096


@dataclass(frozen=True)
class TextFeatures:
    """What one forward pass over a text reveals; T tokens after the start token.

    Attributes:
        hidden: Mean-pooled hidden states, [layers, width], float32.
        nll: Negative log-likelihood of each token in nats, [T].
        entropy: Entropy of the prediction at each token in nats, [T].
        log_rank: log(1 + rank) of the true token, 0 where it was the first choice, [T].
        margin: Logit of the true token minus the best other logit, [T].
        first_choice: Whether the true token was the model's own first choice, [T].
        token_count: T, plus the start token: what the pass cost.
    """

    hidden: NDArray[np.float32]
    nll: NDArray[np.float32]
    entropy: NDArray[np.float32]
    log_rank: NDArray[np.float32]
    margin: NDArray[np.float32]
    first_choice: NDArray[np.bool_]
    token_count: int


@dataclass(frozen=True)
class AnswerMatch:
    """Whether greedy decoding would give an answer, and how surely.

    `lowest_prob` and `margin` (logit of the true token minus the best other) are minima over the answer's tokens
    and its end; `answer` is the alias that fits best; `token_count` is what the pass cost. `choice_prob` is the
    probability of the token that the model itself would begin with and `entropy` that of its prediction there, in
    nats: a sure choice that does not match is a belief in something else.
    """

    matched: bool
    lowest_prob: float
    margin: float
    choice_prob: float
    entropy: float
    answer: str
    token_count: int


@dataclass(frozen=True)
class GeneratedAnswer:
    """A greedily decoded answer up to the line break, and the lowest probability among its tokens."""

    text: str
    lowest_prob: float
    token_count: int


class LanguageModel:
    """A causal language model in evaluation mode, optionally with one adapter merged in memory."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str, fingerprint: str) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.name = name
        self.fingerprint = fingerprint
        self._answers: dict[tuple[str, str, int], GeneratedAnswer] = {}
        self._prefix_caches: dict[str, tuple[Any, int]] = {}

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
        from sharpwave.cpu import limit_threads

        limit_threads()
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

    @property
    def width(self) -> int:
        """Size of a hidden state."""
        return int(self.model.config.hidden_size)

    @property
    def parameters(self) -> int:
        """Number of parameters, tied ones counted once."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def context_tokens(self) -> int:
        """Longest text, in tokens, that is read for features; longer texts are read up to here."""
        return min(512, int(self.model.config.max_position_embeddings))

    def flops(self, token_count: int, logit_positions: int) -> float:
        """Return the multiply-adds times two of a forward pass, attention scores left out.

        Source: the 2 N rule of Kaplan et al., 2020, with the output projection counted only where logits are made.
        """
        head = int(self.model.config.vocab_size) * self.width
        return 2.0 * ((self.parameters - head) * token_count + head * logit_positions)

    def forward_features(self, texts: Sequence[str]) -> list[TextFeatures]:
        """Read each text once and return its features, in the order given."""
        import torch

        sequences = [self._text_ids(text) for text in texts]
        results: list[TextFeatures | None] = [None] * len(texts)
        with torch.inference_mode():
            for rows in _batches([len(ids) for ids in sequences]):
                for row, features in zip(
                    rows, self._batch_features([sequences[row] for row in rows]), strict=True
                ):
                    results[row] = features
        return [features for features in results if features is not None]

    def match_answers(
        self, prompts: Sequence[str], answers: Sequence[Sequence[str]], prefix: str = ""
    ) -> list[AnswerMatch]:
        """Tell for each prompt, in one teacher-forced pass, whether greedy decoding would give one of its answers.

        Args:
            prompts: Texts that end in the answer cue.
            answers: For each prompt its canonical answer and aliases; at least one each.
            prefix: Constant text before all prompts; encoded once per model.

        Returns:
            For each prompt the best-fitting alias: a matched one before others, then the surest.
        """
        import torch

        pairs = [(row, alias) for row, aliases in enumerate(answers) for alias in aliases]
        encoded = [self._prompt_and_answer_ids(prompts[row], alias, prefix) for row, alias in pairs]
        best: dict[int, AnswerMatch] = {}
        with torch.inference_mode():
            for batch in _batches([len(prompt) + len(answer) for prompt, answer in encoded]):
                scores = self._batch_answer_scores([encoded[i] for i in batch], prefix)
                for i, score in zip(batch, scores, strict=True):
                    row, alias = pairs[i]
                    tokens = len(encoded[i][0]) + len(encoded[i][1])
                    found = AnswerMatch(*score, alias, tokens)
                    if row not in best or _fit(found) > _fit(best[row]):
                        best[row] = found
        return [best[row] for row in range(len(prompts))]

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
            for batch in _batches([len(ids) + max_new_tokens for ids in encoded], _TOKENS_PER_DECODE):
                decoded = self._batch_decode([encoded[i] for i in batch], prefix, max_new_tokens)
                found |= {new[i]: generated for i, generated in zip(batch, decoded, strict=True)}
        self._remember({key: found[key] for key in new})
        return [found[key] for key in keys]

    def _remember(self, answers: dict[tuple[str, str, int], GeneratedAnswer]) -> None:
        self._answers |= answers
        for key in list(self._answers)[: max(0, len(self._answers) - _ANSWERS_KEPT)]:
            del self._answers[key]

    # --- tokens

    def _text_ids(self, text: str) -> list[int]:
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return [self.start_id, *ids[: self.context_tokens - 1]]

    @property
    def start_id(self) -> int:
        """The token that opens a document for this model, so that a text's first word is predicted as well."""
        document_start = self.tokenizer.convert_tokens_to_ids("<|endoftext|>")
        known = document_start is not None and document_start != self.tokenizer.unk_token_id
        if known or self.tokenizer.unk_token == "<|endoftext|>":
            return int(document_start)
        bos = self.tokenizer.bos_token_id
        return int(self.tokenizer.eos_token_id if bos is None else bos)

    @property
    def _pad_id(self) -> int:
        """Any token will do where a tokenizer has none for padding: padded places are masked."""
        pad = self.tokenizer.pad_token_id
        return self.start_id if pad is None else int(pad)

    def prompt_ids(self, prompt: str, prefix: str) -> list[int]:
        """Return the tokens of a prompt that follows the prefix, or that opens the text if there is none."""
        ids: list[int] = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        return ids if prefix else [self.start_id, *ids]

    def _prompt_and_answer_ids(self, prompt: str, answer: str, prefix: str) -> tuple[list[int], list[int]]:
        return self.prompt_ids(prompt, prefix), self.answer_ids(answer)

    def answer_ids(self, answer: str) -> list[int]:
        """Return the tokens that greedy decoding has to give after an answer cue: the answer and the line break."""
        return list(self.tokenizer(f" {answer.strip()}{ANSWER_END}", add_special_tokens=False)["input_ids"])

    # --- forward passes

    def _prefix_cache(self, prefix: str, rows: int) -> tuple[Any, int]:
        """Return a fresh key-value cache of the prefix for a batch of `rows`, and the prefix length in tokens."""
        import torch

        if not prefix:
            return None, 0
        if prefix not in self._prefix_caches:
            ids = [self.start_id, *self.tokenizer(prefix, add_special_tokens=False)["input_ids"]]
            encoded = self.model.base_model(input_ids=torch.tensor([ids], device=self.device), use_cache=True)
            self._prefix_caches[prefix] = (encoded.cache, len(ids))
        cache, length = self._prefix_caches[prefix]
        cache = copy.deepcopy(cache)
        cache.batch_repeat_interleave(rows)
        return cache, length

    def _hidden(self, ids: torch.Tensor, mask: torch.Tensor, prefix: str) -> torch.Tensor:
        """Return last hidden states [rows, tokens, width] of right-padded ids that follow the prefix."""
        import torch

        cache, length = self._prefix_cache(prefix, len(ids))
        positions = length + torch.arange(ids.shape[1], device=ids.device).expand(len(ids), -1)
        full_mask = torch.cat(
            [torch.ones(len(ids), length, dtype=mask.dtype, device=mask.device), mask], dim=1
        )
        output = self.model.base_model(
            input_ids=ids,
            attention_mask=full_mask,
            position_ids=positions,
            cache=cache,
            use_cache=cache is not None,
        )
        hidden: torch.Tensor = output.last_hidden_state
        return hidden

    def _batch_features(self, sequences: list[list[int]]) -> Iterator[TextFeatures]:
        import torch

        ids, mask = _right_padded(sequences, self._pad_id, self.device)
        output = self.model.base_model(
            input_ids=ids, attention_mask=mask, output_hidden_states=True, use_cache=False
        )
        real = mask.clone()
        real[:, 0] = 0
        predicting = real.roll(-1, dims=1).bool()
        predicting[:, -1] = False
        rows = self._token_statistics(output.last_hidden_state[predicting], ids[real.bool()])
        weights = (real / real.sum(1, keepdim=True).clamp(min=1)).to(output.last_hidden_state.dtype)
        pooled = torch.stack(
            [torch.einsum("btd,bt->bd", layer, weights) for layer in self._pooled(output)], 1
        )
        start = 0
        for row, sequence in enumerate(sequences):
            end = start + len(sequence) - 1
            nll, entropy, log_rank, margin, _ = rows[start:end].T.cpu().numpy()
            yield TextFeatures(
                hidden=pooled[row].cpu().numpy(),
                nll=nll,
                entropy=entropy,
                log_rank=log_rank,
                margin=margin,
                first_choice=log_rank == 0,
                token_count=len(sequence),
            )
            start = end

    def _pooled(self, output: Any) -> list[torch.Tensor]:
        """Choose the layers at one half, three quarters and the end of the depth."""
        states = output.hidden_states
        depth = len(states) - 1
        return [states[depth // 2], states[(3 * depth) // 4], output.last_hidden_state]

    def _token_statistics(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return [positions, 5]: nll, entropy, log rank, margin, and the nll of the first choice.

        Logits live only one slice at a time.
        """
        import torch

        parts = []
        for start in range(0, len(hidden), _LOGIT_ROWS):
            logits = self.model.lm_head(hidden[start : start + _LOGIT_ROWS])
            true = logits.gather(1, targets[start : start + _LOGIT_ROWS, None])
            first, second = logits.topk(2, dim=1).values.split(1, dim=1)
            log_normaliser = torch.logsumexp(logits, dim=1, keepdim=True)
            rank = (logits > true).sum(1, keepdim=True).to(logits.dtype)
            mean_logit = torch.einsum("nv,nv->n", torch.softmax(logits, dim=1), logits)[:, None]
            margin = true - torch.where(rank == 0, second, first)
            nll, entropy, own = (log_normaliser - logit for logit in (true, mean_logit, first))
            parts.append(torch.cat([nll, entropy, torch.log1p(rank), margin, own], dim=1))
        return torch.cat(parts) if parts else hidden.new_zeros(0, 5)

    def _batch_answer_scores(
        self, pairs: list[tuple[list[int], list[int]]], prefix: str
    ) -> list[tuple[bool, float, float, float, float]]:
        """Return for each prompt and answer the first five fields of its `AnswerMatch`."""
        import torch

        ids, mask = _right_padded([prompt + answer for prompt, answer in pairs], self._pad_id, self.device)
        hidden = self._hidden(ids, mask, prefix)
        rows = torch.tensor([row for row, (_, answer) in enumerate(pairs) for _ in answer])
        columns = torch.tensor([len(p) - 1 + k for p, answer in pairs for k in range(len(answer))])
        targets = torch.tensor([token for _, answer in pairs for token in answer], device=self.device)
        statistics = self._token_statistics(hidden[rows, columns], targets).double().cpu().numpy()
        scores, start = [], 0
        for _, answer in pairs:
            block = statistics[start : start + len(answer)]
            scores.append((
                bool((block[:, 2] == 0).all()),
                float(np.exp(-block[:, 0].max())),
                float(block[:, 3].min()),
                float(np.exp(-block[0, 4])),
                float(block[0, 1]),
            ))
            start += len(answer)
        return scores

    def _batch_decode(
        self, prompts: list[list[int]], prefix: str, max_new_tokens: int
    ) -> list[GeneratedAnswer]:
        """Greedy decoding of left-padded prompts; rows that reached the line break leave the batch."""
        import torch

        cache, length = self._prefix_cache(prefix, len(prompts))
        ids, mask = _left_padded(prompts, self._pad_id, self.device)
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
            GeneratedAnswer(self._first_line(tokens), lowest, len(tokens))
            for tokens, lowest in zip(state.tokens, state.lowest, strict=True)
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


def _fit(match: AnswerMatch) -> tuple[bool, float]:
    return match.matched, match.lowest_prob


def _batches(lengths: Sequence[int], budget: int = _TOKENS_PER_BATCH) -> Iterator[list[int]]:
    """Yield row numbers in batches of similar length, each within the token budget with its padding."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[row] > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _right_padded(
    sequences: list[list[int]], pad_id: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    longest = max(len(ids) for ids in sequences)
    ids = torch.tensor([row + [pad_id] * (longest - len(row)) for row in sequences])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in sequences])
    return ids.to(device), mask.to(device)


def _left_padded(
    sequences: list[list[int]], pad_id: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    longest = max(len(ids) for ids in sequences)
    ids = torch.tensor([[pad_id] * (longest - len(row)) + row for row in sequences])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in sequences])
    return ids.to(device), mask.to(device)
