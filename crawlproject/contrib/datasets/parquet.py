"""A dataset of Parquet files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from crawlproject.contrib.datasets.event_rows import PAGES, SCHEMA, column, kept_of, page_row_of, row_of
from crawlproject.contrib.datasets.parts import Parts
from crawlproject.errors import CrawlprojectError
from crawlproject.storage.blobs import described

FOOTER = b"crawlproject"  # the key of what a part's footer says, as JSON
ROW_GROUP = 50_000  # rows
_AT_ONCE = 5_000  # rows that are held as Python's objects


def name_of(number: int, ending: str = ".parquet") -> str:
    """Return the name of a file of a part."""
    return f"{number:08d}{ending}"


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


class ParquetForm:
    """The form of a dataset's parts: up to `most` rows each, in a Parquet file. One is written at a time.

    `kept` are columns of what was fed beside the seeds, by name, and `more` others beside those of `schema`.
    Methods block.
    """

    name = "parquet"
    spider = "images"  # whose events are rows, of these streams (`Keys`)
    streams: tuple[str, ...] = ("image_events", "probe_events", "link_rot_events", "failed_events")
    schema = SCHEMA
    more: ClassVar[Mapping[str, pa.DataType]] = {}
    first = ""  # the ending of what is put before the Parquet file, which makes the part; "" for nothing

    def __init__(self, parts: Parts, most: int, kept: Mapping[str, pa.DataType] | None = None) -> None:
        self.rows = 0  # in the part that is being written
        self._parts = parts
        self._most = most
        self._kept = kept or {}
        for name, kind in {**self._kept, **self.more}.items():
            self.schema = self.schema.append(pa.field(name, kind))
        self._new: list[dict[str, Any]] = []
        self._packed: list[pa.RecordBatch] = []  # in Arrow's memory, on their way into a row group
        self._is_whole = False  # the Parquet file

    def look_up(self, events: list[dict[str, Any]]) -> None:
        """Learn which events come next, to fetch at once what they need."""

    def add(self, number: int, name: str, event: dict[str, Any]) -> None:
        """Add an event to part `number`; `name` is that of its stream.

        Raises:
            StorageDown: what it needs cannot be had at present: it is not added.

        """
        row = self.row_of(name, event)
        if not self.rows:
            self.begin(number)
        self._append(row)

    def row_of(self, name: str, event: dict[str, Any]) -> dict[str, Any]:
        """Return the row of an event."""
        return row_of(name, event) | kept_of(event, self._kept)

    def begin(self, number: int) -> None:
        """Begin a part; one that is `put` without rows is empty."""
        with writing(self._parts):
            file = self._parts.create(name_of(number))
            self._writer = pq.ParquetWriter(file, self.schema, compression="zstd", compression_level=3)
        self._is_whole = False

    def _append(self, row: dict[str, Any]) -> None:
        """Add a row; what is missing in it, or does not fit its column, is null."""
        self._new.append(row)
        self.rows += 1
        if len(self._new) == _AT_ONCE:
            self._pack()
        if self.rows % ROW_GROUP == 0:
            self._write_group()

    def _pack(self) -> None:
        columns = [column([row.get(field.name) for row in self._new], field.type) for field in self.schema]
        self._packed.append(pa.RecordBatch.from_arrays(columns, schema=self.schema))
        self._new = []

    def _write_group(self) -> None:
        self._pack()
        with writing(self._parts):
            self._writer.write_table(pa.Table.from_batches(self._packed).unify_dictionaries())
        self._packed = []

    def is_full(self) -> bool:
        """Tell whether the part must not become larger."""
        return self.rows >= self._most

    def put(self, number: int, footer: dict[str, Any]) -> None:
        """Have the part appear, with that in the footer of its Parquet file; what comes then is in the next.

        Can be repeated after StorageDown.

        Raises:
            PartExists: another process has put it.

        """
        if not self._is_whole:
            if self.rows % ROW_GROUP:
                self._write_group()
            with writing(self._parts):
                self._writer.add_key_value_metadata({FOOTER: json.dumps(footer).encode()})
                self._writer.close()
            self._is_whole = True
        self._parts.put_new(name_of(number))
        self.rows = 0

    def complete(self, number: int, footer: Mapping[str, Any]) -> None:
        """Put what belongs beside a part that has appeared; can be repeated."""

    def void(self, number: int) -> None:
        """Have `put` make an empty part, and `complete` empty what was put first by a process that died."""
        ParquetForm.begin(self, number)


class PagesForm(ParquetForm):
    """The form of parts with a row for each event of the spider `pages`, under the names of the event."""

    name = "pages"
    spider = "pages"
    streams = ("page_events", "link_rot_events", "failed_events")
    schema = PAGES

    def row_of(self, name: str, event: dict[str, Any]) -> dict[str, Any]:
        """Return the row of an event."""
        return page_row_of(name, event)
