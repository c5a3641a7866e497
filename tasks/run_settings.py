"""The resolved settings of a run as a file, so that tasks get one path instead of objects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sharpwave.records import utc_now
from sharpwave.settings import Settings, load_settings


def begin_run(
    run_id: str, profile: str, overrides: Sequence[str] = (), config: str | None = None
) -> tuple[Settings, str]:
    """Resolve settings and write them to `<runs_dir>/<run_id>/settings.json`; return both."""
    settings = load_settings(profile, overrides, file=Path(config) if config else None)
    path = settings.runs_dir / run_id / "settings.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(settings.model_dump_json(indent=2), encoding="utf-8")
    return settings, str(path)


def read_settings(path: str) -> Settings:
    """Return the settings that `begin_run` wrote."""
    return Settings.model_validate_json(Path(path).read_bytes())


def new_run_id(kind: str) -> str:
    """Return a run id that sorts by time: kind and UTC time to the millisecond."""
    return f"{kind}-{utc_now():%Y%m%d-%H%M%S}-{utc_now().microsecond // 1000:03d}"
