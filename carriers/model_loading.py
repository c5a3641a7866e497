"""Loads causal language models and proves that what was loaded is what lies on the disk.

Quiet: no progress bars and no warnings, since everything they could warn of is an error here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from carriers.model_cache import MANIFEST, Manifest
from carriers.model_registry import CANARY_TEXT, PERPLEXITY_TEXT, Canary
from sharpwave.errors import WeightsError

_LOGIT_TOLERANCE = 0.01  # float32 on different CPUs differs by less than 0.001; a wrong weight by far more


def load_causal_lm(folder: Path) -> tuple[Any, Any]:
    """Load a causal language model and its tokenizer from a folder in Hugging Face format.

    The model is float32, on the CPU, in evaluation mode. If the folder has a manifest, its canary is checked.

    Args:
        folder: Holds config.json, the tokenizer and *.safetensors.

    Returns:
        The model and the tokenizer.

    Raises:
        WeightsError: A weight is missing, left over or of the wrong shape, a file is damaged, or the model
            does not compute what the manifest says.
    """
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(folder)
    with quiet_transformers():
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, output_loading_info=True, local_files_only=True
            )
        except Exception as error:  # each file format fails with an exception of its own
            raise WeightsError(f"{folder} could not be loaded: {first_line(error)}") from error
    model, report = loaded
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        if found := sorted(map(str, report[kind])):
            raise WeightsError(
                f"{folder} does not fit its own config.json: {kind.replace('_', ' ')}: {', '.join(found[:5])}"
                f"{f' and {len(found) - 5} more' if len(found) > 5 else ''}"
            )
    model.eval()
    verify_loaded(model, tokenizer, folder)
    return model, tokenizer


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of a folder in Hugging Face format.

    Raises:
        WeightsError: There is none, or it is damaged.
    """
    from transformers import AutoTokenizer

    with quiet_transformers():
        try:
            return AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # each file format fails with an exception of its own
            raise WeightsError(f"{folder} could not be loaded: {first_line(error)}") from error


def verify_loaded(model: Any, tokenizer: Any, folder: Path) -> None:
    """Compare what a loaded model computes with the canary in the folder's manifest, if there is one.

    Raises:
        WeightsError: Tokens or logits differ.
    """
    if not (folder / MANIFEST).is_file():
        return
    try:
        canary = Manifest.read(folder).canary
    except ValueError as error:
        raise WeightsError(f"{folder}: {error}; run `sharpwave models --fetch`") from error
    if canary is not None:
        check_canary(model, tokenizer, canary, str(folder))


def measure_canary(model: Any, tokenizer: Any, text: str = CANARY_TEXT) -> Canary:
    """Record how a tokenizer reads a text and what the model would go on with after each token."""
    token_ids = tuple(tokenizer(text)["input_ids"])
    best = _logits(model, token_ids).max(dim=-1)
    return Canary(
        text, token_ids, tuple(best.indices.tolist()), tuple(round(v, 5) for v in best.values.tolist())
    )


def measure_perplexity(model: Any, tokenizer: Any, text: str = PERPLEXITY_TEXT) -> float:
    """Return the model's perplexity per token on a text of at least two tokens."""
    import torch
    from torch.nn.functional import cross_entropy

    token_ids = tokenizer(text)["input_ids"]
    return math.exp(cross_entropy(_logits(model, token_ids)[:-1], torch.tensor(token_ids[1:])).item())


def _logits(model: Any, token_ids: Sequence[int]) -> Any:
    import torch

    with torch.inference_mode():
        return model(input_ids=torch.tensor([list(token_ids)], device=model.device)).logits[0].float().cpu()


def check_canary(model: Any, tokenizer: Any, canary: Canary, place: str) -> None:
    """Compare how a text is read and continued with a canary; `place` is what the error names.

    Raises:
        WeightsError: Tokens or logits differ.
    """
    token_ids = tuple(tokenizer(canary.text)["input_ids"])
    if token_ids != canary.token_ids:
        raise WeightsError(
            f"{place}: the tokenizer reads the known text as {token_ids}, not {canary.token_ids}"
        )
    logits = _logits(model, token_ids)
    worst = max(
        abs(logits[position, token].item() - expected)
        for position, (token, expected) in enumerate(zip(canary.next_ids, canary.next_logits, strict=True))
    )
    if not worst <= _LOGIT_TOLERANCE:  # written so that NaN fails
        raise WeightsError(f"{place}: the model's logits for the known text are off by {worst:.3g}")


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers from writing progress bars and warnings within the block."""
    from transformers.utils import logging

    transformers_logging: Any = logging  # carries no annotations
    verbosity = transformers_logging.get_verbosity()
    has_bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if has_bars:
            transformers_logging.enable_progress_bar()


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its type if it has none."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
