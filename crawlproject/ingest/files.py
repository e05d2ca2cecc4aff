"""Files of seeds: TSV and CSV with a header, JSON lines, plain lists; each also gzipped, or from stdin."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self, cast

from crawlproject.errors import BadSeed
from crawlproject.frontier.seeds import seed_of
from crawlproject.texts import printable, without_userinfo

LONGEST_LINE = 1_048_576  # characters, and those of a row in several lines; bytes of a message in a topic
TOO_LONG = "longer than 1 MiB"

_CHUNK = 65_536  # characters of a line that is too long
_COLUMNS = ("url", "uuid", "identifier", "source", "priority", "again", "depth", "scope")
_WHOLE = re.compile(r"-?\d{1,18}")
_SCHEME = re.compile(r"[^/?#]*://")
# What a URL without a scheme begins with: a name with a dot in it, `localhost`, or an IPv6 address
_HOST = re.compile(r"[^/?#:]*[^/?#:.]\.[^/?#:.]|localhost(?![^/?#:])|\[")


class _Tabbed(csv.excel_tab):
    """Tab-separated values as databases write them: a quotation mark is a character like others."""

    quoting = csv.QUOTE_NONE


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file: the `seed` for the seed list, or the reason why it cannot be one."""

    number: int
    seed: str | None
    reason: str = ""


class _Counted(io.RawIOBase):
    """A binary stream that reports how many bytes are read from it."""

    def __init__(self, stream: IO[bytes], report: Callable[[int], object]) -> None:
        self._stream, self._report = stream, report

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into `buffer`, and report."""
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self._report(len(data))
        return len(data)


def read(name: str, report: Callable[[int], object], scheme: str = "http") -> Iterator[Line]:
    """Yield the lines of the file `name` ("-" is stdin) that are not blank; `report` is told of the bytes read.

    A URL without a scheme gets `scheme`.
    One that is longer than 1 MiB is not kept in memory, however long it is, and has no seed.

    Raises:
        OSError: it cannot be read, or is gzip data that is damaged or cut short.

    """
    with _opened(name) as stream:
        counted = io.BufferedReader(_Counted(stream, report), 1 << 14)  # no more: the reports tell what is left
        # By its first two bytes, not by its name: stdin has none.
        plain: IO[bytes] = counted
        if counted.peek(2)[:2] == b"\x1f\x8b":
            plain = cast("IO[bytes]", gzip.GzipFile(fileobj=counted))
        text = io.TextIOWrapper(plain, encoding="utf-8-sig", errors="surrogateescape", newline="")
        try:
            yield from _lines(_bounded(text), scheme)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise OSError(f"{name} is damaged or cut short: {error}") from None


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
    else:
        with Path(name).open("rb") as stream:
            yield stream


def _bounded(text: io.TextIOBase) -> Iterator[str | None]:
    """Yield the lines of a text; None for one that is longer than `LONGEST_LINE`, which is not kept in memory."""
    cut_after_cr = False
    while line := text.readline(LONGEST_LINE + 1):
        if cut_after_cr and line == "\n":  # the rest of a CRLF
            cut_after_cr = False
            continue
        is_too_long = len(line) > LONGEST_LINE
        while is_too_long and line and not line.endswith(("\n", "\r")):
            line = text.readline(_CHUNK)
        cut_after_cr = is_too_long and line.endswith("\r")
        yield None if is_too_long else line


def _lines(lines: Iterator[str | None], scheme: str) -> Iterator[Line]:
    number, first = 1, next(lines, "")
    while first and not first.strip():
        number, first = number + 1, next(lines, "")
    for dialect in (_Tabbed, csv.excel):
        header = _header(first or "", dialect)
        if first and "url" in header and not first.lstrip().startswith("{"):
            yield from _rows(header, dialect, lines, number, scheme)
            return
    for at, line in enumerate(itertools.chain([first], lines), number):
        if line is None:
            yield Line(at, None, TOO_LONG)
        elif line.strip():
            yield _plain(at, line, scheme)


def _header(line: str, dialect: type[csv.Dialect]) -> list[str]:
    try:
        return [column.strip().lower() for column in next(csv.reader([line], dialect), [])]
    except csv.Error:
        return []


class _RowLines:
    """The lines that a csv.reader reads, of a row no more than `LONGEST_LINE` characters."""

    def __init__(self, lines: Iterator[str | None]) -> None:
        self.lines = lines
        self.count = 0
        self._room = 0

    def begin_row(self) -> None:
        self._room = LONGEST_LINE

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = next(self.lines)
        self.count += 1
        self._room -= 0 if line is None else len(line)
        if line is None or self._room < 0:
            raise csv.Error(TOO_LONG)
        return line


def _rows(
    header: list[str], dialect: type[csv.Dialect], lines: Iterator[str | None], before: int, scheme: str
) -> Iterator[Line]:
    source = _RowLines(lines)
    reader = csv.reader(source, dialect)
    while True:
        number = before + source.count + 1  # of the row's first line, should a quoted cell have several
        source.begin_row()
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Line(number, None, str(error))
            continue
        if not any(cell.strip() for cell in row):
            continue
        if len(row) > len(header):
            yield Line(number, None, f"{len(row)} columns, more than the header's {len(header)}")
            continue
        data: dict[str, Any] = {
            name: cell.strip()
            for name, cell in zip(header, row, strict=False)
            if name in _COLUMNS and cell.strip()
        }
        yield _line(number, _typed(data), scheme)


def _typed(data: dict[str, Any]) -> dict[str, Any]:
    """Give the columns that are not text their type; `seed_of` refuses what does not fit."""
    for name in ("priority", "depth"):
        if _WHOLE.fullmatch(data.get(name, "")):
            data[name] = int(data[name])
    if data.get("again", "").lower() in {"true", "false"}:
        data["again"] = data["again"].lower() == "true"
    return data


def _plain(number: int, line: str, scheme: str) -> Line:
    text = line.strip()
    if not text.startswith(("{", "[", '"')):
        return _line(number, {"url": text}, scheme)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Line(number, None, f"not JSON: {error}")
    if not isinstance(data, dict):
        return Line(number, None, "JSON, but not an object with a url")
    return _line(number, {name: value for name, value in data.items() if name in _COLUMNS}, scheme)


def _line(number: int, data: dict[str, Any], scheme: str) -> Line:
    url = data.get("url")
    if isinstance(url, str) and (url := url.strip()) and not _SCHEME.match(url):
        url = url.removeprefix("//")
        if not _HOST.match(url):
            shown = printable(without_userinfo(url), 80)
            return Line(number, None, f"not a URL: {shown!r} begins neither with http:// nor with a host name")
        data["url"] = f"{scheme}://{url}"
    try:
        seed_of(data)
    except BadSeed as error:
        return Line(number, None, str(error))
    if len(data) == 1:
        return Line(number, data["url"].strip())
    if data.get("uuid") not in {None, ""}:
        data.pop("identifier", None)  # which the uuid takes precedence over, and which nothing has checked
    return Line(number, json.dumps(data, ensure_ascii=False, separators=(",", ":")))
