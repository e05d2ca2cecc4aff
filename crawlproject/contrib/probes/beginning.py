"""The facts in the beginning of a picture: size, quality, EXIF. No pixel is decoded, and no canvas allocated.

What follows the beginning is unknown, and so is what a format may have there. Pillow opens a picture, without
decoding it, where it reads nothing beyond. Not the package imagesize, which swaps the sides of pictures that EXIF
has turned. The bytes may be anything.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, NamedTuple

from crawlproject.contrib.probes.events import PROBE_BYTES, ProbedFacts
from crawlproject.imaging import headers
from crawlproject.imaging.analyse import (
    begins_like,
    check_size,
    measured,
    opened,
    reason_of,
)
from crawlproject.imaging.codings import decoded_beginning
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.imaging.headers import estimate_quality, read_exif, stored_size
from crawlproject.imaging.messages import Job

_Size = tuple[int, int]

_EXIF_IN_PNG = re.compile(rb"eXIf|[tzi]TXt")  # kinds of chunks
_SIZE_IN_AVIF = re.compile(rb"ispe....(........)", re.DOTALL)


class _Found(NamedTuple):
    """What is known of a picture, None for what may come later; `exif` is empty when there is none."""

    size: _Size | None = None
    quality: int | None = None
    exif: Mapping[str, Any] | None = None


def inspect_beginning(body: bytes, codings: Sequence[str], job: Job) -> dict[str, Any]:
    """Return the facts in the beginning of a picture, which has these content codings (imaging/analyse.py)."""
    return asdict(read_beginning(decoded_beginning(body, codings, PROBE_BYTES), job, whole=False))


def inspect_whole(body: bytes, codings: Sequence[str], job: Job) -> dict[str, Any]:
    """Return the facts in a whole picture, which without its content codings may be more than a beginning."""
    data = decoded_beginning(body, codings, PROBE_BYTES)
    return asdict(read_beginning(data, job, whole=not codings or len(data) < PROBE_BYTES))


def read_beginning(data: bytes, job: Job, *, whole: bool) -> ProbedFacts:
    """Return what `data`, the beginning of a picture in one of the job's formats, or the `whole` of it, says.

    Of a format whose pixels a plug-in decodes that is nothing else: its library may want all of it, and turn it.

    Raises:
        UnreadableImage: it is none, or none that would be decoded: of too many pixels, or without a size.

    """
    if not data:
        raise UnreadableImage("empty body")
    name = next((each for each in job.formats if job.has_pixels(each) and begins_like(each, data, job)), "")
    found = _Found()
    is_left_open = name in job.plugins
    try:
        if not name:
            name, measures = measured(data, job)
            found = _Found(measures, exif={})
        elif not is_left_open:
            found = _Found(_png_size(data) if name == "PNG" else None)
            found = _read(name, data, whole)
    except (MemoryError, UnreadableImage):
        raise
    except Exception as error:  # of what is broken, or ends here, anything is raised
        if whole:
            raise UnreadableImage(reason_of(name, error)) from error
    size = found.size
    if (size is None and whole and not is_left_open) or (size is not None and min(size) < 1):
        raise UnreadableImage(f"{name}: broken header, or no width or height")
    if size is not None and job.has_pixels(name):
        check_size(name, size, job.max_pixels, math.inf, 0)
    digest = hashlib.sha256(data).hexdigest() if whole else None
    width, height = size or (None, None)
    return ProbedFacts(name, width, height, found.quality, found.exif, digest)


def _read(name: str, data: bytes, whole: bool) -> _Found:
    if name == "WEBP":  # Pillow wants all of it, and allocates a canvas
        header = headers.webp(data.ljust(30, b"\0") if whole else data)
        return _Found(None if header is None else header[:2], exif=None if _may_have_exif(data) else {})
    if name == "AVIF" and not whole:  # libavif wants all of it
        return _Found(_avif_size(data))
    if name in headers.BOUNDS:
        with suppress(struct.error, OverflowError):  # it ends here, or is broken
            headers.BOUNDS[name](data)
    image = opened(data, [name])
    exif = read_exif(image) or {}
    # That of a PNG may come after its pixels, that of a TIFF anywhere.
    is_known = {"PNG": exif or (whole and _EXIF_IN_PNG.search(data) is None), "TIFF": whole}.get(name, True)
    quality = estimate_quality(getattr(image, "quantization", {}))
    return _Found(stored_size(image), quality, exif if is_known else None)


def _may_have_exif(data: bytes) -> bool:
    """Tell whether EXIF or XMP may follow the pixels of a WebP, by the flags of its canvas (RFC 9649, 2.7)."""
    return len(data) < 21 or (data[12:16] == b"VP8X" and data[20] & 0b1100 != 0)


def _png_size(data: bytes) -> _Size | None:
    """Return the size in the first chunk of a PNG (RFC 2083, 4.1.1), which the pixels may follow too late."""
    if data[12:16] != b"IHDR" or len(data) < 24:
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _avif_size(data: bytes) -> _Size | None:
    """Return the size of an AVIF (ISO 23008-12, 6.5.3) whose items have but one: tiles of a grid have others."""
    meta = next((at for kind, at in _boxes(data) if kind == b"meta"), len(data))
    end = meta - 8 + int.from_bytes(data[meta - 8 : meta - 4])
    found = set(_SIZE_IN_AVIF.findall(data, meta, end)) if data[8:12] == b"avif" and end <= len(data) else ()
    if len(found) != 1:
        return None
    width, height = struct.unpack(">II", *found)
    return width, height


def _boxes(body: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield kind and beginning of boxes (ISO 14496-12, 4.2)."""
    at = 0
    while at + 8 <= len(body):
        length, kind = struct.unpack_from(">I4s", body, at)
        head = 8
        if length == 1:
            (length,) = struct.unpack_from(">Q", body, at + 8)
            head = 16
        yield kind, at + head
        if length < head:  # 0: it is the last
            return
        at += length
