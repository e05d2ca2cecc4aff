"""Numbered parts of a dataset, in a folder or in S3: each appears whole, and only if there is none of its name."""

from __future__ import annotations

import fcntl
import io
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from crawlproject.errors import ConfigError, CrawlprojectError, StorageDown
from crawlproject.storage.blobs import Folder, described, reported, sync
from crawlproject.storage.s3 import S3Storage
from crawlproject.texts import printable

_UNFINISHED = ".part"
_OURS = re.compile(r"\.(\d{8}\.(parquet|tar)|_dataset\.json)\.part")  # unfinished, in a folder
_TOKEN = "crawlproject-part"  # in the metadata of an object: who has put it


class PartExists(CrawlprojectError):
    """There is a part of this name: another process has put it."""


class FolderParts:
    """Parts as files of a folder, for one process at a time. They are written as `.NAME.part`, and renamed.

    Methods block.

    Raises:
        StorageDown: it cannot be reached at present; the call can be repeated.
        CrawlprojectError: it refuses, until an operator acts.

    """

    def __init__(self, path: Path) -> None:
        self._files: dict[str, IO[bytes]] = {}  # unfinished
        self.folder = path.resolve()
        self.name = self.folder.name
        self._store = Folder(self.folder)
        self.place = self._store.place

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the folder, made where it is missing, for one process at a time."""
        with reported(self._store):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / ".lock").open("ab")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CrawlprojectError(
                    f"another scrapy events is writing to {self.place}: stop it, or name another folder"
                ) from None
            with reported(self._store):
                for left in self.folder.iterdir():
                    if _OURS.fullmatch(left.name):
                        left.unlink()  # by a process that died
            yield

    def names(self) -> list[str]:
        """Return the names of the files."""
        with reported(self._store):
            return [path.name for path in self.folder.iterdir() if not path.name.startswith(".")]

    def create(self, name: str) -> IO[bytes]:
        """Create a file in the same folder: what is renamed must be on the same file system."""
        with reported(self._store):
            file = self._files[name] = self._unfinished(name).open("wb")
        return file

    def _unfinished(self, name: str) -> Path:
        return self.folder / f".{name}{_UNFINISHED}"

    def read(self, name: str) -> IO[bytes]:
        """Open a file."""
        with reported(self._store):
            return (self.folder / name).open("rb")

    def put_new(self, name: str) -> None:
        """Give the file its name, unless there is one of that name, and have both outlast a power cut.

        Raises:
            PartExists: there is, and it is another's.

        """
        path = self.folder / name
        with self._whole(name) as part:
            if path.exists():
                raise PartExists(f"{path} was written by another process meanwhile")
            part.replace(path)

    def replace(self, name: str) -> None:
        """Rename the file."""
        with self._whole(name) as part:
            part.replace(self.folder / name)

    @contextmanager
    def _whole(self, name: str) -> Iterator[Path]:
        """Have an unfinished file on disk, and then the name that it is given."""
        file = self._files[name]
        with reported(self._store):
            file.flush()
            os.fsync(file.fileno())
            yield self._unfinished(name)
            sync(self.folder)
        self._files.pop(name).close()


class S3Parts:
    """Parts as objects of a bucket, written to files in TMPDIR first, which vanish with this process.

    They are put with a condition, `If-None-Match: *`: of two processes one is refused, whatever happens to either.
    A request whose answer was lost is known by a token in the object's metadata. Methods raise as FolderParts'.
    """

    def __init__(self, uri: str, settings: Any) -> None:
        uri = uri.rstrip("/") + "/"
        self.name = uri.split("/")[-2]
        self._token = secrets.token_hex(8)
        self._files: dict[str, IO[bytes]] = {}  # unfinished
        try:
            self._s3 = S3Storage(uri, settings)
        except ConfigError:  # there is no boto
            raise
        except Exception as error:  # whatever boto finds wrong
            raise CrawlprojectError(f"{printable(uri)} cannot be used: {described(error)}") from None
        self.place = self._s3.place

    def opened(self) -> AbstractContextManager[None]:
        """Return a context that keeps nobody out."""
        return nullcontext()

    def names(self) -> list[str]:
        """Return the names of the objects, but of those in folders of it."""
        with reported(self._s3):
            return list(self._s3.sizes())

    def create(self, name: str) -> IO[bytes]:
        """Create a file without a name."""
        try:
            file = self._files[name] = tempfile.TemporaryFile()  # noqa: SIM115
        except OSError as error:
            raise CrawlprojectError(
                f"no file for parts of {self.place} can be made in {tempfile.gettempdir()}: {described(error)}; "
                "name another folder in TMPDIR"
            ) from None
        return file

    def read(self, name: str) -> IO[bytes]:
        """Get an object."""
        with reported(self._s3):
            return io.BytesIO(self._s3.read(name))

    def put_new(self, name: str) -> None:
        """Put the object, unless there is one."""
        from botocore.exceptions import ClientError

        with reported(self._s3):
            try:
                self._put(name, IfNoneMatch="*")
            except ClientError as error:
                status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
                if status == 409:  # another one is being put at this moment
                    raise StorageDown(f"{self.place} has another request for {name} under way") from None
                if status != 412:
                    raise
                if ((self._s3.head(name, 404) or {}).get("Metadata") or {}).get(_TOKEN) != self._token:
                    raise PartExists(f"{name} in {self.place} was written by another process meanwhile") from None
        self._files.pop(name).close()

    def replace(self, name: str) -> None:
        """Put the object, whatever there is."""
        with reported(self._s3):
            self._put(name)
        self._files.pop(name).close()

    def _put(self, name: str, **condition: str) -> None:
        file = self._files[name]
        file.seek(0)
        self._s3.client.put_object(
            Bucket=self._s3.bucket,
            Key=self._s3.prefix + name,
            Body=file,
            Metadata={_TOKEN: self._token},
            **condition,
        )


Parts = FolderParts | S3Parts


def parts_of(uri: str, settings: Any) -> Parts:
    """Return where the parts of a dataset are, by its URI: `s3://BUCKET/PREFIX`, or a folder.

    Raises:
        CrawlprojectError: boto rejects the settings.

    """
    if uri.startswith("s3://"):
        return S3Parts(uri, settings)
    with suppress(RuntimeError):  # there is no such user
        return FolderParts(Path(uri.removeprefix("file://")).expanduser())
    return FolderParts(Path(uri))
