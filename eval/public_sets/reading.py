"""Reading a public set by name: `read_public_set("popqa", Path("popQA.tsv"))`.

What each set's file looks like stands at the head of its module and in docs/public_sets.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from eval.public_sets.dyknow import read_dyknow
from eval.public_sets.edits import (
    read_counterfact,
    read_known_1000,
    read_mquake_cf,
    read_mquake_t,
    read_zsre,
)
from eval.public_sets.harvest import Harvest, PublicSet
from eval.public_sets.hub import PREFIX, hub_rows
from eval.public_sets.locomo import read_locomo
from eval.public_sets.own import read_own
from eval.public_sets.popqa import read_popqa
from eval.public_sets.records import Records, numbered, read_records
from eval.public_sets.templama import read_templama
from sharpwave.errors import InputError

if TYPE_CHECKING:
    Reader = Callable[[Records, Harvest], None]

_OWN = "own"
_READERS: Mapping[str, Reader] = {
    "counterfact": read_counterfact,
    "dyknow": read_dyknow,
    "known_1000": read_known_1000,
    "locomo": read_locomo,
    "mquake-cf": read_mquake_cf,
    "mquake-t": read_mquake_t,
    "popqa": read_popqa,
    "templama": read_templama,
    "zsre": read_zsre,
}
SET_NAMES = (_OWN, *_READERS)
"""What `read_public_set` knows; "own" is your own JSON Lines."""


def read_public_set(name: str, source: Path | str) -> PublicSet:
    """Read a set from a file, or from the hub.

    Args:
        name: One of `SET_NAMES`.
        source: A file in the set's format, or `hub:owner/name` (also `hub:owner/name:split`) with such rows.

    Raises:
        InputError: There is no such set or file, or the file cannot be read at all. Single records that cannot be
            used are in the set's `rejects`.
    """
    if name not in SET_NAMES:
        raise InputError(f"there is no set {name!r}; choose one of {', '.join(SET_NAMES)}")
    is_hub = str(source).startswith(PREFIX)
    harvest = Harvest(name)
    if name != _OWN:
        records = numbered(hub_rows(str(source))) if is_hub else read_records(Path(source))
        _READERS[name](records, harvest)
    elif is_hub:
        raise InputError("your own facts are read from a file of JSON Lines", file=str(source))
    else:
        read_own(Path(source), harvest)
    return harvest.result()
