"""Blanks the unused room in Chroma's vector files.

Its library reserves room for more vectors and writes it out as it finds it: with whatever the process had
in memory before, forgotten words among it.
"""

from __future__ import annotations

import struct
from pathlib import Path

# version, offset of level 0, capacity, element count, bytes per element
HEADER = struct.Struct("<iQQQQ")
LENGTH_BYTES = 4
BLANK_CHUNK = 1 << 20


def blank_unused_room(index_folder: Path, seen: dict[Path, int]) -> None:
    """Overwrite the unused room of every vector file that changed since it was `seen` (modification times).

    The caller holds the index lock. Files of an unknown layout are left alone.
    """
    for header_file in index_folder.glob("*/header.bin"):
        vectors = header_file.with_name("data_level0.bin")
        if not vectors.is_file() or seen.get(vectors) == vectors.stat().st_mtime_ns:
            continue
        header = header_file.read_bytes()
        if len(header) >= HEADER.size:
            _, _, capacity, count, element_bytes = HEADER.unpack_from(header)
            if count <= capacity and vectors.stat().st_size == capacity * element_bytes:
                _blank_after(vectors, count * element_bytes)
                _blank_after(header_file.with_name("length.bin"), count * LENGTH_BYTES)
        seen[vectors] = vectors.stat().st_mtime_ns


def _blank_after(file: Path, start: int) -> None:
    size = file.stat().st_size
    with file.open("r+b") as stream:
        stream.seek(start)
        for position in range(start, size, BLANK_CHUNK):
            stream.write(bytes(min(BLANK_CHUNK, size - position)))
