"""The fast engine on a CPU: OpenVINO graphs with 8-bit weights, made once per model and kept in the cache."""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from carriers.openvino_conversion import (
    BODY_FILE,
    HEAD_FILE,
    convert_model,
    import_openvino,
    read_sizes,
)
from carriers.text_model import (
    LOGIT_ROWS,
    STATISTICS,
    FloatArray,
    TextModel,
    TokenIds,
    judged_places,
    padded,
    split_by_row,
)
from sharpwave.cpu import cpu_budget
from sharpwave.settings import cache_home

if TYPE_CHECKING:
    from carriers.language_model import LanguageModel

ENGINE_NAME = "openvino-int8"
_FORMAT = 1
_QUANTISED_TOGETHER = 32
_ADAPTED_KEPT = 3


class OpenVinoEngine:
    """Runs the graphs of one folder; see `text_model.PassEngine`. One pass at a time: callers on threads wait."""

    name = ENGINE_NAME

    def __init__(self, folder: Path) -> None:
        core = import_openvino().Core()
        options = {
            "INFERENCE_NUM_THREADS": cpu_budget(),
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(_QUANTISED_TOGETHER),
            "ENABLE_CPU_PINNING": False,  # several processes may share the cores
        }
        body = core.compile_model(folder / BODY_FILE, "CPU", options)
        self._past_shape = [
            dimension.get_length() if dimension.is_static else 0
            for dimension in body.input(2).get_partial_shape()
        ]
        self._body = body.create_infer_request()
        self._head = core.compile_model(folder / HEAD_FILE, "CPU", options).create_infer_request()
        self._past: dict[tuple[int, ...], FloatArray] = {}
        self._lock = threading.Lock()

    def forward(
        self, sequences: Sequence[TokenIds], starts: Sequence[int], prefix: TokenIds
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Run one batch; see `PassEngine`."""
        with self._lock:
            hidden, pooled, *_ = self._run(sequences, self._past_of(tuple(prefix)))
            rows, columns, targets = judged_places(sequences, starts)
            statistics = self._statistics(hidden[rows, columns], targets)
            return pooled.copy(), split_by_row(statistics, sequences, starts)

    def _run(self, sequences: Sequence[TokenIds], past: FloatArray) -> list[FloatArray]:
        """Return all outputs of the body as views that hold until the next run."""
        return list(
            self._body.infer([*padded(sequences), past], share_inputs=True, share_outputs=True).values()
        )

    def _past_of(self, prefix: tuple[int, ...]) -> FloatArray:
        if prefix not in self._past:
            nothing = np.zeros(self._past_shape, dtype=np.float32)
            if not prefix:
                return nothing
            _, _, *present = self._run([prefix], nothing)
            self._past[prefix] = np.concatenate(present)
        return self._past[prefix]

    def _statistics(self, hidden: FloatArray, targets: Any) -> FloatArray:
        parts = [
            self._head.infer(
                [hidden[start : start + LOGIT_ROWS], targets[start : start + LOGIT_ROWS]], share_inputs=True
            )[0]
            for start in range(0, len(hidden), LOGIT_ROWS)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(STATISTICS)), dtype=np.float32)


def fast_model(load_reference: Callable[[], LanguageModel], folder: Path, adapter: Path | None) -> TextModel:
    """Return a model on the fast engine; graphs that are not in the cache yet are made from the reference.

    Args:
        load_reference: Gives the model with the adapter merged; called only when graphs have to be made.
        folder: The base model's folder, whose tokeniser is used.
        adapter: Adapter that the reference has merged, if any.
    """
    from carriers.adapters import weights_fingerprint
    from carriers.model_loading import load_tokenizer

    fingerprint = weights_fingerprint(folder)
    graphs = _graphs_folder(fingerprint, adapter)
    if not (graphs / BODY_FILE).is_file():
        convert_model(load_reference().model, graphs)
        _drop_oldest(graphs)
    try:
        engine, sizes = OpenVinoEngine(graphs), read_sizes(graphs)
    except (RuntimeError, ValueError):  # a damaged file: what can be made is made again, once
        convert_model(load_reference().model, graphs)
        engine, sizes = OpenVinoEngine(graphs), read_sizes(graphs)
    return TextModel(load_tokenizer(folder), engine, sizes, name=folder.name, fingerprint=fingerprint)


def has_graphs(folder: Path, adapter: Path | None = None) -> bool:
    """Tell whether the graphs of a model folder, with an adapter if given, lie in the cache."""
    from carriers.adapters import weights_fingerprint

    return (_graphs_folder(weights_fingerprint(folder), adapter) / BODY_FILE).is_file()


def _graphs_folder(fingerprint: str, adapter: Path | None) -> Path:
    from carriers.adapters import ADAPTER_WEIGHTS

    version = import_openvino().__version__.split("-")[0]
    name = f"{fingerprint}-{version}-{_FORMAT}"
    if adapter is not None:
        name += "+" + hashlib.sha256((adapter / ADAPTER_WEIGHTS).read_bytes()).hexdigest()[:16]
    return cache_home() / "engines" / name


def _drop_oldest(newest: Path) -> None:
    """Keep the graphs of the last few adapters only: each night makes new ones, and old ones can be made again."""
    adapted = [path for path in newest.parent.iterdir() if path.is_dir() and "+" in path.name]
    for path in sorted(adapted, key=lambda item: item.stat().st_mtime)[:-_ADAPTED_KEPT]:
        shutil.rmtree(path, ignore_errors=True)
