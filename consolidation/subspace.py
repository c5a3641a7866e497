"""Input directions in which an update moves what is to be learnt and hardly touches what is known.

A LoRA update adds B A x to a module's output. Here A is not trained: its rows are the directions in which the
module's inputs on the new facts are large compared with its inputs on the anchors, so that A x almost vanishes on
prompts like the anchors whatever B becomes. The idea of keeping updates away from directions that matter to other
knowledge is that of AlphaEdit (Fang et al., 2025) and LoRA-Null (Tang et al., 2025); the directions are the leading
generalised eigenvectors of the two second moments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_SHARED_INPUT = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}
_MOMENT_BYTES = 2 << 30
_OVERSAMPLED = 2
_ITERATIONS = 6


class UpdateAim:
    """Collects second moments of module inputs while the caller reads prompts, then sets and freezes each A."""

    def __init__(self, model: Any, ridge: float) -> None:
        """Prepare for a model with untrained LoRA modules.

        Args:
            model: A PEFT model.
            ridge: Added to the second moment of the anchors, relative to its mean eigenvalue. Larger values care more
                for the strength of the signal on the facts, smaller ones for silence on the anchors.
        """
        self._ridge = ridge
        self._adapted = {
            name: module
            for name, module in model.named_modules()
            if len(getattr(module, "lora_A", ())) and hasattr(module, "base_layer")
        }
        self._moments: dict[bool, dict[str, torch.Tensor]] = {}
        self._counts: dict[bool, int] = {}
        self._is_anchor = False
        self._positions: Any = None

    def passes(self) -> Iterator[None]:
        """Yield as often as the caller has to read all its prompts: once, unless the model is large."""
        for group in self._groups():
            self._moments, self._counts = {True: {}, False: {}}, {True: 0, False: 0}
            hooks = [self._adapted[name].register_forward_pre_hook(self._recorder(name)) for name in group]
            try:
                yield
            finally:
                for hook in hooks:
                    hook.remove()
            self._set(group)

    def watch(self, positions: Any, *, is_anchor: bool) -> None:
        """Say which positions of the next row count, and for which of the two moments."""
        self._positions, self._is_anchor = positions, is_anchor
        self._counts[is_anchor] += len(positions)

    def _groups(self) -> Iterator[list[str]]:
        """Yield names of modules, one for each distinct input, whose moments fit into memory together."""
        group: list[str] = []
        size = 0
        for name, module in self._adapted.items():
            if _source_of(name) != name:
                continue
            needed = 2 * 4 * module.in_features**2
            if group and size + needed > _MOMENT_BYTES:
                yield group
                group, size = [], 0
            group.append(name)
            size += needed
        if group:
            yield group

    def _recorder(self, name: str) -> Any:
        def record(_: Any, inputs: tuple[Any, ...]) -> None:
            rows = inputs[0].detach().reshape(-1, inputs[0].shape[-1])[self._positions].float()
            moments = self._moments[self._is_anchor]
            moments[name] = moments[name] + rows.T @ rows if name in moments else rows.T @ rows

        return record

    def _set(self, group: list[str]) -> None:
        learn, keep = self._moments[False], self._moments[True]
        directions: dict[str, torch.Tensor] = {}
        for name in group:
            learnt = learn[name] / self._counts[False]
            kept = keep.get(name, learnt * 0.0) / max(1, self._counts[True])
            directions[name] = leading_directions(learnt, kept, _rank(self._adapted[name]), self._ridge)
        for name, module in self._adapted.items():
            if _source_of(name) in directions:
                for layer in module.lora_A.values():
                    chosen = directions[_source_of(name)]  # fewer than the rank only if the input is narrower
                    layer.weight.data.zero_()[: len(chosen)].copy_(chosen)
                    layer.weight.requires_grad_(False)


def leading_directions(learnt: Any, kept: Any, count: int, ridge: float) -> Any:
    """Return rows [count, width] with large energy under `learnt` and little under `kept` (both [width, width]).

    Each row's energy under `learnt` is what a row of a usual random A (uniform, Kaiming) has, so that learning rates
    keep their meaning. Found by subspace iteration, in double precision.
    """
    import torch

    width = learnt.shape[0]
    count = min(count, width)
    first, second = learnt.double(), kept.double()
    mean = (second if second.any() else first).diagonal().mean()
    root = torch.linalg.cholesky(
        second + ridge * mean * torch.eye(width, dtype=first.dtype, device=first.device)
    )

    def whitened(vectors: Any) -> Any:
        lifted = torch.linalg.solve_triangular(root.T, vectors, upper=True)
        return torch.linalg.solve_triangular(root, first @ lifted, upper=False)

    basis = torch.randn(width, min(width, _OVERSAMPLED * count), dtype=first.dtype).to(first.device)
    for _ in range(_ITERATIONS):
        basis, _ = torch.linalg.qr(whitened(basis))
    _, rotation = torch.linalg.eigh(basis.T @ whitened(basis))
    rows = torch.linalg.solve_triangular(root.T, basis @ rotation[:, -count:], upper=True).T
    energy = ((rows @ first) * rows).sum(1)
    return rows * (first.diagonal().mean() / 3 / energy.clamp_min(1e-30)).sqrt()[:, None]


def _source_of(name: str) -> str:
    """Return the module that reads the same input and stands for it."""
    parent, last = name.rsplit(".", 1)
    return f"{parent}.{_SHARED_INPUT.get(last, last)}"


def _rank(module: Any) -> int:
    return int(next(iter(module.lora_A.values())).weight.shape[0])
