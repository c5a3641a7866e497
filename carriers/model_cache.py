"""One model folder in the cache: its manifest, and whether what lies on disk still is what was written.

The manifest holds the SHA-256 of every file. Hashing a gigabyte takes seconds, so a stamp beside it remembers
the sizes and times of files that were hashed; while these stay the same, a look at them is enough.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from carriers.model_registry import Canary
from carriers.wheel_download import file_sha256

MANIFEST = "manifest.json"
_STAMP = "verified.json"


@dataclass(frozen=True)
class Manifest:
    """What a converted model folder should hold.

    Attributes:
        name: The model.
        build_key: `ModelSpec.build_key` of the specification it was made from.
        sources: "distribution==version" of each wheel, with its SHA-256.
        files: SHA-256 of each file by its path within the folder.
        canary: What the model computed when the folder was made; None for an embedder.
    """

    name: str
    build_key: str
    sources: dict[str, str]
    files: dict[str, str]
    canary: Canary | None

    def write(self, folder: Path) -> None:
        """Write the manifest into the folder."""
        text = json.dumps(asdict(self), indent=2, ensure_ascii=False)
        (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read a folder's manifest.

        Raises:
            ValueError: It is damaged.
            FileNotFoundError: There is none.
        """
        try:
            values = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            canary = values.pop("canary")
            return cls(**values, canary=None if canary is None else _read_canary(canary))
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{MANIFEST} is damaged: {error}") from error


def _read_canary(values: dict[str, Any]) -> Canary:
    return Canary(
        text=values["text"],
        token_ids=tuple(values["token_ids"]),
        next_ids=tuple(values["next_ids"]),
        next_logits=tuple(values["next_logits"]),
    )


def hash_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file in the folder but manifest and stamp, by relative path."""
    own = {MANIFEST, _STAMP}
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in own)
    return {path.relative_to(folder).as_posix(): file_sha256(path) for path in paths}


def find_damage(folder: Path, build_key: str) -> str | None:
    """Say what is wrong with a cached model folder, or None if it is sound.

    Costs a look at each file's size and time, and a hash of every file if these changed since the last hash.
    """
    if not folder.exists():
        return "it is not in the cache yet"
    try:
        manifest = Manifest.read(folder)
    except (OSError, ValueError) as error:
        return f"{folder / MANIFEST} cannot be read ({error})"
    if manifest.build_key != build_key:
        return "it was made from other wheels or by another version of the converter"
    missing = [name for name in manifest.files if not (folder / name).is_file()]
    if missing:
        return f"{folder / missing[0]} is missing"
    if _read_stamp(folder) == _stat_files(folder, manifest):
        return None
    for name, sha256 in manifest.files.items():
        if file_sha256(folder / name) != sha256:
            return f"{folder / name} is damaged (its SHA-256 is not the recorded one)"
    write_stamp(folder, manifest)
    return None


def write_stamp(folder: Path, manifest: Manifest) -> None:
    """Remember that the files as they lie there now have the manifest's SHA-256."""
    try:
        (folder / _STAMP).write_text(json.dumps(_stat_files(folder, manifest)), encoding="utf-8")
    except OSError:  # a shared read-only cache: hashed each time, still right
        return


def _stat_files(folder: Path, manifest: Manifest) -> dict[str, list[int]]:
    stats = {name: (folder / name).stat() for name in [MANIFEST, *manifest.files]}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def _read_stamp(folder: Path) -> object:
    try:
        return json.loads((folder / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
