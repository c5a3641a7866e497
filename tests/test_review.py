"""The review of a night: decisions as pure functions, and on a real store what they do, killed half-way or not."""

from __future__ import annotations

import logging
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from carriers.generations import adapter_digest
from consolidation import night, night_diff
from consolidation.night_diff import NightRecords, diff_of, find_night
from consolidation.night_folder import (
    PLAN,
    REPORT,
    REVIEW,
    TRAINING,
    VERDICT,
    NightFolder,
    night_of_generation,
    reviewed_night,
    unfinished_nights,
    waiting_night,
)
from consolidation.records import NightPlan, NightReport, NightVerdict, Review, ReviewDecision
from consolidation.review import REJECTED_REASON, mark_facts, obstacle, reviewed
from consolidation.reviewing import (
    generations_in_review,
    mark_in_review,
    request_review,
    settle_review,
)
from eval.night_page import render_night
from sharpwave.errors import InputError, IntegrityError, StoreError
from sharpwave.records import EventKind, FactStatus, Generation, GenerationStatus
from sharpwave.settings import ConsolidationSettings
from tests.waiting_nights import (
    BADGE,
    LATER,
    MOSS,
    NOTARY,
    PARIS,
    RUN,
    TRAINED,
    VAGUE,
    make_waiting_night,
    opened,
    plan_of,
    training_of,
    verdict_of,
)

ACCEPTED, REJECTED, WAITING = ReviewDecision.ACCEPTED, ReviewDecision.REJECTED, ReviewDecision.WAITING
VERDICT_1 = verdict_of(1)
STATUSES = GenerationStatus


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    store = tmp_path_factory.mktemp("waiting") / "store"
    make_waiting_night(store)
    return store


@pytest.fixture
def store(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


@pytest.fixture
def memory(store):
    with opened(store) as found:
        yield found


def statuses(memory):
    return {fact.id: fact.status for fact in memory.ledger.iter_facts()}


def seen_by_readers(memory):
    return statuses(memory), memory.index.ids(), memory.generations.current().number


# ------------------------------------------------------------------------------- what a review decides


def test_without_a_review_the_verdict_stands():
    assert reviewed(VERDICT_1, None) == VERDICT_1
    assert reviewed(VERDICT_1, Review(decision=ACCEPTED)) == VERDICT_1
    assert reviewed(None, Review(decision=ACCEPTED)) is None


def test_kept_facts_are_proven_and_not_evicted():
    verdict = reviewed(VERDICT_1, Review(decision=ACCEPTED, kept=(NOTARY.id,)))
    assert (verdict.evict, verdict.kept, verdict.proven) == ((BADGE.id,), (NOTARY.id,), VERDICT_1.proven)
    assert verdict.damaged == VERDICT_1.damaged


def test_a_rejected_night_has_no_consequences_left():
    verdict = reviewed(VERDICT_1, Review(decision=REJECTED, kept=(NOTARY.id,)))
    assert (verdict.promoted, verdict.reason, verdict.scale) == (False, REJECTED_REASON, None)
    assert (verdict.proven, verdict.evict, verdict.damaged, verdict.never_known) == ((), (), (), ())
    assert (verdict.generation, verdict.trials) == (1, VERDICT_1.trials)


def test_what_the_gate_refused_stays_refused_for_its_own_reason():
    refused = NightVerdict(generation=1, promoted=False, reason="no scale", scale=None, trials=())
    assert reviewed(refused, Review(decision=REJECTED)) == refused


def test_marks_are_kept_in_the_order_of_the_verdict_and_can_be_taken_back():
    review = mark_facts(Review(), VERDICT_1, [NOTARY.id], keep=True)
    review = mark_facts(review, VERDICT_1, [BADGE.id, NOTARY.id], keep=True)
    assert review.kept == (BADGE.id, NOTARY.id)
    assert mark_facts(review, VERDICT_1, [BADGE.id], keep=False).kept == (NOTARY.id,)
    assert mark_facts(Review(), VERDICT_1, [BADGE.id], keep=False) == Review()


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        (VAGUE, "is not proven"),
        (PARIS, "is not answered by the new weights"),
        (MOSS, "is not answered by the new weights"),
        (LATER, "has no part in"),
    ],
)
@pytest.mark.parametrize("keep", [True, False])
def test_only_facts_that_leave_the_store_can_be_marked(fact, words, keep):
    with pytest.raises(InputError, match=rf"{fact.id[:12]} {words}.*sharpwave diff"):
        mark_facts(Review(), VERDICT_1, [BADGE.id, fact.id], keep=keep)


def test_a_proven_fact_beyond_the_shrink_limit_needs_no_mark():
    limited = VERDICT_1.model_copy(update={"evict": (BADGE.id,)})
    with pytest.raises(InputError, match="is proven but stays in the store anyway"):
        mark_facts(Review(), limited, [NOTARY.id], keep=True)


def shadow(status):
    return Generation(number=1, parent=0, base_fingerprint="base", status=status)


@pytest.mark.parametrize(
    ("decision", "current", "status", "words"),
    [
        (ACCEPTED, 0, STATUSES.SHADOW, None),
        (ACCEPTED, 1, STATUSES.PROMOTED, None),
        (ACCEPTED, 2, STATUSES.SHADOW, "trained on generation 0 and 2 is current now"),
        (ACCEPTED, 0, STATUSES.DISCARDED, "its generation 1 is discarded"),
        (REJECTED, 0, STATUSES.SHADOW, None),
        (REJECTED, 0, STATUSES.DISCARDED, None),
        (REJECTED, 2, STATUSES.SHADOW, None),
        (REJECTED, 1, STATUSES.PROMOTED, "generation 1 is promoted already"),
    ],
)
def test_what_stands_in_the_way_of_a_decision(decision, current, status, words):
    problem = obstacle(decision, plan_of(0), VERDICT_1, current, shadow(status))
    assert (problem is None) is (words is None)
    assert words is None or words in problem


# --------------------------------------------------------------------------------- the waiting night


def test_a_waiting_night_is_no_interrupted_one(store):
    assert (waiting_night(store), reviewed_night(store), unfinished_nights(store)) == (RUN, RUN, [])
    folder = NightFolder(store, RUN)
    for name in (REVIEW, VERDICT):  # not under review, or not judged yet
        content = (folder.path / name).read_bytes()
        (folder.path / name).unlink()
        assert (waiting_night(store), reviewed_night(store), unfinished_nights(store)) == (None, None, [RUN])
        (folder.path / name).write_bytes(content)
    folder.write(REVIEW, Review(decision=ACCEPTED))
    assert (waiting_night(store), reviewed_night(store), unfinished_nights(store)) == (None, RUN, [RUN])


def test_a_night_that_the_gate_refused_does_not_wait(store):
    verdict = VERDICT_1.model_copy(update={"promoted": False})
    NightFolder(store, RUN).write(VERDICT, verdict)
    assert (waiting_night(store), unfinished_nights(store)) == (None, [RUN])


def refuse(*_, **__):
    raise AssertionError("this must not be called")


def test_applying_a_waiting_night_only_reports_it(memory):
    before = seen_by_readers(memory)
    report = night.apply_verdict(memory, plan_of(0), training_of(1), VERDICT_1)
    assert (report.status, report.is_waiting, report.generation, report.internalised) == (
        "waiting",
        True,
        0,
        2,
    )
    assert (report.evicted, report.readmitted, report.kept) == (0, 0, 0)
    assert "sharpwave accept" in report.reason
    assert seen_by_readers(memory) == before
    assert not (NightFolder(memory.directory, RUN).path / REPORT).exists()


def plan(memory, run_id, load_generation=refuse):
    settings = ConsolidationSettings()
    return night.plan_night(memory, settings, run_id, "base", refuse, seed=0, load_generation=load_generation)


def test_no_other_night_begins_beside_a_waiting_one(memory):
    with pytest.raises(StoreError, match=f"{RUN} waits for review"):
        plan(memory, "other")
    assert plan(memory, "dry", load_generation=None).targets
    assert memory.generations.get(1).status is STATUSES.SHADOW
    assert not NightFolder(memory.directory, "other").path.exists()


def test_a_waiting_night_is_not_planned_anew_even_if_the_store_has_moved_on(memory):
    memory.generations.discard(1, "gone")
    assert plan(memory, RUN) == plan_of(0)
    assert (NightFolder(memory.directory, RUN).path / VERDICT).exists()


def test_an_accepted_night_that_has_to_begin_anew_waits_again(memory):
    folder = NightFolder(memory.directory, RUN)
    folder.write(REVIEW, Review(decision=ACCEPTED, kept=(BADGE.id,)))
    memory.generations.discard(1, "gone")
    plan(memory, RUN)
    assert folder.read(REVIEW, Review) == Review()
    assert not (folder.path / VERDICT).exists()


def test_the_doctor_does_not_take_a_waiting_shadow_for_a_killed_one(memory):
    kept = generations_in_review(memory.directory)
    assert kept == {1}
    assert memory.doctor(in_review=kept).interrupted_generations == ()
    assert memory.doctor().interrupted_generations == (1,)
    memory.doctor(repair=True, in_review=kept)
    assert memory.generations.get(1).status is STATUSES.SHADOW
    memory.doctor(repair=True)
    assert memory.generations.get(1).status is STATUSES.DISCARDED


def test_a_review_is_asked_for_before_the_night_and_not_of_one_that_is_done(memory):
    request_review(memory, "new")
    assert NightFolder(memory.directory, "new").read(REVIEW, Review) == Review()
    folder = NightFolder(memory.directory, RUN)
    marked = Review(kept=(BADGE.id,))
    folder.write(REVIEW, marked)
    request_review(memory, RUN)
    assert folder.read(REVIEW, Review) == marked
    settle_review(memory, ACCEPTED)
    for name in (REVIEW, REPORT):  # promoted, but killed before the report
        (folder.path / name).unlink()
    request_review(memory, RUN)
    assert not (folder.path / REVIEW).exists()


# ---------------------------------------------------------------------------------- accept and reject


def test_accepting_does_what_the_verdict_says(memory):
    report = settle_review(memory, ACCEPTED)
    assert (report.status, report.generation, report.evicted, report.readmitted) == ("promoted", 1, 2, 2)
    assert statuses(memory) == {
        BADGE.id: FactStatus.INTERNALISED,
        NOTARY.id: FactStatus.INTERNALISED,
        VAGUE.id: FactStatus.HOT,
        LATER.id: FactStatus.HOT,
        PARIS.id: FactStatus.HOT,
        MOSS.id: FactStatus.HOT,
    }
    assert memory.index.ids() == {VAGUE.id, LATER.id, PARIS.id, MOSS.id}
    assert (waiting_night(memory.directory), unfinished_nights(memory.directory)) == (None, [])
    assert memory.doctor().clean
    with pytest.raises(StoreError, match="no consolidation waits"):
        settle_review(memory, ACCEPTED)


def test_a_kept_fact_stays_hot_and_its_journal_says_why(memory):
    mark_in_review(memory.directory, [NOTARY.id], keep=True)
    assert waiting_night(memory.directory) == RUN
    report = settle_review(memory, ACCEPTED)
    assert (report.internalised, report.evicted, report.kept) == (2, 1, 1)
    fact = memory.ledger.fact(NOTARY.id)
    assert (fact.status, fact.trained_generation, fact.proven_generation) == (FactStatus.HOT, 1, 1)
    assert NOTARY.id in memory.index.ids()
    proven = {
        item.id: [e.payload for e in memory.ledger.history(item.id) if e.kind is EventKind.PROVEN]
        for item in (BADGE, NOTARY)
    }
    assert proven == {
        BADGE.id: [{"generation": 1}],
        NOTARY.id: [{"generation": 1, "reason": "kept"}],
    }
    memory.rollback(0, "back")
    memory.rollback(1, "forth")
    assert statuses(memory)[NOTARY.id] is FactStatus.HOT
    assert statuses(memory)[BADGE.id] is FactStatus.INTERNALISED


def test_a_mark_taken_back_is_no_mark(memory):
    mark_in_review(memory.directory, [NOTARY.id, BADGE.id], keep=True)
    assert mark_in_review(memory.directory, [NOTARY.id], keep=False).kept == (BADGE.id,)
    assert settle_review(memory, ACCEPTED).evicted == 1
    with pytest.raises(StoreError, match="no consolidation waits"):
        mark_in_review(memory.directory, [NOTARY.id], keep=True)


def test_the_store_refuses_to_keep_what_is_evicted_or_not_proven(memory):
    for evict, kept, words in (
        ([BADGE.id], [BADGE.id], "both evicted and kept"),
        ([], [VAGUE.id], "not proven"),
    ):
        with pytest.raises(ValueError, match=words):
            memory.promote(1, evict=evict, proven=[BADGE.id], trained=[], kept=kept, run_id=RUN)
    assert memory.generations.current().number == 0


def test_rejecting_leaves_all_as_it_was(memory):
    before = seen_by_readers(memory)
    mark_in_review(memory.directory, [NOTARY.id], keep=True)
    report = settle_review(memory, REJECTED)
    assert (report.status, report.reason, report.internalised) == ("discarded", REJECTED_REASON, 0)
    assert seen_by_readers(memory) == before
    found = memory.generations.get(1)
    assert (found.status, found.reason) == (STATUSES.DISCARDED, REJECTED_REASON)
    assert [item.number for item in memory.generations.failed()] == [1]
    assert memory.generations.orphan_folders() == []
    assert (waiting_night(memory.directory), unfinished_nights(memory.directory)) == (None, [])


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("decision", [ACCEPTED, REJECTED])
@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("finisher", ["the same command", "the next night"])
def test_a_killed_decision_is_finished(memory, monkeypatch, decision, place, finisher):
    """Killed after the decision is on disk, before or after the ledger's transaction."""

    def die(*_, **__):
        raise Killed

    mark_in_review(memory.directory, [NOTARY.id], keep=True)
    with monkeypatch.context() as patch:
        patch.setattr(*((night, "reviewed") if place == "before" else (NightFolder, "drop_update")), die)
        with pytest.raises(Killed):
            settle_review(memory, decision)
    assert (waiting_night(memory.directory), unfinished_nights(memory.directory)) == (None, [RUN])
    assert (memory.generations.current().number == 1) is (place == "after" and decision is ACCEPTED)
    if finisher == "the same command":
        report = settle_review(memory, decision)
    else:
        planned = plan(memory, RUN)
        folder = NightFolder(memory.directory, RUN)
        assert planned == plan_of(0)
        training = night.train_shadow(memory, planned, ConsolidationSettings(), [], refuse)
        verdict = folder.read(VERDICT, NightVerdict)
        report = night.apply_verdict(memory, planned, training, verdict)
    assert report.status == ("promoted" if decision is ACCEPTED else "discarded")
    assert (report.evicted, report.kept) == ((1, 1) if decision is ACCEPTED else (0, 0))
    assert unfinished_nights(memory.directory) == []


def test_a_night_is_not_promoted_on_top_of_another_generation(memory):
    number, folder = memory.generations.create_shadow(0, "base", [])
    (folder / "adapter.bin").write_bytes(b"other")
    memory.generations.seal(number, adapter_digest(folder), {})
    memory.promote(number, evict=[], proven=[], trained=[], run_id="other")
    before = seen_by_readers(memory)
    with pytest.raises(
        StoreError, match=f"{RUN} cannot be accepted.*trained on generation 0 and 2 is current"
    ):
        settle_review(memory, ACCEPTED)
    assert seen_by_readers(memory) == before
    assert waiting_night(memory.directory) == RUN
    assert settle_review(memory, REJECTED).status == "discarded"


def test_a_damaged_adapter_leaves_the_night_waiting(memory):
    next(memory.directory.glob("generations/*/adapter/adapter.bin")).write_bytes(b"poison")
    with pytest.raises(IntegrityError, match="was changed"):
        settle_review(memory, ACCEPTED)
    assert waiting_night(memory.directory) == RUN


def test_facts_that_left_the_store_meanwhile_are_not_evicted(memory):
    memory.forget([BADGE.id])
    report = settle_review(memory, ACCEPTED)
    assert (report.evicted, report.skipped) == (1, (BADGE.id,))
    assert memory.ledger.fact(BADGE.id).status is FactStatus.FORGOTTEN


# ------------------------------------------------------------------------------------------- the diff


def read(memory, run_id=RUN):
    return night_diff.read_diff(memory.directory, memory.ledger, run_id, 0.5)


def ids(lines):
    return [line.fact_id for line in lines]


def test_the_diff_of_a_waiting_night(memory):
    mark_in_review(memory.directory, [NOTARY.id], keep=True)
    diff = read(memory)
    assert (diff.status, diff.generation, diff.parent, diff.scale) == ("waiting", 1, 0, 0.5)
    assert "sharpwave accept" in diff.reason
    assert ids(diff.entered) == [BADGE.id, NOTARY.id]
    assert (ids(diff.evicted), ids(diff.kept)) == ([BADGE.id], [NOTARY.id])
    assert (ids(diff.damaged), ids(diff.readmitted)) == ([PARIS.id], [PARIS.id, MOSS.id])
    assert [line.reason for line in diff.left_out] == ["left for a later night"]
    (vague,) = diff.not_proven
    assert (vague.text, vague.reason, vague.lowest_prob) == (
        VAGUE.text,
        "not proven: paraphrase (0.31)",
        0.31,
    )
    assert [probe.prompt_form for probe in vague.failed] == ["paraphrase"]
    badge = diff.entered[0]
    assert (badge.question, badge.answer, badge.lowest_prob) == (BADGE.questions[0], "4711", 0.8)
    assert (diff.damaged[0].question, diff.damaged[0].answer) == (PARIS.questions[0], "France")


def test_the_diff_of_a_promoted_night_lists_only_what_moved(memory):
    memory.forget([BADGE.id])
    settle_review(memory, ACCEPTED)
    diff = read(memory)
    assert diff.status == "promoted"
    assert (ids(diff.entered), ids(diff.evicted)) == ([BADGE.id, NOTARY.id], [NOTARY.id])


def test_a_forgotten_fact_has_no_words_though_the_plan_still_holds_them(memory):
    memory.forget([fact.id for fact in (*TRAINED, LATER, PARIS)])  # killed before the plans were cleaned
    assert BADGE.text in (NightFolder(memory.directory, RUN).path / PLAN).read_text(encoding="utf-8")
    diff = read(memory)
    for line in (*diff.entered, *diff.evicted, *diff.damaged, *diff.not_proven, *diff.left_out):
        assert (line.text, line.question, line.answer) == (None, None, None)
    written = diff.model_dump_json() + render_night(diff)
    for fact in (*TRAINED, LATER, PARIS):
        assert fact.text not in written
        assert fact.questions[0] not in written
    assert "(forgotten)" in written


@pytest.mark.parametrize("decision", [None, REJECTED])
def test_the_diff_of_a_night_that_changes_nothing(memory, decision):
    folder = NightFolder(memory.directory, RUN)
    if decision is None:
        (folder.path / VERDICT).unlink()
    else:
        settle_review(memory, decision)
    diff = read(memory)
    assert (diff.status, len(diff.trials)) == (("interrupted", 0) if decision is None else ("discarded", 2))
    assert diff.entered == diff.evicted == diff.damaged == diff.readmitted == ()
    assert ids(diff.left_out) == [LATER.id]


def test_a_diff_needs_no_facts_to_be_made():
    diff = diff_of(NightRecords(plan_of(0), VERDICT_1, Review(), None), {}, 0.5)
    assert ids(diff.evicted) == [BADGE.id, NOTARY.id]
    assert diff.evicted[0].text is None


def test_which_night_is_meant(memory):
    found, store = memory.generations, memory.directory
    other = plan_of(0).model_copy(update={"run_id": "early"})
    NightFolder(store, "early").write(PLAN, other)
    for chosen, expected in ((None, RUN), (RUN, RUN), ("1", RUN), ("early", "early")):
        assert find_night(store, found, chosen) == expected
    for chosen, words in (("late", "no consolidation late"), ("0", "base model"), ("7", "no generation 7")):
        with pytest.raises(StoreError, match=words):
            find_night(store, found, chosen)
    settle_review(memory, ACCEPTED)
    assert find_night(store, found, None) == RUN
    assert night_of_generation(store, 1) == RUN
    (NightFolder(store, RUN).path / TRAINING).unlink()
    with pytest.raises(StoreError, match="no record of the consolidation that made generation 1"):
        find_night(store, found, None)


def test_the_page_shows_foreign_text_as_text(memory):
    mark_in_review(memory.directory, [BADGE.id], keep=True)
    html = render_night(read(memory))
    assert "notary &lt;b&gt;⟨U+001B⟩[31m." in html
    assert "\x1b" not in html
    assert "Content-Security-Policy" in html
    assert "prefers-color-scheme: dark" in html
    assert html.count("<ins>") == 2
    assert html.count("<del>") == 2  # the notary out of the store, Paris out of the weights
    for words in (
        "Kept by the review",
        "not proven: paraphrase (0.31)",
        "left for a later night",
        "(chosen)",
    ):
        assert words in html


# ------------------------------------------------------------------------------------------ the flows


class Tracked:
    """Keeps what a flow logs."""

    run_id = None

    def __init__(self):
        self.metrics, self.artifacts = [], []

    def log_metrics(self, values):
        self.metrics.append(values)

    def log_artifact(self, path):
        self.artifacts.append(path)


@pytest.fixture
def flows(monkeypatch):
    """The flows with their tasks called as plain functions; those that plan, train or judge are refused."""
    from flows import consolidate_memory, nightly_cycle
    from tasks import consolidation_tasks

    tracked = Tracked()

    @contextmanager
    def tracking(*_, **__):
        yield tracked

    for name in ("plan_night_task", "train_shadow_task", "judge_shadow_task"):
        monkeypatch.setattr(consolidate_memory, name, refuse)
    monkeypatch.setattr(consolidate_memory, "apply_verdict_task", consolidation_tasks.apply_verdict)
    monkeypatch.setattr(consolidate_memory, "nested_run", tracking)
    monkeypatch.setattr(nightly_cycle, "parent_run", tracking)
    monkeypatch.setattr(nightly_cycle, "consolidate_memory", consolidate_memory.consolidate_memory.fn)
    monkeypatch.setattr(nightly_cycle, "get_run_logger", lambda: logging.getLogger("nightly"))
    return consolidate_memory, nightly_cycle, tracked


def overrides(store):
    return ["models.embedder=hashing", f"store.path={store}", f"runs_dir={store.parent / 'runs'}"]


@pytest.mark.parametrize("run_id", [RUN, "another"])
def test_the_flow_leaves_a_waiting_night_alone(store, flows, run_id):
    consolidate_memory, _, tracked = flows
    report = consolidate_memory.consolidate_memory.fn(run_id, overrides=overrides(store))
    assert (report.run_id, report.is_waiting) == (RUN, True)
    assert (tracked.metrics, tracked.artifacts) == ([], [])
    with opened(store) as memory:
        assert (memory.generations.current().number, memory.generations.get(1).status) == (0, STATUSES.SHADOW)
    assert waiting_night(store) == RUN


def test_the_flow_finishes_a_night_whose_decision_was_cut_short(store, flows, monkeypatch):
    consolidate_memory, _, tracked = flows
    for name in ("plan_night_task", "train_shadow_task", "judge_shadow_task"):
        monkeypatch.setattr(consolidate_memory, name, lambda *_: True)
    NightFolder(store, RUN).write(REVIEW, Review(decision=ACCEPTED))
    report = consolidate_memory.consolidate_memory.fn(RUN, overrides=overrides(store))
    assert (report.status, report.evicted) == ("promoted", 2)
    assert (len(tracked.metrics), len(tracked.artifacts)) == (1, 1)


@pytest.mark.parametrize("review", [True, False])
def test_the_flow_asks_for_a_review_only_if_told(store, flows, monkeypatch, review):
    consolidate_memory, _, _ = flows
    shutil.rmtree(store / "consolidations")
    asked = []

    def plan_night(_path, run_id, wanted):
        asked.append(wanted)
        NightFolder(store, run_id).write(
            PLAN, NightPlan(run_id=run_id, parent=0, base_fingerprint="", targets=())
        )
        return False

    monkeypatch.setattr(consolidate_memory, "plan_night_task", plan_night)
    report = consolidate_memory.consolidate_memory.fn("new", overrides=overrides(store), review=review)
    assert asked == [review]
    assert report.status == "skipped"


def test_the_nightly_cycle_takes_in_the_inbox_and_trains_nothing_while_a_night_waits(
    store, flows, monkeypatch, caplog
):
    _, nightly_cycle, tracked = flows
    NightFolder(store, "killed").write(PLAN, plan_of(0).model_copy(update={"run_id": "killed"}))
    inbox = store / "inbox"
    inbox.mkdir()
    (inbox / "today.txt").write_text("A fact.\n", encoding="utf-8")
    taken = []
    monkeypatch.setattr(nightly_cycle, "ingest_stream", lambda file, *_: taken.append(Path(file).name))
    monkeypatch.setattr(nightly_cycle, "archive_file_task", lambda file: taken.append("archived"))
    with caplog.at_level(logging.WARNING, logger="nightly"):
        report = nightly_cycle.nightly_cycle.fn("cycle", overrides=overrides(store))
    assert taken == ["today.txt", "archived"]
    assert (report.run_id, report.is_waiting) == (RUN, True)
    assert f"{RUN} waits for review" in caplog.text
    assert "sharpwave accept" in caplog.text
    assert tracked.metrics == []
    assert waiting_night(store) == RUN
    assert unfinished_nights(store) == ["killed"]
    assert NightFolder(store, "cycle-sleep").read(REPORT, NightReport) is None
