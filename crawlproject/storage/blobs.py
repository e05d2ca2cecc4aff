"""The storage of thumbnails and originals: their names, folders, and a writer that pauses leasing in an outage."""

from __future__ import annotations

import asyncio
import errno
import functools
import hashlib
import itertools
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from scrapy.crawler import Crawler

from crawlproject import config, plugins
from crawlproject.errors import ConfigError, CrawlprojectError, StorageDown
from crawlproject.models import THUMBNAIL_FORMATS
from crawlproject.runtime import Breaker, runtime_of
from crawlproject.storage.s3 import S3Storage
from crawlproject.texts import printable, without_secrets
from crawlproject.threads import in_thread

T = TypeVar("T")

PROBE = ".probe"  # never the name of a picture: those begin with a folder
PROBE_SIZE = 16_384  # bytes; a nearly full disk would accept a tiny file

_LONGEST_NAME = 200  # bytes of a file name; file systems take 255

_MAX_WRITES = 16  # at a time, each in a thread
_TIMEOUT_S = 40.0  # for one write, including a second attempt by the client
_POLL_S = 0.25  # between checks whether the crawl closes
_CLOSING_S = 3.0  # how long what is written gets when the crawl closes

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


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, outlast a power cut."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class Folder:
    """The files of a folder, by their names, `folder/name` for those of a subfolder. Methods block.

    `Folder` and `S3Storage` have the same methods for readers, and raise errors of their own, of which a
    FileNotFoundError says that there is no such file.
    """

    remedy = "make room, or bring it back"

    def __init__(self, folder: Path) -> None:
        self.folder = self.parts = folder
        self.place = printable(str(folder), 500)

    def has(self, name: str, size: int | None = None) -> bool:
        """Tell whether there is such a file, of so many bytes: after a power cut it may be empty."""
        self.parts.stat()  # an error where the whole folder is not there
        try:
            return size in {None, (self.folder / name).stat().st_size}
        except FileNotFoundError:
            return False

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file, or what it has of a part."""
        with (self.folder / name).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the sizes of all files, or of those in `folder`, which ends with "/", in bytes."""
        self.parts.stat()
        sizes: dict[str, int] = {}
        with suppress(FileNotFoundError):  # of a subfolder
            for name in os.listdir(self.folder / folder):  # noqa: PTH208 - names are all that is wanted
                with suppress(FileNotFoundError):  # another process has removed it meanwhile
                    found = (self.folder / folder / name).stat()
                    if stat.S_ISREG(found.st_mode):
                        sizes[folder + name] = found.st_size
        return sizes

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        (self.folder / name).unlink(missing_ok=True)

    def local(self, name: str, copies: Path) -> Path:
        """Return a file of this machine with this content; `copies` is a folder for copies."""
        return self.folder / name

    def put(self, file: Path, content_type: str) -> None:
        """Have a file of the same disk in the folder under its name, in place of what is there."""
        sync(file)
        file.replace(self.folder / file.name)
        sync(self.folder)

    def is_permanent(self, error: Exception) -> bool:
        """Tell whether an operator must act on an error; a full disk, for example, may pass."""
        return isinstance(error, OSError) and error.errno in _PERMANENT


class FolderStorage(Folder):
    """A folder that is written to.

    Files are written in its subfolder `.parts` and renamed into place. Both folders are made here and never again:
    so a volume that is unmounted while the crawl runs causes an error, and is not replaced by an empty folder.

    Raises:
        OSError: the folder does not exist and cannot be made.

    """

    remedy = "make room, or bring the folder back as it was (with its .parts, which a worker makes at its start)"

    def __init__(self, folder: Path, *, is_synced: bool = False) -> None:
        super().__init__(folder)
        self.is_synced = is_synced  # a lost thumbnail is found missing, and fetched again
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


Store = Folder | S3Storage  # what can be read
Storage = FolderStorage | S3Storage  # what is also written, in several threads


def thumbnail_name(identifier: str, form: str = "JPEG", size: int | None = None) -> str:
    """Return the path of the thumbnail of `identifier` in the storage; it depends on these arguments alone.

    `size` is that of a further thumbnail, beside the one that has no size in its name. The path never leads
    outside. The folder is the first two hex digits of the identifier's SHA-1. Characters outside `[A-Za-z0-9._-]`
    are percent-encoded; a name that would be too long is the SHA-1. Names are ASCII, so that no file system
    normalises them. A case-sensitive file system, or an object store, is needed to keep identifiers apart that
    differ only in case.
    """
    digest = hashlib.sha1(identifier.encode(), usedforsecurity=False).hexdigest()
    name = quote(identifier, safe="._-").replace("~", "%7E")
    if len(name) > _LONGEST_NAME:
        name = digest
    further = "" if size is None else f"@{size}"  # no identifier's own: @ is percent-encoded
    return f"{digest[:2]}/{name}{further}{THUMBNAIL_FORMATS[form].suffix}"


def original_name(sha256: str, form: str) -> str:
    """Return the path of an original by the SHA-256 of its bytes, in hex, and its format."""
    return f"{sha256[:2]}/{sha256}{plugins.file_types()[form].suffix}"


def open_storage(uri: str, settings: Any, *, is_synced: bool = False) -> Storage:
    """Return the storage that a setting names; a relative folder is relative to the project's folder.

    With `is_synced`, what is written outlasts a power cut.

    Raises:
        Exception: see FolderStorage and S3Storage.

    """
    if uri.startswith("s3://"):
        return S3Storage(uri, settings)
    return FolderStorage(folder_of(uri), is_synced=is_synced)


def reader_of(uri: str, settings: Any) -> Callable[[str], bytes]:
    """Return a function that reads a thumbnail by its name. It blocks, and raises the storage's errors."""
    if not uri.startswith("s3://"):
        return Folder(folder_of(uri)).read
    bucket = functools.cache(lambda: S3Storage(uri, settings))
    return lambda name: bucket().read(name)


def folder_of(uri: str) -> Path:
    """Return the folder that a setting names; a relative one is relative to the project's folder."""
    return config.project_dir() / uri.removeprefix("file://")


def is_same_place(one: str, other: str) -> bool:
    """Tell whether two settings name the same storage."""
    if one.startswith("s3://") or other.startswith("s3://"):
        return one == other
    return folder_of(one).resolve() == folder_of(other).resolve()


def check_storage(uri: str, settings: Any, setting: str = "IMAGES_STORE") -> None:
    """Try to write to the storage that `setting` names. Blocks, for half a minute at most.

    Raises:
        ConfigError: it cannot be written now.

    """
    with refusing(setting, uri):
        open_storage(uri, settings).write(PROBE, bytes(PROBE_SIZE))


@contextmanager
def refusing(setting: str, uri: str) -> Iterator[None]:
    """Refuse the start, naming a setting, if what is tried in the context fails.

    Raises:
        ConfigError: it does.

    """
    try:
        yield
    except Exception as error:  # whatever boto and the file system find wrong
        shown = printable(without_secrets(uri), 500)
        said = str(error) if isinstance(error, ConfigError) else described(error)
        raise ConfigError(f"{setting}={shown} cannot be used: {said}") from None


@contextmanager
def reported(store: Store) -> Iterator[None]:
    """Have the errors of a storage say what to do.

    Raises:
        StorageDown: it fails at present; what was tried can be tried again.
        CrawlprojectError: it refuses, until an operator acts.

    """
    try:
        yield
    except CrawlprojectError:
        raise
    except Exception as error:  # whatever boto and the file system find wrong
        if store.is_permanent(error):
            raise CrawlprojectError(f"{store.place} cannot be used: {described(error)}") from None
        raise StorageDown(
            f"{store.place} cannot be used at the moment ({described(error)}): {store.remedy}"
        ) from None


def described(error: Exception) -> str:
    """Return an error of the storage, for a log line."""
    return printable(without_secrets(f"{type(error).__name__}: {error}".strip(": ")), 300)


def is_closing(crawler: Crawler | None) -> bool:
    """Tell whether the crawl closes, so that nothing waits for a storage that hangs."""
    return crawler is not None and runtime_of(crawler).shutdown.has_begun


async def ended(thread: asyncio.Future[T], crawler: Crawler | None) -> T:
    """Return what a thread returns that writes; raise what it raises.

    Raises:
        TimeoutError: it hangs, and is left running; when the crawl closes it has 3 s more.

    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _TIMEOUT_S
    while not (await asyncio.wait((thread,), timeout=_POLL_S))[0]:
        if is_closing(crawler):
            deadline = min(deadline, loop.time() + _CLOSING_S)
        if loop.time() >= deadline:
            raise TimeoutError(f"not done after {_TIMEOUT_S:g} s")
    return thread.result()


class StorageWriter:
    """Writes pictures; when a write fails, finds out whether the storage or that one picture is to blame.

    `what` they are, for messages. Each write that fails is followed by a probe: an object as large, under a fixed
    name, by the same client. If the probe fails, too, the storage is down: nothing is leased and every write is
    refused, until a probe succeeds. If the probe succeeds, the write is tried once more, with another probe; a
    write that fails twice while both probes succeed is a fault of that one picture. What fails while the crawl
    closes is not tried again.

    A write that hangs delays neither the worker nor its shutdown: it has a time-out, and a daemon thread. While a
    probe hangs, no other is started.
    """

    def __init__(self, storage: Storage, crawler: Crawler | None = None, what: str = "thumbnails") -> None:
        self.storage = storage
        self.what = what
        self.crawler = crawler
        self._breaker = Breaker("store", crawler)
        self._places = asyncio.Semaphore(_MAX_WRITES)
        self._probing: asyncio.Future[None] | None = None

    @property
    def outage(self) -> str:
        """What is wrong while the storage is down; "" while it is not."""
        return self._breaker.outage

    async def write(self, name: str, data: bytes, *, once: bool = False) -> None:
        """Store a picture; with `once`, unless one of this name and size is there.

        Raises:
            StorageDown: the storage is down, or the crawl closes before the picture is stored.
            Exception: the storage rejects this one picture; the error is the storage's own.

        """
        async with self._places:
            for last in (False, True):
                if self.outage:
                    raise StorageDown(self.outage)
                error = await self._error_of(self._start(name, data, once))
                if error is None:
                    return
                fault = error if is_closing(self.crawler) else await self._probe(len(data))
                if fault is not None:
                    self._trip(fault, len(data))
                    raise StorageDown(self.outage)
                if last:
                    raise error

    def close(self) -> None:
        """End the probes."""
        self._breaker.close()

    async def _probe(self, size: int) -> Exception | None:
        """Return the error of storing an object of `size` bytes, None if it succeeds; many may ask at once."""
        if self._probing is None or self._probing.done():
            self._probing = self._start(PROBE, bytes(max(size, PROBE_SIZE)))
        return await self._error_of(self._probing)

    async def _error_of(self, write: asyncio.Future[None]) -> Exception | None:
        try:
            await ended(write, self.crawler)
        except Exception as error:  # whatever boto and the file system find wrong
            return error
        return None

    def _trip(self, error: Exception, size: int) -> None:
        self._breaker.trip(
            f"{self.what} cannot be stored in {self.storage.place} ({described(error)}): {self.storage.remedy}; "
            "retrying until they can",
            lambda: self._probe(size),
        )

    def _start(self, name: str, data: bytes, once: bool = False) -> asyncio.Future[None]:
        def write() -> None:
            if not (once and self.storage.has(name, len(data))):
                self.storage.write(name, data)

        return in_thread("store", write)
