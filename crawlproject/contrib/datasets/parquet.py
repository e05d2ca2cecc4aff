"""A dataset of Parquet files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crawlproject.contrib.datasets.event_rows import PAGES, SCHEMA, Rows, kept_of, page_row_of, row_of
from crawlproject.contrib.datasets.parts import Parts
from crawlproject.errors import CrawlprojectError
from crawlproject.storage.blobs import described

FOOTER = b"crawlproject"  # the key of what a part's footer says, as JSON
ROW_GROUP = 50_000  # rows


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


class ParquetFile:
    """The Parquet file of a part, as it is being written. `more` are columns beside those of `schema`."""

    def __init__(
        self,
        parts: Parts,
        number: int,
        more: Mapping[str, pa.DataType] | None = None,
        schema: pa.Schema = SCHEMA,
    ) -> None:
        self.rows = 0
        self.name = name_of(number)
        self._parts = parts
        self._group = Rows(more, schema)
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
    """The form of a dataset's parts: up to `most` rows each, in a Parquet file. One is written at a time.

    `kept` are columns of what was fed beside the seeds, by name. Methods block.
    """

    name = "parquet"
    spider = "images"  # whose events are rows, of these streams (`Keys`)
    streams: tuple[str, ...] = ("image_events", "probe_events", "link_rot_events", "failed_events")
    schema = SCHEMA
    first = ""  # the ending of what is put before the Parquet file, which makes the part; "" for nothing

    def __init__(self, parts: Parts, most: int, kept: Mapping[str, pa.DataType] | None = None) -> None:
        self._parts = parts
        self._most = most
        self._kept = kept or {}
        self._file: ParquetFile | None = None

    @property
    def rows(self) -> int:
        """The rows in the part that is being written."""
        return 0 if self._file is None else self._file.rows

    def look_up(self, events: list[dict[str, Any]]) -> None:
        """Learn which events come next, to fetch at once what they need."""

    def add(self, number: int, name: str, event: dict[str, Any]) -> None:
        """Add an event to part `number`; `name` is that of its stream.

        Raises:
            StorageDown: what it needs cannot be had at present: it is not added.

        """
        if self._file is None:
            self._file = ParquetFile(self._parts, number, self._kept, self.schema)
        self._file.add(self.row_of(name, event))

    def row_of(self, name: str, event: dict[str, Any]) -> dict[str, Any]:
        """Return the row of an event."""
        return row_of(name, event) | kept_of(event, self._kept)

    def is_full(self) -> bool:
        """Tell whether the part must not become larger."""
        return self.rows >= self._most

    def put(self, number: int, footer: dict[str, Any]) -> None:
        """Have the part appear, with that in the footer of its Parquet file; what comes then is in the next.

        Can be repeated after StorageDown.

        Raises:
            PartExists: another process has put it.

        """
        assert self._file is not None
        self._file.put(footer)
        self._file = None

    def complete(self, number: int, footer: Mapping[str, Any]) -> None:
        """Put what belongs beside a part that has appeared; can be repeated."""

    def void(self, number: int) -> None:
        """Have `put` make an empty part, and `complete` empty what was put first by a process that died."""


class PagesForm(ParquetForm):
    """The form of parts with a row for each event of the spider `pages`, under the names of the event."""

    name = "pages"
    spider = "pages"
    streams = ("page_events", "link_rot_events", "failed_events")
    schema = PAGES

    def row_of(self, name: str, event: dict[str, Any]) -> dict[str, Any]:
        """Return the row of an event."""
        return page_row_of(name, event)
