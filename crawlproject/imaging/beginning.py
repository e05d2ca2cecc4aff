"""The facts in the beginning of a picture: size, quality, EXIF. No pixel is decoded, and no canvas allocated.

What follows the beginning is unknown, and so is what a format may have there: sizes are found by walking what is
there, and Pillow opens a picture, without decoding it, only where it reads nothing beyond. Not by the package
imagesize, which swaps the sides of pictures that EXIF has turned.

The bytes may be anything. All loops go forward, in a beginning of a few thousand bytes.
"""

from __future__ import annotations

import hashlib
import io
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from crawlproject.imaging import headers, svg
from crawlproject.imaging.analyse import begins_like, check_size, load_plugins, reason_of, unsupported
from crawlproject.imaging.facts import read_exif, stored_size
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.imaging.quality import estimate_quality
from crawlproject.models import ProbedFacts

Size = tuple[int, int]


class _Found(NamedTuple):
    """What is known of a picture, None for what may come later; `exif` is empty when there is none."""

    size: Size | None = None
    quality: int | None = None
    exif: Mapping[str, Any] | None = None


def read_beginning(data: bytes, *, whole: bool, max_pixels: int, formats: Sequence[str]) -> ProbedFacts:
    """Return what `data`, the beginning of a picture in one of `formats`, or the `whole` of it, says about it.

    Raises:
        UnreadableImage: it is none, or none that would be decoded: of too many pixels, or without a size.

    """
    if not data:
        raise UnreadableImage("empty body")
    load_plugins(*formats)
    name = next((each for each in formats if each != "SVG" and begins_like(each, data)), "SVG")
    found = _Found()
    try:
        if name == "SVG":
            if "SVG" not in formats or (size := svg.read_size(data)) is None:
                raise UnreadableImage(unsupported(data, formats))
            found = _Found(size, exif={})
        else:
            if name in headers.BOUNDS:
                with suppress(struct.error, OverflowError):  # it ends here, or is broken
                    headers.BOUNDS[name](data)
            found = _WALKERS.get(name, _opened)(name, data, whole)
    except (MemoryError, UnreadableImage):
        raise
    except Exception as error:  # of what is broken, or ends here, anything is raised
        if whole:
            raise UnreadableImage(reason_of(name, error)) from error
    if found.size is not None and name != "SVG":
        if min(found.size) < 1:
            raise _no_picture(name)
        check_size(name, found.size, max_pixels, math.inf, 0)
    if found.size is None and whole and name not in _NO_SIZE:
        raise _no_picture(name)
    width, height = found.size or (None, None)
    digest = hashlib.sha256(data).hexdigest() if whole else None
    return ProbedFacts(name, width, height, found.quality, found.exif, digest)


def _no_picture(name: str) -> UnreadableImage:
    return UnreadableImage(f"{name}: broken header, or no width or height")


def _jpeg(_: str, data: bytes, whole: bool) -> _Found:
    """Read the size in the frame's header (ITU-T T.81, B.2.2); the rest is known where the first scan begins.

    Quantisation tables and EXIF come before that. Pillow reads as far.
    """
    size = None
    for kind, at in headers.segments(data):
        if kind == headers.SCAN and size is not None and min(size) > 0:
            return _facts_of(_jpeg_image(data), size)
        if kind in headers.FRAMES and at + 7 <= len(data):
            height, width = struct.unpack_from(">HH", data, at + 3)
            size = width, height
    return _Found(size)


def _jpeg_image(data: bytes) -> JpegImageFile:
    try:
        return JpegImageFile(io.BytesIO(data))
    except Exception:  # broken EXIF, in which Pillow looks for the resolution: see analyse.py
        return JpegImageFile(io.BytesIO(data.replace(b"Exif\0\0", b"Fixe\0\0")))


def _png(_: str, data: bytes, whole: bool) -> _Found:
    """Read the size in the first chunk (RFC 2083, 4.1.1).

    EXIF, and texts that may have it, may come after all pixels; Pillow reads as far as these.
    """
    if data[12:16] != b"IHDR" or len(data) < 24:
        return _Found()
    width, height = struct.unpack_from(">II", data, 16)
    size = width, height
    chunks = list(_chunks(data, 8, ">I4s", 4))
    if not any(kind == b"IDAT" for kind, _ in chunks) or min(size) < 1:
        return _Found(size)
    image = PngImageFile(io.BytesIO(data))
    if whole and "exif" not in image.info:
        pixels = [index for index, (kind, _) in enumerate(chunks) if kind == b"IDAT"]
        later = dict(chunks[pixels[0] :])
        if later.keys() & {b"tEXt", b"zTXt", b"iTXt"} or b"IEND" not in later:
            return _Found(size)
        if b"eXIf" in later:
            image.info["exif"] = b"Exif\0\0" + later[b"eXIf"]
    is_known = whole or "exif" in image.info or "Raw profile type exif" in image.info
    return _Found(size, exif=_exif_of(image) if is_known else None)


def _webp(_: str, data: bytes, whole: bool) -> _Found:
    """Read the size of the canvas, and its flags: whether EXIF or XMP follow the picture (RFC 9649, 2.7)."""
    header = headers.webp(data.ljust(30, b"\0") if whole else data)
    if header is None:
        return _Found()
    size = header[:2]
    if data[12:16] != b"VP8X" or not data[20] & 0b1100:  # the flags of EXIF and XMP
        return _Found(size, exif={})
    if not whole:
        return _Found(size)
    places = {b"EXIF": "exif", b"XMP ": "xmp"}
    image = Image.new("1", (1, 1))
    image.info = {places[kind]: part for kind, part in _chunks(data, 12, "<4sI", 0) if kind in places}
    return _Found(size, exif=_exif_of(image))


def _chunks(data: bytes, at: int, head: str, checked: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and content of chunks, each followed by `checked` bytes; of RIFF, padded to whole words."""
    while at + 8 <= len(data):
        first, second = struct.unpack_from(head, data, at)
        kind, length = (first, second) if isinstance(first, bytes) else (second, first)
        yield kind, data[at + 8 : at + 8 + length]
        at += 8 + length + checked + (0 if checked else length & 1)


def _tiff(_: str, data: bytes, whole: bool) -> _Found:
    """Read the size in the first directory (TIFF 6.0, section 2, and BigTIFF), wherever that is.

    What else is in the directory is EXIF, too, but its values may be anywhere.
    """
    if whole:
        return _opened("TIFF", data, whole)
    order = "<" if data.startswith(b"II") else ">"
    first, number, entry = ("8xQ", "Q", "HHQ8s") if data[2:4] in (b"+\0", b"\0+") else ("4xL", "H", "HHL4s")
    (at,) = struct.unpack_from(order + first, data)
    (count,) = struct.unpack_from(order + number, data, at)
    at += struct.calcsize(order + number)
    sides: dict[int, int] = {}
    for _number in range(count):
        tag, kind, _count, value = struct.unpack_from(order + entry, data, at)
        at += struct.calcsize(order + entry)
        if tag in (0x100, 0x101) and kind in _NUMBERS:
            (sides[tag],) = struct.unpack_from(order + _NUMBERS[kind], value)
    return _Found((sides[0x100], sides[0x101]))


_NUMBERS = {3: "H", 4: "L", 16: "Q"}  # types of a TIFF's values: SHORT, LONG, LONG8


def _avif(_: str, data: bytes, whole: bool) -> _Found:
    """Read the size of the primary item (ISO 23008-12, 6.5.3; ISO 14496-12, 8.11), as libavif does.

    The properties stand in the box `ipco`, and `ipma` says which of them are whose. EXIF is among the pixels.
    """
    if whole:
        return _opened("AVIF", data, whole)
    if data[8:12] == b"avis":  # a sequence: its size is that of its track
        return _Found()
    meta = dict(_boxes(data))[b"meta"]
    parts = dict(_boxes(meta[4:]))
    (primary,) = struct.unpack_from(">I" if parts[b"pitm"][0] else ">H", parts[b"pitm"], 4)
    of_items = dict(_boxes(parts[b"iprp"]))
    properties = list(_boxes(of_items[b"ipco"]))
    for index in _associated(of_items[b"ipma"], primary):
        kind, content = properties[index - 1]
        if kind == b"ispe":
            width, height = struct.unpack_from(">4xII", content)
            return _Found((width, height))
    return _Found()


def _boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and content of the boxes that are there as a whole (ISO 14496-12, 4.2)."""
    places = list(headers.boxes(data))
    for number, (kind, begin) in enumerate(places):
        length = int.from_bytes(data[begin - 8 : begin - 4])
        if length == 1:  # none of the boxes that matter has such a length
            continue
        end = begin - 8 + length if length else len(data)
        if end <= len(data) and (length or number == len(places) - 1):
            yield kind, data[begin:end]


def _associated(ipma: bytes, item: int) -> list[int]:
    """Return the numbers, from 1, of an item's properties."""
    wide, at = ipma[3] & 1, 8
    for _ in range(int.from_bytes(ipma[4:8])):
        name, count = struct.unpack_from(">IB" if ipma[0] else ">HB", ipma, at)
        at += 5 if ipma[0] else 3
        found = struct.unpack_from(f">{count}{'H' if wide else 'B'}", ipma, at)
        if name == item:
            return [each & (0x7FFF if wide else 0x7F) for each in found]
        at += count * (2 if wide else 1)
    return []


def _by_header(name: str, data: bytes, whole: bool) -> _Found:
    """Read the size as before decoding: Pillow decodes these when it opens them, or finds fault with their end."""
    header = headers.READERS[name](data)
    return _Found(None if header is None else header[:2])


def _no_size(name: str, data: bytes, whole: bool) -> _Found:
    """Leave the size open: that in events is of the picture as it is turned."""
    return _Found()


def _opened(name: str, data: bytes, whole: bool) -> _Found:
    """Have Pillow open a picture, which in these formats reads no further than it needs."""
    image = Image.open(io.BytesIO(data), formats=[name])
    return _facts_of(image, stored_size(image))


def _facts_of(image: Any, size: Size | None) -> _Found:
    return _Found(size, estimate_quality(getattr(image, "quantization", {})), _exif_of(image))


def _exif_of(image: Image.Image) -> Mapping[str, Any]:
    return read_exif(image) or {}


_WALKERS: Mapping[str, Callable[[str, bytes, bool], _Found]] = {
    "JPEG": _jpeg,
    "PNG": _png,
    "WEBP": _webp,
    "TIFF": _tiff,
    "AVIF": _avif,
    "ICO": _by_header,
    "JPEG2000": _by_header,
    "HEIF": _no_size,
    "JXL": _no_size,
}
_NO_SIZE = {name for name, walk in _WALKERS.items() if walk is _no_size}
