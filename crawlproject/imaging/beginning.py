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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from crawlproject.imaging import headers, svg
from crawlproject.imaging.analyse import begins_like, check_size, load_plugins, opened, reason_of, unsupported
from crawlproject.imaging.facts import read_exif, stored_size
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.imaging.quality import estimate_quality
from crawlproject.models import ProbedFacts

_Size = tuple[int, int]

_TURNED = ("HEIF", "JXL")  # the size in events is that of the picture as it is turned: it is left open
_EXIF_IN_PNG = re.compile(rb"eXIf|[tzi]TXt")  # chunks, which may come after the pixels
_SIZE_IN_AVIF = re.compile(rb"ispe....(........)", re.DOTALL)


def read_beginning(data: bytes, *, whole: bool, max_pixels: int, formats: Sequence[str]) -> ProbedFacts:
    """Return what `data`, the beginning of a picture in one of `formats`, or the `whole` of it, says about it.

    Raises:
        UnreadableImage: it is none, or none that would be decoded: of too many pixels, or without a size.

    """
    if not data:
        raise UnreadableImage("empty body")
    load_plugins(*formats)
    name = next((each for each in formats if each != "SVG" and begins_like(each, data)), "SVG")
    size: _Size | None = None
    quality: int | None = None
    exif: Mapping[str, Any] | None = None
    try:
        if name == "SVG":
            size, exif = (svg.read_size(data) if "SVG" in formats else None), {}
            if size is None:
                raise UnreadableImage(unsupported(data, formats))
        elif name in ("WEBP", "ICO"):  # Pillow decodes these when it opens them
            header = headers.READERS[name](data.ljust(30, b"\0") if whole else data)
            size = None if header is None else header[:2]
            if name == "WEBP" and not _may_have_exif(data):
                exif = {}
        elif name == "AVIF" and not whole:  # libavif wants all of it
            size = _avif_size(data)
        elif name not in _TURNED:
            size = _png_size(data) if name == "PNG" else None
            if name in headers.BOUNDS:
                with suppress(struct.error, OverflowError):  # it ends here, or is broken
                    headers.BOUNDS[name](data)
            image = opened(data, [name])
            size, quality = stored_size(image), estimate_quality(getattr(image, "quantization", {}))
            exif = read_exif(image) or {}
            if not exif and name == "PNG" and not (whole and _EXIF_IN_PNG.search(data) is None):
                exif = None
            if name == "TIFF" and not whole:  # its values may be anywhere
                exif = None
    except (MemoryError, UnreadableImage):
        raise
    except Exception as error:  # of what is broken, or ends here, anything is raised
        if whole:
            raise UnreadableImage(reason_of(name, error)) from error
    if (size is None and whole and name not in _TURNED) or (size is not None and min(size) < 1):
        raise UnreadableImage(f"{name}: broken header, or no width or height")
    if size is not None and name != "SVG":
        check_size(name, size, max_pixels, math.inf, 0)
    width, height = size or (None, None)
    return ProbedFacts(name, width, height, quality, exif, hashlib.sha256(data).hexdigest() if whole else None)


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
    meta = next((at for kind, at in headers.boxes(data) if kind == b"meta"), len(data))
    end = meta - 8 + int.from_bytes(data[meta - 8 : meta - 4])
    found = set(_SIZE_IN_AVIF.findall(data, meta, end)) if data[8:12] == b"avif" and end <= len(data) else ()
    if len(found) != 1:
        return None
    width, height = struct.unpack(">II", *found)
    return width, height
