"""Indices of WARC files (CDXJ): a line for each response and `revisit`, sorted by URL and time.

A segment's index is beside it. `index.cdxj` has the lines of all segments that `index.json` names.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from warcio.exceptions import ArchiveLoadFailed
from warcio.recordloader import ArcWarcRecordLoader
from warcio.timeutils import iso_date_to_timestamp

from crawlproject.contrib.warc.segments import Member, index_of, members_in, segments_among
from crawlproject.contrib.warc.url_keys import url_key
from crawlproject.storage.blobs import Folder, Store

MERGED, COVERED = "index.cdxj", "index.json"
INDEX_TYPE = "text/plain"
REVISIT = "warc/revisit"  # the `mime` of such records

_SORT_MEMORY = "64M"
_BLOCK = 65_536  # bytes that a search reads at a time
_MIME_END = re.compile(r"[;\s]")
_loader = ArcWarcRecordLoader(verify_http=False)


def write_index(segment: Path, to: Path) -> int:
    """Write the index of a segment; return at which byte the segment is damaged, its size if it is not.

    Raises:
        OSError: it cannot be written, or the segment not be read.

    """
    end = 0
    with to.open("wb") as file:
        for member in members_in(segment):
            end = member.offset + member.length
            file.write(_line(member, segment.name))
    _sort([to], to)
    return end


def _line(member: Member, segment: str) -> bytes:
    """Return the line of a record, as cdxj-indexer writes it; nothing for other records."""
    try:
        record = _loader.parse_record_stream(BytesIO(member.begins), known_format="warc")
    except (ArchiveLoadFailed, EOFError):
        return b""
    if record.rec_type not in {"response", "revisit"}:
        return b""
    named, http = record.rec_headers, record.http_headers
    mime = http.get_header("Content-Type") if http else None
    fields = {
        "url": named.get_header("WARC-Target-URI"),
        "mime": REVISIT if record.rec_type == "revisit" else mime and _MIME_END.split(mime)[0],
        "status": http.get_statuscode() if http else None,
        "digest": named.get_header("WARC-Payload-Digest"),
        "length": str(member.length),
        "offset": str(member.offset),
        "filename": segment,
    }
    given = json.dumps({name: value for name, value in fields.items() if value is not None})
    time = iso_date_to_timestamp(named.get_header("WARC-Date"))
    return f"{url_key(fields['url'])} {time} {given}\n".encode()


def _sort(files: Sequence[Path], to: Path, *more: str) -> None:
    """Write the lines of files into one, sorted by their bytes, each once, by the system's sort."""
    done = subprocess.run(
        ["sort", "-u", *more, "-S", _SORT_MEMORY, "-T", to.parent, "-o", to, "--files0-from=-"],
        input=b"\0".join(bytes(path) for path in files),
        env={**os.environ, "LC_ALL": "C"},
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode:
        raise OSError(done.stderr.decode(errors="replace").strip())


def merge_indices(store: Store, say: Callable[[str], object]) -> dict[str, int]:
    """Make the indices of segments that have none, and merge all into one; tell `say` of damaged segments.

    Returns the numbers of `files`, and of those `indexed` now; without files nothing is written.

    Raises:
        OSError, or boto's errors: the store cannot be read or written.

    """
    there = store.sizes()
    segments = segments_among(there)
    missing = [segment for segment in segments if index_of(segment) not in there]
    with TemporaryDirectory(prefix=".index-", dir=store.folder if isinstance(store, Folder) else None) as name:
        folder = Path(name)
        for segment in missing:
            file, made = store.local(segment, folder), folder / index_of(segment)
            if (end := write_index(file, made)) < there[segment]:
                say(f"{segment} is damaged from byte {end} on: its index ends there")
            store.put(made, INDEX_TYPE)
            if file.parent == folder:
                file.unlink()
        if segments:
            merged, covered = folder / MERGED, folder / COVERED
            _sort([store.local(index_of(segment), folder) for segment in segments], merged, "-m")
            covered.write_text(json.dumps({"bytes": merged.stat().st_size, "files": segments}))
            store.put(merged, INDEX_TYPE)
            store.put(covered, "application/json")
    return {"files": len(segments), "indexed": len(missing)}


class Index:
    """What is in a store, by its indices: the merged one, and those of segments that are not in that.

    `segments` are all that are there, `unindexed` those that have no index.

    Raises:
        OSError, or boto's errors: the store cannot be read.

    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sizes = store.sizes()
        self.segments = segments_among(self.sizes)
        merged = set()
        if MERGED in self.sizes and COVERED in self.sizes:
            covered = json.loads(store.read(COVERED))
            if covered["bytes"] == self.sizes[MERGED]:  # else another run has written one of the two
                merged = set(covered["files"])
        rest = [segment for segment in self.segments if segment not in merged]
        self.unindexed = [segment for segment in rest if index_of(segment) not in self.sizes]
        files = [MERGED] * bool(merged) + [index_of(segment) for segment in rest]
        self._files = [file for file in files if self.sizes.get(file)]

    def entries(self, url: str) -> list[dict[str, str]]:
        """Return the entries of a URL, and of others with its key, oldest first: the fields of their lines, and
        `time` (14 digits, UTC).
        """
        key = f"{url_key(url)} ".encode()
        found = {line for file in self._files for line in self._lines_with(file, key)}
        parts = (line.decode().split(" ", 2) for line in sorted(found))
        return [{"time": time, **json.loads(fields)} for _, time, fields in parts]

    def _lines_with(self, file: str, key: bytes) -> Iterator[bytes]:
        """Yield the lines of a sorted file that begin with `key`, by bisection."""
        blocks = range(0, self.sizes[file], _BLOCK)
        after = bisect_left(blocks, key, lo=1, key=lambda start: next(self._lines(file, start), b"\x7f"))
        for line in self._lines(file, blocks[after - 1]):
            if line.startswith(key):
                yield line
            elif line > key:
                break

    def _lines(self, file: str, start: int) -> Iterator[bytes]:
        """Yield the lines of a file that begin at a byte or after it."""
        position, rest, has_part = max(start - 1, 0), b"", start > 0
        while position < self.sizes[file] and (block := self.store.read(file, position, _BLOCK)):
            position += len(block)
            *lines, rest = (rest + block).split(b"\n")
            yield from lines[has_part:]  # what comes before the first line end is no whole line
            has_part = has_part and not lines
