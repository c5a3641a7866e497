"""Generations of the parametric memory: their records, their adapters, and the pointer to the current one.

The pointer is kept in the ledger, so it moves in the same transaction as the facts that depend on it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, insert, select, update

from carriers import generation_moves
from carriers.adapter_files import adapter_digest, generation_folder, numbers_on_disk, remove_folders
from carriers.generation_records import (
    PromotionReceipt,
    RollbackReceipt,
    ShadowFolder,
    base_generation,
    generation_of,
    generation_row,
    read_generation,
    set_status,
)
from carriers.ledger_batch import LedgerBatch
from carriers.ledger_schema import generations
from carriers.lineage import current_number, lineage_of, point_to
from sharpwave.errors import IntegrityError, StoreError
from sharpwave.records import Generation, GenerationStatus

if TYPE_CHECKING:
    from carriers.ledger import Ledger

_INTERRUPTED = "interrupted"

__all__ = ["GenerationStore", "PromotionReceipt", "RollbackReceipt", "ShadowFolder", "adapter_digest"]


class GenerationStore:
    """All generations of one store. `directory` holds one folder of adapter files per generation.

    Number 0 is the base model without an adapter; it always exists and is current until the first promotion.
    """

    def __init__(self, ledger: Ledger, directory: Path) -> None:
        self.ledger = ledger
        self.directory = directory

    def current(self) -> Generation:
        """Return the generation that answers now."""
        with self.ledger.reading() as connection:
            return read_generation(connection, current_number(connection))

    def get(self, number: int) -> Generation:
        """Return a generation. Raises StoreError for a number that does not exist."""
        with self.ledger.reading() as connection:
            return read_generation(connection, number)

    def all(self) -> list[Generation]:
        """Return all generations by number, the base first."""
        with self.ledger.reading() as connection:
            rows = connection.execute(select(generations).order_by(generations.c.number)).all()
            return [base_generation(connection), *map(generation_of, rows)]

    def lineage(self, number: int | None = None) -> list[int]:
        """Return a generation (the current one by default) and all it was built on, beginning with 0."""
        with self.ledger.reading() as connection:
            chosen = (
                current_number(connection) if number is None else read_generation(connection, number).number
            )
            return lineage_of(connection, chosen)

    def create_shadow(
        self, parent: int, base_fingerprint: str, trained_fact_ids: Sequence[str]
    ) -> ShadowFolder:
        """Begin a new generation on top of the current one; return its number and an empty adapter folder.

        Raises StoreError if `parent` is not current or was built on another base model.
        """
        with self.ledger.transaction() as connection:
            if parent != current_number(connection):
                raise StoreError(
                    f"generation {parent} is not current; train on generation {current_number(connection)}"
                )
            former = read_generation(connection, parent)
            if parent and former.base_fingerprint != base_fingerprint:
                raise StoreError(
                    f"generation {parent} belongs to the base model {former.base_fingerprint}, "
                    f"not to {base_fingerprint}; run `sharpwave rollback 0` before you change the model"
                )
            taken = connection.execute(select(func.coalesce(func.max(generations.c.number), 0))).scalar_one()
            # Folders may outlive their record, for instance beside a restored ledger: never write into one.
            number = max(int(taken), 0, *numbers_on_disk(self.directory)) + 1
            folder = generation_folder(self.directory, number) / "adapter"
            shadow = Generation(
                number=number,
                parent=parent,
                base_fingerprint=base_fingerprint,
                adapter_path=folder.relative_to(self.directory).as_posix(),
                trained_fact_ids=tuple(trained_fact_ids),
                status=GenerationStatus.SHADOW,
            )
            connection.execute(insert(generations).values(generation_row(shadow)))
        folder.mkdir(parents=True)
        return ShadowFolder(number, folder)

    def seal(self, number: int, adapter_digest: str, gate: Mapping[str, float]) -> Generation:
        """Fix the adapter's digest and the gate's figures of a shadow; sealing again alike changes nothing.

        Raises:
            StoreError: the generation is not a shadow.
            IntegrityError: the files in the folder do not have this digest, or another one was sealed before.
        """
        with self.ledger.transaction() as connection:
            shadow = read_generation(connection, number)
            if shadow.status is not GenerationStatus.SHADOW:
                raise StoreError(f"generation {number} is {shadow.status}; only a shadow can be sealed")
            sealed = shadow.model_copy(update={"adapter_digest": adapter_digest, "gate": dict(gate)})
            if shadow.adapter_digest not in (None, adapter_digest):
                raise IntegrityError(f"generation {number} was sealed with another digest; discard it")
            self._verify(sealed)
            values = {"adapter_digest": adapter_digest, "gate": dict(gate)}
            connection.execute(update(generations).where(generations.c.number == number).values(values))
        return sealed

    def reseal(self, number: int, adapter_digest: str) -> None:
        """Fix another digest of a sealed adapter whose scope was made anew; its weights must be the same."""
        with self.ledger.transaction() as connection:
            values = {"adapter_digest": adapter_digest}
            connection.execute(update(generations).where(generations.c.number == number).values(values))

    def discard(self, number: int, reason: str) -> None:
        """Give up a shadow and delete its files; discarding again changes nothing.

        Raises StoreError for a generation that was ever promoted.
        """
        with self.ledger.transaction() as connection:
            status = read_generation(connection, number).status
            if status not in (GenerationStatus.SHADOW, GenerationStatus.DISCARDED) or number == 0:
                raise StoreError(f"generation {number} is {status}; only a shadow can be discarded")
            if status is GenerationStatus.SHADOW:
                values = {"status": GenerationStatus.DISCARDED.value, "reason": reason}
                connection.execute(update(generations).where(generations.c.number == number).values(values))
        remove_folders([generation_folder(self.directory, number)])

    def discard_interrupted(self, spared: Collection[int] = ()) -> list[int]:
        """Discard every shadow but those spared, for none can be in work when a run begins; return their numbers."""
        shadows = [
            item.number
            for item in self.all()
            if item.status is GenerationStatus.SHADOW and item.number not in spared
        ]
        for number in shadows:
            self.discard(number, _INTERRUPTED)
        return shadows

    def failed(self) -> list[Generation]:
        """Return the generations that were judged and discarded; interrupted ones are not among them."""
        return [
            item
            for item in self.all()
            if item.status is GenerationStatus.DISCARDED and item.reason != _INTERRUPTED
        ]

    def adapter_folder(self, number: int) -> Path | None:
        """Return the folder of a generation's adapter, its digest verified; None for the base model.

        Raises:
            StoreError: there is no such generation, or it is retired.
            IntegrityError: files are missing or changed, or the shadow is not sealed.
        """
        generation = self.get(number)
        return None if number == 0 else self._verify(generation)

    def orphan_folders(self) -> list[Path]:
        """Return the folders that belong to no generation, or to a discarded or retired one."""
        needed = {
            item.number
            for item in self.all()
            if item.status is not GenerationStatus.DISCARDED and not item.is_retired
        }
        return [
            path for number, path in sorted(numbers_on_disk(self.directory).items()) if number not in needed
        ]

    def reachable(self) -> list[int]:
        """Return the numbers of the generations that a rollback can make current, the base first."""
        return [item.number for item in self.all() if item.is_reachable]

    def way_back(self, number: int) -> int:
        """Return the nearest reachable generation that this one was built on; 0 from the base model."""
        return max({0} | (set(self.lineage(number)) & set(self.reachable())) - {number})

    def retire(self, numbers: Sequence[int]) -> None:
        """Delete the adapters of generations; their records stay. The ledger says so before any file goes.

        A killed call leaves folders that the next call, or the doctor, removes.

        Raises:
            StoreError: one of them is current, or was never promoted; then none is retired.
        """
        with self.ledger.transaction() as connection:
            for number in numbers:
                chosen = read_generation(connection, number)
                if number == current_number(connection) or number == 0 or not chosen.is_reachable:
                    raise StoreError(f"generation {number} is needed or has no adapter; it cannot be retired")
            values = {"adapter_path": None}
            connection.execute(update(generations).where(generations.c.number.in_(numbers)).values(values))
        retired = [item.number for item in self.all() if item.is_retired]
        remove_folders([generation_folder(self.directory, number) for number in retired])

    def promote(
        self,
        number: int,
        *,
        evict: Sequence[str],
        proven: Sequence[str],
        trained: Sequence[str],
        kept: Sequence[str] = (),
        damaged: Sequence[str] = (),
        readmit: Sequence[str] = (),
        run_id: str,
    ) -> PromotionReceipt:
        """Make a sealed shadow current and move the facts that depend on it, in one transaction.

        Repeating the call with the same run returns the same receipt and changes nothing.

        Args:
            number: The shadow.
            evict: Hot facts that the weights take over; they leave the index. All must be in `proven`.
            proven: Facts that the saved and reloaded model answered.
            trained: Facts in the training set.
            kept: Those of `proven` that a review keeps in the store; none of them may be in `evict`.
            damaged: Known or internalised facts that this generation does not answer any more.
            readmit: Those of `damaged` that go back to the store.
            run_id: The run, for the events.

        Raises:
            ValueError: `evict` or `kept` is not part of `proven`, `readmit` not of `damaged`, or a fact is both
                proven and damaged or both evicted and kept.
            StoreError: the generation is no shadow, its parent is not current, or an id is unknown.
            IntegrityError: the shadow is not sealed or its files are damaged.
        """
        _refuse_contradictions(evict, proven, kept, damaged, readmit)
        with self.ledger.transaction() as connection:
            former = self._receipt_of_repeat(connection, number, run_id)
            if former is not None:
                return former
            shadow = self._promotable(connection, number)
            point_to(connection, number)
            receipt = generation_moves.apply_promotion(
                LedgerBatch(connection, run_id),
                shadow,
                evict=list(dict.fromkeys(evict)),
                proven=list(dict.fromkeys(proven)),
                trained=list(dict.fromkeys(trained)),
                kept=set(kept),
                damaged=list(dict.fromkeys(damaged)),
                readmit=list(dict.fromkeys(readmit)),
            )
            values = {"run_id": run_id, "receipt": receipt.model_dump(mode="json")}
            connection.execute(update(generations).where(generations.c.number == number).values(values))
            set_status(connection, [number], GenerationStatus.PROMOTED)
        return receipt

    def confirm(self, evict: Sequence[str], run_id: str) -> int:
        """Move hot facts into the weights that the current generation was found to answer a second time.

        What is not in the store any more, or what this lineage has not proven, is left as it is. Returns how many were
        moved.
        """
        with self.ledger.transaction() as connection:
            batch = LedgerBatch(connection, run_id)
            held = [fact_id for fact_id in evict if batch.state(fact_id).proven_generation in batch.lineage]
            number = current_number(connection)
            count, _ = generation_moves.evict_proven(batch, held, number, "confirmed")
            batch.flush()
        return count

    def rollback(self, number: int, run_id: str) -> RollbackReceipt:
        """Make another promoted generation current, earlier or later, in one transaction.

        Going back, what only the generations left behind knew returns to the store. Going forward to a
        generation that was rolled back, its recorded evictions and re-admissions are done again, as far as
        the facts are still current.

        Raises:
            StoreError: there is no such generation, it was never promoted, or it is retired.
            IntegrityError: its adapter is damaged.
        """
        with self.ledger.transaction() as connection:
            target = read_generation(connection, number)
            if target.status not in (GenerationStatus.PROMOTED, GenerationStatus.ROLLED_BACK):
                raise StoreError(f"generation {number} is {target.status}; it was never promoted")
            if number:
                self._verify(target)
            former = current_number(connection)
            goal, origin = lineage_of(connection, number), lineage_of(connection, former)
            left = [item for item in origin if item not in goal]
            entered = [item for item in goal if item not in origin]
            set_status(connection, left, GenerationStatus.ROLLED_BACK)
            set_status(connection, entered, GenerationStatus.PROMOTED)
            point_to(connection, number)
            readmitted, internalised, overridden = generation_moves.move(
                LedgerBatch(connection, run_id), left, entered
            )
            return RollbackReceipt(
                from_number=former,
                to_number=number,
                readmitted=readmitted,
                internalised=internalised,
                overridden=overridden,
                left=tuple(left),
                entered=tuple(entered),
            )

    def restore(self, records: Sequence[Generation], current: int) -> None:
        """Take in exported generations; their adapter folders are the caller's to copy.

        Raises StoreError if this store has generations of its own or `current` is not among the records.
        """
        with self.ledger.transaction() as connection:
            if connection.scalar(select(generations.c.number).limit(1)) is not None:
                raise StoreError("this store has generations of its own; import into an empty store")
            if current != 0 and current not in {item.number for item in records}:
                raise StoreError(f"the export does not hold its current generation {current}")
            rows = [generation_row(item) for item in records if item.number != 0]
            if rows:
                connection.execute(insert(generations), rows)
            point_to(connection, current)

    def _promotable(self, connection: Connection, number: int) -> Generation:
        shadow = read_generation(connection, number)
        if shadow.status is not GenerationStatus.SHADOW:
            raise StoreError(f"generation {number} is {shadow.status}; only a shadow can be promoted")
        if shadow.parent != current_number(connection):
            raise StoreError(
                f"generation {number} was built on {shadow.parent}, which is not current any more"
            )
        self._verify(shadow)
        return shadow

    def _receipt_of_repeat(self, connection: Connection, number: int, run_id: str) -> PromotionReceipt | None:
        query = select(generations.c.receipt).where(
            generations.c.number == number, generations.c.run_id == run_id
        )
        receipt = connection.scalar(query)
        return None if receipt is None else PromotionReceipt.model_validate(receipt)

    def _verify(self, generation: Generation) -> Path:
        if generation.adapter_path is None:
            raise StoreError(
                f"the adapter of generation {generation.number} was deleted to save space "
                "(consolidation.keep_generations); `sharpwave rollback` can go to "
                f"{', '.join(map(str, self.reachable()))}"
            )
        if generation.adapter_digest is None:
            raise IntegrityError(f"the adapter of generation {generation.number} was never sealed")
        folder = self.directory / generation.adapter_path
        if adapter_digest(folder) != generation.adapter_digest:
            raise IntegrityError(
                f"{folder}: the adapter of generation {generation.number} was changed; "
                f"`sharpwave rollback {self.way_back(generation.number)}` goes back to one before it"
            )
        return folder


def _refuse_contradictions(
    evict: Sequence[str],
    proven: Sequence[str],
    kept: Sequence[str],
    damaged: Sequence[str],
    readmit: Sequence[str],
) -> None:
    for chosen, allowed, complaint in (
        (set(evict), set(proven), "facts to be evicted were not proven"),
        (set(kept), set(proven), "facts to be kept were not proven"),
        (set(kept) & set(evict), set(), "facts are to be both evicted and kept"),
        (set(readmit), set(damaged), "facts to be re-admitted were not damaged"),
        (set(proven) & set(damaged), set(), "facts are called both proven and damaged"),
    ):
        if strangers := sorted(chosen - allowed):
            raise ValueError(f"{len(strangers)} {complaint}, for instance {strangers[0]}")
