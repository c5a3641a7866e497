"""The previous generation as a teacher: its predictions on the anchors, and the two losses of a training.

Logits are made for a shortlist of the vocabulary only (Jean et al., 2015): every token of an answer, and at each place
of an answer the tokens the teacher finds likeliest. Proofs are made later, with the whole vocabulary.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consolidation.packing import PackedRow, Segment, pack_row
from consolidation.subspace import UpdateAim
from sharpwave.errors import TrainingError

if TYPE_CHECKING:
    import torch

_LIKELIEST = 64  # tokens per place on the shortlist
_ROW_SEGMENTS = 24


@dataclass(frozen=True)
class Teacher:
    """What the previous generation says: V tokens on the shortlist.

    Attributes:
        shortlist: Token ids, ascending, [V].
        weight: Rows of the output head for them, [V, width].
        bias: Their biases, [V], if the head has any.
        log_probs: At each (anchor number, place in its answer), normalised over the shortlist, [V].
    """

    shortlist: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    log_probs: dict[tuple[int, int], torch.Tensor]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits [S, V] of final hidden states [S, width]."""
        from torch.nn.functional import linear

        return linear(hidden, self.weight, self.bias)

    def places(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return where tokens stand on the shortlist; all of them must be on it."""
        from torch import searchsorted

        return searchsorted(self.shortlist, tokens.to(self.shortlist.device))


def hidden_at_sources(model: Any, row: PackedRow) -> Any:
    """Return the final hidden states [S, width] at the positions that predict completion tokens."""
    device = model.device
    output = model.get_base_model().base_model(
        input_ids=row.input_ids.to(device),
        position_ids=row.position_ids.to(device),
        attention_mask=row.attention_mask.to(device),
        use_cache=False,
    )
    return output.last_hidden_state[0, row.source.to(device)]


def ask_teacher(
    model: Any,
    segments: Sequence[Segment],
    readings: Sequence[Segment],
    prefix_ids: list[int],
    aim_ridge: float,
) -> Teacher:
    """Read everything with the untouched model: aim the update, and keep what the model predicts on the anchors.

    Args:
        model: A PEFT model before its first step.
        segments: What the student will read. Three wordings of each fact and all anchors aim the update.
        readings: The anchors as the teacher is to read them.
        prefix_ids: The shared few-shot prefix.
        aim_ridge: See `UpdateAim`; 0 leaves the update as it is.
    """
    import torch

    head = model.get_base_model().lm_head
    likeliest = [torch.tensor(sorted({token for item in segments for token in item.completion_ids}))]

    def read(row: PackedRow) -> Any:
        hidden = hidden_at_sources(model, row)
        if not torch.isfinite(hidden).all():
            raise TrainingError("the model's hidden states are not finite; its weights are damaged")
        likeliest.append(head(hidden).topk(min(_LIKELIEST, head.out_features)).indices.flatten().cpu())
        return hidden

    model.eval()
    states: dict[tuple[int, int], torch.Tensor] = {}
    with torch.no_grad():
        wordings, anchors = _batches(_first_wordings(segments, 3)), _batches(_anchors(segments))
        if aim_ridge:
            aim = UpdateAim(model, aim_ridge)
            for batch in itertools.chain.from_iterable((*wordings, *anchors) for _ in aim.passes()):
                row, is_anchor = pack_row(batch, prefix_ids), batch[0].anchor >= 0
                # The shared prefix belongs to what is kept, not to what is learnt.
                length = row.input_ids.shape[1]
                own = sum(len(item.prompt_ids) + len(item.completion_ids) for item in batch)
                aim.watch(torch.arange(0 if is_anchor else length - own, length), is_anchor=is_anchor)
                read(row)
        else:
            for batch in wordings:
                read(pack_row(batch, prefix_ids))
        for batch in _batches(readings):
            row = pack_row(batch, prefix_ids)
            places = zip(row.anchor.tolist(), row.offset.tolist(), strict=True)
            states.update(zip(places, read(row), strict=True))
        shortlist = torch.unique(torch.cat(likeliest)).to(model.device)
        bias = None if head.bias is None else head.bias[shortlist].detach()
        teacher = Teacher(shortlist, head.weight[shortlist].detach(), bias, {})
        for place, state in states.items():
            teacher.log_probs[place] = teacher.logits(state).log_softmax(-1)
    return teacher


def _batches(segments: Sequence[Segment]) -> list[Sequence[Segment]]:
    return [segments[start : start + _ROW_SEGMENTS] for start in range(0, len(segments), _ROW_SEGMENTS)]


def _anchors(segments: Sequence[Segment]) -> list[Segment]:
    return [segment for segment in segments if segment.anchor >= 0]


def _first_wordings(segments: Sequence[Segment], count: int) -> list[Segment]:
    by_fact: dict[int, list[Segment]] = {}
    for segment in segments:
        if segment.fact >= 0:
            by_fact.setdefault(segment.fact, []).append(segment)
    return [segment for wordings in by_fact.values() for segment in wordings[:count]]


def weigh(
    hidden: Any, row: PackedRow, teacher: Teacher, weight: float
) -> tuple[Any, dict[str, float], dict[int, float]]:
    """Return the loss to descend, its two parts for a log, and each fact's lowest token probability.

    Raises TrainingError for a loss that is not finite.
    """
    import torch

    loss, lowest = _fact_loss(hidden, row, teacher)
    divergence = _anchor_divergence(hidden, row, teacher)
    total = loss + weight * divergence
    if not torch.isfinite(total):
        raise TrainingError("the loss is not finite; lower write_back.learning_rate")
    return total, {"loss_facts": loss.item(), "anchor_divergence": divergence.item()}, lowest


def _fact_loss(hidden: Any, row: PackedRow, teacher: Teacher) -> tuple[Any, dict[int, float]]:
    """Return the mean cross-entropy of the fact tokens, and each fact's lowest token probability."""
    import torch

    facts = row.fact >= 0
    if not facts.any():
        return hidden.sum() * 0.0, {}
    losses = torch.nn.functional.cross_entropy(
        teacher.logits(hidden[facts]), teacher.places(row.target[facts]), reduction="none"
    )
    lowest: dict[int, float] = {}
    for fact, prob in zip(row.fact[facts].tolist(), (-losses.detach()).exp().tolist(), strict=True):
        lowest[fact] = min(prob, lowest.get(fact, 1.0))
    return losses.mean(), lowest


def _anchor_divergence(hidden: Any, row: PackedRow, teacher: Teacher) -> Any:
    """Return the mean Kullback-Leibler divergence of the anchor predictions from the teacher's, in nats."""
    import torch

    anchors = row.anchor >= 0
    if not anchors.any():
        return hidden.sum() * 0.0
    places = zip(row.anchor[anchors].tolist(), row.offset[anchors].tolist(), strict=True)
    wanted = torch.stack([teacher.log_probs[place] for place in places])
    found = teacher.logits(hidden[anchors]).log_softmax(-1)
    return torch.nn.functional.kl_div(found, wanted, log_target=True, reduction="batchmean")
