"""Where settings come from: YAML files and `a.b=value` overrides, merged under dotted keys with their source.

Works for any schema of nested pydantic models; what the keys mean is `settings.py`'s business.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from sharpwave.errors import ConfigError


@dataclass
class MergedSources:
    """Values under dotted keys, and where each came from."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def put(self, key: str, value: Any, origin: str) -> None:
        """Set a value; a later one wins."""
        self.values[key] = value
        self.origins[key] = origin

    def nested(self) -> dict[str, Any]:
        """Return the values as a tree, the shape that the schema validates."""
        tree: dict[str, Any] = {}
        for key, value in self.values.items():
            *groups, name = key.split(".")
            branch = tree
            for group in groups:
                branch = branch.setdefault(group, {})
            branch[name] = value
        return tree


def merge_sources(schema: type[BaseModel], files: Sequence[Path], overrides: Sequence[str]) -> MergedSources:
    """Read files, then overrides, into one set of values; checks keys but not yet values.

    Raises:
        ConfigError: an unreadable file, an unknown key, a malformed override.
    """
    merged = MergedSources()
    kinds = setting_kinds(schema)
    for path in files:
        for key, value in _flatten(_read_yaml(path), kinds, str(path)):
            merged.put(key, value, str(path))
    for override in overrides:
        key, value = _parse_override(override, kinds)
        merged.put(key, value, "override")
    return merged


def setting_kinds(schema: type[BaseModel], prefix: str = "") -> dict[str, Any]:
    """Map every dotted key of a schema to the annotation of its value."""
    kinds: dict[str, Any] = {}
    for name, info in schema.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kinds |= setting_kinds(kind, f"{prefix}{name}.")
        else:
            kinds[f"{prefix}{name}"] = kind
    return kinds


def close_match(word: str, known: Sequence[str]) -> str:
    """Return a hint such as "; did you mean 'recall.top_k'?", or "" when nothing known is near."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if not near:
        last_part = word.rpartition(".")[2]
        near = [full for full in known if full.rpartition(".")[2] == last_part][:1]
    return f"; did you mean '{near[0]}'?" if near else ""


def explain_validation(error: ValidationError, schema: type[BaseModel], origins: Mapping[str, str]) -> str:
    """Turn pydantic's report into one line per wrong value: source, key, what is wrong."""
    kinds = setting_kinds(schema)
    lines = []
    for problem in error.errors(include_url=False):
        path = ".".join(str(part) for part in problem["loc"])
        key = next((leaf for leaf in kinds if path == leaf or path.startswith(f"{leaf}.")), path)
        sources = {source for leaf, source in origins.items() if leaf == key or leaf.startswith(f"{key}.")}
        given = f" (given: {problem['input']!r})" if key in kinds and problem["type"] != "missing" else ""
        hint = "; put it in quotes" if problem["type"] == "string_type" else ""
        message = problem["msg"].removeprefix("Value error, ")
        lines.append(f"{', '.join(sorted(sources)) or 'settings'}: '{key}': {message}{given}{hint}")
    return "\n".join(lines)


class _StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which silently keeps the last of two equal keys; this one refuses them."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for position, key in enumerate(keys):
            if key in keys[:position]:
                raise yaml.MarkedYAMLError(problem=f"key {key!r} appears twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep=deep)


def _read_yaml(path: Path) -> Mapping[Any, Any]:
    try:
        # A strict subclass of the safe loader: no Python objects can be built.
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not valid YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise ConfigError(f"{path}: expected `key: value` lines at the top level")
    return content


def _flatten(
    content: Mapping[Any, Any], kinds: Mapping[str, Any], source: str, prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values of a nested mapping, and refuse keys the schema does not have."""
    for name, value in content.items():
        key = f"{prefix}{name}"
        _refuse_profile(key, source)
        if key in kinds:
            _refuse_truth_value(key, value, kinds, source)
            yield key, value
        elif not _is_group(key, kinds):
            raise ConfigError(f"{source}: unknown setting '{key}'{close_match(key, list(kinds))}")
        elif isinstance(value, Mapping):
            yield from _flatten(value, kinds, source, f"{key}.")
        elif value is not None:
            raise ConfigError(f"{source}: '{key}' is a group of settings; expected keys below it")


def _parse_override(override: str, kinds: Mapping[str, Any]) -> tuple[str, Any]:
    source = f"override {override!r}"
    key, equals, text = (part.strip() for part in override.partition("="))
    if not equals:
        raise ConfigError(f"{source}: expected key=value, e.g. recall.top_k=5")
    _refuse_profile(key, source)
    if key not in kinds:
        if _is_group(key, kinds):
            raise ConfigError(f"{source}: '{key}' is a group of settings; set one key below it")
        raise ConfigError(f"{source}: unknown setting '{key}'{close_match(key, list(kinds))}")
    if text not in ("", "null") and _takes_text(kinds[key]):
        return key, text
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: the value is not valid YAML") from error
    if isinstance(value, Mapping):
        raise ConfigError(f"{source}: expected one value, not a mapping")
    _refuse_truth_value(key, value, kinds, source)
    return key, value


def _is_group(key: str, kinds: Mapping[str, Any]) -> bool:
    return any(leaf.startswith(f"{key}.") for leaf in kinds)


def _refuse_profile(key: str, source: str) -> None:
    if key == "profile":
        raise ConfigError(f"{source}: the profile is chosen by name, not set by a key")


def _refuse_truth_value(key: str, value: Any, kinds: Mapping[str, Any], source: str) -> None:
    """YAML reads yes, no, on and off as truth values, which pydantic would take for the numbers 1 and 0."""
    if isinstance(value, bool) and kinds[key] is not bool:
        raise ConfigError(
            f"{source}: '{key}': is a truth value in YAML; put text in quotes, or give a number"
        )


def _takes_text(kind: Any) -> bool:
    """Whether a setting is text or a path, so that `namespace=0123` keeps its zero."""
    if isinstance(kind, types.UnionType):
        return any(_takes_text(part) for part in typing.get_args(kind))
    return kind in (str, Path)
