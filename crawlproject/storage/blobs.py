"""Where thumbnails are kept, and under which names."""

from __future__ import annotations

import errno
import functools
import hashlib
import itertools
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from crawlproject import config
from crawlproject.errors import ConfigError
from crawlproject.texts import printable, without_userinfo

PROBE = ".probe"  # no thumbnail's name: those begin with a folder
PROBE_SIZE = 16_384  # bytes; a nearly full disk takes a tiny file for long

_LONGEST_NAME = 200  # bytes of a file name; file systems take 255
_PARTS = ".parts"
_PARTS_KEPT = 86_400.0  # seconds that a file half written may still be somebody's

# What an operator must change; other trouble of a folder (a full disk, an input/output error) may pass.
_LASTING = frozenset(
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

    def is_lasting(self, error: Exception) -> bool:
        """Tell whether what `write` raised cannot pass by itself."""


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
            if self.is_lasting(error):
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
                if time.time() - part.stat().st_mtime > _PARTS_KEPT:
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

    def is_lasting(self, error: Exception) -> bool:
        """Tell a folder that cannot be written from a disk that is full."""
        return isinstance(error, OSError) and error.errno in _LASTING


class S3Storage:
    """Thumbnails as objects of an S3 bucket. Scrapy's `AWS_*` settings apply; unset ones are boto's defaults.

    Not Scrapy's `S3FilesStore`: that writes from the reactor's pool, which names are resolved in, and sends
    an ACL, which buckets refuse by default since 2023.

    Raises:
        Exception: the settings make no sense to boto.

    """

    remedy = "see to the store, its bucket and the AWS_* settings"

    def __init__(self, uri: str, settings: Any) -> None:
        import boto3
        from botocore.config import Config as BotoConfig

        parts = urlsplit(uri)
        self.bucket, self.prefix = parts.netloc, parts.path.lstrip("/")
        endpoint = settings.get("AWS_ENDPOINT_URL")
        self.place = printable(uri + (f" at {without_userinfo(endpoint)}" if endpoint else ""), 500)
        options = {
            "endpoint_url": endpoint,
            "aws_access_key_id": settings.get("AWS_ACCESS_KEY_ID"),
            "aws_secret_access_key": settings.get("AWS_SECRET_ACCESS_KEY"),
            "aws_session_token": settings.get("AWS_SESSION_TOKEN"),
            "region_name": settings.get("AWS_REGION_NAME"),
            "use_ssl": settings.get("AWS_USE_SSL"),
            "verify": settings.get("AWS_VERIFY"),
        }
        # By boto's defaults (60 s to connect, 60 s to read, five attempts) a dead endpoint hangs for minutes.
        limits = BotoConfig(
            max_pool_connections=16,
            connect_timeout=5,
            read_timeout=10,
            retries={"mode": "standard", "total_max_attempts": 2},
        )
        given = {name: value for name, value in options.items() if value is not None}
        self.client = boto3.client("s3", config=limits, **given)

    def write(self, name: str, data: bytes) -> None:
        """Put the object; S3 replaces it as a whole."""
        self.client.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=data, ContentType="image/jpeg")

    def read(self, name: str) -> bytes:
        """Get the object."""
        body: bytes = self.client.get_object(Bucket=self.bucket, Key=self.prefix + name)["Body"].read()
        return body

    def is_lasting(self, error: Exception) -> bool:
        """Tell what S3 refuses from what it does not manage now, and from an endpoint that does not answer."""
        from botocore import exceptions as boto

        if isinstance(error, boto.ClientError):
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
            code = error.response.get("Error", {}).get("Code")
            return status < 500 and status not in {408, 429} and code not in {"RequestTimeout", "SlowDown"}
        if isinstance(error, boto.SSLError):
            return "CERTIFICATE_VERIFY_FAILED" in str(error)
        passing = (boto.HTTPClientError, boto.ConnectionError, boto.CredentialRetrievalError)
        return isinstance(error, (boto.BotoCoreError, ValueError)) and not isinstance(error, passing)


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
        if store.is_lasting(error):
            raise ConfigError(f"IMAGES_STORE={store.place} cannot be written: {described(error)}") from None
        return f"thumbnails cannot be stored in {store.place} at present ({described(error)}): {store.remedy}"
    return None


def described(error: Exception) -> str:
    """Return what a store says, for a log line."""
    return printable(without_userinfo(f"{type(error).__name__}: {error}".strip(": ")), 300)
