"""Thumbnails in a folder."""

from __future__ import annotations

import errno
import itertools
import os
import time
from contextlib import suppress
from pathlib import Path

from crawlproject.texts import printable

_PARTS = ".parts"
_PARTS_KEPT_S = 86_400.0  # that a file half written may still be somebody's

# What an operator must change; other trouble of a folder (a full disk, an input/output error) may pass.
_PERMANENT = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EINVAL,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)


class FolderStorage:
    """Thumbnails as files of a folder.

    They are written in its folder `.parts` and renamed into place. Both are made here, or by the first write that
    can where the disk is full, and never again, so that a volume that is unmounted while the crawl runs is
    missed, and not replaced by an empty folder.

    Raises:
        OSError: there is no such folder, it cannot be made, and that will not pass by itself.

    """

    remedy = "make room, or bring the folder back as it was (with its .parts, which a worker makes at its start)"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = printable(str(folder), 500)
        self.parts = folder / _PARTS
        self._parts_of = f"{os.getpid()}-{os.urandom(6).hex()}"
        self._numbers = itertools.count()
        self._made = False
        try:
            self._make()
        except OSError as error:
            if self.is_permanent(error):
                raise
            # A disk that is full, say: a write finds out whether it still is.

    def _make(self) -> None:
        self.parts.mkdir(parents=True, exist_ok=True)
        self._sweep()
        self._made = True

    def _sweep(self) -> None:
        """Remove what processes that died left half written."""
        for part in self.parts.iterdir():
            try:
                if time.time() - part.stat().st_mtime > _PARTS_KEPT_S:
                    part.unlink()
            except FileNotFoundError:  # another worker that starts was faster, or it is in place by now
                continue

    def write(self, name: str, data: bytes) -> None:
        """Write to a file beside, then rename: a reader, or a crash, never sees half a thumbnail."""
        if not self._made:
            self._make()
        path = self.folder / name
        part = self.parts / f"{self._parts_of}-{next(self._numbers)}"
        # By the system's calls alone: after each of them a thread has to win Python's lock from the event loop.
        try:
            file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                written = os.write(file, data)
                while written < len(data):
                    written += os.write(file, data[written:])
            finally:
                os.close(file)
            try:
                part.replace(path)
            except FileNotFoundError:
                if path.parent == self.folder:
                    raise
                path.parent.mkdir(exist_ok=True)
                part.replace(path)
        except BaseException:
            with suppress(OSError):  # what has gone wrong is worth more than what follows from it
                part.unlink(missing_ok=True)
            raise

    def is_permanent(self, error: Exception) -> bool:
        """Tell a folder that cannot be written from a disk that is full."""
        return isinstance(error, OSError) and error.errno in _PERMANENT
