"""Files of seeds: Parquet; TSV and CSV with a header, JSON lines, plain lists, also gzipped, or from stdin."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, Self, cast

from crawlproject.errors import BadInput
from crawlproject.ingest import parquet
from crawlproject.ingest.seed_files import STDIN, SeedFile
from crawlproject.ingest.seed_rows import TOO_LONG, Columns, Line, line_of
from crawlproject.sources.parquet import MAGIC

LONGEST_LINE = 1_048_576  # characters, and those of a row in several lines; bytes of a message in a topic

_CHUNK = 65_536  # characters of a line that is too long
_BY_NAME = Columns()


class _Tabbed(csv.excel_tab):
    """Tab-separated values as databases write them: a quotation mark is a character like others."""

    quoting = csv.QUOTE_NONE


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


def read(
    file: SeedFile,
    report: Callable[[int], object],
    scheme: str = "http",
    columns: Columns = _BY_NAME,
    after: int = 0,
) -> Iterator[Line]:
    """Yield the lines of a file that are not blank, or its rows; `report` is told of the bytes read.

    Those up to number `after` are left out. A URL without a scheme gets `scheme`.
    A line that is longer than 1 MiB is not kept in memory, however long it is, and has no seed.

    Raises:
        BadInput: it lacks one of `columns`, or is Parquet and cannot be read here.
        OSError: it cannot be read, or is damaged or cut short.

    """
    with _text_of(file, report) as text:
        if text is not None:
            yield from _Texts(file.name, scheme, columns, after).lines(_bounded(text))
            return
    if file.name == STDIN:
        raise BadInput("-: Parquet cannot be read from stdin, only from a file")
    yield from parquet.read_rows(file, report, scheme, columns, after)


def columns_of(file: SeedFile) -> dict[str, str]:
    """Return the columns of a table, and of which of `parquet.KINDS` the values of each are.

    Of a text these are what its first line would name, with texts: nothing tells that from a URL with commas in
    it. Of JSON lines these are the keys of the first object.

    Raises:
        BadInput, OSError: as `read`.

    """
    with _text_of(file, lambda _: None) as text:
        if text is not None:
            first = next((line for line in _bounded(text) if line is None or line.strip()), "") or ""
            with suppress(ValueError, RecursionError):
                if isinstance(found := json.loads(first), dict):
                    return {str(name): "json" for name in found}
            tabbed, by_commas = _header(first, _Tabbed), _header(first, csv.excel)
            return dict.fromkeys(tabbed if len(tabbed) > len(by_commas) else by_commas, "string")
    return parquet.columns_of(file)


@contextmanager
def _text_of(file: SeedFile, report: Callable[[int], object]) -> Iterator[io.TextIOBase | None]:
    """Open a file as text; None if it is Parquet.

    Raises:
        BadInput: it is not, but its name says so.
        OSError: it cannot be read, or is damaged or cut short.

    """
    with file.opened() as stream:
        counted = io.BufferedReader(_Counted(stream, report), 1 << 14)  # no more: the reports tell what is left
        # By its first bytes, not by its name: stdin has none.
        begins = counted.peek(4)
        if begins.startswith(MAGIC):
            yield None
            return
        if file.name.lower().endswith(".parquet"):
            raise BadInput(f"{file.name} is no Parquet file: rename it, or make it again")
        plain: IO[bytes] = counted
        if begins.startswith(b"\x1f\x8b"):
            plain = cast("IO[bytes]", gzip.GzipFile(fileobj=counted))
        try:
            yield io.TextIOWrapper(plain, encoding="utf-8-sig", errors="surrogateescape", newline="")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise OSError(f"{file.name} is damaged or cut short: {error}") from None


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


class _Texts:
    """The lines of a text, behind the one with the number `after`."""

    def __init__(self, name: str, scheme: str, columns: Columns, after: int) -> None:
        self.name, self.scheme, self.columns, self.after = name, scheme, columns, after

    def lines(self, lines: Iterator[str | None]) -> Iterator[Line]:
        """Yield them, as rows of a table if the first one is its header."""
        number, first = 1, next(lines, "")
        while first and not first.strip():
            number, first = number + 1, next(lines, "")
        is_json = first is not None and first.lstrip().startswith("{")
        for dialect in (_Tabbed, csv.excel):
            header = _header(first or "", dialect)
            if first and not is_json and self.columns.has_urls(header):
                yield from self._rows(header, dialect, lines, number)
                return
        if first and not is_json and self.columns.are_named:
            self.columns.layout(self.name, max((_header(first, form) for form in (_Tabbed, csv.excel)), key=len))
        for at, line in enumerate(itertools.chain([first], lines), number):
            if at <= self.after:
                continue
            if line is None:
                yield Line(at, None, TOO_LONG)
            elif line.strip():
                yield self._plain(at, line)

    def _rows(
        self, header: list[str], dialect: type[csv.Dialect], lines: Iterator[str | None], before: int
    ) -> Iterator[Line]:
        layout = self.columns.layout(self.name, header)
        places = [(name, header.index(name)) for name in layout.read]
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
                if number > self.after:
                    yield Line(number, None, str(error))
                continue
            if number <= self.after or not any(cell.strip() for cell in row):
                continue
            if len(row) > len(header):
                yield Line(number, None, f"{len(row)} columns, more than the header's {len(header)}")
                continue
            cells = {name: row[place].strip() for name, place in places if place < len(row)}
            yield line_of(number, layout.seed_in(cells), self.scheme, self.columns)

    def _plain(self, number: int, line: str) -> Line:
        text = line.strip()
        if not text.startswith(("{", "[", '"')):
            return line_of(number, {"url": text}, self.scheme, self.columns)
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            return Line(number, None, f"not JSON: {error}")
        if not isinstance(data, dict):
            return Line(number, None, "JSON, but not an object with a url")
        return line_of(number, self.columns.of_object(data), self.scheme, self.columns)


def _header(line: str, dialect: type[csv.Dialect]) -> list[str]:
    try:
        return [column.strip() for column in next(csv.reader([line], dialect), [])]
    except csv.Error:
        return []
