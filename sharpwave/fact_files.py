"""Files of facts: reading JSON Lines and plain text line by line, and writing what was rejected.

A bad line never stops the good ones; a file that is not readable text at all does. Memory stays constant
however long the file is.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Self

from sharpwave.errors import InputError
from sharpwave.fact_parsing import DEFAULT_MAX_FACT_CHARS, clean_text, fact_from_mapping

if TYPE_CHECKING:
    from sharpwave.records import Fact

MAX_LINE_BYTES = 16 * 2**20
"""Longer lines are rejected unread; this bounds the memory that a file can take."""

_KEPT_OF_OVERLONG_LINE_BYTES = 1000
_MOST_DIGITS = 100
_UTF8_MARK = b"\xef\xbb\xbf"
_FOREIGN_STARTS = (
    (b"\xff\xfe\x00\x00", "UTF-32 text"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "a zip archive or spreadsheet"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PAR1", "Parquet"),
    (b"SQLite format 3", "an SQLite database"),
)


class FactLayout(StrEnum):
    """How a file's lines are read."""

    JSON_LINES = "jsonl"  # one object per line
    TEXT = "text"  # the line is the fact


_LAYOUT_OF_SUFFIX = {
    ".jsonl": FactLayout.JSON_LINES,
    ".ndjson": FactLayout.JSON_LINES,
    ".txt": FactLayout.TEXT,
}


@dataclass(frozen=True)
class AcceptedLine:
    """A line that became a fact; `changes` says what was mended on the way."""

    line: int
    fact: Fact
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RejectedLine:
    """A line that did not; `raw` holds its bytes without the line ending, cut only if `is_cut`."""

    line: int
    raw: bytes
    error: InputError
    layout: FactLayout
    is_cut: bool = False


ParsedLine = AcceptedLine | RejectedLine


def read_facts(
    source: Path | str | BinaryIO,
    *,
    namespace: str = "default",
    max_fact_chars: int = DEFAULT_MAX_FACT_CHARS,
    layout: FactLayout | None = None,
) -> Iterator[ParsedLine]:
    """Read facts line by line; blank lines are skipped.

    Args:
        source: a `.jsonl`, `.ndjson` or `.txt` file, "-" for standard input, or an open binary stream. What
            `RejectsFile` wrote can be read too, after its `original` lines have been mended.
        namespace: where facts belong that do not name their own.
        max_fact_chars: longest text, question or answer accepted, in characters.
        layout: how lines are read; by default the suffix decides, and a stream is JSON Lines.

    Raises:
        InputError: no such file, not a file, another suffix, or not UTF-8 text at all. Raised at once for the
            first three, at the first line for the last. Single bad lines are yielded, not raised.
    """
    if isinstance(source, str | Path) and str(source) != "-":
        path = Path(source).expanduser()
        reader = _LineReader(str(source), layout or _layout_of(path), namespace, max_fact_chars)
        _require_file(path)
        return reader.lines_of(path)
    name, stream = (
        ("standard input", sys.stdin.buffer) if isinstance(source, str | Path) else ("stream", source)
    )
    return _LineReader(name, layout or FactLayout.JSON_LINES, namespace, max_fact_chars).lines(stream)


class RejectsFile:
    """Writes rejected lines as JSON Lines with line, error, field, layout and the original.

    A context manager; the file is made at the first line. Bytes are kept: under `original` as text, or
    under `original_base64` if they are not UTF-8. Mend `original` and ingest the file again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._open_files = ExitStack()
        self._file: io.TextIOWrapper | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open_files.close()

    def write(self, rejected: RejectedLine) -> None:
        """Add one rejected line."""
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open_files.enter_context(self.path.open("w", encoding="utf-8", newline="\n"))
        self._file.write(json.dumps(_reject_record(rejected), ensure_ascii=False) + "\n")
        self.count += 1


def _reject_record(rejected: RejectedLine) -> dict[str, Any]:
    record: dict[str, Any] = {
        "line": rejected.line,
        "error": clean_text(str(rejected.error))[0],
        "field": rejected.error.field,
        "layout": rejected.layout.value,
    }
    try:
        record["original"] = rejected.raw.decode("utf-8")
    except UnicodeDecodeError:
        record["original_base64"] = base64.b64encode(rejected.raw).decode("ascii")
    if rejected.is_cut:
        record["is_cut"] = True
    return record


def _layout_of(path: Path) -> FactLayout:
    suffix = path.suffix.lower()
    if suffix in _LAYOUT_OF_SUFFIX:
        return _LAYOUT_OF_SUFFIX[suffix]
    advice = 'write one {"text": ...} object per line into a .jsonl file'
    if suffix == ".json":
        advice = "write one object per line and name the file .jsonl"
    raise InputError(
        f"cannot tell how to read '{suffix or path.name}'; known are .jsonl, .ndjson and .txt: {advice}",
        file=str(path),
    )


def _require_file(path: Path) -> None:
    if not path.exists():
        raise InputError("there is no such file", file=str(path))
    if path.is_dir():
        raise InputError("is a folder; name a file", file=str(path))


class _LineReader:
    """Turns the lines of one stream into accepted and rejected ones."""

    def __init__(self, name: str, layout: FactLayout, namespace: str, max_fact_chars: int) -> None:
        self.name = name
        self.layout = layout
        self.namespace = namespace
        self.max_fact_chars = max_fact_chars

    def lines_of(self, path: Path) -> Iterator[ParsedLine]:
        try:
            with path.open("rb") as stream:
                yield from self.lines(stream)
        except OSError as error:
            raise InputError(f"cannot be read ({error.strerror})", file=self.name) from error

    def lines(self, stream: BinaryIO) -> Iterator[ParsedLine]:
        for number, raw, is_cut in _raw_lines(stream):
            if number == 1:
                self._refuse_foreign(raw)
            if raw.strip():
                yield self._parse(number, raw, is_cut)

    def _refuse_foreign(self, start: bytes) -> None:
        """Stop at a file whose first line shows that none of it is UTF-8 text."""
        kind = next((kind for mark, kind in _FOREIGN_STARTS if start.startswith(mark)), None)
        visible_count = len(start) - start.count(b"\x00")
        if kind is None and len(start) > 1.5 * visible_count:
            kind = "UTF-16 text or a binary file"
        if kind is None and not _is_utf8(start) and any(byte < 9 for byte in start):
            kind = "a binary file"
        if kind is not None:
            raise InputError(f"is {kind}, not UTF-8 text; convert it first", file=self.name)

    def _parse(self, number: int, raw: bytes, is_cut: bool) -> ParsedLine:
        layout = self.layout
        changes: list[str] = []
        try:
            if is_cut:
                self._fail(number, f"is longer than {MAX_LINE_BYTES} bytes; split it into several facts")
            content = self._content(number, raw, layout, changes)
            if _is_reject_record(content):
                raw, layout = self._original_of(number, content)
                content = self._content(number, raw, layout, changes)
            clean = fact_from_mapping(
                content,
                namespace=self.namespace,
                max_fact_chars=self.max_fact_chars,
                file=self.name,
                line=number,
            )
        except InputError as error:
            return RejectedLine(number, raw, error, layout, is_cut)
        return AcceptedLine(number, clean.fact, (*changes, *clean.changes))

    def _content(self, number: int, raw: bytes, layout: FactLayout, changes: list[str]) -> dict[str, Any]:
        text = self._decode(number, raw, changes)
        if layout is FactLayout.TEXT:
            return {"text": text}
        text, mended = clean_text(text)
        changes += mended
        return self._parse_json(number, text)

    def _decode(self, number: int, raw: bytes, changes: list[str]) -> str:
        """Return the line as text without byte-order mark and CR; both are noted."""
        body = raw.removeprefix(_UTF8_MARK)
        if body != raw:
            changes.append("byte-order mark removed")
        if body.endswith(b"\r"):
            body = body.removesuffix(b"\r")
            changes.append("CRLF line ending read as LF")
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError as error:
            place = error.start + 1 + (len(_UTF8_MARK) if raw.startswith(_UTF8_MARK) else 0)
            self._fail(
                number,
                f"is not UTF-8: byte {place} of the line is 0x{body[error.start]:02X}; save as UTF-8",
            )

    def _parse_json(self, number: int, text: str) -> dict[str, Any]:
        try:
            content = json.loads(
                text,
                object_pairs_hook=_without_repeats,
                parse_constant=_refuse_constant,
                parse_int=_read_integer,
            )
        except json.JSONDecodeError as error:
            self._fail(number, f"broken JSON at column {error.colno}: {error.msg}")
        except RecursionError:
            self._fail(number, "the JSON is nested too deeply for a fact")
        except ValueError as error:
            self._fail(number, f"broken JSON: {error}")
        if not isinstance(content, dict):
            self._fail(number, 'expected an object such as {"text": "..."}')
        return content

    def _original_of(self, number: int, record: dict[str, Any]) -> tuple[bytes, FactLayout]:
        """Take the mended line out of a record that `RejectsFile` wrote."""
        original = record.get("original")
        if not isinstance(original, str):
            self._fail(number, "replace original_base64 by the mended line as text", "original")
        if record.get("is_cut"):
            self._fail(number, "holds only the start of the line; mend it and take out is_cut", "original")
        layout = FactLayout.TEXT if record["layout"] == FactLayout.TEXT else FactLayout.JSON_LINES
        return original.encode("utf-8", errors="surrogatepass"), layout

    def _fail(self, number: int, message: str, field: str | None = None) -> NoReturn:
        raise InputError(message, file=self.name, line=number, field=field)


def _raw_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes, bool]]:
    """Yield number, bytes without the newline, and whether only the start of an over-long line is given."""
    number = 0
    while chunk := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if is_cut := len(chunk) > MAX_LINE_BYTES and not chunk.endswith(b"\n"):
            rest = chunk
            while rest and not rest.endswith(b"\n"):
                rest = stream.readline(MAX_LINE_BYTES)
            chunk = chunk[:_KEPT_OF_OVERLONG_LINE_BYTES]
        yield number, chunk.removesuffix(b"\n"), is_cut


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_reject_record(content: dict[str, Any]) -> bool:
    return {"line", "error", "layout"} <= content.keys() and (
        "original" in content or "original_base64" in content
    )


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated!r} appears twice")
    return content


def _read_integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits is too long; give it as text")
    return int(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
