"""Where thumbnails are kept, and under which names."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from crawlproject import config
from crawlproject.errors import ConfigError
from crawlproject.storage.folder import FolderStorage
from crawlproject.storage.s3 import S3Storage
from crawlproject.texts import printable, without_userinfo

PROBE = ".probe"  # no thumbnail's name: those begin with a folder
PROBE_SIZE = 16_384  # bytes; a nearly full disk takes a tiny file for long

_LONGEST_NAME = 200  # bytes of a file name; file systems take 255


def thumbnail_name(identifier: str) -> str:
    """Return where the thumbnail of `identifier` lies in the store: by the identifier alone, and never outside.

    The first two hex digits of its SHA-1 are the folder. Characters outside `[A-Za-z0-9._-]` are
    percent-encoded; a name that gets too long is the SHA-1. Names are ASCII, so that no file system
    normalises them. Two identifiers that differ in the case of letters alone are kept apart by a
    file system that tells cases apart, and by every object store; others are not what to keep thumbnails on.
    """
    digest = hashlib.sha1(identifier.encode(), usedforsecurity=False).hexdigest()
    name = re.sub("~", "%7E", quote(identifier, safe="._-"))
    if len(name) > _LONGEST_NAME:
        name = digest
    return f"{digest[:2]}/{name}.jpg"


class Storage(Protocol):
    """Where thumbnails are kept. `write` blocks, may be called from several threads, and replaces."""

    @property
    def place(self) -> str:
        """The store's name for messages."""

    @property
    def remedy(self) -> str:
        """What an operator can do when it fails."""

    def write(self, name: str, data: bytes) -> None:
        """Store `data` under `name`, wholly or not at all."""

    def is_permanent(self, error: Exception) -> bool:
        """Tell whether what `write` raised cannot pass by itself."""


def open_storage(uri: str, settings: Any) -> Storage:
    """Return the store that `IMAGES_STORE` names; a relative folder is one of the project's.

    Raises:
        Exception: see FolderStorage and S3Storage.

    """
    if uri.startswith("s3://"):
        return S3Storage(uri, settings)
    return FolderStorage(_folder_of(uri))


def reader_of(uri: str, settings: Any) -> Callable[[str], bytes]:
    """Return what reads a thumbnail by its name, and makes nothing; it blocks, and raises what the store says."""
    if not uri.startswith("s3://"):
        folder = _folder_of(uri)
        return lambda name: (folder / name).read_bytes()
    store = functools.cache(lambda: S3Storage(uri, settings))
    return lambda name: store().read(name)


def _folder_of(uri: str) -> Path:
    return config.project_dir() / uri.removeprefix("file://")


def check_storage(uri: str, settings: Any) -> str | None:
    """Try to write to the store that `IMAGES_STORE` names; return what keeps us from it for now, None if nothing.

    Blocks, for half a minute at most. What may pass by itself is no reason not to start: workers that a
    supervisor starts again during an outage would only run in circles. They wait, as they do later on.

    Raises:
        ConfigError: it cannot be written, and that will not pass.

    """
    try:
        store = open_storage(uri, settings)
    except Exception as error:  # whatever boto and the file system find wrong
        raise ConfigError(f"IMAGES_STORE={printable(uri, 500)} cannot be used: {described(error)}") from None
    try:
        store.write(PROBE, bytes(PROBE_SIZE))
    except Exception as error:
        if store.is_permanent(error):
            raise ConfigError(f"IMAGES_STORE={store.place} cannot be written: {described(error)}") from None
        return f"thumbnails cannot be stored in {store.place} at present ({described(error)}): {store.remedy}"
    return None


def described(error: Exception) -> str:
    """Return what a store says, for a log line."""
    return printable(without_userinfo(f"{type(error).__name__}: {error}".strip(": ")), 300)
