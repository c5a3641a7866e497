"""The trained router on disk: JSON and safetensors, never pickle, with a card that says how it was made.

`heads.json` is written last and holds the digest of the arrays, so a save that was cut short is noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from routers.drift import DriftReference
from routers.features import Evidence, FloatArray, feature_digest
from routers.gate import GateHead, gate_inputs
from routers.linear import Array32, Array64, HiddenReduction, LinearMap, Standardiser
from routers.stage_heads import EvidenceHead, Prices, StageHeads, StageScores
from sharpwave.errors import ConfigError, IntegrityError

FORMAT = 1
ARRAYS_FILE = "heads.safetensors"
HEADS_FILE = "heads.json"
CARD_FILE = "card.json"
FRONTIER_FILE = "frontier.json"
_REMEDY = "run `sharpwave train-router` to make heads for these models"


@dataclass(frozen=True)
class RouterHeads:
    """Everything that scores: heads of both models, gates, and the prices calibrated with them.

    Gates, prices and what calibration facts looked like are kept per kind of evidence that a fact offers;
    `small_limit` and `large_limit` say how much of it each model makes use of.
    """

    small: StageHeads
    large: StageHeads
    gates: Mapping[Evidence, GateHead]
    prices: Mapping[Evidence, Prices]
    small_limit: Evidence
    large_limit: Evidence
    small_fingerprint: str
    large_fingerprint: str
    references: Mapping[Evidence, DriftReference]
    seed: int
    version: str = ""

    def gate_values(
        self, rows: Sequence[Mapping[str, FloatArray]], small: StageScores, kinds: Sequence[Evidence]
    ) -> Array64:
        """Return for each fact the expected rise in utility from asking the large model.

        Args:
            rows: The small model's feature groups.
            small: The small model's scores.
            kinds: Evidence that each fact offers.
        """
        inputs = gate_inputs(rows, small)
        values = np.zeros(len(rows))
        for kind in set(kinds):
            places = [place for place, own in enumerate(kinds) if own is kind]
            values[places] = self.gates[self.known_kind(kind)].predict(inputs[places])
        return values

    def known_kind(self, kind: Evidence) -> Evidence:
        """Return the most evidence, up to a kind, that gates and prices were made for."""
        fitting = [other for other in self.gates if other.rank <= kind.rank]
        return max(fitting, key=lambda other: other.rank)

    def versioned(self) -> RouterHeads:
        """Return the same heads with their version filled in: a digest of all that decides."""
        from safetensors.numpy import save

        return replace(self, version=_version_of(_description_of(self, save(_arrays_of(self)))))

    def save(
        self,
        folder: Path,
        card: Mapping[str, Any] | None = None,
        frontier: Mapping[str, Sequence[Mapping[str, float]]] | None = None,
    ) -> str:
        """Write the heads, their card and their frontier into a folder, and return the heads' version.

        Files of a former save are replaced. The same heads give the same bytes.
        """
        from safetensors.numpy import save

        folder.mkdir(parents=True, exist_ok=True)
        arrays = save(_arrays_of(self))
        description = _description_of(self, arrays)
        version = _version_of(description)
        _replace(folder / ARRAYS_FILE, arrays)
        _replace(folder / FRONTIER_FILE, _table_bytes(frontier or {}))
        _replace(folder / CARD_FILE, _json_bytes({"version": version, **(card or {})}))
        _replace(folder / HEADS_FILE, _json_bytes(description | {"version": version}))
        return version

    @classmethod
    def load(
        cls, folder: Path, *, small_fingerprint: str | None = None, large_fingerprint: str | None = None
    ) -> RouterHeads:
        """Read heads and make sure that they belong to the models at hand.

        Args:
            folder: What `save` wrote to.
            small_fingerprint: Fingerprint of the small model in use; None does not check.
            large_fingerprint: Fingerprint of the large model in use; None does not check.

        Raises:
            ConfigError: There are no heads in the folder, or they were trained on other models or features.
            IntegrityError: The files are damaged.
        """
        path = folder / HEADS_FILE
        if not path.is_file():
            raise ConfigError(f"{folder}: no trained router heads; {_REMEDY}")
        try:
            description = json.loads(path.read_text(encoding="utf-8"))
            _check_features(description, path)
            for name, given in (("small", small_fingerprint), ("large", large_fingerprint)):
                _check_fingerprint(description["models"][name], given, name, folder)
            decides = {key: value for key, value in description.items() if key != "version"}
            if description["version"] != _version_of(decides):
                raise ValueError("its content does not have the version it states")
            return _heads_of(description, _read_arrays(folder / ARRAYS_FILE, description["arrays_sha256"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
            raise IntegrityError(
                f"{path}: damaged router heads ({error}); restore the folder or {_REMEDY}"
            ) from error


def load_card(folder: Path) -> dict[str, Any]:
    """Return the model card beside the heads; empty if there is none."""
    path = folder / CARD_FILE
    card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return card


def _arrays_of(heads: RouterHeads) -> dict[str, Array32]:
    arrays: dict[str, Array32] = {}
    for name, stage in (("small", heads.small), ("large", heads.large)):
        arrays |= stage.hidden.arrays(f"{name}.hidden")
        for kind, head in stage.by_evidence.items():
            arrays |= head.standardiser.arrays(f"{name}.{kind}.standardiser")
            arrays |= head.classes.arrays(f"{name}.{kind}.classes")
    for kind, gate in heads.gates.items():
        arrays |= gate.arrays(f"gate.{kind}")
    return arrays


def _description_of(heads: RouterHeads, arrays: bytes) -> dict[str, Any]:
    return {
        "arrays_sha256": hashlib.sha256(arrays).hexdigest(),
        "format": FORMAT,
        "features": feature_digest(),
        "models": {"small": heads.small_fingerprint, "large": heads.large_fingerprint},
        "limits": {"small": heads.small_limit.value, "large": heads.large_limit.value},
        "gain_scales": {
            name: {kind.value: head.gain_scale for kind, head in stage.by_evidence.items()}
            for name, stage in (("small", heads.small), ("large", heads.large))
        },
        "prices": {kind.value: asdict(price) for kind, price in heads.prices.items()},
        "references": {kind.value: asdict(reference) for kind, reference in heads.references.items()},
        "seed": heads.seed,
    }


def _heads_of(description: dict[str, Any], arrays: dict[str, Any]) -> RouterHeads:
    stages = {}
    for name, kinds in description["gain_scales"].items():
        by_evidence = {
            Evidence(kind): EvidenceHead(
                Standardiser.from_arrays(arrays, f"{name}.{kind}.standardiser"),
                LinearMap.from_arrays(arrays, f"{name}.{kind}.classes"),
                gain_scale,
            )
            for kind, gain_scale in kinds.items()
        }
        stages[name] = StageHeads(HiddenReduction.from_arrays(arrays, f"{name}.hidden"), by_evidence)
    return RouterHeads(
        small=stages["small"],
        large=stages["large"],
        gates={
            Evidence(kind): GateHead.from_arrays(arrays, f"gate.{kind}") for kind in description["prices"]
        },
        prices={Evidence(kind): Prices(**price) for kind, price in description["prices"].items()},
        small_limit=Evidence(description["limits"]["small"]),
        large_limit=Evidence(description["limits"]["large"]),
        small_fingerprint=description["models"]["small"],
        large_fingerprint=description["models"]["large"],
        references={
            Evidence(kind): DriftReference(**{**row, "gate_edges": tuple(row["gate_edges"])})
            for kind, row in description["references"].items()
        },
        seed=description["seed"],
        version=description["version"],
    )


def _check_features(description: dict[str, Any], path: Path) -> None:
    if description["format"] != FORMAT or description["features"] != feature_digest():
        raise ConfigError(f"{path}: made for other features than this version computes; {_REMEDY}")


def _check_fingerprint(trained_on: str, given: str | None, name: str, folder: Path) -> None:
    if given is not None and given != trained_on:
        raise ConfigError(
            f"{folder}: these heads read the {name} model {trained_on}, but the one in use is {given}; "
            f"name other heads in router.heads, or {_REMEDY}"
        )


def _read_arrays(path: Path, expected_sha256: str) -> dict[str, Any]:
    from safetensors.numpy import load

    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != expected_sha256:
        raise ValueError(f"{path.name} is not the file these heads were saved with")
    return load(content)


def _version_of(description: Mapping[str, Any]) -> str:
    canonical = json.dumps(description, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()[:12]


def _json_bytes(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")


def _table_bytes(tables: Mapping[str, Sequence[Mapping[str, float]]]) -> bytes:
    """Write rows of figures as one array per line under one list of columns, which reads and diffs well."""
    parts = []
    for name, rows in tables.items():
        columns = list(rows[0]) if rows else []
        lines = [json.dumps([round(row[column], 6) for column in columns]) for row in rows]
        body = ",\n      ".join(lines)
        parts.append(
            f'  {json.dumps(name)}: {{\n    "columns": {json.dumps(columns)},\n    "rows": [\n      {body}]}}'
        )
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode("utf-8")


def _replace(path: Path, content: bytes) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    part.replace(path)
