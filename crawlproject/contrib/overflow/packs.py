"""Extents of packs: requests, compressed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgpack

from crawlproject.storage.blobs import PROBE, PROBE_SIZE, Storage

_MOST_BYTES = 256 * 1024 * 1024  # of an extent, decompressed


def probe(packs: Storage) -> None:
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
