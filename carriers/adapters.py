"""Adapter files: merging one into a model in memory, reading its updates, stacking two into one, fingerprints.

An adapter folder is in PEFT's format (adapter_config.json, adapter_model.safetensors).
"""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpwave.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carriers.text_model import FloatArray

    LowRankUpdate = Mapping[str, tuple[FloatArray, FloatArray]]
    """By module below the causal model's base, such as `layers.0.mlp.up_proj`: A [rank, inputs], B [outputs, rank]."""

ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
_WRAPPED = "base_model.model."  # what PEFT puts before a module's name
_BASE = "model."  # what transformers puts before the names of all modules but the output head


def merge_adapter(model: Any, adapter: Path) -> Any:
    """Return the model with the adapter's low-rank updates added to its weights, in memory only.

    Raises:
        WeightsError: The folder is incomplete, or a key of the adapter fits no module or a module got no key.
    """
    from peft import PeftModel
    from safetensors import safe_open

    from carriers.model_loading import first_line

    weights = adapter / ADAPTER_WEIGHTS
    if not weights.is_file() or not (adapter / ADAPTER_CONFIG).is_file():
        raise WeightsError(f"{adapter}: not an adapter folder; run `sharpwave doctor` to see what is damaged")
    try:
        with safe_open(str(weights), framework="pt") as stored:
            given = set(stored.keys())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what PEFT only warns of is an error below
            wrapped = PeftModel.from_pretrained(model, str(adapter))
    except Exception as error:  # damaged files and wrong shapes fail with exceptions of many kinds
        raise WeightsError(f"{adapter}: does not fit the base model: {first_line(error)}") from error
    expected = {name.replace(".default.", ".") for name, _ in wrapped.named_parameters() if ".lora_" in name}
    if given != expected:
        strange = sorted(given ^ expected)[:3]
        raise WeightsError(f"{weights}: does not fit the base model, for example at {', '.join(strange)}")
    return wrapped.merge_and_unload().eval()


class UpdateStack:
    """The updates that an adapter was stacked from, read one at a time from its file, which stays open.

    Args (of the constructor):
        adapter: Adapter folder.
        ranks: The rank of each update, in the order in which they were stacked; None takes the whole for one.

    Raises:
        WeightsError: The folder is incomplete or damaged, or the ranks are not the adapter's.
    """

    def __init__(self, adapter: Path, ranks: Sequence[int] | None = None) -> None:
        from safetensors import SafetensorError, safe_open

        self.adapter = adapter
        try:
            config = json.loads((adapter / ADAPTER_CONFIG).read_text(encoding="utf-8"))
            weights: Any = safe_open(str(adapter / ADAPTER_WEIGHTS), framework="np")
            self._weights = weights
            self._factor = config["lora_alpha"] / config["r"]
            modules = sorted({_module_of(key) for key in self._weights.keys()})  # noqa: SIM118
            self.shapes = {name.removeprefix(_BASE): self._shape_of(name) for name in modules}
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise WeightsError(f"{adapter}: damaged adapter ({error}); run `sharpwave doctor`") from error
        self.ranks = (int(config["r"]),) if ranks is None else tuple(ranks)
        if sum(self.ranks) != config["r"]:
            raise WeightsError(f"{adapter}: its scope is of another adapter; run `sharpwave doctor`")

    def read(self, place: int) -> LowRankUpdate:
        """Return one update by its place, from 0; matrices that are all zeros are left out."""
        start = sum(self.ranks[:place])
        stop = start + self.ranks[place]
        update = {}
        for name in self.shapes:
            first = self._slice_of(_BASE + name, "A")[start:stop]
            second = self._slice_of(_BASE + name, "B")[:, start:stop]
            if second.any():
                update[name] = (first, self._factor * second)
        return update

    def _slice_of(self, module: str, part: str) -> Any:
        return self._weights.get_slice(f"{_WRAPPED}{module}.lora_{part}.weight")

    def _shape_of(self, module: str) -> tuple[int, int]:
        """Return inputs and outputs of a module."""
        return (
            self._slice_of(module, "A").get_shape()[1],
            self._slice_of(module, "B").get_shape()[0],
        )


def weights_fingerprint(folder: Path) -> str:
    """Return a short digest that changes when the weights do: names, sizes and heads of the weight files."""
    digest = hashlib.sha256()
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("config.json")])
    if not files:
        raise WeightsError(f"{folder}: holds no model; give a folder with config.json and *.safetensors")
    for file in files:
        digest.update(f"{file.name}:{file.stat().st_size}".encode())
        with file.open("rb") as stream:
            digest.update(stream.read(1 << 20))
            stream.seek(max(0, file.stat().st_size - (1 << 20)))
            digest.update(stream.read())
    return digest.hexdigest()[:16]


def stack_adapters(parent: Path | None, update: Path, target: Path, scale: float) -> None:
    """Write to `target` one adapter equal to the parent's plus `scale` times the update's weight change.

    Ranks add up: [A1; A2] and [B1, scale * B2] give B1 A1 + scale B2 A2 exactly. The scaling factor alpha / r of
    each part is folded into its B, so the result has alpha = r. A module that only one part changes gets zeros for
    the other.
    """
    from safetensors.torch import load_file, save_file

    parts = [(update, scale)] if parent is None else [(parent, 1.0), (update, scale)]
    configs = [json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8")) for folder, _ in parts]
    loaded = [load_file(str(folder / ADAPTER_WEIGHTS)) for folder, _ in parts]
    stacked = {}
    for key in sorted({key for tensors in loaded for key in tensors}):
        template = next(tensors[key] for tensors in loaded if key in tensors)
        blocks = [
            _block(key, tensors.get(key), template, config, factor)
            for tensors, config, (_, factor) in zip(loaded, configs, parts, strict=True)
        ]
        stacked[key] = _cat(key, blocks)
    target.mkdir(parents=True, exist_ok=True)
    save_file(stacked, str(target / ADAPTER_WEIGHTS))
    rank = sum(int(config["r"]) for config in configs)
    config = configs[-1] | {
        "r": rank,
        "lora_alpha": rank,
        "inference_mode": True,
        "target_modules": sorted({_module_of(key) for key in stacked}),
        "layers_to_transform": None,
    }
    (target / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")


def _module_of(key: str) -> str:
    """Return the name of the module that a tensor of an adapter updates."""
    return key.removeprefix(_WRAPPED).split(".lora_")[0]


def _block(key: str, value: Any, template: Any, config: dict[str, Any], factor: float) -> Any:
    """Return one part's rows of A or columns of B, zeros where the part does not change the module."""
    if value is None:
        shape = list(template.shape)
        shape[_rank_axis(key)] = int(config["r"])
        return template.new_zeros(shape)
    return value * (factor * config["lora_alpha"] / config["r"]) if _rank_axis(key) else value


def _cat(key: str, blocks: list[Any]) -> Any:
    from torch import cat

    return cat(blocks, dim=_rank_axis(key)).contiguous()


def _rank_axis(key: str) -> int:
    return 1 if ".lora_B." in key else 0
