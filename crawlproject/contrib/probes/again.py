"""Which rows of our own datasets are checked again."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from crawlproject.errors import BadInput
from crawlproject.ingest.seed_files import SeedFile, needs_pyarrow
from crawlproject.sources.parquet import in_bounds

_COLUMNS = ("identifier", "url", "status", "at")  # that tell which row is the latest; the others, what is known
_GONE = "gone"  # statuses, as in contrib/datasets/event_rows.py
_ANSWERED = frozenset({"ok", "probed", "unchanged"})  # rows that have the version and the size
_ROWS = 16_384  # of a batch
_BUCKETS = 256
_FIELDS = 3  # of a row in its bucket


class Latest:
    """Of each image the latest row that tells its version and size, else the latest; none if that says "gone".

    A dataset has a row for each time that an image was fetched or probed, or that this failed: then the row tells
    nothing, and what the one before it told still holds. This takes 25 bytes for each row.
    """

    def __init__(self, files: Sequence[SeedFile]) -> None:
        """Read the files.

        Raises:
            BadInput: one is not of a dataset.
            OSError: one cannot be read, or is damaged.

        """
        self._begins: list[int] = []  # of each file, in all rows
        buckets = [array("q") for _ in range(_BUCKETS)]  # of a row: hash, time, number with flags
        count = 0
        for file in files:
            self._begins.append(count)
            for identifier, url, status, at in _rows(file):
                is_out = status == _GONE or url is None  # of an invalid seed
                key, says = hash((identifier, url)), 2 * is_out + (status in _ANSWERED)
                buckets[key % _BUCKETS].extend((key, -1 if at is None else at, 4 * count + says))
                count += 1
        self._kept = bytearray(count)
        for bucket in buckets:
            for number in _latest(bucket):
                self._kept[number] = True

    def has(self, file: int, row: int) -> bool:
        """Tell whether the row with this number, from 1, of the file with this index is such a row."""
        return bool(self._kept[self._begins[file] + row - 1])


def _latest(bucket: array[int]) -> Iterator[int]:
    """Yield the numbers of rows."""
    latest: dict[int, tuple[int, int]] = {}
    answered: dict[int, tuple[int, int]] = {}
    for place in range(0, len(bucket), _FIELDS):
        key, at, number = bucket[place : place + _FIELDS]
        for found in (latest, answered) if number & 1 else (latest,):
            found[key] = max(found.get(key, (-2, 0)), (at, number))
    return (answered.get(key, last)[1] >> 2 for key, last in latest.items() if not last[1] & 2)


def _rows(file: SeedFile) -> Iterator[tuple[Any, ...]]:
    with needs_pyarrow(file.name):
        from pyarrow import ArrowException, int64
        from pyarrow.parquet import ParquetFile

    try:
        with file.opened_at_random() as stream:
            table = ParquetFile(stream, pre_buffer=False)
            for name in (*_COLUMNS, "etag", "last_modified"):
                if name not in table.schema_arrow.names:
                    raise BadInput(f"{file.name} {_NEEDED}: it has no column {name}")

            def rows_of(group: int) -> Iterator[Iterable[tuple[Any, ...]]]:
                for batch in table.iter_batches(_ROWS, row_groups=[group], columns=_COLUMNS, use_threads=False):
                    columns = [batch.column(name) for name in _COLUMNS]
                    columns[-1] = columns[-1].cast(int64())
                    yield zip(*(column.to_pylist() for column in columns), strict=True)

            for rows in in_bounds(range(table.num_row_groups), rows_of):
                yield from rows
    except (ArrowException, MemoryError, UnicodeDecodeError, OSError) as error:
        raise BadInput(f"{file.name} {_NEEDED}: {error!s:.300}") from None


_NEEDED = "is not a file of a dataset that scrapy events has written as FOLDER:parquet, which --again needs"
