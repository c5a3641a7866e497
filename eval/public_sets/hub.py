"""Rows of a data set on the Hugging Face hub, through the `datasets` library; needs the network or its cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sharpwave.errors import InputError

PREFIX = "hub:"


def hub_rows(source: str) -> Iterator[Any]:
    """Yield the rows of `hub:owner/name`, all splits in the hub's order, or of one: `hub:owner/name:test`.

    Raises:
        InputError: The name has another form, or the set cannot be had.
    """
    name, _, split = source.removeprefix(PREFIX).partition(":")
    if name.count("/") != 1 or not all(name.split("/")):
        raise InputError("expected hub:owner/name, or hub:owner/name:split", file=source)
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    try:
        found = load_dataset(name, split=split or None)
    except (OSError, ValueError, DatasetsError) as error:
        raise InputError(
            f"cannot be loaded ({error}); check name and network, or download its file and name that",
            file=source,
        ) from error
    return iter(found) if split else (row for part in found.values() for row in part)
