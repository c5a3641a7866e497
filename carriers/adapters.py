"""Adapter files: merging one into a model in memory, stacking two into one, fingerprints.

An adapter folder is in PEFT's format (adapter_config.json, adapter_model.safetensors).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from sharpwave.errors import WeightsError

ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"


def merge_adapter(model: Any, adapter: Path) -> Any:
    """Return the model with the adapter's low-rank updates added to its weights, in memory only.

    Raises:
        WeightsError: The folder is incomplete, or a key of the adapter fits no module or a module got no key.
    """
    from peft import PeftModel
    from safetensors import safe_open

    weights = adapter / ADAPTER_WEIGHTS
    if not weights.is_file() or not (adapter / ADAPTER_CONFIG).is_file():
        raise WeightsError(f"{adapter}: not an adapter folder; run `sharpwave doctor` to see what is damaged")
    wrapped = PeftModel.from_pretrained(model, str(adapter))
    with safe_open(str(weights), framework="pt") as stored:
        given = set(stored.keys())
    expected = {name.replace(".default.", ".") for name, _ in wrapped.named_parameters() if ".lora_" in name}
    if given != expected:
        strange = sorted(given ^ expected)[:3]
        raise WeightsError(f"{weights}: does not fit the base model, for example at {', '.join(strange)}")
    return wrapped.merge_and_unload().eval()


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
    each part is folded into its B, so the result has alpha = r.
    """
    from safetensors.torch import load_file, save_file
    from torch import cat

    parts = [(update, scale)] if parent is None else [(parent, 1.0), (update, scale)]
    tensors: dict[str, list[Any]] = {}
    for folder, factor in parts:
        config = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        for key, value in load_file(str(folder / ADAPTER_WEIGHTS)).items():
            scaled = value * (factor * config["lora_alpha"] / config["r"]) if ".lora_B." in key else value
            tensors.setdefault(key, []).append(scaled)
    target.mkdir(parents=True, exist_ok=True)
    stacked = {
        key: cat(values, dim=1 if ".lora_B." in key else 0).contiguous() for key, values in tensors.items()
    }
    save_file(stacked, str(target / ADAPTER_WEIGHTS))
    config = json.loads((update / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    rank = next(value.shape[0] for key, value in stacked.items() if ".lora_A." in key)
    config |= {"r": rank, "lora_alpha": rank, "inference_mode": True}
    (target / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
