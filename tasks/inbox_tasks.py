"""The inbox: a folder whose fact files the nightly cycle takes in, then moves to `done`."""

from __future__ import annotations

from pathlib import Path

from tasks.policies import side_effect_task

SUFFIXES = (".jsonl", ".ndjson", ".txt")


def waiting_files(folder: Path) -> list[Path]:
    """Return the fact files that wait in the inbox, by name; none if there is no such folder."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_file() and path.suffix in SUFFIXES)


def archive_file(path: str) -> str:
    """Move a file that was taken in to `done`, never over another one; return where it lies now."""
    source = Path(path)
    done = source.parent / "done"
    done.mkdir(exist_ok=True)
    target, number = done / source.name, 1
    while target.exists():
        target, number = done / f"{source.stem}-{number}{source.suffix}", number + 1
    if source.exists():
        source.rename(target)
    return str(target)


archive_file_task = side_effect_task(archive_file)
