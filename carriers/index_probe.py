"""Reads a whole Chroma folder in a child process: torn vector files crash the interpreter that loads them.

Run by hand as `python -m carriers.index_probe FOLDER`; exit code 0 means that every vector could be read.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PAGE_SIZE = 1_000
TIMEOUT_SECONDS = 600.0


def find_index_damage(folder: Path) -> str | None:
    """Say what is wrong with the Chroma files in `folder`, or None if all can be read; takes a second.

    The caller holds the index lock or knows otherwise that nobody writes.
    """
    command = [sys.executable, "-m", "carriers.index_probe", str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        child = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"reading it took longer than {TIMEOUT_SECONDS:g} s"
    if child.returncode == 0:
        return None
    last_line = (child.stderr.strip().splitlines() or ["no message"])[-1]
    return f"reading it ended with code {child.returncode}: {last_line[:300]}"


def read_everything(folder: Path) -> None:
    """Read every vector and search for one; raises or crashes if files are damaged or vectors are missing."""
    from carriers.chroma_connection import COLLECTION_NAME, open_client

    client = open_client(folder)
    collection = client.get_collection(COLLECTION_NAME, embedding_function=None)
    total = collection.count()
    seen = 0
    while seen < total:
        page = collection.get(limit=PAGE_SIZE, offset=seen, include=["embeddings", "metadatas", "documents"])
        vectors = page["embeddings"]
        if vectors is None or len(vectors) != len(page["ids"]) or not len(vectors):
            raise RuntimeError(f"vectors are missing after row {seen} of {total}")
        if seen == 0:
            collection.query(query_embeddings=vectors[:1], n_results=min(total, 10))
        seen += len(vectors)
    client.close()


if __name__ == "__main__":
    read_everything(Path(sys.argv[1]))
