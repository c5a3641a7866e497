"""How a run is named and described in the tracking store: tags, parameter names, parameter texts."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping

import sharpwave
from sharpwave.settings import PROJECT_ROOT, Settings

FOLDER_TAG = "sharpwave.run_folder"
PARAM_CHARS = 500  # what every MLflow server takes; later ones take 6,000
NAME_CHARS = 250


def run_tags(settings: Settings, run_id: str) -> dict[str, str]:
    """Return what identifies a run in the tracking store: folder, profile, digest, version, commit."""
    commit = _git_commit()
    return {
        FOLDER_TAG: f"{platform.node()}:{(settings.runs_dir / run_id).absolute()}",
        "sharpwave.run_id": run_id,
        "sharpwave.profile": settings.profile,
        "sharpwave.settings_digest": settings.digest(),
        "sharpwave.version": sharpwave.__version__,
    } | ({"mlflow.source.git.commit": commit} if commit else {})


def _git_commit() -> str | None:
    """Return the commit of a source checkout; None for an installation or without git."""
    if not (PROJECT_ROOT / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(PROJECT_ROOT), "rev-parse", "--verify", "HEAD"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def flattened(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the leaves of nested mappings with dotted names.

    >>> list(flattened({"store": {"path": "x"}, "seed": 0}))
    [('store.path', 'x'), ('seed', 0)]
    """
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def param_text(value: object) -> str:
    """Return a parameter's value as text: strings as they are, the rest as JSON, cut to `PARAM_CHARS`."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= PARAM_CHARS else f"{text[: PARAM_CHARS - 1]}…"


def valid_name(name: str) -> str:
    """Return the name with every character that MLflow refuses replaced by an underscore."""
    return re.sub(r"[^\w./ -]", "_", name)[:NAME_CHARS]
