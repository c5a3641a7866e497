"""The search inside a Chroma collection: a wide first look, then a filtered one where that was not enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from carriers.index_entry import Hit, IndexEntry

if TYPE_CHECKING:
    import numpy as np
    from chromadb.api.models.Collection import Collection
    from numpy.typing import NDArray

# How much wider than wanted the first, unfiltered look is; see `query`.
FIRST_LOOK_FACTOR = 4
FIRST_LOOK_EXTRA = 16


def search_collection(
    collection: Collection, vectors: NDArray[np.float32], namespace: str, top_k: int, moment: float
) -> list[list[Hit]]:
    """Return the best `top_k` valid hits per question vector; `MemoryIndex.query` says why in two looks."""
    wide = top_k * FIRST_LOOK_FACTOR + FIRST_LOOK_EXTRA
    hits, seen_count = _nearest(collection, vectors, wide, namespace, moment, where=None)
    short = [row for row, found in enumerate(hits) if len(found) < top_k]
    if short and seen_count == wide:  # with fewer, the first look has seen the whole collection
        where = {
            "$and": [
                {"namespace": {"$eq": namespace}},
                {"starts_at": {"$lte": moment}},
                {"ends_at": {"$gt": moment}},
            ]
        }
        filtered, _ = _nearest(collection, vectors[short], top_k, namespace, moment, where=where)
        for row, found in zip(short, filtered, strict=True):
            hits[row] = found
    return [found[:top_k] for found in hits]


def _nearest(
    collection: Collection,
    vectors: NDArray[np.float32],
    count: int,
    namespace: str,
    moment: float,
    where: dict[str, Any] | None,
) -> tuple[list[list[Hit]], int]:
    """Ask Chroma for `count` neighbours each; return the valid ones and how many were got at most.

    Kept is what belongs to the namespace and holds at the moment, nearest first, ties by id.
    """
    found = collection.query(
        query_embeddings=vectors,
        n_results=count,
        where=where,
        include=["documents", "metadatas", "distances"],
    )
    answers: list[list[Hit]] = []
    columns = (found["ids"], found["documents"] or (), found["metadatas"] or (), found["distances"] or ())
    for rows in zip(*columns, strict=True):
        hits = [
            Hit(fact_id, text, round(1.0 - distance, 6))
            for fact_id, text, metadata, distance in zip(*rows, strict=True)
            if IndexEntry.decode(fact_id, text, metadata).holds(namespace, moment)
        ]
        answers.append(sorted(hits, key=lambda hit: (-hit.similarity, hit.fact_id)))
    return answers, max(map(len, found["ids"]), default=0)
