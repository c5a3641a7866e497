"""Turns a GGUF model (Llama or Gemma 3) into a Hugging Face folder: config, tokenizer, float32 safetensors.

Every tensor of the file must land on a parameter and every parameter must be filled, so that a wrong mapping
cannot pass as a model with fresh random layers. `model_weights` then checks what the folder computes.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from carriers.gguf_file import GgufFile
from sharpwave.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

CONVERTER_VERSION = 1
"""Raised whenever the same GGUF would give another folder; a cache made by another version is rebuilt."""

_SHARED_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAMES = {
    "llama": _SHARED_NAMES | {"ffn_norm": "post_attention_layernorm"},
    "gemma3": _SHARED_NAMES
    | {
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
}
_LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.weight")


def convert_gguf(source: Path, folder: Path, on_progress: Callable[[str, float], None]) -> None:
    """Write `folder` (must exist) so that transformers can load it without any GGUF code.

    Args:
        source: The GGUF file.
        folder: Receives config.json, generation_config.json, the tokenizer and model.safetensors.
        on_progress: Called with a stage and the fraction of the whole conversion done.

    Raises:
        WeightsError: The file is damaged, or is of an architecture or tokenizer this converter does not know.
    """
    with GgufFile(source) as gguf:
        architecture = gguf.metadata.get("general.architecture")
        if architecture not in _NAMES:
            raise WeightsError(f"{source}: architecture {architecture!r}; known are {', '.join(_NAMES)}")
        on_progress("building the tokenizer", 0.0)
        pad_id = _write_tokenizer(source, gguf.metadata, folder)
        on_progress("dequantising the weights", 0.4)
        _write_config(gguf.metadata, pad_id, folder)
        _write_tensors(gguf, architecture, folder)
    on_progress("dequantising the weights", 1.0)


def _write_tensors(gguf: GgufFile, architecture: str, folder: Path) -> None:
    from safetensors.numpy import save_file

    tensors: dict[str, NDArray[np.float32]] = {}
    for name, weights in gguf.tensors():
        tensors[_parameter_name(architecture, name)] = np.ascontiguousarray(
            _restore(architecture, name, weights, gguf.metadata), dtype=np.float32
        )
    target = folder / "model.safetensors"
    save_file(tensors, target, metadata={"format": "pt"})
    shutil.copymode(folder / "config.json", target)  # safetensors lets only the owner read, umask or not


def _parameter_name(architecture: str, tensor: str) -> str:
    layer = _LAYER_TENSOR.fullmatch(tensor)
    stem = layer[2] if layer else tensor.removesuffix(".weight")
    try:
        parameter = _NAMES[architecture][stem]
    except KeyError as error:
        raise WeightsError(
            f"the {architecture} file has a tensor no parameter is known for: {tensor}"
        ) from error
    return f"model.layers.{layer[1]}.{parameter}.weight" if layer else f"{parameter}.weight"


def _restore(
    architecture: str, tensor: str, weights: NDArray[np.float32], metadata: dict[str, Any]
) -> NDArray[np.float32]:
    """Undo what llama.cpp did to the values: rotary halves interleaved, Gemma's norms stored as 1 + w."""
    if architecture == "gemma3":
        return weights - np.float32(1.0) if tensor.endswith("norm.weight") else weights
    if ".attn_q." in tensor or ".attn_k." in tensor:
        key = "head_count" if ".attn_q." in tensor else "head_count_kv"
        heads = metadata[f"llama.attention.{key}"]
        half = weights.shape[0] // heads // 2
        return weights.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(weights.shape)
    return weights


def _write_config(metadata: dict[str, Any], pad_id: int, folder: Path) -> None:
    from transformers import GenerationConfig

    config = _build_config(metadata, pad_id)
    config.save_pretrained(folder)
    GenerationConfig.from_model_config(config).save_pretrained(folder)


def _build_config(metadata: dict[str, Any], pad_id: int) -> Any:
    from transformers import Gemma3TextConfig, LlamaConfig

    architecture = metadata["general.architecture"]
    shape = {key.removeprefix(architecture + "."): value for key, value in metadata.items()}
    shared = {
        "hidden_size": shape["embedding_length"],
        "intermediate_size": shape["feed_forward_length"],
        "num_hidden_layers": shape["block_count"],
        "num_attention_heads": shape["attention.head_count"],
        "num_key_value_heads": shape["attention.head_count_kv"],
        "max_position_embeddings": shape["context_length"],
        "rms_norm_eps": shape["attention.layer_norm_rms_epsilon"],
        "vocab_size": len(shape["tokenizer.ggml.tokens"]),
        "bos_token_id": shape["tokenizer.ggml.bos_token_id"],
        "eos_token_id": shape["tokenizer.ggml.eos_token_id"],
        "pad_token_id": pad_id,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    theta = {"rope_type": "default", "rope_theta": shape["rope.freq_base"]}
    if architecture == "llama":
        return LlamaConfig(**shared, rope_parameters=theta, architectures=["LlamaForCausalLM"])
    local_theta = {
        "rope_type": "default",
        "rope_theta": 10000.0,
    }  # not in the file: the same in every Gemma 3
    return Gemma3TextConfig(
        **shared,
        head_dim=shape["attention.key_length"],
        query_pre_attn_scalar=shape["attention.key_length"],
        sliding_window=shape["attention.sliding_window"],
        rope_parameters={"full_attention": theta, "sliding_attention": local_theta},
        architectures=["Gemma3ForCausalLM"],
    )


def _write_tokenizer(source: Path, metadata: dict[str, Any], folder: Path) -> int:
    """Write the tokenizer and return the id it pads with, which never ends a text."""
    from tokenizers import pre_tokenizers
    from transformers import GemmaTokenizer, PreTrainedTokenizerFast

    kind = metadata["tokenizer.ggml.model"], metadata.get("tokenizer.ggml.pre")
    limit = metadata[metadata["general.architecture"] + ".context_length"]
    options = {"gguf_file": source.name, "padding_side": "right", "model_max_length": limit}
    if kind == ("llama", "default"):
        tokenizer = GemmaTokenizer.from_pretrained(source.parent, **options)
    elif kind == ("gpt2", "smollm"):
        tokenizer = PreTrainedTokenizerFast.from_pretrained(source.parent, **options)
        # transformers knows no split rule for "smollm" and falls back to GPT-2's, which reads the line breaks
        # or spaces before a digit as other tokens than the model was trained on.
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ])
    else:
        raise WeightsError(f"{source}: tokenizer {kind}; known are Gemma's and SmolLM's")
    if tokenizer.pad_token_id == tokenizer.eos_token_id:
        tokenizer.pad_token = tokenizer.unk_token  # else masking the padding hides the end of every answer
    tokenizer.save_pretrained(folder)
    return int(tokenizer.pad_token_id)
