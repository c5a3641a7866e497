"""Turns a transformers model into two OpenVINO graphs whose weights are 8-bit integers.

The body runs the layers after an optional prefix; the head reduces logits to a few statistics, so that no table of
tokens times vocabulary is ever stored. Weights are rounded per output channel, symmetrically; OpenVINO rounds the
activations as it goes (dynamic quantisation), so products are made in integers.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from carriers.text_model import FloatArray, ModelSizes
from carriers.torch_engine import model_sizes, pooled_layers, token_statistics
from sharpwave.errors import IntegrityError, WeightsError

if TYPE_CHECKING:
    import torch

BODY_FILE, HEAD_FILE, SIZES_FILE = "body.xml", "head.xml", "sizes.json"
_LEAST_COLUMNS = 64  # smaller matrices are not worth rounding
_MOST_INT8 = 127
_MASKED = -1e9
_LINEAR = re.compile(r"__module\.base\.(.+)/aten::linear/MatMul$")


def import_openvino() -> Any:
    """Import OpenVINO without the module through which it would report its use."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # None: its import fails
    import openvino

    return openvino


def convert_model(model: Any, folder: Path) -> None:
    """Write body, head and sizes of a transformers model into a folder, all of it or nothing.

    Args:
        model: A causal language model on the CPU, float32, in evaluation mode.
        folder: Target; what was there is replaced.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        openvino = import_openvino()
        for file, graph in ((BODY_FILE, _body_graph(model)), (HEAD_FILE, _head_graph(model))):
            _round_weights(graph)
            openvino.save_model(graph, part / file, compress_to_fp16=False)
        record = {"sizes": asdict(model_sizes(model)), "files": _digests(part)}
        (part / SIZES_FILE).write_text(json.dumps(record | {"digest": _digest_of(record)}), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        part.replace(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def read_sizes(folder: Path) -> ModelSizes:
    """Return the sizes of the model that a folder was made from, once every file in it has its digest.

    OpenVINO loads weights with changed bytes without a word, and heads would then judge noise.

    Raises:
        IntegrityError: A file is missing or damaged.
    """
    try:
        record = json.loads((folder / SIZES_FILE).read_text(encoding="utf-8"))
        stated = record.pop("digest")
        if stated != _digest_of(record) or record["files"] != _digests(folder):
            raise ValueError("a digest differs")
        return ModelSizes(**record["sizes"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IntegrityError(f"{folder}: damaged graphs ({error})") from error


def _digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each graph file by name."""
    found = {}
    for graph in (BODY_FILE, HEAD_FILE):
        for path in (folder / graph, (folder / graph).with_suffix(".bin")):
            with path.open("rb") as stream:
                found[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def _digest_of(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode("utf-8")).hexdigest()


def _body_graph(model: Any) -> Any:
    """Return a graph: ids and mask [rows, tokens], past [2 layers, heads, prefix, size] to states and new past.

    Outputs are the last hidden states [rows, tokens, width], the pooled ones [rows, 3, width], and each layer's keys
    and values [rows, heads, prefix + tokens, size].
    """
    import torch

    openvino = import_openvino()
    config = model.config
    heads = int(config.num_key_value_heads)
    size = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    layers = int(config.num_hidden_layers)
    example = (
        torch.ones(2, 7, dtype=torch.long),
        torch.ones(2, 7, dtype=torch.long),
        torch.zeros(2 * layers, heads, 5, size),
    )
    shapes = [[-1, -1], [-1, -1], [2 * layers, heads, -1, size]]
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing tells of every shape it reads
        return openvino.convert_model(
            _body_module(model),
            example_input=example,
            input=[openvino.PartialShape(shape) for shape in shapes],
        )


def _head_graph(model: Any) -> Any:
    """Return a graph: hidden states [n, width] and tokens [n] to `text_model.STATISTICS`, [n, 5]."""
    import torch

    class Head(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = model.lm_head

        def forward(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return token_statistics(self.project(hidden), targets)

    openvino = import_openvino()
    width = int(model.config.hidden_size)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return openvino.convert_model(
            Head().eval(),
            example_input=(torch.zeros(5, width), torch.ones(5, dtype=torch.long)),
            input=[openvino.PartialShape([-1, width]), openvino.PartialShape([-1])],
        )


def _body_module(model: Any) -> Any:
    import torch
    from transformers import DynamicCache

    # Layers with a sliding window see all that a text of at most 512 tokens holds, so one mask serves every kind.
    kinds = sorted(set(getattr(model.config, "layer_types", None) or ()))

    class Body(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = model.base_model

        def forward(
            self, ids: torch.Tensor, mask: torch.Tensor, past: torch.Tensor
        ) -> tuple[torch.Tensor, ...]:
            rows, tokens = ids.shape
            before = past.shape[2]
            cache = DynamicCache()
            cache.layers = [
                _filled_layer(*(past[2 * layer + which].expand(rows, -1, -1, -1) for which in (0, 1)))
                for layer in range(past.shape[0] // 2)
            ]
            bias = _attention_bias(mask, before)
            output = self.base(
                input_ids=ids,
                attention_mask=dict.fromkeys(kinds, bias) if len(kinds) > 1 else bias,
                position_ids=before + torch.arange(tokens)[None].expand(rows, -1),
                cache=cache,
                use_cache=True,
                output_hidden_states=True,
            )
            states = pooled_layers([*output.hidden_states[:-1], output.last_hidden_state])
            pooled = _token_means(states, mask)
            present = [getattr(layer, part) for layer in cache.layers for part in ("keys", "values")]
            return output.last_hidden_state, pooled, *present

    return Body().eval()


def _filled_layer(keys: torch.Tensor, values: torch.Tensor) -> Any:
    from transformers.cache_utils import DynamicLayer

    layer = DynamicLayer()
    layer.lazy_initialization(keys, values)
    layer.keys, layer.values = keys, values  # an update starts from nothing, which has no rank to join on
    return layer


def _attention_bias(mask: torch.Tensor, before: int) -> torch.Tensor:
    """Return what is added to attention scores: all of the prefix and what came before is seen, padding is not."""
    import torch

    rows, tokens = mask.shape
    seen = torch.tril(torch.ones(tokens, tokens))[None] * mask[:, None, :].float()
    seen = torch.cat([torch.ones(rows, tokens, before), seen], dim=2)[:, None]
    return (1 - seen) * _MASKED


def _token_means(states: Sequence[torch.Tensor], mask: torch.Tensor) -> torch.Tensor:
    """Average each state over all real tokens but the first."""
    import torch

    weights = torch.cat([torch.zeros_like(mask[:, :1]), mask[:, 1:]], dim=1).float()
    weights = weights / weights.sum(1, keepdim=True).clamp(min=1)
    return torch.stack([(state * weights[:, :, None]).sum(1) for state in states], 1)


def _round_weights(graph: Any) -> None:
    """Replace every large float matrix by 8-bit integers and a scale per row, in place."""
    import openvino.opset13 as ops

    for node in graph.get_ordered_ops():
        if node.get_type_name() != "Constant" or str(node.get_element_type()) != "<Type: 'float32'>":
            continue
        shape = list(node.get_output_shape(0))
        if len(shape) != 2 or min(shape) < _LEAST_COLUMNS:
            continue
        values, scales = _rounded(np.asarray(node.data, dtype=np.float32))
        restored = ops.multiply(ops.convert(ops.constant(values), "f32"), ops.constant(scales))
        for target in list(node.output(0).get_target_inputs()):
            target.replace_source_output(restored.output(0))


def open_to_updates(graph: Any, modules: Mapping[str, tuple[int, int]]) -> None:
    """Give linear maps of a body graph further inputs that change what they compute, in place.

    Each gets two, A [rank, inputs] and B [outputs, rank], in the order of the modules: x is then mapped to what it
    was before plus x A^T B^T.

    Args:
        graph: A body that `convert_model` saved.
        modules: By name below the model, such as `layers.0.mlp.up_proj`: its inputs and outputs.

    Raises:
        WeightsError: A name that the graph has no linear map for, or one of another shape.
    """
    openvino = import_openvino()
    ops = openvino.opset13
    linear = {
        match[1]: node for node in graph.get_ops() if (match := _LINEAR.match(node.get_friendly_name()))
    }
    for name, (inputs, outputs) in modules.items():
        node = linear.get(name)
        if node is None or list(node.input_value(1).get_shape()) != [outputs, inputs]:
            raise WeightsError(f"the adapter changes {name}, for which the graph has no matrix of its shape")
        first, second = (
            ops.parameter(openvino.PartialShape(shape), dtype=np.float32)
            for shape in ([-1, inputs], [outputs, -1])
        )
        targets = list(node.output(0).get_target_inputs())
        low = ops.matmul(node.input_value(0), first, transpose_a=False, transpose_b=True)
        change = ops.matmul(low, second, transpose_a=False, transpose_b=True)
        changed = ops.add(node.output(0), change)
        for target in targets:
            target.replace_source_output(changed.output(0))
        graph.add_parameters([first, second])


def _rounded(matrix: FloatArray) -> tuple[Any, FloatArray]:
    """Return 8-bit integers and a scale per row [rows, 1], whose product is close to the matrix."""
    scale = np.maximum(np.abs(matrix).max(axis=1, keepdims=True), 1e-12) / _MOST_INT8
    return np.rint(matrix / scale).astype(np.int8), scale.astype(np.float32)
