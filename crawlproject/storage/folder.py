"""Thumbnails and originals in a folder."""

from __future__ import annotations

import errno
import itertools
import os
import time
from contextlib import suppress
from pathlib import Path

from crawlproject.texts import printable

_PARTS = ".parts"
_PARTS_KEPT_S = 86_400.0  # a partial file younger than this may still be in use

# Errors that an operator must fix; others (a full disk, an input/output error) may pass.
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


def is_permanent(error: Exception) -> bool:
    """Tell whether an operator must act on an error of the file system; a full disk, for example, may pass."""
    return isinstance(error, OSError) and error.errno in _PERMANENT


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, outlast a power cut."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class FolderStorage:
    """Pictures as files of a folder.

    They are written in its subfolder `.parts` and renamed into place. Both folders are made here and never again:
    so a volume that is unmounted while the crawl runs causes an error, and is not replaced by an empty folder.

    Raises:
        OSError: the folder does not exist and cannot be made.

    """

    is_synced = False  # a lost thumbnail is found missing, and fetched again
    remedy = "make room, or bring the folder back as it was (with its .parts, which a worker makes at its start)"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = printable(str(folder), 500)
        self.parts = folder / _PARTS
        self._parts_of = f"{os.getpid()}-{os.urandom(6).hex()}"
        self._numbers = itertools.count()
        self.parts.mkdir(parents=True, exist_ok=True)
        self._sweep()

    def _sweep(self) -> None:
        """Remove partial files that dead processes left behind."""
        for part in self.parts.iterdir():
            try:
                if time.time() - part.stat().st_mtime > _PARTS_KEPT_S:
                    part.unlink()
            except FileNotFoundError:  # removed by another starting worker, or renamed into place meanwhile
                continue

    def write(self, name: str, data: bytes) -> None:
        """Write to a file in `.parts`, then rename: no reader sees half a picture, and no crash leaves one."""
        path = self.folder / name
        part = self.parts / f"{self._parts_of}-{next(self._numbers)}"
        # Plain system calls, and few: after each of them the thread competes with the event loop for the GIL.
        try:
            file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                written = os.write(file, data)
                while written < len(data):
                    written += os.write(file, data[written:])
                if self.is_synced:
                    os.fsync(file)
            finally:
                os.close(file)
            try:
                part.replace(path)
            except FileNotFoundError:
                if path.parent == self.folder:
                    raise
                path.parent.mkdir(exist_ok=True)
                if self.is_synced:
                    sync(self.folder)
                part.replace(path)
            if self.is_synced:
                sync(path.parent)
        except BaseException:
            with suppress(OSError):  # the first error is the one to report
                part.unlink(missing_ok=True)
            raise

    def has(self, name: str, size: int) -> bool:
        """Tell whether there is such a file, of so many bytes: after a power cut it may be empty."""
        try:
            return (self.folder / name).stat().st_size == size
        except FileNotFoundError:
            return False

    def is_permanent(self, error: Exception) -> bool:
        """Tell whether an operator must fix the folder; a full disk, for example, may pass."""
        return is_permanent(error)
