"""The fast engine on a CPU: OpenVINO graphs with 8-bit weights, made once per model and kept in the cache."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from carriers.openvino_conversion import (
    BODY_FILE,
    HEAD_FILE,
    convert_model,
    import_openvino,
    open_to_updates,
    read_sizes,
)
from carriers.scoped_model import UPDATES_KEPT
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
from sharpwave.errors import IntegrityError
from sharpwave.settings import cache_home

if TYPE_CHECKING:
    from carriers.adapters import LowRankUpdate, UpdateStack
    from carriers.language_model import LanguageModel

ENGINE_NAME = "openvino-int8"
_FORMAT = 2
_QUANTISED_TOGETHER = 32


class OpenVinoEngine:
    """Runs the graphs of one folder; see `text_model.PassEngine`. One pass at a time: callers on threads wait.

    One that takes updates runs only through the engines that `with_update` gives; all of them share its graphs.
    """

    name = ENGINE_NAME

    def __init__(self, folder: Path, modules: Mapping[str, tuple[int, int]] | None = None) -> None:
        """Load the graphs of a folder.

        Args:
            folder: What `convert_model` wrote.
            modules: Inputs and outputs of the linear maps that updates change; see `open_to_updates`.
        """
        core = import_openvino().Core()
        options = {
            "INFERENCE_NUM_THREADS": cpu_budget(),
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(_QUANTISED_TOGETHER),
            "ENABLE_CPU_PINNING": False,  # several processes may share the cores
        }
        graph = core.read_model(folder / BODY_FILE)
        self._modules = dict(modules or {})
        open_to_updates(graph, self._modules)
        body = core.compile_model(graph, "CPU", options)
        self._past_shape = [
            dimension.get_length() if dimension.is_static else 0
            for dimension in body.input(2).get_partial_shape()
        ]
        self._body = body.create_infer_request()
        self._head = core.compile_model(folder / HEAD_FILE, "CPU", options).create_infer_request()
        self._past: dict[tuple[int, ...], FloatArray] = {}
        self._update: list[FloatArray] = []
        self._lock = threading.Lock()

    def with_update(self, update: LowRankUpdate) -> OpenVinoEngine:
        """Return an engine over the same graphs whose linear maps are changed by an update."""
        rank = max((len(first) for first, _ in update.values()), default=1)
        engine = copy.copy(self)
        engine._past, engine._update = {}, []
        for name, (inputs, outputs) in self._modules.items():
            engine._update += update.get(name) or (
                np.zeros((rank, inputs), dtype=np.float32),
                np.zeros((outputs, rank), dtype=np.float32),
            )
        return engine

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
            self._body.infer(
                [*padded(sequences), past, *self._update], share_inputs=True, share_outputs=True
            ).values()
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


def fast_model(load_base: Callable[[], LanguageModel], folder: Path) -> TextModel:
    """Return a model on the fast engine, whose graphs are made once.

    Args:
        load_base: Gives the model; called only when graphs have to be made.
        folder: The model's folder.
    """
    from carriers.adapters import weights_fingerprint
    from carriers.model_loading import load_tokenizer

    fingerprint = weights_fingerprint(folder)
    graphs = _graphs_folder(fingerprint)
    try:
        sizes = read_sizes(graphs)
    except IntegrityError:  # not made yet, or damaged: what can be made is made
        convert_model(load_base().model, graphs)
        sizes = read_sizes(graphs)
    engine = OpenVinoEngine(graphs)
    return TextModel(load_tokenizer(folder), engine, sizes, name=folder.name, fingerprint=fingerprint)


def fast_updates(base: TextModel, stack: UpdateStack) -> Callable[[int], TextModel]:
    """Return what gives a model on the fast engine with one update of a stack, by its place.

    Args:
        base: The model without updates; what `fast_model` returned.
        stack: Updates for it.

    Raises:
        WeightsError: The updates do not fit the model.
    """
    engine = OpenVinoEngine(_graphs_folder(base.fingerprint), stack.shapes)

    @lru_cache(maxsize=UPDATES_KEPT)
    def updated(place: int) -> TextModel:
        return TextModel(
            base.tokenizer,
            engine.with_update(stack.read(place)),
            base.sizes,
            name=base.name,
            fingerprint=base.fingerprint,
        )

    return updated


def has_graphs(folder: Path) -> bool:
    """Tell whether the graphs of a model folder lie in the cache."""
    from carriers.adapters import weights_fingerprint

    return (_graphs_folder(weights_fingerprint(folder)) / BODY_FILE).is_file()


def _graphs_folder(fingerprint: str) -> Path:
    version = import_openvino().__version__.split("-")[0]
    return cache_home() / "engines" / f"{fingerprint}-{version}-{_FORMAT}"
