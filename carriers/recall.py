"""Answering a question from store and weights, and saying which of the two gave the answer.

Both carriers are asked: the nearest stored facts are put before the model as notes, and the model is asked alone.
A linear arbiter (weights in the settings, fitted on calibration facts) then chooses, from how near the best fact
lies, whether it speaks of what the question names, and how sure each answer is. A stored fact that replaces a value
the weights have learnt always wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from carriers.prompts import CLOSED_BOOK_PREFIX, OPEN_BOOK_PREFIX, closed_book, is_from_examples, open_book
from carriers.question_names import missing_names
from sharpwave.records import AnswerOrigin, FactStatus, RecallAnswer

if TYPE_CHECKING:
    from carriers.external_memory import ExternalMemory
    from carriers.index_entry import Hit
    from carriers.language_model import GeneratedAnswer, LanguageModel
    from carriers.scoped_model import Generation
    from sharpwave.settings import RecallSettings


class Note(NamedTuple):
    """A fact as it is put before the model: its id, its words and its similarity to the question."""

    fact_id: str
    text: str
    similarity: float


class NoteSource(Protocol):
    """Where notes come from: a store that finds facts and knows what became of their slots."""

    def find(
        self, namespace: str, questions: Sequence[str], top_k: int, as_of: datetime | None
    ) -> list[list[Note]]:
        """Return the nearest facts for each question, best first; with `as_of`, as they were then."""

    def replaces_learnt(self, fact_id: str) -> bool:
        """Tell whether the fact took the place of a value that the weights still hold."""


class StoreNotes:
    """Notes from the external memory: only live facts, and for past dates the value the slot had then."""

    def __init__(self, memory: ExternalMemory) -> None:
        self.memory = memory

    def find(
        self, namespace: str, questions: Sequence[str], top_k: int, as_of: datetime | None
    ) -> list[list[Note]]:
        """See `NoteSource.find`."""
        found = self.memory.query(namespace, questions, top_k, None)
        if as_of is not None:
            return [self._as_it_was(hits, namespace, as_of) for hits in found]
        return [[Note(hit.fact_id, hit.text, hit.similarity) for hit in hits] for hits in found]

    def replaces_learnt(self, fact_id: str) -> bool:
        """See `NoteSource.replaces_learnt`."""
        stored = self.memory.ledger.fact(fact_id)
        if stored is None or stored.words is None or stored.words.slot is None:
            return False
        return any(
            fact.status is FactStatus.SUPERSEDED
            and (fact.proven_generation is not None or fact.known_generation is not None)
            for fact in self.memory.ledger.on_slot(stored.namespace, stored.words.slot)
        )

    def _as_it_was(self, hits: Sequence[Hit], namespace: str, moment: datetime) -> list[Note]:
        """Replace each hit by the value that its slot had at the moment; a hit without a slot stays."""
        notes: dict[str, Note] = {}
        for hit in hits:
            stored = self.memory.ledger.fact(hit.fact_id)
            slot = stored.fact.slot if stored else None
            then = self.memory.ledger.as_of(namespace, slot, moment) if slot else stored
            if then is not None and then.words is not None:
                notes.setdefault(then.id, Note(then.id, then.words.text, hit.similarity))
        return list(notes.values())


class Recall:
    """Reads both carriers.

    Args (of the constructor):
        source: Where notes come from.
        reader: The model that answers from notes: the base model, so that no write-back can damage reading.
        weights: The current generation, which answers alone.
        settings: How many notes, and who is believed.
        generation: Number of the current generation, for the provenance.
    """

    def __init__(
        self,
        source: NoteSource,
        *,
        reader: LanguageModel,
        weights: Generation,
        settings: RecallSettings,
        generation: int,
    ) -> None:
        self.source = source
        self.reader = reader
        self.weights = weights
        self.settings = settings
        self.generation = generation

    def answer(
        self, questions: Sequence[str], namespace: str = "default", as_of: datetime | None = None
    ) -> list[RecallAnswer]:
        """Answer questions in the order given.

        Args:
            questions: In the words of the asker.
            namespace: Only facts of this namespace are read.
            as_of: Answer with what was valid then; by default, with what is valid now. A past date is answered
                from the store alone where it has a near fact, since weights know no dates.
        """
        return (
            self.answer_from(questions, self.notes(questions, namespace, as_of), as_of) if questions else []
        )

    def answer_from(
        self, questions: Sequence[str], notes: Sequence[Sequence[Note]], as_of: datetime | None = None
    ) -> list[RecallAnswer]:
        """Answer questions as `answer` does, from notes that are found already, a list for each question."""
        from_store = self.read(questions, notes)
        unsure = [
            row
            for row in range(len(questions))
            if from_store[row] is None or not self._store_is_sure(notes[row], as_of)
        ]
        alone = dict(zip(unsure, self.ask_weights([questions[row] for row in unsure]), strict=True))
        return [
            self._choose(question, notes[row], from_store[row], alone.get(row))
            for row, question in enumerate(questions)
        ]

    def notes(
        self, questions: Sequence[str], namespace: str, as_of: datetime | None = None
    ) -> list[list[Note]]:
        """Return for each question the facts to read: the nearest, without those far behind the best."""
        found_notes = self.source.find(namespace, questions, self.settings.top_k, as_of)
        return [
            [
                note
                for note in notes
                if note.similarity
                >= max(self.settings.min_similarity, notes[0].similarity - self.settings.spread)
            ]
            for notes in found_notes
        ]

    def read(self, questions: Sequence[str], notes: Sequence[Sequence[Note]]) -> list[GeneratedAnswer | None]:
        """Answer each question from its notes; None where there are none, or only the worked examples were read."""
        rows = [row for row, found in enumerate(notes) if found]
        # The best note comes last, nearest to the question: small models read what is near.
        prompts = [open_book(questions[row], [note.text for note in reversed(notes[row])]) for row in rows]
        answers: list[GeneratedAnswer | None] = [None] * len(questions)
        given = self.reader.answer(prompts, OPEN_BOOK_PREFIX)
        for row, prompt, answer in zip(rows, prompts, given, strict=True):
            answers[row] = None if is_from_examples(answer.text, prompt) else answer
        return answers

    def ask_weights(self, questions: Sequence[str]) -> list[GeneratedAnswer]:
        """Answer each question from the weights alone."""
        prompts = [closed_book(question) for question in questions]
        return self.weights.answer(prompts, CLOSED_BOOK_PREFIX)

    def _store_is_sure(self, notes: Sequence[Note], as_of: datetime | None) -> bool:
        if not notes:
            return False
        if as_of is not None or notes[0].similarity >= self.settings.sure_similarity:
            return True
        return self.source.replaces_learnt(notes[0].fact_id)

    def _choose(
        self,
        question: str,
        notes: Sequence[Note],
        from_store: GeneratedAnswer | None,
        from_weights: GeneratedAnswer | None,
    ) -> RecallAnswer:
        similarity = notes[0].similarity if notes else None
        use_store = from_store is not None and (
            from_weights is None or self._prefers_store(question, notes[0], from_store, from_weights)
        )
        chosen = from_store if use_store else from_weights
        if chosen is None:
            raise AssertionError("one of the two carriers always answers")
        put = [answer for answer in (from_store, from_weights) if answer is not None]
        return RecallAnswer(
            question=question,
            text=chosen.text,
            origin=AnswerOrigin.STORE if use_store else AnswerOrigin.WEIGHTS,
            fact_ids=tuple(note.fact_id for note in notes) if use_store else (),
            similarity=similarity,
            lowest_token_prob=chosen.lowest_prob,
            generation=self.generation,
            tokens_read=sum(answer.prompt_tokens for answer in put),
        )

    def _prefers_store(
        self, question: str, note: Note, store: GeneratedAnswer, weights: GeneratedAnswer
    ) -> bool:
        arbiter = self.settings.arbiter
        score = (
            arbiter.bias
            + arbiter.similarity * note.similarity
            + arbiter.missing_names * missing_names(question, note.text)
            + arbiter.store_prob * store.lowest_prob
            + arbiter.weights_prob * weights.lowest_prob
        )
        return score > 0
