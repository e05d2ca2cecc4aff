"""Parquet files of seeds, read a batch at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import date, time
from typing import Any

from crawlproject.ingest.seed_files import SeedFile, needs_pyarrow
from crawlproject.ingest.seed_rows import TOO_LONG, Columns, Layout, Line, line_of
from crawlproject.sources.parquet import in_bounds

# A batch has as many rows as have `_BATCH` bytes on the average of their row group, and `_ROWS` at most, as a file
# has repeated values but once. A page of the file is read as a whole.
_ROWS = 256
_BATCH = 16 * 2**20
_LONGEST_ROW = 2**20  # bytes, of the columns that are read
_NO_TEXT = "a value is not UTF-8"
_BUFFER = 2**20  # bytes of a column that are read at a time, instead of all that a row group has of it


KINDS = ("string", "int64", "double", "bool", "json")  # of values; "json" is all that is none of the others


def columns_of(file: SeedFile) -> dict[str, str]:
    """Return the columns of a Parquet file, and of which of `KINDS` the values of each are.

    Raises:
        BadInput: pyarrow is not installed.
        OSError: it cannot be read, or is damaged.

    """
    with needs_pyarrow(file.name):
        from pyarrow import ArrowException, types
        from pyarrow.parquet import read_schema

    def kind_of(one: Any) -> str:
        of = one.value_type if types.is_dictionary(one) else one
        texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
        if any(is_one(of) for is_one in texts):
            return "string"
        if types.is_integer(of) and of != "uint64":
            return "int64"
        return "double" if types.is_floating(of) else "bool" if types.is_boolean(of) else "json"

    try:
        with file.opened_at_random() as stream:
            return {field.name: kind_of(field.type) for field in read_schema(stream)}
    except (ArrowException, MemoryError, OSError) as error:
        raise OSError(_DAMAGED.format(file.name, f"{error!s:.300}")) from None


_DAMAGED = "{} cannot be read, or is damaged: {}"


def read_rows(
    file: SeedFile, report: Callable[[int], object], scheme: str, columns: Columns, after: int
) -> Iterator[Line]:
    """Yield the rows of a Parquet file behind the first `after`; `report` is told of bytes, together its size.

    Raises:
        BadInput: it lacks a column, or pyarrow is not installed.
        OSError: it cannot be read, is damaged, or takes too much memory.

    """
    with needs_pyarrow(file.name):
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

    try:
        with file.opened_at_random() as stream:
            # Without pre-buffering, and with a buffer for each column, memory does not grow with the row groups.
            table = ParquetFile(stream, pre_buffer=False, buffer_size=_BUFFER)
            yield from _rows(file, table, report, scheme, columns, after)
    except (ArrowException, MemoryError, OSError) as error:
        raise OSError(_DAMAGED.format(file.name, f"{error!s:.300}")) from None


def _rows(
    file: SeedFile, table: Any, report: Callable[[int], object], scheme: str, columns: Columns, after: int
) -> Iterator[Line]:
    layout = columns.layout(file.name, table.schema_arrow.names)
    number, groups = _groups_behind(table.metadata, after)
    told, total = 0, max(table.metadata.num_rows, 1)

    def lines_of(group: int) -> Iterator[list[Line]]:
        nonlocal number, told
        for batch in _batches(table, group, layout.read):
            skipped = min(max(after - number, 0), batch.num_rows)
            at = number + skipped
            for part in _parts(batch.slice(skipped)):
                yield _lines(part, at, layout, scheme, columns)
                at += part.num_rows
            number += batch.num_rows
            report(file.size * number // total - told)
            told = file.size * number // total

    for lines in in_bounds(groups, lines_of):
        yield from lines


def _lines(part: Any, at: int, layout: Layout, scheme: str, columns: Columns) -> list[Line]:
    """Return the lines of rows behind the first `at`."""
    if part.nbytes > _LONGEST_ROW:
        return [Line(at + 1, None, TOO_LONG)]
    found, names = [], part.schema.names
    for number, values in enumerate(zip(*map(_values, part.columns), strict=True), at + 1):
        try:
            row = dict(zip(names, map(_plain, values), strict=True))
            found.append(line_of(number, layout.seed_in(row), scheme, columns))
        except ValueError as error:
            found.append(Line(number, None, str(error)))
    return found


def _batches(table: Any, group: int, read: list[str]) -> Iterator[Any]:
    """Yield the rows of a row group, in batches of these columns."""
    from pyarrow import RecordBatch

    about = table.metadata.row_group(group)
    rows = min(max(_BATCH * about.num_rows // max(about.total_byte_size, 1), 1), _ROWS)
    for batch in table.iter_batches(rows, row_groups=[group], columns=read, use_threads=False):
        # Of a dictionary, all values would count in each row.
        columns = [one.dictionary_decode() if hasattr(one, "dictionary") else one for one in batch.columns]
        yield RecordBatch.from_arrays(columns, names=batch.schema.names)


def _parts(batch: Any) -> Iterator[Any]:
    """Yield the rows of a batch in parts, of which only those of a single row may be longer than that may be."""
    if batch.nbytes <= _LONGEST_ROW or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _parts(batch.slice(0, half))
    yield from _parts(batch.slice(half))


def _groups_behind(metadata: Any, after: int) -> tuple[int, list[int]]:
    """Return how many rows are in row groups that end within the first `after` rows, and the other row groups."""
    skipped = 0
    for index in range(metadata.num_row_groups):
        rows = metadata.row_group(index).num_rows
        if skipped + rows > after:
            return skipped, list(range(index, metadata.num_row_groups))
        skipped += rows
    return skipped, []


class _NotText(ValueError):
    """A value of a text column is not UTF-8, which Arrow does not check."""


def _values(column: Any) -> list[Any]:
    """Return the values of a column, with an error in place of each that is not UTF-8."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        return [_value(one) for one in column]
    return values


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return _NotText(_NO_TEXT)


def _plain(value: Any) -> Any:
    """Return a value of Parquet as JSON has it: times as ISO 8601, decimals and the like as text, NaN as None.

    Raises:
        ValueError: it is not UTF-8.

    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        value = value if math.isfinite(value) else None
    elif isinstance(value, bytes):  # text, by writers that do not say so
        value = _decoded(value)
    elif isinstance(value, _NotText):
        raise value
    elif isinstance(value, (date, time)):
        value = value.isoformat()
    elif isinstance(value, dict):
        value = {str(name): _plain(one) for name, one in value.items()}
    elif isinstance(value, (list, tuple)):
        value = [_plain(one) for one in value]
    else:
        value = str(value)
    return value


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise _NotText(_NO_TEXT) from None
