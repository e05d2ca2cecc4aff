"""Numbered parts of a dataset, in a folder or in S3: each appears whole, and only if there is none of its name."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

from crawlproject.errors import CrawlprojectError, StorageDown
from crawlproject.storage import folder
from crawlproject.storage.blobs import described
from crawlproject.storage.s3 import S3Storage
from crawlproject.texts import printable

_UNFINISHED = ".part"
_OURS = re.compile(r"\.(\d{8}(\.parquet|\.tar|_stats\.json)|_dataset\.json)\.part")  # unfinished, in a folder
_LOCAL = "crawlproject-dataset-"  # what the names of folders begin with in which parts are written for S3
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})  # of a file system without
_TOKEN = "crawlproject-part"  # in the metadata of an object: who has put it


class PartExists(CrawlprojectError):
    """There is a part of this name: another process has put it."""


class Parts(Protocol):
    """Where the parts of a dataset are. Methods block.

    Raises:
        StorageDown: it cannot be reached at present; the call can be repeated.
        CrawlprojectError: it refuses, until an operator acts.

    """

    name: str  # short
    place: str  # for messages
    keeps_notes: bool  # with what is put; where it does not, one process at a time is here

    def opened(self) -> Any:
        """Return a context within which the rest may be called: for one process at a time, but in S3."""

    def names(self) -> list[str]:
        """Return the names of all that is here, but of what is unfinished."""

    def unfinished(self, name: str) -> Path:
        """Return the local file to write what shall be `name`; it is gone once that is put."""

    def read(self, name: str) -> IO[bytes]:
        """Return something that is here, to read from."""

    def noted(self, name: str) -> str | None:
        """Return the note that something was put with; None where it is not here, or notes are not kept."""

    def put_new(self, name: str, note: str = "") -> None:
        """Have what was written appear, on disk for good.

        Raises:
            PartExists: there is something of that name, which this did not put.

        """

    def replace(self, name: str) -> None:
        """Have what was written appear in place of what there may be of that name."""


class FolderParts:
    """Parts as files of a folder. They are written beside each other, as `.NAME.part`, and renamed."""

    keeps_notes = False

    def __init__(self, path: Path) -> None:
        self.folder = path.resolve()
        self.name = self.folder.name
        self.place = printable(str(self.folder), 500)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the folder, made where it is missing, for one process at a time."""
        with self._reported():
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / ".lock").open("ab")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CrawlprojectError(
                    f"another scrapy events is writing to {self.place}: stop it, or name another folder"
                ) from None
            with self._reported():
                for left in self.folder.iterdir():
                    if _OURS.fullmatch(left.name):
                        left.unlink()  # by a process that died
            yield

    def names(self) -> list[str]:
        """Return the names of the files."""
        with self._reported():
            return [path.name for path in self.folder.iterdir() if not path.name.startswith(".")]

    def unfinished(self, name: str) -> Path:
        """Return a file in the same folder: what is renamed must be on the same file system."""
        return self.folder / f".{name}{_UNFINISHED}"

    def read(self, name: str) -> IO[bytes]:
        """Open a file."""
        with self._reported():
            return (self.folder / name).open("rb")

    def noted(self, name: str) -> str | None:
        """Return None: what is without its last file was left by a process that died, and is replaced."""
        return None

    def put_new(self, name: str, note: str = "") -> None:
        """Give the file its name, which is refused where there is one, and have both outlast a power cut.

        A file system without hard links (exFAT, some network drives) cannot refuse it: there the lock alone keeps
        other processes out.
        """
        part, path = self.unfinished(name), self.folder / name
        with self._reported():
            self._sync(part)
            try:
                try:
                    os.link(part, path)
                except OSError as error:
                    if error.errno not in _NO_LINKS:
                        raise
                    if path.exists():
                        raise FileExistsError from None
                    part.replace(path)
            except FileExistsError:
                raise PartExists(f"{path} was written by another process meanwhile") from None
            part.unlink(missing_ok=True)
            self._sync(self.folder)

    def replace(self, name: str) -> None:
        """Rename the file."""
        part = self.unfinished(name)
        with self._reported():
            self._sync(part)
            part.replace(self.folder / name)
            self._sync(self.folder)

    @staticmethod
    def _sync(path: Path) -> None:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if folder.is_permanent(error):
                raise CrawlprojectError(f"{self.place} cannot be used: {described(error)}") from None
            raise StorageDown(
                f"{self.place} cannot be used at the moment ({described(error)}): make room, or bring it back"
            ) from None


class S3Parts:
    """Parts as objects of a bucket, written to a temporary folder of this machine first.

    They are put with a condition, `If-None-Match: *`: of two processes one is refused, whatever happens to either.
    A request whose answer was lost is known by a token in the object's metadata.
    """

    keeps_notes = True

    def __init__(self, uri: str, settings: Any) -> None:
        uri = uri.rstrip("/") + "/"
        self.name = uri.split("/")[-2]
        self._token = secrets.token_hex(8)
        try:
            self._s3 = S3Storage(uri, settings)
        except Exception as error:  # whatever boto finds wrong
            raise CrawlprojectError(f"{printable(uri)} cannot be used: {described(error)}") from None
        self.place = self._s3.place

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Have a folder for what is unfinished, and remove those of processes that died."""
        with ExitStack() as stack:
            try:
                _sweep()
                self._local = stack.enter_context(_local_folder())
            except OSError as error:
                raise CrawlprojectError(
                    f"no folder for parts of {self.place} can be made in {tempfile.gettempdir()}: "
                    f"{described(error)}; name one in TMPDIR"
                ) from None
            yield

    def names(self) -> list[str]:
        """Return the names of the objects, but of those in folders of it."""
        names: list[str] = []
        with self._reported():
            pages = self._s3.client.get_paginator("list_objects_v2").paginate(
                Bucket=self._s3.bucket, Prefix=self._s3.prefix, Delimiter="/"
            )
            for page in pages:
                names += [found["Key"].removeprefix(self._s3.prefix) for found in page.get("Contents", ())]
        return names

    def unfinished(self, name: str) -> Path:
        """Return a file of the temporary folder."""
        return self._local / name

    def read(self, name: str) -> IO[bytes]:
        """Get an object."""
        with self._reported():
            return io.BytesIO(self._s3.read(name))

    def noted(self, name: str) -> str | None:
        """Return the object's note."""
        return self._metadata(name).get("note")

    def put_new(self, name: str, note: str = "") -> None:
        """Put the object, unless there is one."""
        from botocore.exceptions import ClientError

        path = self.unfinished(name)
        with self._reported(), path.open("rb") as file:
            try:
                self._put(name, file, {_TOKEN: self._token, "note": note}, IfNoneMatch="*")
            except ClientError as error:
                status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
                if status == 409:  # another one is being put at this moment
                    raise StorageDown(f"{self.place} has another request for {name} under way") from None
                if status != 412:
                    raise
                if self._metadata(name).get(_TOKEN) != self._token:
                    raise PartExists(f"{name} in {self.place} was written by another process meanwhile") from None
        path.unlink()

    def replace(self, name: str) -> None:
        """Put the object, whatever there is."""
        path = self.unfinished(name)
        with self._reported(), path.open("rb") as file:
            self._put(name, file, {})
        path.unlink()

    def _put(self, name: str, file: IO[bytes], metadata: dict[str, str], **condition: str) -> None:
        self._s3.client.put_object(
            Bucket=self._s3.bucket, Key=self._s3.prefix + name, Body=file, Metadata=metadata, **condition
        )

    def _metadata(self, name: str) -> dict[str, str]:
        from botocore.exceptions import ClientError

        with self._reported():
            try:
                found = self._s3.client.head_object(Bucket=self._s3.bucket, Key=self._s3.prefix + name)
            except ClientError as error:
                if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 404:
                    return {}
                raise
        return dict(found["Metadata"])

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except CrawlprojectError:
            raise
        except Exception as error:  # whatever boto finds wrong
            if self._s3.is_permanent(error):
                raise CrawlprojectError(f"{self.place} cannot be used: {described(error)}") from None
            raise StorageDown(
                f"{self.place} cannot be used at the moment ({described(error)}): {self._s3.remedy}"
            ) from None


@contextmanager
def _local_folder() -> Iterator[Path]:
    """Create a folder in TMPDIR, locked while this process lives, and remove it in the end."""
    while True:
        with tempfile.TemporaryDirectory(prefix=_LOCAL, ignore_cleanup_errors=True) as path, _held(path) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if os.fstat(handle).st_nlink:  # not swept by another process before it was locked
                yield Path(path)
                return


def _sweep() -> None:
    """Remove such folders of this user whose process has died: of up to 4 GiB each."""
    for path in Path(tempfile.gettempdir()).glob(f"{_LOCAL}*"):
        with (
            suppress(FileNotFoundError, NotADirectoryError, PermissionError, BlockingIOError),
            _held(path) as handle,
        ):
            if os.fstat(handle).st_uid == os.geteuid():
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)


@contextmanager
def _held(folder: str | Path) -> Iterator[int]:
    """Open a folder, and close it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def parts_of(uri: str, settings: Any) -> FolderParts | S3Parts:
    """Return where the parts of a dataset are, by its URI: `s3://BUCKET/PREFIX`, or a folder.

    Raises:
        CrawlprojectError: boto rejects the settings.

    """
    if uri.startswith("s3://"):
        return S3Parts(uri, settings)
    with suppress(RuntimeError):  # there is no such user
        return FolderParts(Path(uri.removeprefix("file://")).expanduser())
    return FolderParts(Path(uri))
