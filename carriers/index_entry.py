"""What the index keeps of a fact, and its one encoding as Chroma metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from carriers.ledger_records import StoredFact

if TYPE_CHECKING:
    from sharpwave.records import Fact

# Seconds since 1970, beyond year 9999: Chroma's filters want a number, and infinity is not JSON.
FOREVER = 1e12


@dataclass(frozen=True)
class Hit:
    """One stored fact found for a question; `similarity` is the cosine, -1 to 1."""

    fact_id: str
    text: str
    similarity: float


@dataclass(frozen=True)
class IndexEntry:
    """What the index keeps of a fact beside its vector; times are seconds since 1970, UTC."""

    fact_id: str
    text: str
    namespace: str
    starts_at: float
    ends_at: float

    @classmethod
    def of(cls, fact: Fact | StoredFact) -> Self:
        """Return the entry that a fact has, or should have, in the index."""
        words = fact.fact if isinstance(fact, StoredFact) else fact
        starts_at = fact.valid_from or words.starts_at
        return cls(
            fact_id=fact.id,
            text=words.text,
            namespace=words.namespace,
            starts_at=starts_at.timestamp(),
            ends_at=fact.valid_to.timestamp() if fact.valid_to else FOREVER,
        )

    def metadata(self) -> dict[str, str | float]:
        """Encode for Chroma: always the same keys, since its upsert keeps a key that is left out."""
        return {"namespace": self.namespace, "starts_at": self.starts_at, "ends_at": self.ends_at}

    @classmethod
    def decode(cls, fact_id: str, text: str, metadata: Mapping[str, Any]) -> Self:
        """Read an entry back from Chroma."""
        return cls(
            fact_id=fact_id,
            text=text,
            namespace=str(metadata["namespace"]),
            starts_at=float(metadata["starts_at"]),
            ends_at=float(metadata["ends_at"]),
        )

    def holds(self, namespace: str, moment: float) -> bool:
        """Whether the entry belongs to the namespace and is valid at the moment."""
        return self.namespace == namespace and self.starts_at <= moment < self.ends_at
