"""A dataset of tar files as WebDataset reads them: thumbnail or original, caption and facts of each image."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa

from crawlproject.errors import CrawlprojectError
from crawlproject.sinks.dataset import name_of
from crawlproject.sinks.event_rows import UNCHANGED, row_of
from crawlproject.sinks.parquet import ParquetFile, writing
from crawlproject.state.streams import EventEntry
from crawlproject.storage.parts import Parts
from crawlproject.texts import one_line

_THREADS = 8  # that read pictures
_READ_BYTES = 64 * 2**20  # of pictures that are read at a time
_USUAL_BYTES = 2**16  # of a picture of which nothing says how large it is, until larger ones come
_MOST_BYTES = 4 * 2**30  # of a tar file; S3 takes five at once
_MORE = {"key": pa.string(), "caption": pa.string()}  # columns beside those of events


class _Shard:
    """The files of a part, as they are being written."""

    def __init__(self, parts: Parts, number: int) -> None:
        self.started = time.time()
        self.samples = self.size = 0
        self.outcomes: Counter[str] = Counter()
        self.unreadable = 0
        self.is_put = False  # the tar file
        self.number = number
        self.parquet = ParquetFile(parts, number, _MORE)
        self.path = parts.unfinished(name_of(number, ".tar"))
        with writing(self.path):
            self.file = self.path.open("wb")
            self.tar = tarfile.open(fileobj=self.file, mode="w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115

    def add_sample(self, files: Mapping[str, bytes], at: int) -> str:
        """Add a sample, by the endings of its files; return its key."""
        key = f"{self.number:08d}{self.samples:05d}"
        with writing(self.path):
            for ending, data in files.items():
                info = tarfile.TarInfo(key + ending)
                info.size, info.mtime = len(data), at
                self.tar.addfile(info, io.BytesIO(data))
                self.size += len(data) + 1024
        self.samples += 1
        return key

    def close(self) -> None:
        """Write the end of the tar file."""
        with writing(self.path):
            self.tar.close()
            self.file.close()

    def stats(self, rows: int) -> dict[str, Any]:
        """Return what img2dataset says of a shard, under its names."""
        ended = time.time()
        probes = self.outcomes["probed"] + self.outcomes[UNCHANGED]  # nothing was to be downloaded
        return {
            "count": rows,
            "successes": self.samples,
            "failed_to_download": rows - self.samples - self.unreadable - probes,
            "failed_to_resize": self.unreadable,
            "duration": ended - self.started,
            "start_time": self.started,
            "end_time": ended,
            "status_dict": dict(self.outcomes),
        }


class _Pictures:
    """Stored pictures, read by several threads, `_READ_BYTES` ahead of when they are needed.

    The bytes that came count. Those under way count as their events say, else as the largest so far: more than
    that can come of as many pictures as there are threads.
    """

    def __init__(self, look_up: Callable[[str], bytes | None]) -> None:
        self._look_up = look_up
        self._next: deque[tuple[str, int | None]] = deque()
        self._read: dict[str, bytes | None] = {}

    def expect(self, pictures: Iterable[tuple[str, int | None]]) -> None:
        """Learn the names of those that will be taken next, in their order, and their bytes (None: unknown)."""
        self._next = deque(pictures)

    def take(self, name: str) -> bytes | None:
        """Return a picture, None if there is none of that name. Raises the errors of `look_up`."""
        if name not in self._read:
            self._read = {}  # before others are read: both would be held
            self._read = self._read_from(name)
        return self._read[name]

    def _read_from(self, name: str) -> dict[str, bytes | None]:
        """Return the picture of that name, and those that come next."""
        found: dict[str, bytes | None] = {}
        under_way: dict[Future[bytes | None], tuple[str, int | None]] = {}
        largest, size = _USUAL_BYTES, 0  # of those that came; of all of them

        with ThreadPoolExecutor(_THREADS) as pool:

            def begin(one: str, its_size: int | None) -> None:
                under_way[pool.submit(self._look_up, one)] = one, its_size

            begin(name, None)
            while under_way:
                while self._next and len(under_way) < _THREADS:
                    one, its_size = self._next[0]
                    expected = sum(largest if most is None else most for _, most in under_way.values())
                    if one != name and one not in found and one not in {known for known, _ in under_way.values()}:
                        if size + expected >= _READ_BYTES:
                            break
                        begin(one, its_size)
                    self._next.popleft()
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    one, _ = under_way.pop(future)
                    picture = found[one] = future.result()
                    size += len(picture or b"")
                    largest = max(largest, len(picture or b""))
        return found


class WebDatasetForm:
    """Parts of up to `samples` samples and `rows` rows: `N.tar`, with the rows of all events in `N.parquet`.

    The picture of a sample is what `look_up` has of the name in `column`, "thumbnail" or "original".

    The tar file is put first, the Parquet file makes the part, and `N_stats.json` follows. Where two processes may
    write at a time (S3), the tar file is not replaced, and is put with a note of how far it goes: a process that
    finds it without its Parquet file makes that of the very same events.
    """

    name = "webdataset"

    def __init__(
        self,
        parts: Parts,
        look_up: Callable[[str], bytes | None],
        rows: int,
        samples: int,
        caption: str | None = None,
        column: Literal["thumbnail", "original"] = "thumbnail",
    ) -> None:
        self.missing = 0  # pictures
        self._parts = parts
        self._pictures = _Pictures(look_up)
        self._most_rows, self._most_samples = rows, samples
        self._caption = caption
        self._column = column
        self._shard: _Shard | None = None
        self._begun: tuple[int, int] | None = None  # part whose tar file is there, and its samples

    @property
    def rows(self) -> int:
        """The rows in the part that is being written."""
        return 0 if self._shard is None else self._shard.parquet.rows

    def look_up(self, entries: list[tuple[EventEntry, dict[str, Any]]]) -> None:
        """Learn which pictures come next."""
        events = [event for _, event in entries if isinstance(event.get(self._column), str)]
        self._pictures.expect((event[self._column], self._size_in(event)) for event in events)

    def _size_in(self, event: Mapping[str, Any]) -> int | None:
        size = event.get("filesize") if self._column == "original" else None
        return size if isinstance(size, int) else None

    def add(self, number: int, name: str, event: dict[str, Any]) -> None:
        """Add an event; it is a sample if its picture is there."""
        row = row_of(name, event)
        stored = row[self._column]
        picture = self._pictures.take(stored) if isinstance(stored, str) else None
        shard = self._shard = self._shard or _Shard(self._parts, number)
        has_one = stored is not None or self._column == "original"  # an SVG has no thumbnail
        if name == "image_metadata_updates" and has_one and picture is None:
            self.missing += 1
        if self._caption is not None:
            row["caption"] = self._caption_of(event)
        if picture is not None:
            files = {stored[stored.rindex(".") :]: picture, ".json": b""}
            if self._caption is not None:
                files[".txt"] = (row["caption"] or "").encode(errors="replace")
            row["key"] = f"{number:08d}{shard.samples:05d}"
            files[".json"] = _facts(row, event).encode(errors="replace")
            shard.add_sample(files, (row["at"] or 0) // 1000)
        shard.parquet.add(row)
        shard.outcomes[self._outcome(row, event)] += 1
        shard.unreadable += event.get("kind") == "decode"

    def _outcome(self, row: Mapping[str, Any], event: Mapping[str, Any]) -> str:
        """Return what became of an event, as img2dataset's `status_dict` counts it."""
        if row["status"] == "ok":
            return "success" if row.get("key") else f"no {self._column}"
        if row["status"] in ("probed", UNCHANGED):
            return str(row["status"])
        status = row["http_status"]
        return str(event.get("kind") or row["reason"]) if status in {None, 200} else f"HTTP Error {status}"

    def _caption_of(self, event: Mapping[str, Any]) -> str | None:
        assert self._caption is not None
        extra = event.get("extra")
        value = event.get(self._caption, extra.get(self._caption) if isinstance(extra, dict) else None)
        return None if value is None else value if isinstance(value, str) else one_line(value)

    def is_full(self) -> bool:
        """Tell whether the part has all the samples, rows or bytes that it may have."""
        shard = self._shard
        return shard is not None and (
            shard.samples >= self._most_samples or self.rows >= self._most_rows or shard.size >= _MOST_BYTES
        )

    def put(self, number: int, footer: dict[str, Any]) -> None:
        """Have the tar file appear, then the Parquet file."""
        shard = self._shard
        assert shard is not None
        if not shard.file.closed:
            shard.close()
        if self._begun is not None:
            self._check_begun(shard)
        elif not shard.is_put:
            note = json.dumps({"last": footer["last"], "samples": shard.samples})
            self._put_tar(number, note)
            shard.is_put = True
        footer["stats"] = shard.stats(self.rows)
        shard.parquet.put(footer)
        self._shard = self._begun = None

    def _put_tar(self, number: int, note: str) -> None:
        if self._parts.keeps_notes:
            self._parts.put_new(name_of(number, ".tar"), note)
        else:
            self._parts.replace(name_of(number, ".tar"))

    def _check_begun(self, shard: _Shard) -> None:
        assert self._begun is not None
        number, samples = self._begun
        if samples != shard.samples:
            raise CrawlprojectError(
                f"{name_of(number, '.tar')} in {self._parts.place}, of a process that died, has {samples} samples "
                f"but {shard.samples} of its events have a picture now: remove it, and start again"
            )

    def complete(self, number: int, footer: Mapping[str, Any]) -> None:
        """Put the statistics."""
        name = name_of(number, "_stats.json")
        path = self._parts.unfinished(name)
        with writing(path):
            path.write_text(json.dumps(footer.get("stats"), indent=4))
        self._parts.replace(name)

    def begun(self, number: int) -> dict[str, str] | None:
        """Return where a tar file ends that is there without its Parquet file."""
        note = self._parts.noted(name_of(number, ".tar"))
        if note is None:
            return None
        found = json.loads(note)
        self._begun = number, int(found["samples"])
        return dict(found["last"])


def _facts(row: Mapping[str, Any], event: Mapping[str, Any]) -> str:
    """Return the JSON of a sample: the row's columns that are not null, those that hold JSON as what they hold."""
    facts = {name: value for name, value in row.items() if value is not None}
    facts |= {name: json.loads(row[name]) for name in ("exif", "extra", "analysis") if row[name]}
    if row["sha256"] is not None:
        facts["sha256"] = row["sha256"].hex()
    if row["at"] is not None:
        facts["at"] = datetime.fromtimestamp(row["at"] / 1000, UTC).isoformat(timespec="milliseconds")
    return one_line(facts)
