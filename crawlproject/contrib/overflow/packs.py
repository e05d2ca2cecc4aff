"""Packs of extents: files of a folder, or objects of S3. What an extent is: requests, compressed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgpack

from crawlproject.storage.blobs import PROBE, PROBE_SIZE, FolderStorage, folder_of
from crawlproject.storage.s3 import S3Storage

_MOST_BYTES = 256 * 1024 * 1024  # of an extent, decompressed


class FolderPacks(FolderStorage):
    """Packs as files of a folder, which all workers share."""

    is_synced = True

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Read a part of a file."""
        with (self.folder / name).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def exists(self, name: str) -> bool:
        """Tell whether the file is there; OSError where the whole folder is not."""
        self.parts.stat()
        return (self.folder / name).exists()

    def names(self, folder: str) -> list[str]:
        """List the files."""
        with suppress(FileNotFoundError):
            return [f"{folder}/{path.name}" for path in (self.folder / folder).iterdir()]
        return []

    def remove(self, name: str) -> None:
        """Remove the file."""
        (self.folder / name).unlink(missing_ok=True)


class S3Packs(S3Storage):
    """Packs as objects of a bucket."""

    def exists(self, name: str) -> bool:
        """Tell whether the object is there."""
        return self.head(name, 404) is not None

    def names(self, folder: str) -> list[str]:
        """List the objects."""
        return list(self.sizes(f"{folder}/"))

    def remove(self, name: str) -> None:
        """Delete the object."""
        self.client.delete_object(Bucket=self.bucket, Key=self.prefix + name)


Packs = FolderPacks | S3Packs  # by their names, `folder/name`; methods block, and raise the store's errors


def open_packs(uri: str, settings: Any) -> Packs:
    """Return the store that `CRAWL_OVERFLOW_STORE` names; a relative folder is relative to the project's folder.

    Raises:
        Exception: see FolderStorage and S3Storage.

    """
    if uri.startswith("s3://"):
        return S3Packs(uri, settings)
    return FolderPacks(folder_of(uri))


def probe(packs: Packs) -> None:
    """Try whether the store takes something as large as a small pack, and gives a part of it; else an OSError."""
    data = bytes(range(256)) * (PROBE_SIZE // 256)
    packs.write(PROBE, data)
    if packs.read(PROBE, 1000, 100) != data[1000:1100]:
        raise OSError("a part of what was written is read as something else")


def compressed(entries: Sequence[bytes]) -> bytes:
    """Return the extent of these requests."""
    return zlib.compress(msgpack.packb(list(entries)), 1)


def decompressed(extent: bytes) -> list[bytes]:
    """Return the requests of an extent.

    Raises:
        ValueError: it is not whole, or not an extent.

    """
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(extent, _MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"extent cannot be read: {error}") from None
    if not decompressor.eof:
        raise ValueError("extent is not whole")
    entries: list[bytes] = msgpack.unpackb(data)
    return entries
