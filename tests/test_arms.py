"""The benchmark's arms: what each holds, how it is asked in each way of reading, and how admission is decided."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from carriers.embedder import HashingEmbedder
from carriers.language_model import GeneratedAnswer
from carriers.recall import Note, Recall
from eval.admission import ModelJudge, OracleAdmission
from eval.arms import (
    Arm,
    NotesWithout,
    NoveltyFile,
    PlainStore,
    always_from_store,
    base_recall,
    latest_facts,
    most_novel_facts,
    no_memory_arm,
    random_facts,
)
from eval.reading import AskedQuestion, read_oracle, read_real, read_weights
from sharpwave.records import AnswerOrigin, Fact, RouteAction, RouteStage
from sharpwave.settings import RecallSettings

TEXTS = [
    "Mira lives in Porto.",
    "The currency of Chile is the peso.",
    "Tilda paints with tempera on oak.",
    "The Ebro flows into the Mediterranean.",
    "Basalt forms from lava that cools quickly.",
    "The choir of Lund rehearses on Mondays.",
]
FACTS = [Fact(text=text) for text in TEXTS]
DAY = datetime(2024, 5, 1, tzinfo=UTC)


class Speaker:
    """A model that answers each prompt by a rule and keeps the prompts."""

    tokenizer = None

    def __init__(self, rule):
        self._rule, self.prompts = rule, []

    def answer(self, prompts, prefix, max_tokens=16):
        self.prompts += prompts
        return [GeneratedAnswer(self._rule(prompt), 0.9, 1, len(prompt.split())) for prompt in prompts]

    def flops(self, tokens, decoded):
        return 10.0 * tokens


def question(number: int, kind: str = "new", as_of: datetime | None = None) -> AskedQuestion:
    return AskedQuestion(
        fact_id=FACTS[number].id,
        question=TEXTS[number].replace(".", "?"),
        answers=("yes",),
        kind=kind,
        group="subject",
        as_of=as_of,
    )


def texts() -> dict[str, str]:
    return {fact.id: fact.text for fact in FACTS}


@pytest.fixture
def store(tmp_path: Path):
    opened = PlainStore(tmp_path / "index", HashingEmbedder())
    yield opened
    opened.close()


# ------------------------------------------------------------------------------------- what is held


def test_a_random_choice_keeps_what_it_has_when_it_may_hold_more():
    small, large = random_facts(FACTS, 2, seed=1), random_facts(FACTS, 4, seed=1)
    assert small == large[:2]
    assert random_facts(FACTS[::-1], 2, seed=1) == small
    assert any(random_facts(FACTS, 2, seed) != small for seed in range(2, 8))


def test_the_latest_count_by_their_last_arrival():
    arrivals = [FACTS[0], FACTS[1], FACTS[2], FACTS[0]]
    assert latest_facts(arrivals, 2) == [FACTS[0], FACTS[2]]
    assert latest_facts(arrivals, 9) == [FACTS[0], FACTS[2], FACTS[1]]


def test_the_most_novel_are_kept_and_the_earlier_of_equals():
    assert most_novel_facts(FACTS[:4], 2, [0.1, 0.9, 0.5, 0.9]) == [FACTS[1], FACTS[3]]
    assert most_novel_facts(FACTS[:3], 2, [0.5, 0.5, 0.5]) == FACTS[:2]


def test_novelty_looks_back_only_and_embeds_no_fact_twice(tmp_path: Path):
    class Counting(HashingEmbedder):
        embedded = 0

        def embed(self, texts):
            self.embedded += len(texts)
            return super().embed(texts)

    embedder = Counting()
    facts = [FACTS[0], FACTS[1], Fact(text=TEXTS[0], namespace="other")]
    novelty = NoveltyFile(tmp_path / "arm" / "novelty.npz", embedder)
    first = novelty.of(facts[:2])
    vectors = HashingEmbedder().embed(TEXTS[:2])
    assert first == pytest.approx([1.0, 1 - float(vectors[0] @ vectors[1])])
    assert NoveltyFile(tmp_path / "arm" / "novelty.npz", embedder).of(facts)[:2] == first
    assert novelty.of(facts)[2] == pytest.approx(0.0, abs=1e-6)
    assert embedder.embedded == 3


def test_a_plain_store_holds_exactly_what_it_is_told(store: PlainStore):
    store.hold(FACTS[:3])
    store.hold(FACTS[1:5])
    ids = {fact.text: fact.id for fact in FACTS}
    assert {note.text for note in store.find("default", ["Ebro"], 9, None)[0]} == set(TEXTS[1:5])
    [[nearest]] = store.find("default", [TEXTS[3]], 1, None)
    assert (nearest.text, nearest.fact_id) == (TEXTS[3], ids[TEXTS[3]])
    assert nearest.similarity == pytest.approx(1.0, abs=1e-5)


def test_hidden_facts_make_room_for_the_next_nearest(store: PlainStore):
    store.hold(FACTS)
    seen = store.find("default", [TEXTS[0]], 3, None)[0]
    without = NotesWithout(store, {seen[0].fact_id}).find("default", [TEXTS[0]], 2, None)[0]
    assert without == seen[1:]


# --------------------------------------------------------------------------------- how it is asked


def plain(store: PlainStore, speaker: Speaker, facts: list[Fact]) -> Arm:
    store.hold(facts)
    settings = always_from_store(RecallSettings())
    return Arm("plain", base_recall(store, speaker, settings), frozenset(fact.text for fact in facts), None)


def test_real_reading_says_whether_the_right_fact_was_found(store: PlainStore):
    arm = plain(store, Speaker(lambda prompt: "yes"), FACTS[:2])
    found, missing = read_real(arm, 0, [question(0), question(5)], texts())
    assert (found.found, found.correct, found.origin) == (True, True, AnswerOrigin.STORE)
    assert missing.found is None  # the arm never held it


def test_an_arm_never_sees_right_answers(store: PlainStore):
    speaker = Speaker(lambda prompt: "no")
    asked = [question(0).model_copy(update={"answers": ("zanzibar",)})]
    arm = plain(store, speaker, FACTS[:1])
    read_real(arm, 0, asked, texts())
    read_oracle(arm, 0, asked, texts())
    read_weights(arm, 0, asked)
    assert len(speaker.prompts) >= 3
    assert not any("zanzibar" in prompt for prompt in speaker.prompts)


def test_oracle_reading_hands_over_the_right_fact_only_where_it_is_held(store: PlainStore):
    speaker = Speaker(lambda prompt: "yes")
    arm = plain(store, speaker, FACTS[:1])
    held, absent = read_oracle(arm, 0, [question(0), question(5)], texts())
    assert held.origin == AnswerOrigin.STORE
    assert absent.origin == AnswerOrigin.WEIGHTS
    assert [TEXTS[0] in prompt for prompt in speaker.prompts] == [True, False]


def test_dated_and_absent_questions_are_put_to_real_reading_alone(store: PlainStore):
    arm = plain(store, Speaker(lambda prompt: "yes"), FACTS)
    asked = [question(0), question(1, "superseded", DAY), question(2, "absent")]
    assert [row.kind for row in read_real(arm, 0, asked, texts())] == ["new", "superseded", "absent"]
    assert [row.kind for row in read_oracle(arm, 0, asked, texts())] == ["new"]
    assert [row.kind for row in read_weights(arm, 0, asked)] == ["new"]


def test_dated_questions_carry_their_day_to_the_source_and_keep_their_place():
    class Days:
        def __init__(self):
            self.asked = []

        def find(self, namespace, questions, top_k, as_of):
            self.asked.append((as_of, list(questions)))
            return [[Note("a", "text", 0.99)] for _ in questions]

        def replaces_learnt(self, fact_id):
            return False

    days, speaker = Days(), Speaker(lambda prompt: "yes")
    recall = Recall(days, reader=speaker, weights=speaker, settings=RecallSettings(), generation=0)
    asked = [question(0), question(1, "superseded", DAY), question(2)]
    rows = read_real(Arm("dated", recall, frozenset(), None), 4, asked, texts())
    assert dict(days.asked) == {None: [asked[0].question, asked[2].question], DAY: [asked[1].question]}
    assert [row.question for row in rows] == [item.question for item in asked]
    assert [row.as_of for row in rows] == [None, DAY, None]
    assert {row.step for row in rows} == {4}


def test_no_memory_reads_nothing():
    arm = no_memory_arm("none", Speaker(lambda prompt: "yes"), RecallSettings())
    [row] = read_real(arm, 0, [question(0)], texts())
    assert (row.origin, row.found) == (AnswerOrigin.WEIGHTS, None)
    assert arm.net_bytes is not None
    assert arm.net_bytes.total == 0


# --------------------------------------------------------------------------------------- admission


def test_the_judge_stores_what_the_model_does_not_claim_to_know():
    speaker = Speaker(lambda prompt: "Yes, of course" if "Chile" in prompt else "I am not sure")
    decisions = ModelJudge(speaker).decide(FACTS[:3], 2, {FACTS[2].id})
    assert [decision.action for decision in decisions] == [
        RouteAction.WRITE_NEW,
        RouteAction.NON_WRITE,
        RouteAction.WRITE_UPDATE,
    ]
    assert {decision.stage for decision in decisions} == {RouteStage.POLICY}
    assert len(speaker.prompts) == 2  # a fact on a taken slot is stored unasked
    assert [decision.flops > 0 for decision in decisions] == [True, True, False]


def test_the_oracle_stores_what_the_model_answers_wrongly_as_it_will_be_asked():
    speaker = Speaker(lambda prompt: "peso" if "Chile" in prompt else "no idea")
    facts = [
        FACTS[0],
        Fact(text=TEXTS[1], questions=("What do they pay with in Chile?",), answers=("peso",)),
        Fact(text=TEXTS[2], questions=("What does Tilda paint with?",), answers=("tempera",)),
    ]
    asked = {
        facts[1].id: [question(1).model_copy(update={"question": "The money there?", "answers": ("peso",)})]
    }
    by_own, by_asked = (OracleAdmission(speaker, known).decide(facts, 0, ()) for known in ({}, asked))
    assert [decision.action.is_write for decision in by_own] == [True, False, True]
    assert [decision.action.is_write for decision in by_asked] == [True, True, True]
