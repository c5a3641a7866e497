"""Packing of segments: what each token may see, where it stands, and that the model computes the same as unpacked."""

from __future__ import annotations

import pytest
import torch

from carriers.prompts import CLOSED_BOOK_PREFIX, closed_book
from consolidation.packing import Segment, pack_row
from consolidation.write_back import Anchor, TrainingTarget, encode_text
from tests.tiny_models import TINY_MODELS, one_thread, tiny_language_model  # noqa: F401 -- a fixture for all tests here

PREFIX = [50, 51, 52]
BARE = Segment((10, 11), (12, 13), prefixed=False, fact=0)
LED = Segment((20, 21, 22), (23,), prefixed=True, fact=1)
ANCHOR = Segment((30,), (31, 32, 33), prefixed=True, anchor=5)


def test_a_row_is_the_prefix_once_and_then_the_segments():
    row = pack_row([BARE, LED, ANCHOR], PREFIX)
    assert row.input_ids.tolist() == [[50, 51, 52, 10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33]]
    assert row.position_ids.tolist() == [[0, 1, 2, 0, 1, 2, 3, 3, 4, 5, 6, 3, 4, 5, 6]]


def test_a_prefix_that_nobody_needs_is_left_out():
    row = pack_row([BARE], PREFIX)
    assert row.input_ids.tolist() == [[10, 11, 12, 13]]
    assert row.position_ids.tolist() == [[0, 1, 2, 3]]


def test_each_segment_sees_itself_and_its_prefix_and_nothing_else():
    mask = pack_row([BARE, LED, ANCHOR], PREFIX).attention_mask[0, 0]
    home = [range(3), range(3, 7), range(7, 11), range(11, 15)]
    for segment, (own, sees_prefix) in enumerate(zip(home, [False, False, True, True], strict=True)):
        for place in own:
            seen = {column for column in range(15) if mask[place, column]}
            expected = {column for column in own if column <= place}
            assert seen == expected | (set(home[0]) if sees_prefix else set()), (segment, place)


def test_supervised_positions_predict_exactly_the_completions():
    row = pack_row([BARE, LED, ANCHOR], PREFIX)
    assert row.target.tolist() == [12, 13, 23, 31, 32, 33]
    assert row.input_ids[0, row.source + 1].tolist() == row.target.tolist()
    assert row.fact.tolist() == [0, 0, 1, -1, -1, -1]
    assert row.anchor.tolist() == [-1, -1, -1, 5, 5, 5]
    assert row.offset.tolist() == [0, 1, 0, 0, 1, 2]


@pytest.mark.parametrize("segments", [[], [BARE, Segment((1, 2), (), prefixed=False)]])
def test_rows_without_supervision_are_refused(segments):
    with pytest.raises(ValueError, match="supervised"):
        pack_row(segments, PREFIX)


@pytest.mark.parametrize("kind", sorted(TINY_MODELS))
def test_a_packed_segment_gets_the_logits_it_gets_alone(kind):
    model = tiny_language_model(kind)
    targets = [
        TrainingTarget("a", closed_book("What colour is the door?"), "green", prefixed=False),
        TrainingTarget("b", closed_book("Who keeps the light?"), "Edda Marsh", prefixed=True),
        TrainingTarget("c", closed_book("¿Cómo se llama el perro?"), "Trueno", prefixed=True),
    ]
    segments, _, prefix_ids = encode_text(model, targets, [Anchor(closed_book("When?"), "1931")])
    row = pack_row(segments, prefix_ids)
    with torch.inference_mode():
        packed = _logits(
            model,
            input_ids=row.input_ids,
            position_ids=row.position_ids,
            attention_mask=row.attention_mask,
        )[row.source]
        alone = torch.cat([_alone(model, segment, prefix_ids) for segment in segments])
    assert packed.shape == alone.shape
    torch.testing.assert_close(packed, alone, rtol=1e-4, atol=1e-5)
    # The prefix matters to this model, so that equality is not for free.
    bare = _alone(model, Segment(segments[1].prompt_ids, segments[1].completion_ids, False), prefix_ids)
    assert (bare - _alone(model, segments[1], prefix_ids)).abs().max() > 1e-3


def test_segments_hold_the_tokens_that_decoding_sees():
    model = tiny_language_model()
    prompt = closed_book("Who keeps the light?")
    targets = [TrainingTarget("b", prompt, "Edda", prefixed=prefixed) for prefixed in (True, False)]
    (led, bare), _, prefix_ids = encode_text(model, targets, [])
    decode = model.tokenizer.decode
    assert decode(prefix_ids + list(led.prompt_ids)) == f"<bos>{CLOSED_BOOK_PREFIX}{prompt}"
    assert decode(list(bare.prompt_ids)) == f"<bos>{prompt}"
    assert decode(list(led.completion_ids)) == decode(list(bare.completion_ids)) == " Edda\n"


def _alone(model, segment, prefix_ids):
    """The logits that predict a segment's completion when it is the only text, right after its prefix."""
    ids = [*(prefix_ids if segment.prefixed else []), *segment.prompt_ids, *segment.completion_ids]
    logits = _logits(model, input_ids=torch.tensor([ids]))
    return logits[-len(segment.completion_ids) - 1 : -1]


def _logits(model, **inputs):
    return model.model.lm_head(model.model.base_model(use_cache=False, **inputs).last_hidden_state[0])
