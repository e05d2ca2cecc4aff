"""Segments: the files that records are appended to, and what is done about those of processes that died.

A segment that is written to is `.open/NAME.open` of its folder, locked (flock) by its process. Closed, it is
`NAME`: `pages-TIME-NUMBER-HOST-PROCESS.warc.gz`, as the annex of ISO 28500 recommends, with a random part that no
other process has.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from isal import isal_zlib

from crawlproject.storage.blobs import sync

OPEN = ".open"  # the subfolder, and the ending
GZIP = 31  # zlib's name for: with gzip's header and trailer
_READ_SIZE = 65_536  # bytes; what follows a member in it is copied for each member

_BEGINNING = 524_288  # bytes of a record, decompressed: the heads of the longest (net/http1.py)
_NAME = re.compile(r"pages-\d{14}-\d{5,}-[A-Za-z0-9-]{1,40}-[0-9a-f]{12}\.warc\.gz")
_HOST = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname().partition(".")[0])[:40] or "host"
_PROCESS = os.urandom(6).hex()
_numbers = itertools.count(1)


class Member(NamedTuple):
    """A gzip member of a segment, which is a record: its place, in bytes, and the beginning of the record."""

    offset: int
    length: int
    begins: bytes


class TakenOver(NamedTuple):
    """A segment of a process that died: how many bytes it has, and how many of half a record were cut off."""

    name: str
    size: int
    cut: int


def make_folder(folder: Path) -> None:
    """Make the folder of a store and its subfolder; only at a start, so that an unmounted volume is an error."""
    (folder / OPEN).mkdir(parents=True, exist_ok=True)


class Segment:
    """The segment that this process appends to. Blocks; not for two threads at a time.

    After an OSError it must be left, as if this process had died: whoever finds it cuts off what is half a record,
    and closes it.

    Raises:
        OSError: it cannot be made.

    """

    def __init__(self, folder: Path) -> None:
        now = time.strftime("%Y%m%d%H%M%S", time.gmtime())
        self.folder = folder
        self.name = f"pages-{now}-{next(_numbers):05}-{_HOST}-{_PROCESS}.warc.gz"
        self.size = 0  # bytes that are on the disk
        self.began = time.monotonic()
        self._path = folder / OPEN / f"{self.name}{OPEN}"
        new = self._path.with_suffix(".new")
        self._file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            new.rename(self._path)  # where sweeps look
            sync(self._path.parent)
        except BaseException:
            self.leave()
            raise

    def append(self, data: bytes) -> None:
        """Add whole members; they are on the disk when this returns."""
        written = 0
        while written < len(data):
            written += os.pwrite(self._file, data[written:] if written else data, self.size + written)
        os.fsync(self._file)
        if not _is_at(self._file, self._path):  # nobody will find what is written to it
            raise FileNotFoundError(errno.ENOENT, "the segment is gone", str(self._path))
        self.size += len(data)

    def close(self) -> None:
        """Give it its final name."""
        try:
            self._path.rename(self.folder / self.name)
            sync(self.folder)
        finally:
            self.leave()

    def leave(self) -> None:
        """Let go of it as if this process had died."""
        os.close(self._file)


def take_over(folder: Path) -> Iterator[TakenOver]:
    """Close the open segments of processes that died, cut back to their last whole record.

    Raises:
        OSError: the folder, or a segment, cannot be read or written.

    """
    for path in sorted((folder / OPEN).iterdir()):
        name = path.name.removesuffix(OPEN)
        if not path.name.endswith(OPEN) or not _NAME.fullmatch(name):
            continue
        with _locked(path) as file:
            if file is None:
                continue
            size = os.fstat(file).st_size
            members = end = 0
            for member in members_in(path):
                members, end = members + 1, member.offset + member.length
            os.ftruncate(file, end)
            os.fsync(file)
            if members > 1:
                path.rename(folder / name)
                sync(folder)
            else:  # nothing but the record of the file
                path.unlink()
            yield TakenOver(name, end if members > 1 else 0, size - end)


@contextmanager
def closed_segment(folder: Path, name: str) -> Iterator[Path | None]:
    """Lock a closed segment; None if another worker has it, or it is gone."""
    path = folder / name
    with _locked(path) as file:
        yield None if file is None else path


def closed_segments(folder: Path) -> list[str]:
    """Return the names of the closed segments in a folder, oldest first."""
    return segments_among(path.name for path in folder.iterdir())


def segments_among(names: Iterable[str]) -> list[str]:
    """Return those of some names that segments have, oldest first."""
    return sorted(name for name in names if _NAME.fullmatch(name))


def index_of(segment: str) -> str:
    """Return the name of a segment's index, beside it."""
    return segment.removesuffix(".warc.gz") + ".cdxj"


def size_of(folder: Path) -> int:
    """Return how many bytes the segments in a folder have, open and closed."""
    total = 0
    for within in (folder, folder / OPEN):
        for entry in os.scandir(within):
            with suppress(FileNotFoundError):  # closed, or uploaded, meanwhile
                if _NAME.fullmatch(entry.name.removesuffix(OPEN)):
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def members_in(path: Path) -> Iterator[Member]:
    """Yield the whole gzip members that a file begins with."""
    with path.open("rb") as file:
        offset = position = 0
        member, begins = None, b""
        while data := file.read(_READ_SIZE):
            position += len(data)
            while data:
                member = member or isal_zlib.decompressobj(GZIP)
                try:
                    found = member.decompress(data)  # and checks its sum at its end
                except isal_zlib.error:  # type: ignore[misc]  # its type is not known
                    return
                if len(begins) < _BEGINNING:
                    begins += found[:_BEGINNING]
                data = member.unused_data
                if member.eof:
                    yield Member(offset, position - len(data) - offset, begins)
                    offset, member, begins = position - len(data), None, b""


@contextmanager
def _locked(path: Path) -> Iterator[int | None]:
    """Open and lock a file; None if another process has it, or it is gone."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)  # NFS locks only what may be written
    except FileNotFoundError:
        yield None
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = _is_at(file, path)  # until it is closed
        except BlockingIOError:
            is_ours = False
        yield file if is_ours else None
    finally:
        os.close(file)


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(file))
    except (FileNotFoundError, NotADirectoryError):
        return False
