"""A dataset of tar files as WebDataset reads them: thumbnail or original, caption and facts of each image."""

from __future__ import annotations

import json
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

import pyarrow as pa

from crawlproject.contrib.datasets.parquet import ParquetForm, name_of, writing
from crawlproject.contrib.datasets.parts import Parts
from crawlproject.texts import one_line

_THREADS = 8  # that read pictures
_AHEAD = 64  # pictures that are read at a time
_READ_BYTES = 64 * 2**20  # of those, as far as events say how large they are
_MOST_BYTES = 4 * 2**30  # of a tar file; S3 takes five at once


class _Pictures:
    """Stored pictures, read by several threads: `_AHEAD` of them, or `_READ_BYTES`, before they are needed."""

    def __init__(self, look_up: Callable[[str], bytes | None]) -> None:
        self._look_up = look_up
        self._next: deque[tuple[str, int]] = deque()
        self._read: dict[str, bytes | None] = {}
        self._pool = ThreadPoolExecutor(_THREADS)

    def expect(self, pictures: Iterable[tuple[str, int]]) -> None:
        """Learn the names of those that will be taken next, in their order, and their bytes (0: unknown)."""
        self._next = deque(pictures)

    def take(self, name: str) -> bytes | None:
        """Return a picture, None if there is none of that name. Raises the errors of `look_up`."""
        if name not in self._read:
            names, size = {name: None}, 0
            while self._next and len(names) < _AHEAD and size < _READ_BYTES:
                one, its_size = self._next.popleft()
                names[one], size = None, size + its_size
            self._read = {}  # before others are read: both would be held
            shares = [list(names)[number::_THREADS] for number in range(min(_THREADS, len(names)))]
            for found in self._pool.map(self._look_up_all, shares):  # to start a task takes as long as to read
                self._read |= found
        return self._read[name]

    def _look_up_all(self, names: Iterable[str]) -> dict[str, bytes | None]:
        return {name: self._look_up(name) for name in names}


class WebDatasetForm(ParquetForm):
    """Parts of up to `samples` samples and `rows` rows: `N.tar`, with the rows of all events in `N.parquet`.

    The picture of a sample is what `look_up` has of the name in `column`, "thumbnail" or "original".

    The tar file is put first, and the Parquet file makes the part. A process that finds a
    tar file without its Parquet file puts an empty one, so that who has put the tar file, and hangs, cannot; then
    it empties the tar file, and goes on with the next part. `prefix` is what the keys of samples begin with.
    """

    name, first = "webdataset", ".tar"
    more: ClassVar[Mapping[str, pa.DataType]] = {"key": pa.string(), "caption": pa.string()}

    def __init__(
        self,
        parts: Parts,
        look_up: Callable[[str], bytes | None],
        rows: int,
        samples: int,
        caption: str | None = None,
        column: Literal["thumbnail", "original"] = "thumbnail",
        prefix: str = "",
        kept: Mapping[str, pa.DataType] | None = None,
    ) -> None:
        super().__init__(parts, rows, kept)
        self._captions = 0  # samples that have one
        self.samples = 0
        self.missing = 0  # pictures
        self._pictures = _Pictures(look_up)
        self._most_samples = samples
        self._caption = caption
        self._column = column
        self._prefix = prefix
        self._tar: tarfile.TarFile | None = None  # of the part that is being written, until it has appeared
        self._keys = self._size = 0  # samples in it, and bytes

    def look_up(self, events: list[dict[str, Any]]) -> None:
        """Learn which pictures come next."""
        pictures = [event for event in events if isinstance(event.get(self._column), str)]
        self._pictures.expect((event[self._column], self._size_in(event)) for event in pictures)

    def _size_in(self, event: Mapping[str, Any]) -> int:
        size = event.get("filesize") if self._column == "original" else None
        return size if isinstance(size, int) else 0

    def begin(self, number: int) -> None:
        """Begin a part."""
        tar = self._begun_tar(number)
        super().begin(number)
        self._tar, self._keys, self._size = tar, 0, 0

    def _begun_tar(self, number: int) -> tarfile.TarFile:
        file = self._parts.create(name_of(number, ".tar"))
        return tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT)

    def add(self, number: int, name: str, event: dict[str, Any]) -> None:
        """Add an event; it is a sample if its picture is there."""
        row = self.row_of(name, event)
        stored = row[self._column]
        picture = self._pictures.take(stored) if isinstance(stored, str) else None
        if not self.rows:
            self.begin(number)
        has_one = stored is not None or self._column == "original"  # an SVG has no thumbnail
        if name == "image_metadata_updates" and has_one and picture is None:
            self.missing += 1
        if self._caption is not None:
            row["caption"] = self._caption_of(event)
        if picture is not None:
            row["key"] = f"{self._prefix}{number:08d}{self._keys:05d}"
            files = {stored[stored.rindex(".") :]: picture, ".json": _facts(row).encode(errors="replace")}
            if self._caption is not None:
                files[".txt"] = (row["caption"] or "").encode(errors="replace")
            self._add_sample(row["key"], files, (row["at"] or 0) // 1000)
            self._captions += row.get("caption") is not None
        self._append(row)

    def _add_sample(self, key: str, files: Mapping[str, bytes], at: int) -> None:
        """Add a sample to the tar file, by the endings of its files."""
        assert self._tar is not None
        assert self._tar.fileobj is not None
        entries: list[bytes] = []  # written at once: `TarFile.addfile` makes three writes of each
        for ending, data in files.items():
            info = tarfile.TarInfo(key + ending)
            info.size, info.mtime = len(data), at
            entries += info.tobuf(tarfile.USTAR_FORMAT), data, bytes(-len(data) % tarfile.BLOCKSIZE)
            self._size += len(data) + 1024
        with writing(self._parts):
            self._tar.fileobj.write(b"".join(entries))
        self._keys += 1
        self.samples += 1

    def _caption_of(self, event: Mapping[str, Any]) -> str | None:
        assert self._caption is not None
        extra = event.get("extra")
        value = event.get(self._caption, extra.get(self._caption) if isinstance(extra, dict) else None)
        return None if value is None else value if isinstance(value, str) else one_line(value)

    @property
    def lacks_captions(self) -> bool:
        """Whether a caption is wanted, and none of many samples has one."""
        return self._caption is not None and self.samples > 0 and not self._captions

    def is_full(self) -> bool:
        """Tell whether the part has all the samples, rows or bytes that it may have."""
        return self._keys >= self._most_samples or self._size >= _MOST_BYTES or super().is_full()

    def put(self, number: int, footer: dict[str, Any]) -> None:
        """Have the tar file appear, then the Parquet file."""
        if self._tar is not None:
            with writing(self._parts):
                self._tar.close()
            self._parts.put_new(name_of(number, ".tar"))
            self._tar = None
        super().put(number, footer)

    def complete(self, number: int, footer: Mapping[str, Any]) -> None:
        """Put an empty tar file, of an empty part."""
        if not footer["rows"]:
            with writing(self._parts):
                self._begun_tar(number).close()
            self._parts.replace(name_of(number, ".tar"))


def _facts(row: Mapping[str, Any]) -> str:
    """Return the JSON of a sample: the row's columns that are not null, those that hold JSON as what they hold."""
    facts = {name: value for name, value in row.items() if value is not None}
    facts |= {name: json.loads(row[name]) for name in ("exif", "extra", "analysis") if row[name]}
    if row["sha256"] is not None:
        facts["sha256"] = row["sha256"].hex()
    if row["at"] is not None:
        facts["at"] = datetime.fromtimestamp(row["at"] / 1000, UTC).isoformat(timespec="milliseconds")
    return one_line(facts)
