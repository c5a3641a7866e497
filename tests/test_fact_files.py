"""Files of facts: every way in which a line or a file can be wrong, and that the good lines survive it."""

from __future__ import annotations

import doctest
import io
import json
import math
import sys
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sharpwave import fact_files, fact_parsing
from sharpwave.errors import InputError
from sharpwave.fact_files import (
    AcceptedLine,
    FactLayout,
    ParsedLine,
    RejectedLine,
    RejectsFile,
    read_facts,
)
from sharpwave.fact_parsing import FACT_KEYS, clean_text, fact_from_mapping
from sharpwave.records import Fact, Slot

# A busy machine must not fail a test for being slow.
unhurried = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def parse(*lines: bytes | str, **options: Any) -> list[ParsedLine]:
    raw = b"\n".join(line.encode() if isinstance(line, str) else line for line in lines)
    return list(read_facts(io.BytesIO(raw), **options))


def accepted(line: bytes | str, **options: Any) -> AcceptedLine:
    (result,) = parse(line, **options)
    assert isinstance(result, AcceptedLine), str(result)
    return result


def rejected(line: bytes | str, **options: Any) -> RejectedLine:
    (result,) = parse(line, **options)
    assert isinstance(result, RejectedLine), str(result)
    return result


# ------------------------------------------------------------------------------------ what is accepted


def test_text_alone_is_enough() -> None:
    fact = accepted('{"text": "Ada lives in Turin."}', namespace="mine").fact
    assert (fact.text, fact.namespace, fact.slot, fact.questions, fact.answers) == (
        "Ada lives in Turin.",
        "mine",
        None,
        (),
        (),
    )


def test_singular_keys() -> None:
    fact = accepted('{"text": "t", "question": "q?", "answer": "a", "aliases": ["b", "a"]}').fact
    assert fact.questions == ("q?",)
    assert fact.answers == ("a", "b")


def test_every_key_reaches_the_fact() -> None:
    content = {
        "text": "t",
        "questions": ["q1", "q2"],
        "answers": ["a"],
        "aliases": ["b"],
        "slot": {"subject": "s", "relation": "r"},
        "valid_from": 1999,
        "valid_to": "2001-02-03",
        "observed_at": "2024-01-01T00:00:00+01:00",
        "source": "book",
        "namespace": "ns",
        "metadata": {"page": 3, "ok": True, "x": 0.5, "s": "v"},
    }
    assert accepted(json.dumps(content)).fact == Fact(
        text="t",
        questions=("q1", "q2"),
        answers=("a", "b"),
        slot=Slot(subject="s", relation="r"),
        valid_from=datetime(1999, 1, 1, tzinfo=UTC),
        valid_to=datetime(2001, 2, 3, tzinfo=UTC),
        observed_at=datetime(2023, 12, 31, 23, tzinfo=UTC),
        source="book",
        namespace="ns",
        metadata={"page": 3, "ok": True, "x": 0.5, "s": "v"},
    )


def test_loose_subject_and_relation_are_a_slot() -> None:
    assert accepted('{"text": "t", "subject": "s", "relation": "r"}').fact.slot == Slot(
        subject="s", relation="r"
    )


def test_null_means_not_given() -> None:
    content = dict.fromkeys(FACT_KEYS) | {"text": "t"}
    fact = accepted(json.dumps(content)).fact
    assert fact.model_dump(exclude={"observed_at"}) == Fact(text="t").model_dump(exclude={"observed_at"})


@pytest.mark.parametrize(
    "text", ["El gato duerme; ¿quién lo vio?", "东京是日本的首都。", "👩‍🚀 left", "a\u2028b"]
)
def test_other_languages_are_kept_word_for_word(text: str) -> None:
    assert accepted(json.dumps({"text": text}, ensure_ascii=False)).fact.text == text
    assert accepted(json.dumps({"text": text}, ensure_ascii=True)).fact.text == text


def test_plain_text_layout_takes_the_line_as_it_stands() -> None:
    results = parse("One fact.", "", '{"text": "not JSON here"}', layout=FactLayout.TEXT)
    assert [result.fact.text for result in results if isinstance(result, AcceptedLine)] == [
        "One fact.",
        '{"text": "not JSON here"}',
    ]
    assert [result.line for result in results] == [1, 3]


def test_blank_lines_are_skipped_but_counted() -> None:
    results = parse('{"text": "a"}', "", "   ", '{"text": "b"}', "")
    assert [result.line for result in results] == [1, 4]


def test_ten_thousand_equal_lines_are_one_fact() -> None:
    results = parse(*['{"text": "again"}'] * 10_000)
    assert len(results) == 10_000
    assert len({result.fact.id for result in results if isinstance(result, AcceptedLine)}) == 1


# ------------------------------------------------------------------------------------ what is mended


@pytest.mark.parametrize(
    ("line", "text", "change"),
    [
        (b'\xef\xbb\xbf{"text": "a"}', "a", "byte-order mark removed"),
        (b'{"text": "a"}\r', "a", "CRLF line ending read as LF"),
        (b'{"text": "a\x00b\x00"}', "ab", "2 NUL characters removed"),
        (rb'{"text": "a\u0000b"}', "ab", "text: 1 NUL character removed"),
        (rb'{"text": "a\ud800b"}', "a\ufffdb", "text: 1 lone surrogate replaced by U+FFFD"),
        (rb'{"text": "a\udc00\ud800"}', "a\ufffd\ufffd", "text: 2 lone surrogates replaced by U+FFFD"),
    ],
)
def test_mended_lines_are_kept_and_noted(line: bytes, text: str, change: str) -> None:
    result = accepted(line)
    assert result.fact.text == text
    assert result.changes == (change,)


def test_good_text_is_not_noted_as_changed() -> None:
    assert accepted(rb'{"text": "smile \ud83d\ude00"}').changes == ()
    assert accepted(rb'{"text": "smile \ud83d\ude00"}').fact.text == "smile 😀"


def test_mending_reaches_every_field() -> None:
    content = {
        "text": "t",
        "questions": ["q\x00"],
        "answers": ["a\x00"],
        "slot": {"subject": "s\x00", "relation": "r\x00"},
        "source": "s\x00",
        "namespace": "n\x00",
        "metadata": {"k\x00": "v\x00", "none": None},
    }
    result = accepted(json.dumps(content))
    assert "\\u0000" not in result.fact.model_dump_json()
    assert len(result.changes) == 8
    assert "metadata.none: null left out" in result.changes


@unhurried
@given(st.text(alphabet=st.characters()))
def test_clean_text_can_always_be_encoded_and_is_stable(text: str) -> None:
    cleaned, changes = clean_text(text)
    cleaned.encode("utf-8")
    assert "\x00" not in cleaned
    assert (cleaned == text) == (changes == ())
    assert clean_text(cleaned) == (cleaned, ())


# ---------------------------------------------------------------------------------- what is rejected


@pytest.mark.parametrize(
    ("line", "field", "part"),
    [
        ('{"text": ""}', "text", "is empty"),
        ('{"text": " \\u200b\\u0000"}', "text", "is empty"),
        ("{}", "text", "is missing"),
        ('{"text": null}', "text", "is missing"),
        ('{"text": 3}', "text", "not a number: put it in quotes"),
        ('{"text": ["a"]}', "text", "not a list"),
        ('{"text": true}', "text", "not a truth value"),
        ('{"txet": "x"}', "txet", "did you mean 'text'?"),
        ('{"text": "x", "Text": "y"}', "Text", "did you mean 'text'?"),
        ('{"text": "x", "zzz": 1}', "zzz", "put anything else under metadata"),
        ('{"text": "x"', None, "broken JSON at column 13"),
        ("{'text': 'x'}", None, "broken JSON at column 2"),
        ('{"text": "a\tb"}', None, "broken JSON at column 12: Invalid control character"),
        ("[1]", None, "expected an object"),
        ('"x"', None, "expected an object"),
        ("null", None, "expected an object"),
        ('{"text": "x", "text": "y"}', None, "'text' appears twice"),
        ("[" * 100_000, None, "nested too deeply"),
        (b'{"text": "caf\xe9"}', None, "byte 14 of the line is 0xE9"),
        (b"\xef\xbb\xbf" + b'{"text": "caf\xe9"}', None, "byte 17 of the line is 0xE9"),
        (b'{"text": "\xed\xa0\x80"}', None, "is not UTF-8"),
        ('{"text": "x", "question": "q"}', "answer", "at least one answer"),
        ('{"text": "x", "question": ["q"], "answer": "a"}', "question", "use 'questions'"),
        ('{"text": "x", "questions": "q", "answer": "a"}', "questions", "expected a list"),
        ('{"text": "x", "questions": ["q", ""], "answer": "a"}', "questions[1]", "is empty"),
        ('{"text": "x", "questions": ["q", 5], "answer": "a"}', "questions[1]", "not a number"),
        ('{"text": "x", "answer": "a", "answers": ["a"]}', "answers", "not both"),
        ('{"text": "x", "answer": 5}', "answer", "put it in quotes"),
        ('{"text": "x", "aliases": ["a"]}', "aliases", "need an 'answer'"),
        ('{"text": "x", "subject": "s"}', "relation", "both subject and relation"),
        ('{"text": "x", "relation": "s"}', "subject", "both subject and relation"),
        ('{"text": "x", "slot": {"subject": "s"}}', "slot.relation", "both"),
        ('{"text": "x", "slot": "s"}', "slot", "expected an object"),
        ('{"text": "x", "slot": {"subjct": "s"}}', "slot.subjct", "did you mean 'slot.subject'?"),
        ('{"text": "x", "slot": {"subject": "s", "relation": "r"}, "subject": "s"}', "subject", "not both"),
        ('{"text": "x", "valid_from": "soon"}', "valid_from", "ISO date"),
        ('{"text": "x", "valid_from": 12.5}', "valid_from", "not a number"),
        ('{"text": "x", "valid_to": true}', "valid_to", "not a truth value"),
        ('{"text": "x", "valid_from": 2020, "valid_to": 2019}', "valid_to", "lies before valid_from"),
        ('{"text": "x", "observed_at": "0001-01-01T00:00:00+05:00"}', "observed_at", "outside"),
        ('{"text": "x", "namespace": ""}', "namespace", "is empty"),
        ('{"text": "x", "metadata": []}', "metadata", "expected an object"),
        ('{"text": "x", "metadata": {"a": {"b": 1}}}', "metadata.a", "not an object"),
        ('{"text": "x", "metadata": {"a": [1]}}', "metadata.a", "not a list"),
        ('{"text": "x", "metadata": {"a": 1e999}}', "metadata.a", "not finite"),
        ('{"text": "x", "metadata": {"a": 9223372036854775808}}', "metadata.a", "too large"),
        ('{"text": "x", "metadata": {"a": ' + "9" * 5000 + "}}", None, "5000 digits"),
        ('{"text": "x", "metadata": {"a": NaN}}', None, "NaN is not a JSON number"),
    ],
)
def test_rejection_names_line_field_and_remedy(line: bytes | str, field: str | None, part: str) -> None:
    good = '{"text": "good"}'
    first, bad, last = parse(good, line, good)
    assert isinstance(first, AcceptedLine)
    assert isinstance(last, AcceptedLine)
    assert isinstance(bad, RejectedLine)
    assert (bad.line, bad.error.line, bad.error.field) == (2, 2, field)
    assert part in str(bad.error)
    assert str(bad.error).startswith("stream, line 2")
    assert bad.raw == (line.encode() if isinstance(line, str) else line)
    assert not bad.is_cut


def test_megabyte_text_is_rejected_with_the_limit() -> None:
    result = rejected(json.dumps({"text": "x" * 1_000_000}))
    assert "1000000 characters long and the limit is 8000 (setting max_fact_chars): split" in str(
        result.error
    )


def test_limit_counts_characters_not_bytes() -> None:
    assert accepted('{"text": "东京东京"}', max_fact_chars=4).fact.text == "东京东京"
    assert rejected('{"text": "东京东京x"}', max_fact_chars=4).error.field == "text"
    assert (
        rejected('{"text": "x", "question": "12345", "answer": "a"}', max_fact_chars=4).error.field
        == "question"
    )


def test_over_long_line_is_rejected_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_files, "MAX_LINE_BYTES", 2000)
    long_line = '{"text": "' + "x" * 9000 + '"}'
    first, cut, last = parse('{"text": "a"}', long_line, '{"text": "b"}')
    assert isinstance(first, AcceptedLine)
    assert isinstance(cut, RejectedLine)
    assert isinstance(last, AcceptedLine)
    assert (cut.is_cut, len(cut.raw), last.line) == (True, 1000, 3)
    assert accepted('{"text": "' + "x" * (2000 - 12) + '"}').line == 1
    assert rejected('{"text": "' + "x" * (2000 - 11) + '"}').is_cut


@unhurried
@given(st.binary(max_size=200))
def test_no_bytes_escape_as_another_error(raw: bytes) -> None:
    try:
        results = list(read_facts(io.BytesIO(raw)))
    except InputError:
        return
    assert all(isinstance(result, AcceptedLine | RejectedLine) for result in results)


@unhurried
@given(
    st.dictionaries(
        st.sampled_from(FACT_KEYS),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
            ),
            max_leaves=4,
        ),
    )
)
def test_no_object_escapes_as_another_error(content: dict[str, Any]) -> None:
    try:
        fact = fact_from_mapping(content).fact
    except InputError:
        return
    assert Fact.model_validate_json(fact.model_dump_json()) == fact


def test_mapping_from_elsewhere_is_named_without_file() -> None:
    with pytest.raises(InputError, match=r"^field 'metadata.x': the number"):
        fact_from_mapping({"text": "t", "metadata": {"x": math.nan}})


# --------------------------------------------------------------------------------------------- files


def test_path_stream_and_standard_input_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b'{"text": "a", "observed_at": 2020}\n{"text": "b", "observed_at": 2020}\n'
    path = tmp_path / "facts.JSONL"
    path.write_bytes(content)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
    from_stream = list(read_facts(io.BytesIO(content)))
    assert list(read_facts(path)) == from_stream
    assert list(read_facts(str(path))) == from_stream
    assert list(read_facts("-")) == from_stream
    assert len(from_stream) == 2


def test_text_file_by_suffix(tmp_path: Path) -> None:
    path = tmp_path / "facts.txt"
    path.write_bytes(b"\xef\xbb\xbfEl gato.\r\n\r\nEl perro.\r\n")
    results = [result for result in read_facts(path) if isinstance(result, AcceptedLine)]
    assert [(result.line, result.fact.text) for result in results] == [(1, "El gato."), (3, "El perro.")]


@pytest.mark.parametrize("name", ["facts.csv", "facts.json", "facts", "facts.jsonl.gz"])
def test_other_suffixes_are_refused_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match=r"known are \.jsonl, \.ndjson and \.txt"):
        read_facts(tmp_path / name)


def test_missing_file_and_folder_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_facts(tmp_path / "none.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        read_facts(tmp_path / "folder.jsonl")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ('{"text": "a"}\n'.encode("utf-16"), "UTF-16"),
        ('{"text": "a"}\n'.encode("utf-16-be"), "UTF-16"),
        ('{"text": "a"}\n'.encode("utf-32"), "UTF-32"),
        (b"\x1f\x8b\x08\x00\x00", "gzip"),
        (b"PK\x03\x04rest", "zip"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", None),
        (b"\xcf\xfa\xed\xfe\x07\x00\x00\x01\x03", "binary"),
    ],
)
def test_files_that_are_not_text(tmp_path: Path, content: bytes, kind: str | None) -> None:
    path = tmp_path / "facts.jsonl"
    path.write_bytes(content)
    if kind is None:  # its first line is merely not UTF-8; each line is rejected by itself
        assert all(isinstance(result, RejectedLine) for result in read_facts(path))
        return
    with pytest.raises(InputError, match=f"{kind}.*not UTF-8 text") as caught:
        list(read_facts(path))
    assert str(path) in str(caught.value)


def test_empty_file_gives_nothing() -> None:
    assert list(read_facts(io.BytesIO(b""))) == []


def test_memory_stays_constant_over_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    line = json.dumps({"text": "x" * 2000}) + "\n"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(line for _ in range(5000))
    tracemalloc.start()
    try:
        count = sum(isinstance(result, AcceptedLine) for result in read_facts(path))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 5000
    assert peak_bytes < 2_000_000 < path.stat().st_size


# ------------------------------------------------------------------------------------------- rejects


def write_rejects(path: Path, results: list[ParsedLine]) -> int:
    with RejectsFile(path) as rejects:
        for result in results:
            if isinstance(result, RejectedLine):
                rejects.write(result)
        return rejects.count


def test_no_rejects_no_file(tmp_path: Path) -> None:
    assert write_rejects(tmp_path / "rejects.jsonl", parse('{"text": "a"}')) == 0
    assert not (tmp_path / "rejects.jsonl").exists()


def test_rejects_keep_the_bytes_and_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rejects.jsonl"
    broken, foreign = '{"text": "Ñandú"'.encode(), b'{"text": "caf\xe9"}'
    assert write_rejects(path, parse(broken, foreign)) == 2
    first, second = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    assert first["original"].encode("utf-8") == broken
    assert (first["line"], first["field"], first["layout"]) == (1, None, "jsonl")
    assert "broken JSON at column 17" in first["error"]
    assert second["original_base64"] == "eyJ0ZXh0IjogImNhZukifQ=="


def test_rejects_can_be_mended_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "rejects.jsonl"
    results = parse('{"text": "a"', '{"text": 5}') + parse("x" * 9, layout=FactLayout.TEXT, max_fact_chars=8)
    assert write_rejects(path, results) == 3
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    records[0]["original"] += "}"
    records[2]["original"] = "x" * 8
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")

    again = list(read_facts(path, max_fact_chars=8))
    facts = [result.fact.text for result in again if isinstance(result, AcceptedLine)]
    assert facts == ["a", "x" * 8]
    (still_bad,) = (result for result in again if isinstance(result, RejectedLine))
    assert still_bad.raw == b'{"text": 5}'  # the original, not the record around it
    assert (still_bad.line, still_bad.error.field) == (2, "text")


def test_unmended_rejects_are_rejected_again(tmp_path: Path) -> None:
    path = tmp_path / "rejects.jsonl"
    cut = RejectedLine(1, b"start of a long line", InputError("too long"), FactLayout.TEXT, is_cut=True)
    write_rejects(path, [*parse(b'{"text": "caf\xe9"}'), cut])
    results = list(read_facts(path))
    reasons = [str(result.error) for result in results if isinstance(result, RejectedLine)]
    assert len(reasons) == 2
    assert "replace original_base64" in reasons[0]
    assert "holds only the start" in reasons[1]


def test_examples_in_docstrings_hold() -> None:
    result = doctest.testmod(fact_parsing)
    assert result.attempted >= 1
    assert result.failed == 0
