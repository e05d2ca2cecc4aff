"""The storage of thumbnails and originals: its interface, and their names."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crawlproject import config, plugins
from crawlproject.errors import ConfigError
from crawlproject.models import THUMBNAIL_FORMATS
from crawlproject.storage.folder import FolderStorage
from crawlproject.storage.s3 import S3Storage
from crawlproject.texts import printable, without_secrets

Storage = FolderStorage | S3Storage  # of thumbnails, or originals; its methods block, in several threads

PROBE = ".probe"  # never the name of a picture: those begin with a folder
PROBE_SIZE = 16_384  # bytes; a nearly full disk would accept a tiny file


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
    return f"{sha256[:2]}/{sha256}{plugins.file_types()[form].suffix}"


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


def described(error: Exception) -> str:
    """Return an error of the storage, for a log line."""
    return printable(without_secrets(f"{type(error).__name__}: {error}".strip(": ")), 300)
