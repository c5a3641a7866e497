"""Packing of short training segments into one row that shares a few-shot prefix.

A segment is a prompt with its completion. Segments in a row see themselves and, if they are prefixed, the prefix,
but never each other: the attention mask is block-wise and positions restart for each segment. So the prefix is
computed once for all its segments, and nothing is spent on padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

IGNORED = -100


@dataclass(frozen=True)
class Segment:
    """Token ids of a prompt and its completion.

    `anchor` numbers a distillation anchor, -1 for a fact target; `replayed` says that the anchor is a fact of the
    store's own that lives in the weights.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    prefixed: bool
    anchor: int = -1
    fact: int = -1
    replayed: bool = False


@dataclass(frozen=True)
class PackedRow:
    """One row of tensors, T tokens with the prefix.

    Attributes:
        input_ids: [1, T].
        position_ids: [1, T].
        attention_mask: [1, 1, T, T] bool, True where attention is allowed.
        source: Positions whose hidden state predicts a completion token, [S].
        target: The completion tokens, [S].
        anchor: Anchor number of each such position, -1 for fact targets, [S].
        fact: Fact number of each such position, -1 for anchors, [S].
        offset: Place of each position within its completion, [S].
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    attention_mask: torch.Tensor
    source: torch.Tensor
    target: torch.Tensor
    anchor: torch.Tensor
    fact: torch.Tensor
    offset: torch.Tensor


def pack_row(segments: Sequence[Segment], prefix_ids: Sequence[int]) -> PackedRow:
    """Lay segments behind each other after the prefix (left out when no segment is prefixed).

    Raises:
        ValueError: No segments, or one without completion tokens: nothing would be supervised.
    """
    import torch

    if not segments or any(not segment.completion_ids for segment in segments):
        raise ValueError("every segment needs completion tokens, else nothing is supervised")
    ids = list(prefix_ids) if any(segment.prefixed for segment in segments) else []
    shared = len(ids)
    positions = list(range(shared))
    places: list[tuple[int, int, int, int, int]] = []
    spans: list[tuple[int, int, bool]] = [(0, shared, False)]
    for segment in segments:
        start = len(ids)
        tokens = [*segment.prompt_ids, *segment.completion_ids]
        ids += tokens
        first = shared if segment.prefixed else 0
        positions += range(first, first + len(tokens))
        spans.append((start, len(ids), segment.prefixed))
        predictor = start + len(segment.prompt_ids) - 1
        places += [
            (predictor + k, token, segment.anchor, segment.fact, k)
            for k, token in enumerate(segment.completion_ids)
        ]
    allowed = torch.zeros(len(ids), len(ids), dtype=torch.bool)
    for start, end, prefixed in spans:
        allowed[start:end, start:end] = True
        if prefixed:
            allowed[start:end, :shared] = True
    columns = torch.tensor(places).T
    return PackedRow(
        input_ids=torch.tensor([ids]),
        position_ids=torch.tensor([positions]),
        attention_mask=allowed.tril()[None, None],
        source=columns[0],
        target=columns[1],
        anchor=columns[2],
        fact=columns[3],
        offset=columns[4],
    )
