"""The storage of thumbnails and originals: its interface, and their names."""

from __future__ import annotations

import functools
import hashlib
import logging
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from crawlproject import config
from crawlproject.errors import ConfigError, CrawlprojectError, StorageDown
from crawlproject.models import ORIGINALS, THUMBNAIL_FORMATS
from crawlproject.storage.folder import FolderStorage, is_permanent
from crawlproject.storage.s3 import S3Storage
from crawlproject.texts import printable, without_secrets

logger = logging.getLogger(__name__)

PROBE = ".probe"  # never the name of a picture: those begin with a folder
PROBE_SIZE = 16_384  # bytes; a nearly full disk would accept a tiny file

_TRIES, _PAUSE_S = 3, 0.2  # for a picture that cannot be read
_MOST_IN_A_ROW = 20  # files that cannot be read: what says that others can may be in the system's memory

_LONGEST_NAME = 200  # bytes of a file name; file systems take 255


def thumbnail_name(identifier: str, form: str = "JPEG", size: int | None = None) -> str:
    """Return the path of the thumbnail of `identifier` in the storage; it depends on these arguments alone.

    `size` is that of a further thumbnail, beside the one that has no size in its name. The path never leads
    outside. The folder is the first two hex digits of the identifier's SHA-1. Characters outside `[A-Za-z0-9._-]`
    are percent-encoded; a name that would be too long is the SHA-1. Names are ASCII, so that no file system
    normalises them. A case-sensitive file system, or an object store, is needed to keep identifiers apart that
    differ only in case.
    """
    digest = hashlib.sha1(identifier.encode(), usedforsecurity=False).hexdigest()
    name = re.sub("~", "%7E", quote(identifier, safe="._-"))
    if len(name) > _LONGEST_NAME:
        name = digest
    further = "" if size is None else f"@{size}"  # no identifier's own: @ is percent-encoded
    return f"{digest[:2]}/{name}{further}{THUMBNAIL_FORMATS[form].suffix}"


def original_name(sha256: str, form: str) -> str:
    """Return the path of an original by the SHA-256 of its bytes, in hex, and its format."""
    return f"{sha256[:2]}/{sha256}{ORIGINALS[form].suffix}"


class Storage(Protocol):
    """Stores thumbnails, or originals. `write` and `has` block, and may be called from several threads."""

    @property
    def place(self) -> str:
        """The storage's name for messages."""

    @property
    def remedy(self) -> str:
        """What an operator can do when it fails."""

    def write(self, name: str, data: bytes) -> None:
        """Store `data` under `name`, wholly or not at all; what is there is replaced."""

    def has(self, name: str, size: int) -> bool:
        """Tell whether something of `size` bytes is stored under `name`."""

    def is_permanent(self, error: Exception) -> bool:
        """Tell whether an error raised by `write` persists until an operator acts."""


def open_storage(uri: str, settings: Any) -> Storage:
    """Return the storage that a setting names; a relative folder is relative to the project's folder.

    Raises:
        Exception: see FolderStorage and S3Storage.

    """
    if uri.startswith("s3://"):
        return S3Storage(uri, settings)
    return FolderStorage(folder_of(uri))


def reader_of(uri: str, settings: Any) -> Callable[[str], bytes]:
    """Return a function that reads a thumbnail by its name. It blocks, and raises the storage's errors."""
    if not uri.startswith("s3://"):
        folder = folder_of(uri)
        return lambda name: (folder / name).read_bytes()
    bucket = functools.cache(lambda: S3Storage(uri, settings))
    return lambda name: bucket().read(name)


def lookup_of(
    uri: str, settings: Any, setting: str = "IMAGES_STORE", say: Callable[[str], object] = logger.warning
) -> Callable[[str], bytes | None]:
    """Return a function that reads a picture by its name: None where there is none of that name.

    `setting` is what names the storage. The function blocks, may be called from several threads, and raises

        StorageDown: the storage fails at present.
        CrawlprojectError: it refuses, until an operator acts.

    A picture that cannot be read while another one can is as if it were missing, and `say` is told of it.
    """
    return _LookUp(uri, settings, setting, say).look_up


class _LookUp:
    """Reads pictures by their names; see `lookup_of`."""

    def __init__(self, uri: str, settings: Any, setting: str, say: Callable[[str], object]) -> None:
        self._uri, self._settings, self._say = uri, settings, say
        self._read, self._in_folder = reader_of(uri, settings), not uri.startswith("s3://")
        self._place = f"{setting}={printable(uri, 500)}"
        self._good = PROBE  # what could be read the last time; workers have written the probe
        self._in_a_row = 0  # files that could not be read

    def look_up(self, name: str) -> bytes | None:
        from botocore.exceptions import ClientError

        tries = _TRIES
        while True:
            tries -= 1
            try:
                data = self._read(name)
            except FileNotFoundError as error:
                if folder_of(self._uri).is_dir():
                    return None
                raise StorageDown(f"{self._place} is not there: {described(error)}") from None
            except ClientError as error:
                code = error.response.get("Error", {}).get("Code")
                if code == "NoSuchKey" or (code == "AccessDenied" and self._is_alone(name, error)):
                    return None
                raise self._refusal(error) from None
            except OSError as error:
                if self._in_folder and tries:
                    time.sleep(_PAUSE_S)
                    continue
                if self._in_folder and self._in_a_row < _MOST_IN_A_ROW and self._is_alone(name, error):
                    self._in_a_row += 1
                    return None
                raise self._refusal(error) from None
            except Exception as error:  # whatever boto finds wrong
                raise self._refusal(error) from None
            self._good, self._in_a_row = name, 0
            return data

    def _is_alone(self, name: str, error: Exception) -> bool:
        """Tell whether something else can be read, so that the error is that of one picture, and say so.

        S3 forbids what is not there to those who may not list its bucket.
        """
        try:
            self._read(self._good)
        except Exception:  # the first error is the one to report
            return False
        self._say(f"{self._place} has {name}, which cannot be read, as if it were missing: {described(error)}")
        return True

    def _refusal(self, error: Exception) -> CrawlprojectError:
        what = f"{self._place} cannot be read"
        of_s3 = None if self._in_folder else S3Storage(self._uri, self._settings)
        if is_permanent(error) if of_s3 is None else of_s3.is_permanent(error):
            return ConfigError(f"{what}: {described(error)}")
        return StorageDown(f"{what} at the moment: {described(error)}")


def finder_of(uri: str, settings: Any) -> Callable[[str], datetime | None]:
    """Return a function that says when a thumbnail was stored, None if there is none.

    It blocks, and raises the storage's errors.
    """
    if not uri.startswith("s3://"):
        folder = folder_of(uri)
        return lambda name: _time_of(folder / name)
    bucket = functools.cache(lambda: S3Storage(uri, settings))
    return lambda name: bucket().stored_at(name)


def _time_of(file: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


def folder_of(uri: str) -> Path:
    """Return the folder that a setting names; a relative one is relative to the project's folder."""
    return config.project_dir() / uri.removeprefix("file://")


def is_same_place(one: str, other: str) -> bool:
    """Tell whether two settings name the same storage."""
    if one.startswith("s3://") or other.startswith("s3://"):
        return one == other
    return folder_of(one).resolve() == folder_of(other).resolve()


def check_storage(uri: str, settings: Any, setting: str = "IMAGES_STORE", what: str = "thumbnails") -> str | None:
    """Try to write to the storage that `setting` names; return why that fails for now, None if it succeeds.

    Blocks, for half a minute at most. A temporary error does not prevent the start: during an outage a supervisor
    would only restart the workers over and over. They wait, as they do later on.

    Raises:
        ConfigError: it cannot be written, and the error is permanent.

    """
    try:
        storage = open_storage(uri, settings)
    except Exception as error:  # whatever boto and the file system find wrong
        raise ConfigError(f"{setting}={printable(uri, 500)} cannot be used: {described(error)}") from None
    trouble = check_write(
        f"{setting}={storage.place}", lambda: storage.write(PROBE, bytes(PROBE_SIZE)), storage.is_permanent
    )
    return trouble and f"{what} cannot be stored in {storage.place} at the moment ({trouble}): {storage.remedy}"


def check_write(where: str, write: Callable[[], object], is_lasting: Callable[[Exception], bool]) -> str | None:
    """Try to write; return the error that may pass, None if it succeeds.

    Raises:
        ConfigError: an error that lasts.

    """
    try:
        write()
    except Exception as error:  # whatever boto and the file system find wrong
        if is_lasting(error):
            raise ConfigError(f"{where} cannot be written: {described(error)}") from None
        return described(error)
    return None


def described(error: Exception) -> str:
    """Return an error of the storage, for a log line."""
    return printable(without_secrets(f"{type(error).__name__}: {error}".strip(": ")), 300)
