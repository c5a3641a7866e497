"""What one pass of a causal language model over a text reveals, whichever engine makes the pass.

Two verbs: `forward_features` (the text's own tokens, judged one by one) and `match_answers` (would greedy decoding
give this answer? one teacher-forced pass). Logits are computed only at the positions that need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from carriers.prompts import ANSWER_END

LOGIT_ROWS = 192
"""Positions whose logits are alive at a time: a batch's tokens times the vocabulary would take gigabytes."""
STATISTICS = ("nll", "entropy", "log_rank", "margin", "own_nll")
"""Columns of a pass's statistics; the last is the negative log-likelihood of the model's own first choice."""
_TOKENS_PER_BATCH = 2048
_MOST_CONTEXT = 512

FloatArray = NDArray[np.float32]
TokenIds = Sequence[int]


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

    hidden: FloatArray
    nll: FloatArray
    entropy: FloatArray
    log_rank: FloatArray
    margin: FloatArray
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
class ModelSizes:
    """What the cost of a pass depends on; tied parameters are counted once."""

    width: int
    vocabulary: int
    parameters: int
    positions: int


class PassEngine(Protocol):
    """Runs the layers of one model."""

    @property
    def name(self) -> str:
        """Names engine and precision, empty for the reference: features differ a little between engines."""
        ...

    def forward(
        self, sequences: Sequence[TokenIds], starts: Sequence[int], prefix: TokenIds
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Run one batch of sequences, each after the same prefix.

        Args:
            sequences: Token ids, of similar length, since they are padded to the longest.
            starts: For each sequence the place of the first token whose prediction is judged, at least 1.
            prefix: Tokens before each sequence; encoded once per engine.

        Returns:
            Hidden states at one half, three quarters and the end of the depth, each averaged over all tokens of
            a sequence but its first, [sequences, 3, width]; and for each sequence the `STATISTICS` of its tokens
            from its start on, [tokens, 5].
        """
        ...


class TextModel:
    """A causal language model that judges texts: tokeniser, sizes, and an engine that runs its layers."""

    def __init__(
        self, tokenizer: Any, engine: PassEngine, sizes: ModelSizes, *, name: str, fingerprint: str
    ) -> None:
        self.tokenizer = tokenizer
        self.engine = engine
        self.sizes = sizes
        self.name = name
        self.fingerprint = fingerprint

    @property
    def feature_fingerprint(self) -> str:
        """The weights' fingerprint and the engine's name: heads fit the features of the engine they learnt from."""
        return f"{self.fingerprint}+{self.engine.name}" if self.engine.name else self.fingerprint

    @property
    def context_tokens(self) -> int:
        """Longest text, in tokens, that is read for features; longer texts are read up to here."""
        return min(_MOST_CONTEXT, self.sizes.positions)

    def flops(self, token_count: int, logit_positions: int) -> float:
        """Return the multiply-adds times two of a forward pass, attention scores left out.

        Source: the 2 N rule of Kaplan et al., 2020, with the output projection counted only where logits are made.
        """
        head = self.sizes.vocabulary * self.sizes.width
        return 2.0 * ((self.sizes.parameters - head) * token_count + head * logit_positions)

    def forward_features(self, texts: Sequence[str]) -> list[TextFeatures]:
        """Read each text once and return its features, in the order given."""
        sequences = [self.text_ids(text) for text in texts]
        found: dict[int, TextFeatures] = {}
        for rows in batches([len(ids) for ids in sequences]):
            pooled, statistics = self.engine.forward([sequences[row] for row in rows], [1] * len(rows), ())
            for row, hidden, curves in zip(rows, pooled, statistics, strict=True):
                found[row] = _features(hidden, curves)
        return [found[row] for row in range(len(texts))]

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
        pairs = [(row, alias) for row, aliases in enumerate(answers) for alias in aliases]
        prompt_ids = [self.prompt_ids(prompt, prefix) for prompt in prompts]
        sequences = [[*prompt_ids[row], *self.answer_ids(alias)] for row, alias in pairs]
        starts = [len(prompt_ids[row]) for row, _ in pairs]
        before = self.prefix_ids(prefix)
        best: dict[int, AnswerMatch] = {}
        for batch in batches([len(ids) for ids in sequences]):
            _, statistics = self.engine.forward(
                [sequences[place] for place in batch], [starts[place] for place in batch], before
            )
            for place, curves in zip(batch, statistics, strict=True):
                row, alias = pairs[place]
                match = _match(curves, alias, len(sequences[place]))
                if row not in best or _fit(match) > _fit(best[row]):
                    best[row] = match
        return [best[row] for row in range(len(prompts))]

    # --- tokens

    def text_ids(self, text: str) -> list[int]:
        """Return the start token and the text's tokens, up to the longest context."""
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return [self.start_id, *ids[: self.context_tokens - 1]]

    def prompt_ids(self, prompt: str, prefix: str) -> list[int]:
        """Return the tokens of a prompt that follows the prefix, or that opens the text if there is none."""
        ids: list[int] = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        return ids if prefix else [self.start_id, *ids]

    def prefix_ids(self, prefix: str) -> tuple[int, ...]:
        """Return the start token and the prefix's tokens; nothing for an empty prefix."""
        return (
            (self.start_id, *self.tokenizer(prefix, add_special_tokens=False)["input_ids"]) if prefix else ()
        )

    def answer_ids(self, answer: str) -> list[int]:
        """Return the tokens that greedy decoding has to give after an answer cue: the answer and the line break."""
        return list(self.tokenizer(f" {answer.strip()}{ANSWER_END}", add_special_tokens=False)["input_ids"])

    @property
    def start_id(self) -> int:
        """The token that opens a document for this model, so that a text's first word is predicted as well."""
        document_start = self.tokenizer.convert_tokens_to_ids("<|endoftext|>")
        known = document_start is not None and document_start != self.tokenizer.unk_token_id
        if known or self.tokenizer.unk_token == "<|endoftext|>":
            return int(document_start)
        bos = self.tokenizer.bos_token_id
        return int(self.tokenizer.eos_token_id if bos is None else bos)


def batches(lengths: Sequence[int], budget: int = _TOKENS_PER_BATCH) -> Iterator[list[int]]:
    """Yield row numbers in batches of similar length, each within the token budget with its padding."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[row] > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def padded(
    sequences: Sequence[TokenIds], *, on_left: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ids and mask, [sequences, longest]; padding is masked, and any token will do there."""
    ids = np.zeros((len(sequences), max(map(len, sequences))), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        start = ids.shape[1] - len(sequence) if on_left else 0
        ids[row, start : start + len(sequence)] = sequence
        mask[row, start : start + len(sequence)] = 1
    return ids, mask


def judged_places(
    sequences: Sequence[TokenIds], starts: Sequence[int]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int64]]:
    """Return row and column of every prediction that is judged, and the token that should come."""
    lengths = [len(ids) - start for ids, start in zip(sequences, starts, strict=True)]
    rows = np.repeat(np.arange(len(sequences)), lengths)
    columns = [np.arange(start, start + length) - 1 for start, length in zip(starts, lengths, strict=True)]
    targets = [token for ids, start in zip(sequences, starts, strict=True) for token in ids[start:]]
    return rows, np.concatenate(columns).astype(np.intp), np.array(targets, dtype=np.int64)


def split_by_row(
    statistics: FloatArray, sequences: Sequence[TokenIds], starts: Sequence[int]
) -> list[FloatArray]:
    """Cut statistics of all judged places, row after row, into those of each sequence."""
    lengths = [len(ids) - start for ids, start in zip(sequences, starts, strict=True)]
    return np.split(statistics, np.cumsum(lengths)[:-1])


def _features(hidden: FloatArray, curves: FloatArray) -> TextFeatures:
    nll, entropy, log_rank, margin, _ = curves.T
    return TextFeatures(
        hidden=hidden,
        nll=nll,
        entropy=entropy,
        log_rank=log_rank,
        margin=margin,
        first_choice=log_rank == 0,
        token_count=len(curves) + 1,
    )


def _match(curves: FloatArray, alias: str, token_count: int) -> AnswerMatch:
    nll, entropy, log_rank, margin, own_nll = curves.astype(np.float64).T
    return AnswerMatch(
        matched=bool((log_rank == 0).all()),
        lowest_prob=float(np.exp(-nll.max())),
        margin=float(margin.min()),
        choice_prob=float(np.exp(-own_nll[0])),
        entropy=float(entropy[0]),
        answer=alias,
        token_count=token_count,
    )


def _fit(match: AnswerMatch) -> tuple[bool, float]:
    return match.matched, match.lowest_prob
