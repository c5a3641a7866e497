"""The records of a set's file, numbered, and their fields with an address for every complaint.

A record is a line of a TSV or JSON Lines file or an element of a JSON array. One that cannot be read is given as a
`BrokenRecord`; only a file that cannot be read at all is an error.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharpwave.errors import InputError

_NO_TEXT = re.compile("[\ud800-\udfff\x00]")
_NO_TEXT_ADVICE = (
    "holds a byte that is not UTF-8, a lone surrogate or a NUL character; save the file as UTF-8"
)


@dataclass(frozen=True)
class SourceRecord:
    """One record: its number (of the line in files of lines, else its place in the array, from 1) and content."""

    number: int
    content: dict[str, Any]

    def value(self, *path: str | int) -> Any:
        """Return what stands under keys and places; None where the last key is missing or null.

        Raises:
            InputError: There is nothing on the way to it.
        """
        value: Any = self.content
        for depth, step in enumerate(path):
            expected, wanted = (dict, "an object") if isinstance(step, str) else (list, "a list")
            if value is None:
                raise InputError("is missing", field=field_name(path[:depth]))
            if not isinstance(value, expected):
                raise InputError(f"expected {wanted}", field=field_name(path[:depth]))
            place: Any = step
            has_it = step in value if isinstance(step, str) else step < len(value)
            value = value[place] if has_it else None
        return value

    def text(self, *path: str | int) -> str:
        """Return visible text; a number counts as its digits.

        Raises:
            InputError: It is missing, of another type or empty.
        """
        value = self.value(*path)
        if value is None:
            raise InputError("is missing; the record cannot be used without it", field=field_name(path))
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise InputError("expected text", field=field_name(path))
        if _NO_TEXT.search(str(value)):
            raise InputError(_NO_TEXT_ADVICE, field=field_name(path))
        if not (text := " ".join(str(value).split())):
            raise InputError("is empty; give it visible text", field=field_name(path))
        return text

    def items(self, *path: str | int) -> list[Any]:
        """Return a list; an empty one where it is missing. Raises InputError on another type."""
        value = self.value(*path)
        if value is not None and not isinstance(value, list):
            raise InputError("expected a list", field=field_name(path))
        return value or []

    def filled(self, *path: str | int) -> list[Any]:
        """Return a list with something in it. Raises InputError where there is none."""
        if not (found := self.items(*path)):
            raise InputError(
                "is missing or empty; the record says nothing without it", field=field_name(path)
            )
        return found

    def texts(self, *path: str | int) -> list[str]:
        """Return a list of texts; an empty one where it is missing. Raises InputError on other types."""
        return [self.text(*path, place) for place in range(len(self.items(*path)))]

    def keys(self, *path: str | int) -> list[str]:
        """Return the keys of an object. Raises InputError where there is none."""
        value = self.value(*path)
        if not isinstance(value, dict) or not value:
            raise InputError("is missing; expected an object with something in it", field=field_name(path))
        return list(value)


@dataclass(frozen=True)
class BrokenRecord:
    """A record that is no object at all; `original` is as much of it as there is."""

    number: int
    reason: str
    original: str


Records = Iterable[SourceRecord | BrokenRecord]


def field_name(path: Iterable[str | int]) -> str:
    """Write a path as one name.

    >>> field_name(["qa", 3, "answer"])
    'qa[3].answer'
    """
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def read_records(path: Path) -> Iterator[SourceRecord | BrokenRecord]:
    """Yield the records of a `.tsv`, `.json`, `.jsonl` or `.ndjson` file; of a JSON file with one object, that.

    Some sets name files of JSON Lines `.json`; those are recognised by their second line.

    Raises:
        InputError: No such file, another suffix, or JSON that is broken as a whole.
    """
    text = _file_text(path)
    suffix = path.suffix.lower()
    if suffix == ".tsv":
        return _of_tsv(text)
    if suffix in {".jsonl", ".ndjson"}:
        return _of_lines(text)
    if suffix == ".json":
        return _of_json(text, path)
    raise InputError(
        f"cannot tell how to read '{suffix or path.name}'; known are .tsv, .json, .jsonl and .ndjson",
        file=str(path),
    )


def numbered(rows: Iterable[Any]) -> Iterator[SourceRecord | BrokenRecord]:
    """Number rows from 1; a row that is no object is given as broken."""
    return (_record(number, row) for number, row in enumerate(rows, start=1))


def _file_text(path: Path) -> str:
    # Bytes that are not UTF-8 become lone surrogates, so that they cost their own record and no other.
    try:
        return path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", file=str(path)) from error


def _record(number: int, content: Any) -> SourceRecord | BrokenRecord:
    if isinstance(content, dict):
        return SourceRecord(number, content)
    return BrokenRecord(number, "expected an object", json.dumps(content, ensure_ascii=False, default=str))


def _of_tsv(text: str) -> Iterator[SourceRecord | BrokenRecord]:
    # Line by line, so that an open quotation mark costs its own line and no other.
    head: list[str] | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            (cells,) = csv.reader([line.removesuffix("\r")], delimiter="\t", strict=True)
        except csv.Error as error:
            yield BrokenRecord(number, f"broken TSV: {error}", line)
            continue
        if head is None:
            head = cells
        elif len(cells) != len(head):
            yield BrokenRecord(number, f"has {len(cells)} columns and the head has {len(head)}", line)
        else:
            yield _record(number, dict(zip(head, cells, strict=True)))


def _of_lines(text: str) -> Iterator[SourceRecord | BrokenRecord]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield _record(number, json.loads(line))
        except (ValueError, RecursionError) as error:
            yield BrokenRecord(number, f"broken JSON: {error}", line)


def _of_json(text: str, path: Path) -> Iterator[SourceRecord | BrokenRecord]:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        if _is_object(text.lstrip().partition("\n")[0]):
            return _of_lines(text)
        message = f"broken JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        raise InputError(message, file=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"broken JSON: {error}", file=str(path)) from error
    return numbered(content if isinstance(content, list) else [content])


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
