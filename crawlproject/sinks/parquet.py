"""A dataset of Parquet files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crawlproject.errors import CrawlprojectError
from crawlproject.sinks.dataset import FOOTER, name_of
from crawlproject.sinks.event_rows import Rows, row_of
from crawlproject.storage.blobs import described
from crawlproject.storage.parts import Parts

ROW_GROUP = 50_000  # rows


@contextmanager
def writing(parts: Parts) -> Iterator[None]:
    """Have a file that cannot be written end the command: it cannot be continued, only begun anew.

    Raises:
        CrawlprojectError: it cannot be written.

    """
    try:
        yield
    except OSError as error:
        raise CrawlprojectError(
            f"parts of {parts.place} cannot be written: {described(error)}; make room, and start again: "
            "nothing is lost"
        ) from None


class ParquetFile:
    """The Parquet file of a part, as it is being written. `more` are columns beside those of events."""

    def __init__(self, parts: Parts, number: int, more: Mapping[str, pa.DataType] | None = None) -> None:
        self.rows = 0
        self.name = name_of(number)
        self._parts = parts
        self._group = Rows(more)
        with writing(parts):
            self._writer = pq.ParquetWriter(
                parts.create(self.name), self._group.schema, compression="zstd", compression_level=3
            )
        self._is_whole = False

    def add(self, row: dict[str, Any]) -> None:
        """Add a row, by the names of the columns."""
        self._group.add(row)
        self.rows += 1
        if self._group.count == ROW_GROUP:
            with writing(self._parts):
                self._writer.write_table(self._group.take())

    def put(self, footer: Mapping[str, Any]) -> None:
        """Have the file appear, with that in its footer; see `Parts.put_new`. Can be repeated."""
        if not self._is_whole:
            with writing(self._parts):
                if self._group.count:
                    self._writer.write_table(self._group.take())
                self._writer.add_key_value_metadata({FOOTER: json.dumps(footer).encode()})
                self._writer.close()
            self._is_whole = True
        self._parts.put_new(self.name)


class ParquetForm:
    """Parts of up to `most` rows, each a Parquet file."""

    name, first = "parquet", ""

    def __init__(self, parts: Parts, most: int) -> None:
        self._parts = parts
        self._most = most
        self._file: ParquetFile | None = None

    @property
    def rows(self) -> int:
        """The rows in the part that is being written."""
        return 0 if self._file is None else self._file.rows

    def look_up(self, events: list[dict[str, Any]]) -> None:
        """Do nothing: all that is written stands in the events."""

    def add(self, number: int, name: str, event: dict[str, Any]) -> None:
        """Add an event."""
        if self._file is None:
            self._file = ParquetFile(self._parts, number)
        self._file.add(row_of(name, event))

    def is_full(self) -> bool:
        """Tell whether the part has all the rows that it may have."""
        return self.rows >= self._most

    def put(self, number: int, footer: dict[str, Any]) -> None:
        """Have the part appear."""
        assert self._file is not None
        self._file.put(footer)
        self._file = None

    def complete(self, number: int, footer: Mapping[str, Any]) -> None:
        """Do nothing: there is but one file."""

    def void(self, number: int) -> None:
        """Do nothing: there is but one file."""
