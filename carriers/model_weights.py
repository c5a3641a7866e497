"""The embedded models by name: makes sure that sound weights lie in the cache, and lists what is there.

`ensure_model` turns a name from the settings into a folder in Hugging Face format; `load_causal_lm` turns
such a folder into a model that provably uses every weight in it.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from carriers.model_building import OnProgress, renew_model
from carriers.model_cache import find_damage
from carriers.model_loading import first_line, load_causal_lm, verify_loaded
from carriers.model_registry import MODELS, ModelSpec, Role
from sharpwave.errors import ConfigError, WeightsError
from sharpwave.settings import cache_home

__all__ = [
    "MODELS",
    "ModelRow",
    "OnProgress",
    "ensure_all",
    "ensure_embedder",
    "ensure_model",
    "list_models",
    "load_causal_lm",
    "verify_loaded",
]

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]


@dataclass(frozen=True)
class ModelRow:
    """One line of `sharpwave models`; `size_bytes` is what the folder takes on disk, 0 if not cached."""

    name: str
    role: Role
    licence: str
    licence_url: str
    parameters: int
    size_bytes: int
    is_cached: bool
    path: Path


def ensure_model(
    name_or_path: str,
    *,
    on_progress: OnProgress | None = None,
    offline: bool | None = None,
    registry: Mapping[str, ModelSpec] = MODELS,
) -> Path:
    """Return the folder of a model in Hugging Face format, fetching and converting it if needed.

    A name in the registry is verified on every call: by size and time in milliseconds, by SHA-256 when these
    changed. What is damaged is fetched again. A local folder or a hub id is resolved but not verified.

    Args:
        name_or_path: A registry name, a local folder with a config.json, or a hub id like "Qwen/Qwen3-1.7B".
        on_progress: Called with a stage and the fraction done; not called if there is nothing to do.
        offline: Never fetch. None: as the environment variable SHARPWAVE_OFFLINE says.
        registry: The models known by name.

    Raises:
        ConfigError: There is no such model or folder.
        WeightsError: The weights cannot be had, or are not what they should be.
    """
    is_offline = _is_set("SHARPWAVE_OFFLINE") if offline is None else offline
    spec = registry.get(name_or_path)
    if spec is None:
        return _resolve_unlisted(name_or_path, is_offline, registry)
    folder = cache_home() / "models" / spec.name
    if find_damage(folder, spec.build_key()) is not None:
        renew_model(spec, folder, is_offline=is_offline, on_progress=on_progress or _no_progress)
    return folder


def ensure_embedder(
    name_or_path: str,
    *,
    on_progress: OnProgress | None = None,
    offline: bool | None = None,
    registry: Mapping[str, ModelSpec] = MODELS,
) -> Path:
    """Return the folder of a sentence embedder; as `ensure_model`, but a listed model must be one.

    Raises:
        ConfigError: There is no such model or folder, or it is a language model.
        WeightsError: The weights cannot be had, or are not what they should be.
    """
    spec = registry.get(name_or_path)
    if spec is not None and spec.role != "embedder":
        fitting = ", ".join(other.name for other in registry.values() if other.role == "embedder")
        raise ConfigError(f"{name_or_path} is not an embedder; listed ones are: {fitting}")
    return ensure_model(name_or_path, on_progress=on_progress, offline=offline, registry=registry)


def ensure_all(
    on_progress: OnProgress | None = None,
    *,
    offline: bool | None = None,
    registry: Mapping[str, ModelSpec] = MODELS,
) -> dict[str, Path]:
    """Make sure of every model in the registry and return their folders by name; see `ensure_model`."""
    report = on_progress or _no_progress
    folders = {}
    for position, name in enumerate(registry):

        def overall(stage: str, fraction: float, done: int = position) -> None:
            report(stage, (done + fraction) / len(registry))

        folders[name] = ensure_model(name, on_progress=overall, offline=offline, registry=registry)
    report("every model is ready", 1.0)
    return folders


def list_models(registry: Mapping[str, ModelSpec] = MODELS) -> list[ModelRow]:
    """Describe every embedded model and whether a sound copy lies in the cache. Fetches nothing."""
    rows = []
    for spec in registry.values():
        folder = cache_home() / "models" / spec.name
        is_cached = find_damage(folder, spec.build_key()) is None
        files = folder.rglob("*") if is_cached else ()
        rows.append(
            ModelRow(
                name=spec.name,
                role=spec.role,
                licence=spec.licence,
                licence_url=spec.licence_url,
                parameters=spec.parameters,
                size_bytes=sum(file.stat().st_size for file in files if file.is_file()),
                is_cached=is_cached,
                path=folder,
            )
        )
    return rows


def _resolve_unlisted(name_or_path: str, is_offline: bool, registry: Mapping[str, ModelSpec]) -> Path:
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError(f"{folder} is not a model folder: it has no config.json")
        return folder.resolve()
    if _HUB_ID.fullmatch(name_or_path):
        return _fetch_from_hub(name_or_path, is_offline)
    near = difflib.get_close_matches(name_or_path, registry, n=1, cutoff=0.4)
    raise ConfigError(
        f"there is no model or folder '{name_or_path}'"
        + (f"; did you mean '{near[0]}'?" if near else "")
        + f" Listed models: {', '.join(registry)}; a local folder or a hub id (owner/name) is fine, too"
    )


def _fetch_from_hub(hub_id: str, is_offline: bool) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=_HUB_FILES, local_files_only=is_offline))
    except Exception as error:  # network, authorisation, disk: one remedy each, told by the first line
        raise WeightsError(
            f"'{hub_id}' is no local folder and could not be had from the model hub: {first_line(error)}. "
            "Give a local folder, or fetch it where there is a network with "
            f"`hf download {hub_id}`; HF_HUB_OFFLINE and SHARPWAVE_OFFLINE must not be set for that"
        ) from error


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() in {"1", "true", "yes", "on"}


def _no_progress(stage: str, fraction: float) -> None:
    """Drop the progress."""
