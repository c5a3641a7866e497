"""Settings: sources, precedence, messages, digest, cache folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sharpwave.errors import ConfigError
from sharpwave.settings import (
    PROJECT_ROOT,
    Settings,
    SettingsGroup,
    cache_home,
    load_settings,
    profile_names,
    settings_origin,
)


def groups_of(group: type[SettingsGroup]) -> list[type[SettingsGroup]]:
    below = [info.annotation for info in group.model_fields.values()]
    nested = [kind for kind in below if isinstance(kind, type) and issubclass(kind, SettingsGroup)]
    return [group, *(deep for kind in nested for deep in groups_of(kind))]


def test_three_profiles_ship_and_each_loads() -> None:
    assert profile_names() == ["embedded", "qwen3-1.7b-8b", "smoke"]
    for name in profile_names():
        assert load_settings(name).profile == name


def test_profile_loads_from_another_working_directory(tmp_path: Path) -> None:
    code = "from sharpwave.settings import load_settings; print(load_settings('smoke').profile)"
    environment = os.environ | {"PYTHONPATH": str(PROJECT_ROOT)}
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "smoke"


def test_later_sources_win_and_are_named(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("recall:\n  top_k: 7\nseed: 5\nstore:\n", encoding="utf-8")
    settings = load_settings("embedded", ["seed=6", "seed=9"], file=mine)
    origins = settings_origin("embedded", ["seed=6", "seed=9"], file=mine)
    assert (settings.recall.top_k, settings.seed) == (7, 9)
    assert origins["seed"] == "override"
    assert origins["recall.top_k"] == str(mine)
    assert origins["models.small"].endswith("configs/embedded.yaml")
    assert origins["recall.min_similarity"] == "default"


def test_origin_knows_every_setting() -> None:
    origins = settings_origin()
    count = sum(
        not (isinstance(info.annotation, type) and issubclass(info.annotation, SettingsGroup))
        for group in groups_of(Settings)
        for info in group.model_fields.values()
    )
    assert len(origins) == count


def test_every_setting_is_described_in_a_sentence() -> None:
    bare = [
        f"{group.__name__}.{name}"
        for group in groups_of(Settings)
        for name, info in group.model_fields.items()
        if not (info.description or "").endswith(".")
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("recall.top_k=5", ("recall", "top_k", 5)),
        ("consolidation.write_back.learning_rate=5e-4", ("write_back", "learning_rate", 5e-4)),
        ("consolidation.promotion.scales=[1, 0.5]", ("promotion", "scales", (1.0, 0.5))),
        ("router.storage_price=null", ("router", "storage_price", None)),
        ("tracking.uri=sqlite:///a=b.db", ("tracking", "uri", "sqlite:///a=b.db")),
        ("models.large=no", ("models", "large", "no")),
    ],
)
def test_override_values_are_read_as_yaml_and_text_as_it_stands(
    override: str, expected: tuple[str, str, object]
) -> None:
    group, name, value = expected
    settings = load_settings(overrides=[override])
    owner = settings if hasattr(settings, group) else settings.consolidation
    assert getattr(getattr(owner, group), name) == value


def test_text_override_keeps_leading_zeros() -> None:
    assert load_settings(overrides=["namespace=0123"]).namespace == "0123"


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("recal.top_k=3", ["recal.top_k", "did you mean 'recall.top_k'"]),
        ("top_k=3", ["did you mean 'recall.top_k'"]),
        ("zzz=3", ["unknown setting 'zzz'"]),
        ("recall=3", ["is a group"]),
        ("recall.top_k", ["expected key=value"]),
        ("recall.top_k=many", ["override", "'recall.top_k'", "integer", "'many'"]),
        ("recall.top_k=yes", ["truth value"]),
        ("recall.top_k=0", ["greater than 0"]),
        ("recall.top_k={a: 1}", ["not a mapping"]),
        ("recall.top_k=[1", ["not valid YAML"]),
        ("recall.min_similarity=.nan", ["finite"]),
        ("profile=smoke", ["profile"]),
        ("seed=-1", ["'seed'"]),
        ("consolidation.promotion.scales=[0.5, 1.0]", ["scales must descend"]),
        ("consolidation.promotion.scales=[2.5]", ["at most 2"]),
        ("consolidation.selection.min_facts=100", ["min_facts (100) is above max_facts (64)"]),
        ("consolidation.damage.sample_size=500", ["sample_size (500) is above max_probes"]),
        ("consolidation.write_back.layers=some", ["'all', 'lower_half' or 'upper_half'"]),
    ],
)
def test_wrong_override_says_what_and_where(override: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(overrides=[override])
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("recal:\n  top_k: 3\n", "unknown setting 'recal'"),
        ("recall:\n  topk: 3\n", "unknown setting 'recall.topk'; did you mean 'recall.top_k'?"),
        ("recall: 3\n", "is a group of settings"),
        ("- 1\n", "expected `key: value`"),
        ("seed: [1\n", "not valid YAML"),
        ("seed: 1\nseed: 2\n", "'seed' appears twice"),
        ("namespace: 12\n", "put it in quotes"),
        ("profile: smoke\n", "chosen by name"),
        ("seed: !!python/object/apply:os.getcwd []\n", "not valid YAML"),
    ],
)
def test_wrong_file_is_named(tmp_path: Path, content: str, part: str) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(file=mine)
    assert str(mine) in str(caught.value)
    assert part in str(caught.value)


def test_missing_file_and_profile_are_config_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(file=tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="did you mean 'smoke'"):
        load_settings("smokes")
    with pytest.raises(ConfigError, match="unknown profile"):
        load_settings("../configs/smoke")


def test_digest_follows_the_values_and_nothing_else(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("seed: 3\n", encoding="utf-8")
    assert load_settings(file=mine).digest() == load_settings(overrides=["seed=3"]).digest()
    assert load_settings().digest() != load_settings(overrides=["seed=3"]).digest()
    assert len(load_settings().digest()) == 64


def test_cache_home_follows_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SHARPWAVE_HOME", raising=False)
    assert cache_home() == tmp_path / ".cache" / "sharpwave"
    monkeypatch.setenv("SHARPWAVE_HOME", "~/elsewhere")
    assert cache_home() == tmp_path / "elsewhere"
    (tmp_path / "elsewhere").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="SHARPWAVE_HOME"):
        cache_home()


def test_heads_are_found_beside_the_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    router = load_settings(overrides=["router.heads=my-heads"]).router
    assert router.heads_folder == PROJECT_ROOT / "my-heads"
    (tmp_path / "my-heads").mkdir()
    assert router.heads_folder.resolve() == tmp_path / "my-heads"


def test_default_tracking_address_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking.example:5000")
    assert load_settings().tracking.resolved_uri == "http://tracking.example:5000"
    chosen = load_settings(overrides=["tracking.uri=sqlite:////else/where.db"])
    assert chosen.tracking.resolved_uri == "sqlite:////else/where.db"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert load_settings().tracking.resolved_uri == f"sqlite:///{tmp_path}/mlruns/mlflow.db"
