"""A stream's folder: it is only taken up as what it was begun as, and knows what it has taken so far."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.corpora.corpus import CorpusFact
from eval.stream_pools import Arrival
from eval.streams import StreamFact, StreamStep
from sharpwave.errors import InputError
from sharpwave.records import Fact
from tasks.stream_files import ArmStep, RoutingCost, StreamFiles, StreamLayout, minutes_left, timed
from tasks.stream_report_tasks import routing_figures
from tasks.stream_tasks import ask_arm, lay_out_stream
from tests.made_runs import step_record


@pytest.fixture
def begun(tmp_path: Path) -> StreamFiles:
    files = StreamFiles(tmp_path / "run")
    fact = Fact(text="The peso is the currency of Chile.")
    item = CorpusFact(fact, "Chile", "world", "en", "What do they pay with in Chile?")
    arrivals = (StreamFact(item, fact, Arrival.NEW), StreamFact(item, fact, Arrival.REPEAT))
    files.lay_out([StreamStep(0, arrivals, ())], StreamLayout(size="tiny", seed=4))
    return files


def test_a_stream_laid_out_is_taken_up_without_asking_any_model(begun: StreamFiles):
    assert lay_out_stream("no settings are read", str(begun.run), "tiny", 4) == 1
    assert len(begun.arrivals(1)) == 2
    assert len(begun.facts(1)) == 1


@pytest.mark.parametrize(("size", "seed"), [("small", 4), ("tiny", 5)])
def test_another_size_or_seed_is_refused_with_both_named(begun: StreamFiles, size: str, seed: int):
    with pytest.raises(InputError, match="embedded corpora, size tiny, seed 4, not the one wanted"):
        lay_out_stream("unread", str(begun.run), size, seed)


def test_other_facts_are_refused(begun: StreamFiles, tmp_path: Path):
    facts = tmp_path / "mine.jsonl"
    facts.write_text('{"text": "Mira lives in Porto."}\n')
    with pytest.raises(InputError, match="give another folder"):
        lay_out_stream("unread", str(begun.run), "tiny", 4, str(facts))


def test_an_arm_that_was_asked_is_not_asked_again(begun: StreamFiles):
    begun.finish_arm("random", 0, ArmStep(held=1), [])
    ask_arm("no settings are read", str(begun.run), 0, "random", oracle=True)


def test_an_arm_that_a_finished_step_lacks_cannot_be_added(begun: StreamFiles):
    begun.finish_step(step_record(0), [])
    with pytest.raises(
        InputError, match="step 1 was finished without the arm 'novelty'; give another folder"
    ):
        ask_arm("unread", str(begun.run), 0, "novelty", oracle=True)


def test_seconds_add_up_over_the_times_a_run_is_taken_up(tmp_path: Path):
    assert StreamFiles(tmp_path).spent() == {}
    StreamFiles(tmp_path).spend("steps", 2.5)
    StreamFiles(tmp_path).spend("nights", 1.0)
    with pytest.raises(KeyboardInterrupt), timed(StreamFiles(tmp_path), "steps"):
        raise KeyboardInterrupt
    spent = StreamFiles(tmp_path).spent()
    assert 2.5 < spent["steps"] < 3.5
    assert spent["nights"] == 1.0


def test_the_time_left_counts_steps_and_nights_apart():
    spent = {"layout": 900.0, "steps": 240.0, "nights": 300.0}
    assert minutes_left(spent, (4, 12), (1, 3)) == pytest.approx(8 * 1.0 + 2 * 5.0)
    assert minutes_left(spent, (4, 12), (1, 1)) == pytest.approx(8.0)
    assert minutes_left(spent, (12, 12), (3, 3)) == 0
    assert minutes_left({"steps": 60.0}, (1, 12), (0, 3)) is None  # a night may take longer than all steps


def cost(**changed: float) -> RoutingCost:
    values = {
        "routed": 4,
        "escalated": 1,
        "flops": 30.0,
        "large_only_flops": 100.0,
        "seconds": 2.0,
        "timed": 4,
    }
    return RoutingCost.model_validate(values | changed)


def test_costs_are_ratios_of_sums_over_the_steps():
    figures = routing_figures(
        "cascade", [cost(), cost(routed=1, escalated=1, large_only_flops=20.0, timed=0, seconds=0)]
    )
    assert figures == pytest.approx({
        "escalation_rate": 2 / 5,
        "routing_cost_ratio": 60 / 120,
        "routing_seconds": 0.5,
    })


def test_only_routers_escalate_and_what_is_not_counted_has_no_figure():
    assert set(routing_figures("llm_judge", [cost(escalated=0)])) == {"routing_cost_ratio", "routing_seconds"}
    assert routing_figures("oracle_admission", [cost(flops=0.0, escalated=0)]) == {}
