"""Adapter folders on disk: where they lie, what their content hashes to, and which nobody needs."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection
from pathlib import Path

from sharpwave.errors import IntegrityError

_READ_BYTES = 1 << 20


def adapter_digest(folder: Path) -> str:
    """Return the SHA-256 over names and contents of all files in an adapter folder.

    Raises IntegrityError if the folder is missing or holds no file.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    if not files:
        raise IntegrityError(f"{folder}: no adapter files; run `sharpwave doctor`")
    total = hashlib.sha256()
    for path in files:
        content = hashlib.sha256()
        with path.open("rb") as stream:
            while block := stream.read(_READ_BYTES):
                content.update(block)
        total.update(f"{path.relative_to(folder).as_posix()}\0{content.hexdigest()}\n".encode())
    return total.hexdigest()


def generation_folder(directory: Path, number: int) -> Path:
    """Return the folder of one generation below the directory of all."""
    return directory / f"{number:04d}"


def numbers_on_disk(directory: Path) -> dict[int, Path]:
    """Return the folders of generations that are on disk, by number."""
    if not directory.is_dir():
        return {}
    return {int(path.name): path for path in directory.iterdir() if path.is_dir() and path.name.isdecimal()}


def remove_folders(folders: Collection[Path]) -> None:
    """Delete folders with all they hold; those already gone are no error."""
    for folder in folders:
        if folder.exists():
            shutil.rmtree(folder)
