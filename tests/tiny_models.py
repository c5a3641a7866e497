"""Tiny language models with random weights and a tokenizer, built in code, so that tests need no download."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from carriers.adapters import ADAPTER_WEIGHTS, merge_adapter
from carriers.language_model import LanguageModel
from carriers.prompts import CLOSED_BOOK_PREFIX, OPEN_BOOK_PREFIX

WIDTH, LAYERS = 32, 4


@cache
def tiny_tokenizer() -> Any:
    """A byte-level BPE that knows the words of the prompts; anything else falls apart into bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<pad>", "<bos>", "<eos>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([CLOSED_BOOK_PREFIX, OPEN_BOOK_PREFIX] * 4, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>", unk_token="<unk>"
    )


def tiny_llama(seed: int = 0) -> Any:
    """A random Llama of four layers with tied embeddings."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        num_key_value_heads=2, max_position_embeddings=1024, tie_word_embeddings=True, **_shape()
    )
    return _sharpened(LlamaForCausalLM(config))


def tiny_gemma(seed: int = 0) -> Any:
    """A random Gemma 3 text model of four layers, sliding and full attention in turn."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    torch.manual_seed(seed)
    config = Gemma3TextConfig(
        num_key_value_heads=1,
        head_dim=8,
        query_pre_attn_scalar=8,
        max_position_embeddings=1024,
        sliding_window=512,
        layer_types=["sliding_attention", "full_attention"] * (LAYERS // 2),
        **_shape(),
    )
    return _sharpened(Gemma3ForCausalLM(config))


TINY_MODELS: dict[str, Callable[[int], Any]] = {"llama": tiny_llama, "gemma": tiny_gemma}


def tiny_language_model(kind: str = "llama", seed: int = 0, adapter: Path | None = None) -> LanguageModel:
    """A `LanguageModel` around a tiny model; the same arguments give the same weights."""
    model = TINY_MODELS[kind](seed)
    if adapter is not None:
        model = merge_adapter(model, adapter)
    return LanguageModel(model, tiny_tokenizer(), name=f"tiny-{kind}", fingerprint=f"tiny-{kind}-{seed}")


def save_random_adapter(target: Path, rename: Callable[[str], str] = str, seed: int = 1) -> None:
    """Save an adapter for the tiny llama model whose updates are random, not zero as at the start of a training."""
    import torch
    from peft import LoraConfig, get_peft_model
    from safetensors.torch import load_file, save_file

    model = tiny_llama()
    torch.manual_seed(seed)  # after the model, which sets its own
    config = LoraConfig(r=2, lora_alpha=4, target_modules=["up_proj", "down_proj"], init_lora_weights=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PEFT asks transformers under an attribute's old name
        get_peft_model(model, config).save_pretrained(str(target))
    file = str(target / ADAPTER_WEIGHTS)
    save_file({rename(key): value.contiguous() for key, value in load_file(file).items()}, file)


def _sharpened(model: Any) -> Any:
    """Enlarge the tied embeddings: with small ones no training could make a narrow model sure of a token."""
    import torch

    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(5)
    return model.eval()


def _shape() -> dict[str, Any]:
    tokenizer = tiny_tokenizer()
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "initializer_range": 0.08,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Compute on one thread: for tiny tensors the threads' meeting costs more than the work they share."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
