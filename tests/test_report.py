"""What a run leaves on disk, the page made from it, and the comparison of two runs."""

import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from eval.comparison import comparison_markdown, comparison_table
from eval.display_text import markdown_cell, points, visible_text
from eval.pages import MAX_LINES_PER_LIST
from eval.plot_style import spread, to_svg
from eval.plots import calibration, figures, frontier, write_pngs
from eval.report import render_report, report_markdown, verdict, write_report
from eval.run_records import (
    ArmFigures,
    Run,
    read_run,
    write_run,
)
from sharpwave.errors import InputError
from tests.made_runs import make_run

HOSTILE = (
    "<script>alert(1)</script><img src=http://evil.example/x onerror=alert(1)>\"'&\u202egnp.exe\u2028\x1b[31m"
)
METRIC_KEYS = set([
    "n_facts",
    "storage_ratio",
    "storage_ratio_before_consolidation",
    "em",
    "em_full_store",
    "em_no_memory",
    "em_retention",
    "escalation_rate",
    "routing_cost_ratio",
    "selected",
    "internalised",
    "evicted",
    "damaged",
    "readmitted",
    "stable_probed",
    "damage_rate",
    "gate_damage_rate",
    "em_before_consolidation",
    "em_after_consolidation",
    "net_bytes",
    "wall_seconds",
    "seed",
    "profile",
    "em_random",
    "n_questions",
    "em_low",
    "em_high",
    "em_full_store_low",
    "em_full_store_high",
    "em_no_memory_low",
    "em_no_memory_high",
    "em_random_low",
    "em_random_high",
    "em_retention_low",
    "em_retention_high",
    "em_random_storage_ratio",
])


class Page(HTMLParser):
    """Collects the tags, their attributes and the visible text of a page."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


# ------------------------------------------------------------------------------------------ on disk


def test_a_run_round_trips(tmp_path):
    run = make_run(text="¿Cuál es? 中文\u2028line\x85end \U0001f600")
    assert read_run(write_run(tmp_path / "runs" / "demo", run)) == run
    assert not [path for path in (tmp_path / "runs" / "demo").iterdir() if path.name.startswith(".")]


def test_metrics_json_has_the_promised_keys(tmp_path):
    write_run(tmp_path, make_run())
    metrics = json.loads((tmp_path / "metrics.json").read_text(encoding="utf-8"))
    assert set(metrics) == METRIC_KEYS
    assert set(metrics["net_bytes"]) == {"vectors", "text", "ledger", "adapters"}
    assert isinstance(metrics["selected"], int)


def test_passwords_in_urls_do_not_reach_the_disk(tmp_path):
    write_run(tmp_path, make_run())
    written = "".join(path.read_text(encoding="utf-8") for path in tmp_path.iterdir())
    assert "hunter2" not in written
    assert "postgresql://me:***@db/runs" in written


def test_rewriting_keeps_other_files_and_replaces_the_run(tmp_path):
    (tmp_path / "plot.png").write_bytes(b"x")
    write_run(tmp_path, make_run())
    write_run(tmp_path, make_run(text="Another fact."))
    assert read_run(tmp_path).config.run_id == "Another fact."
    assert (tmp_path / "plot.png").read_bytes() == b"x"


def test_a_folder_that_is_no_run_is_named(tmp_path):
    with pytest.raises(InputError, match=r"not the folder of a run") as caught:
        read_run(tmp_path / "nowhere")
    assert caught.value.file == str(tmp_path / "nowhere")
    write_run(tmp_path, make_run())
    (tmp_path / "metrics.json").unlink()
    with pytest.raises(InputError, match="unfinished"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("name", "line", "content"),
    [
        ("answers.jsonl", 3, b'{"arm": '),
        ("steps.jsonl", 2, b'{"step": "two"}'),
        ("decisions.jsonl", 1, b"\xff\xfe"),
        ("answers.jsonl", 1, b'{"colour": "red"}'),
    ],
)
def test_a_damaged_line_is_named(tmp_path, name, line, content):
    write_run(tmp_path, make_run())
    lines = (tmp_path / name).read_bytes().split(b"\n")
    lines[line - 1] = content
    (tmp_path / name).write_bytes(b"\n".join(lines))
    with pytest.raises(InputError) as caught:
        read_run(tmp_path)
    assert (caught.value.file, caught.value.line) == (str(tmp_path / name), line)


@pytest.mark.parametrize("name", ["config.json", "arms.json", "consolidations.json", "steps.jsonl"])
def test_a_missing_file_is_named(tmp_path, name):
    write_run(tmp_path, make_run())
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match="cannot be read") as caught:
        read_run(tmp_path)
    assert caught.value.file == str(tmp_path / name)


def test_figures_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match="finite"):
        ArmFigures(name="a", storage_ratio=float("nan"), em=0, em_low=0, em_high=0, f1=0, n_questions=0)


def test_an_arm_listed_twice_is_refused():
    run = make_run()
    with pytest.raises(ValueError, match="twice"):
        Run(config=run.config, metrics=run.metrics, arms=(*run.arms, run.arms[0]), steps=run.steps)


# ----------------------------------------------------------------------------------------- the page


def test_the_page_shows_the_figures_and_what_happened_to_facts(tmp_path):
    run = make_run()
    page = Page(write_report(run, tmp_path).read_text(encoding="utf-8"))
    text = " ".join(page.text.split())
    for arm in run.arms:
        assert f"{100 * arm.em:.1f}%" in text
        assert f"{100 * arm.em_low:.1f}\u2013{100 * arm.em_high:.1f}%" in text
    assert verdict(run) in text
    assert "2 / 40" in text
    assert "ab" * 32 in text
    assert page.tags.count("svg") == 1 + len(figures(run)) == 6
    assert page.tags.count("del") == page.tags.count("ins") == 8
    for title in ("Internalised", "Evicted", "Damaged", "Re-admitted", "Rejected"):
        assert title in text


def test_hostile_text_stays_text():
    run = make_run(text=HOSTILE)
    html = render_report(run)
    page = Page(html)
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "<script>alert(1)</script>" in page.text
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert "⟨U+202E⟩gnp.exe" in page.text


def test_hostile_names_of_arms_stay_text():
    arm = ArmFigures(
        name="</text><script>$x_1^2$",
        storage_ratio=0.5,
        em=0.5,
        em_low=0.4,
        em_high=0.6,
        f1=0.5,
        n_questions=9,
    )
    run = make_run()
    html = render_report(run.model_copy(update={"arms": (*run.arms, arm)}))
    assert "script" not in Page(html).tags
    assert "&lt;script&gt;" in html


def test_the_page_loads_nothing():
    html = render_report(make_run(text=HOSTILE))
    page = Page(html)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    targets = [
        value for name, value in page.attributes if name in {"src", "href", "xlink:href", "action", "data"}
    ]
    assert targets
    assert all(value.startswith("#") for value in targets)
    assert not re.search(r"@import|url\((?!#)", html)
    assert ("http-equiv", "Content-Security-Policy") in page.attributes
    assert "default-src 'none'" in html


def test_ids_are_unique_over_all_plots():
    page = Page(render_report(make_run()))
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)) > 20
    used = [value[1:] for name, value in page.attributes if name == "xlink:href"]
    assert set(used) <= set(ids)


def test_long_lists_and_long_texts_are_cut_and_say_so():
    run = make_run(text="word " * 50_000, n_lines=MAX_LINES_PER_LIST + 5)
    html = render_report(run)
    assert "5 further facts are not listed here" in html
    assert "(250,000 characters, cut here)" in html
    assert len(html) < 3_000_000


def test_a_run_without_consolidation_or_answers_still_has_a_page():
    full = make_run()
    run = Run(config=full.config, metrics=full.metrics, arms=full.arms, steps=())
    html = render_report(run)
    assert "This run had none." in html
    assert [drawing.name for drawing in figures(run)] == ["frontier"]


def test_the_page_is_the_same_each_time():
    run = make_run()
    assert render_report(run) == render_report(run)


def test_the_verdict_admits_a_random_choice_that_did_as_well():
    beaten = make_run(wrong_every={"sharpwave": 3, "full_store": 60, "no_memory": 2, "random": 3})
    assert "did as well or better" in verdict(beaten)
    assert "larger than chance" in verdict(beaten)
    assert "did as well or better" not in verdict(make_run())
    assert "within what chance" in verdict(make_run())


def test_markdown_keeps_its_table_whole():
    run = make_run(text="a|b\nc`d")
    lines = report_markdown(run).splitlines()
    head = next(line for line in lines if line.startswith("| arm"))
    rows = [
        line for line in lines if line.startswith(("| Sharpwave", "| full store", "| no memory", "| random"))
    ]
    assert len(rows) == 4
    assert {row.count("|") for row in rows} == {head.count("|")}
    assert markdown_cell("a|b\n<i>") == "a\\|b &lt;i>"


def test_visible_text_spells_out_what_would_hide():
    assert visible_text("a\u200fb\u0000c\u2066d") == "a⟨U+200F⟩b⟨U+0000⟩c⟨U+2066⟩d"
    assert visible_text("família 中文 عربي \u200d") == "família 中文 عربي \u200d"
    assert visible_text("12345", 3) == "123… (5 characters, cut here)"
    assert visible_text(None) == "\u2013"


# ----------------------------------------------------------------------------------------- plots


def test_what_rounds_to_zero_has_no_sign_of_loss():
    assert [points(value) for value in (-0.0, -0.0004, 0.0004, -0.0006)] == [
        "+0.0 pts",
        "+0.0 pts",
        "+0.0 pts",
        "\u22120.1 pts",
    ]


def test_pngs_are_written(tmp_path):
    paths = write_pngs(figures(make_run()), tmp_path / "plots")
    assert [path.name for path in paths] == [
        "storage.png",
        "em.png",
        "frontier.png",
        "nights.png",
        "calibration.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_svg_takes_its_colours_from_the_page_and_keeps_its_text():
    svg = to_svg(frontier(make_run().arms), "frontier")
    assert svg.startswith("<svg ")
    assert "var(--plot-ours, #0067b3)" in svg
    assert "full store" in svg
    assert "metadata" not in svg
    assert not re.search(r"(?<!, )#0067b3", svg)


def test_calibration_plot_states_its_error():
    svg = to_svg(calibration([0.9, 0.9], [True, False]), "calibration")
    assert "expected calibration error 0.400" in svg


def test_labels_move_apart_and_keep_their_order():
    placed = spread([0.5, 0.1, 0.51, 0.5], gap=0.1)
    ordered = sorted(placed)
    assert all(b - a >= 0.1 - 1e-9 for a, b in pairwise(ordered))
    assert placed[1] == 0.1
    assert placed[2] == max(placed)


# ----------------------------------------------------------------------------------------- comparison


def test_same_questions_are_compared_in_pairs():
    first = make_run(wrong_every={"sharpwave": 3, "full_store": 7, "no_memory": 2, "random": 3})
    second = make_run(wrong_every={"sharpwave": 6, "full_store": 7, "no_memory": 2, "random": 3})
    table = {line.figure: line for line in comparison_table(first, second)}
    ours = table["Sharpwave: EM"]
    assert ours.difference == pytest.approx(10 / 60)
    assert ours.n_pairs == 60
    assert 0 < ours.low < ours.difference < ours.high
    assert table["full store: EM"][3:6] == (0.0, 0.0, 0.0)
    assert table["damage rate"].low is None
    assert "+16.7 pts" in comparison_markdown(comparison_table(first, second), "a", "b")


def test_other_questions_give_no_interval():
    first = make_run()
    second = first.model_copy(update={"answers": first.answers[1:]})
    table = {line.figure: line for line in comparison_table(first, second)}
    assert table["Sharpwave: EM"].low is None
    assert table["full store: EM"].n_pairs == 60
