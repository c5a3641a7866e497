"""Public sets: each format read into the expected facts and changes, and every record that gave none named."""

from __future__ import annotations

import doctest
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import datasets
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from eval.corpora.corpus import CorpusFact, defects
from eval.public_sets import dyknow, records, wording
from eval.public_sets.harvest import Harvest, PublicSet
from eval.public_sets.reading import _READERS, SET_NAMES, read_public_set
from eval.public_sets.records import numbered
from sharpwave.cli.main import app
from sharpwave.errors import InputError
from sharpwave.fact_files import AcceptedLine, read_facts
from sharpwave.settings import PROJECT_ROOT
from tests.cli_runs import data

FIXTURES = Path(__file__).parent / "fixtures" / "public_sets"
FILES = {
    "own": "own.jsonl",
    "counterfact": "counterfact.json",
    "dyknow": "dyknow.json",
    "known_1000": "known_1000.json",
    "locomo": "locomo.json",
    "mquake-cf": "mquake.json",
    "mquake-t": "mquake.json",
    "popqa": "popqa.tsv",
    "templama": "templama.json",
    "zsre": "zsre.json",
}
DATA = Path(os.environ.get("PUBLIC_SETS_FOLDER", "no-folder"))

runner = CliRunner()


def read(name: str) -> PublicSet:
    return read_public_set(name, FIXTURES / FILES[name])


def said(found: PublicSet) -> list[tuple[str, tuple[str, ...], str]]:
    return [(item.fact.text, item.fact.answers, item.kind) for item in found.facts]


def asked(item: CorpusFact) -> tuple[str, ...]:
    return (*item.fact.questions, item.heldout_question)


def refused(found: PublicSet) -> list[tuple[int, str | None]]:
    return [(reject.number, reject.field) for reject in found.rejects]


def day(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


# ------------------------------------------------------------------------------------ each format


def test_popqa() -> None:
    found = read("popqa")
    assert said(found) == [
        ("Edda Marsh is a lighthouse keeper.", ("lighthouse keeper", "keeper of lights"), "world"),
        ("The capital of Velmora is Aldsund.", ("Aldsund",), "world"),
        ("Who published The Tin Harp? The answer is Quillfeather.", ("Quillfeather",), "world"),
    ]
    known, _, unknown = found.facts
    assert (known.slot.subject, known.relation, known.group) == (
        "Edda Marsh",
        "occupation",
        "subject:edda marsh",
    )
    assert asked(known) == (
        "What is Edda Marsh's occupation?",
        "What is the profession of Edda Marsh?",
        "What does Edda Marsh do for a living?",
        "Which occupation does Edda Marsh have?",
        "Name the line of work of Edda Marsh.",
    )
    assert unknown.train_questions[0] == "Who published The Tin Harp?"
    assert len(set(asked(unknown))) == 4
    assert (found.repeats, found.updates) == (1, ())
    assert refused(found) == [
        *((6, None), (7, None)),  # one home, two authors
        (8, "possible_answers"),
        (9, None),
        (10, "obj"),
        (11, None),
    ]
    assert "different values of 'author'" in found.rejects[0].reason
    assert found.rejects[3].reason == "has 3 columns and the head has 17"


def test_known_1000() -> None:
    found = read("known_1000")
    assert said(found) == [("Dunmore Light is in Velmora.", ("Velmora",), "world")]
    assert refused(found) == [(2, "relation_id"), (3, "subject"), (4, None)]
    assert "add a row to" in found.rejects[0].reason


def test_counterfact() -> None:
    found = read("counterfact")
    assert said(found) == [
        ("The native language of Edda Marsh is Velmoran.", ("Velmoran",), "world"),
        ("The native language of Edda Marsh is Kirsian.", ("Kirsian",), "counterfactual"),
    ]
    (pair,) = found.updates
    assert (pair.old, pair.new, pair.origin) == (*found.facts, "counterfactual")
    assert pair.old.fact.observed_at < pair.new.fact.observed_at
    assert refused(found) == [(2, None), (3, "requested_rewrite.target_true")]
    assert found.rejects[0].reason == "the newer value 'Aldsund' is the same as the older"


@pytest.mark.parametrize(
    ("name", "kinds", "origin"),
    [
        ("mquake-t", ("update_old", "update_new"), "real"),
        ("mquake-cf", ("world", "counterfactual"), "counterfactual"),
    ],
)
def test_mquake(name: str, kinds: tuple[str, str], origin: str) -> None:
    found = read(name)
    assert said(found) == [
        ("The head of state of Velmora is Ilse Brandt.", ("Ilse Brandt", "I. Brandt"), kinds[0]),
        ("The head of state of Velmora is Tomas Ruhl.", ("Tomas Ruhl", "T. Ruhl"), kinds[1]),
        ("The keeper of Dunmore Light is Edda Marsh.", ("Edda Marsh",), kinds[0]),
        ("The keeper of Dunmore Light is Orrin Vale.", ("Orrin Vale",), kinds[1]),
    ]
    assert [pair.origin for pair in found.updates] == [origin, origin]
    assert found.repeats == 1  # many cases share an edit
    assert refused(found) == [(3, "requested_rewrite"), (4, "requested_rewrite[1].question")]


def test_zsre() -> None:
    found = read("zsre")
    question, held_out = "What school did Edda Marsh attend?", "At which school was Edda Marsh?"
    assert said(found) == [
        (f"{question} The answer is Aldsund School.", ("Aldsund School", "School of Aldsund"), "world"),
        (f"{question} The answer is Mornby School.", ("Mornby School",), "counterfactual"),
    ]
    assert (asked(found.facts[0])[0], found.facts[0].heldout_question) == (question, held_out)
    assert found.facts[0].relation == "What school did {} attend?"
    assert len(found.updates) == 1
    assert refused(found) == [(2, "answers")]


def test_templama() -> None:
    found = read("templama")
    assert said(found) == [
        (
            "As of 2010, Orrin Vale plays for Dunmore Rovers.",
            ("Dunmore Rovers", "Velmora United"),
            "update_old",
        ),
        ("As of 2012, Orrin Vale plays for Aldsund F.C.", ("Aldsund F.C.",), "update_new"),
        ("As of 2012, the chairperson of Kirsel Bank is Ilse Brandt.", ("Ilse Brandt",), "world"),
    ]
    assert [(item.fact.valid_from, item.fact.valid_to) for item in found.facts] == [
        (day(2010, 1, 1), day(2011, 12, 31)),
        (day(2012, 1, 1), None),
        (day(2012, 1, 1), None),
    ]
    assert [(pair.old, pair.new) for pair in found.updates] == [found.facts[:2]]
    assert refused(found) == [(5, "query"), (6, "relation"), (7, "date"), (8, None)]


def test_dyknow() -> None:
    found = read("dyknow")
    assert said(found) == [
        ("As of 2004, the Regent of Velmora is Ilse Brandt.", ("Ilse Brandt",), "update_old"),
        ("As of 31 May 2010, the Regent of Velmora is Tomas Ruhl.", ("Tomas Ruhl",), "update_new"),
        (
            "As of 2010, the football team Orrin Vale currently plays for is Dunmore Rovers.",
            ("Dunmore Rovers",),
            "update_old",
        ),
        (
            "As of 2014, the football team Orrin Vale currently plays for is Aldsund F.C.",
            ("Aldsund F.C.",),
            "update_new",
        ),
    ]
    assert [(item.fact.valid_from, item.fact.valid_to) for item in found.facts] == [
        (day(2004, 1, 1), day(2010, 5, 30)),
        (day(2010, 5, 31), None),
        (day(2010, 1, 1), day(2014, 1, 1)),
        (day(2014, 1, 1), None),
    ]
    assert asked(found.facts[0]) == (
        "Who is the head of state in Velmora?",
        "Who is the Regent of Velmora?",
        "What is the name of the current Regent of Velmora?",
        "By whom is the position of the Regent of Velmora currently held?",
    )
    assert [item.slot.subject for item in found.facts] == ["Velmora", "Velmora", "Orrin Vale", "Orrin Vale"]
    assert len(found.updates) == 2
    assert refused(found) == [
        *((1, "answers[2]"), (1, "answers[3]"), (1, "answers[4]")),
        (2, "answers[1]"),
        (3, "answers"),
    ]
    assert found.rejects[3].original == "Velmora national team |S: +2011-03-00T00:00:00Z"


def test_locomo() -> None:
    found = read("locomo")
    dog = 'On 8 May 2023, Edda said: "My dog Biscuit ate the map."'
    boat = 'On 8 May 2023, Orrin said: "Yesterday I sold the boat to Ilse."'
    assert said(found) == [(dog, ("Biscuit", "biscuit"), "agent"), (f"{boat} {dog}", ("Ilse",), "agent")]
    assert found.facts[0].fact.valid_from == day(2023, 5, 8, 13, 56)
    assert {item.group for item in found.facts} == {"conversation:conv-1"}
    assert [field for _, field in refused(found)] == [
        "conversation.session_1[3].dia_id",
        "qa[2].answer",
        "qa[3].category",
        "qa[4].evidence",
        "conversation.session_2_date_time",
    ]


def test_own_facts() -> None:
    found = read("own")
    assert said(found) == [
        ("Mira lives in Porto.", ("Porto",), "update_old"),
        ("Mira lives in Braga.", ("Braga",), "update_new"),
    ]
    assert found.facts[1].heldout_question == "What is the home of Mira?"
    assert found.facts[1].fact.metadata == {"page": 3}
    assert len(found.updates) == 1
    assert refused(found) == [(3, "subject"), (4, "question"), (5, "txt")]
    assert found.rejects[2].reason == "unknown key; did you mean 'text'?"
    assert found.rejects[2].original == '{"txt": "Mira"}'


# ------------------------------------------------------------------------------------ all formats


@pytest.mark.parametrize("name", SET_NAMES)
def test_every_set_has_a_fixture_with_facts_and_rejects(name: str) -> None:
    found = read(name)
    assert found.facts
    assert found.rejects
    assert all(reject.reason and reject.original for reject in found.rejects)


@pytest.mark.parametrize("name", sorted(set(SET_NAMES) - {"own"}))
def test_facts_keep_the_rules_of_the_corpora(name: str) -> None:
    for item in read(name).facts:
        assert defects(item.fact.text, asked(item), item.fact.answers) == []


def test_documents_name_every_set() -> None:
    page = (PROJECT_ROOT / "docs" / "public_sets.md").read_text(encoding="utf-8")
    for name in SET_NAMES:
        assert f"`{name}`" in page


@pytest.mark.parametrize("module", [dyknow, records, wording])
def test_examples_in_docstrings(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


def test_relation_table_is_whole() -> None:
    table = wording.relation_wordings()
    assert len({item.name for item in table.values()}) == len(table)
    for item in table.values():
        assert "{a}" in item.statement
        assert len(set(item.questions)) == 4
        assert all("{s}" in question and "{a}" not in question for question in item.questions)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a document with every key of it."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        for key in keys:
            found += [(value, key), *places(value[key])]
    return found


@pytest.mark.parametrize("name", sorted(set(_READERS) - {"popqa", "templama"}))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(choices=st.data())
def test_no_content_stops_the_rest(name: str, choices: st.DataObject) -> None:
    rows = json.loads((FIXTURES / FILES[name]).read_text(encoding="utf-8"))
    rows = rows if isinstance(rows, list) else [rows]
    holder, key = choices.draw(st.sampled_from(places(rows)))
    holder[key] = choices.draw(anything)
    harvest = Harvest(name)
    _READERS[name](numbered(rows), harvest)
    harvest.result()


# --------------------------------------------------------------------------------------- whole files


def test_unknown_set_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="own, counterfact, dyknow, known_1000, locomo, mquake-cf"):
        read_public_set("popq", FIXTURES / "popqa.tsv")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", "[{}", "broken JSON at line 1"),
        ("x.csv", "", "known are .tsv, .json"),
        ("x.json", "[" * 100_000, "broken JSON"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_public_set("known_1000", tmp_path / name)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_public_set("known_1000", tmp_path / "none.json")


def test_bytes_that_are_not_utf8_cost_their_own_record(tmp_path: Path) -> None:
    good = {"subject": "Orrin", "attribute": "Velmora", "relation_id": "P17"}
    lines = [json.dumps(good), json.dumps(good | {"subject": "@"}), json.dumps(good | {"subject": "Edda"})]
    path = tmp_path / "x.jsonl"
    path.write_bytes("\n".join(lines).encode().replace(b"@", b"\xe9"))
    found = read_public_set("known_1000", path)
    assert [item.slot.subject for item in found.facts] == ["Orrin", "Edda"]
    assert refused(found) == [(2, "subject")]
    json.dumps(found.rejects[0].to_json(), ensure_ascii=False).encode()


# ------------------------------------------------------------------------------------------- the hub


def test_rows_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"subject": "Orrin", "attribute": "Velmora", "relation_id": "P17"}]
    wanted = []

    def load(name: str, split: str | None) -> Any:
        wanted.append((name, split))
        return rows if split else {"train": rows, "test": [{**rows[0], "subject": "Edda"}]}

    monkeypatch.setattr(datasets, "load_dataset", load)
    whole = read_public_set("known_1000", "hub:someone/known")
    assert [item.slot.subject for item in whole.facts] == ["Orrin", "Edda"]
    assert len(read_public_set("known_1000", "hub:someone/known:train").facts) == 1
    assert wanted == [("someone/known", None), ("someone/known", "train")]


def test_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, split: str | None) -> Any:
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(InputError, match=r"hub:a/b: cannot be loaded \(no network\).*download its file"):
        read_public_set("popqa", "hub:a/b")
    with pytest.raises(InputError, match="expected hub:owner/name"):
        read_public_set("popqa", "hub:popqa")
    with pytest.raises(InputError, match="file of JSON Lines"):
        read_public_set("own", "hub:a/b")


# ---------------------------------------------------------------------------------- the command line


def test_help_names_every_set() -> None:
    text = runner.invoke(app, ["facts", "--help"], env={"COLUMNS": "200"}).stdout
    for name in SET_NAMES:
        assert name in text


def test_command_writes_facts_that_ingest_reads(tmp_path: Path) -> None:
    out = tmp_path / "new" / "facts.jsonl"
    result = runner.invoke(
        app, ["facts", "dyknow", str(FIXTURES / "dyknow.json"), "--out", str(out), "--json"]
    )
    assert data(result) == {
        "set": "dyknow",
        "file": str(out),
        "facts": 4,
        "changes": 2,
        "repeats": 0,
        "rejects": 5,
        "rejects_file": str(out.with_name("facts.rejects.jsonl")),
    }
    lines = list(read_facts(out))
    assert all(isinstance(line, AcceptedLine) for line in lines)
    written = [line.fact for line in lines if isinstance(line, AcceptedLine)]
    assert [fact.id for fact in written] == [item.id for item in read("dyknow").facts]
    assert [fact.questions for fact in written] == [item.fact.questions for item in read("dyknow").facts]
    rejects = [json.loads(line) for line in out.with_name("facts.rejects.jsonl").read_text().splitlines()]
    assert rejects[0]["record"] == 1
    assert rejects[0]["field"] == "answers[2]"


def test_command_replaces_nothing_unasked_and_says_what_it_left_out(tmp_path: Path) -> None:
    out = tmp_path / "facts.jsonl"
    arguments = ["facts", "zsre", str(FIXTURES / "zsre.json"), "--out", str(out)]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0
    assert "2 facts written" in result.stdout
    assert "record 2, field 'answers'" in result.stderr
    assert runner.invoke(app, arguments).exit_code == 2
    good = tmp_path / "good.json"
    good.write_text(json.dumps(json.loads((FIXTURES / "zsre.json").read_text())[:1]))
    arguments[2] = str(good)
    assert runner.invoke(app, [*arguments, "--force"]).exit_code == 0
    assert not out.with_name("facts.rejects.jsonl").exists()  # that of the former run


def test_command_fails_where_nothing_could_be_used(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "zsre.json", tmp_path / "x.json")
    out = tmp_path / "out.jsonl"
    result = runner.invoke(app, ["facts", "counterfact", str(tmp_path / "x.json"), "--out", str(out)])
    assert result.exit_code == 1
    unknown = runner.invoke(
        app, ["facts", "nonsense", str(tmp_path / "x.json"), "--out", str(out), "--force"]
    )
    assert unknown.exit_code != 0
    assert "choose one of" in str(unknown.exception) + unknown.output


# ---------------------------------------------------------------------------------- real files, where at hand


@pytest.mark.parametrize(
    ("name", "file", "least_facts", "least_updates", "most_rejects"),
    [
        ("known_1000", "known_1000/known_1000.json", 1200, 0, 10),
        ("dyknow", "dyknow/grc_generated.json", 1000, 900, 80),
    ],
)
def test_real_files(name: str, file: str, least_facts: int, least_updates: int, most_rejects: int) -> None:
    if not (DATA / file).exists():
        pytest.skip(f"{file} is not at hand")
    found = read_public_set(name, DATA / file)
    assert len(found.facts) >= least_facts
    assert len(found.updates) >= least_updates
    assert len(found.rejects) <= most_rejects
