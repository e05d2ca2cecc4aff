"""The facts in a picture's bytes: size, digest, JPEG quality, EXIF.

EXIF is untrusted and often broken: a tag that cannot be read is left out, and so is one too large for the event.
Nothing in here makes a readable picture fail.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from numbers import Rational
from typing import Any

from PIL import Image, ImageFile
from PIL.ExifTags import IFD, Base
from PIL.TiffImagePlugin import TiffImageFile

from crawlproject.imaging.messages import MAX_DIRECTORY
from crawlproject.imaging.quality import estimate_quality
from crawlproject.models import ImageFacts

# Of EXIF, in bytes of JSON. Only maker's notes and embedded profiles exceed it, and that of a directory.
MAX_VALUE = 1024

# Offsets of other directories, meaningless outside the file.
_POINTERS = frozenset({IFD.Exif, IFD.GPSInfo, IFD.Interop, Base.SubIFDs})

# How a TIFF stores its pixels: sizes, strips, tiles, compression, palette, embedded profiles. TIFF 6.0 keeps these
# tags in the same directory as the EXIF tags.
_TIFF_STRUCTURE = frozenset(
    {
        *range(0xFE, 0x10B),  # NewSubfileType to FillOrder
        *(0x111, 0x115, 0x116, 0x117, 0x118, 0x119, 0x11C),  # strips, samples, planes
        *range(0x120, 0x126),  # FreeOffsets to T6Options
        *(0x12D, 0x13D, 0x140, 0x141, 0x142, 0x143, 0x144, 0x145),  # transfer, predictor, palette, tiles
        *range(0x14C, 0x15C),  # InkSet to JPEGTables
        *range(0x200, 0x20A),  # the old JPEG-in-TIFF
        *range(0x211, 0x215),  # YCbCr, ReferenceBlackWhite
        *(0x2BC, 0x83BB, 0x8649, 0x8773),  # XMP, IPTC, Photoshop, ICC
    }
)

# Windows writes these as bytes of UTF-16.
_XP_TEXT = frozenset({Base.XPTitle, Base.XPComment, Base.XPAuthor, Base.XPKeywords, Base.XPSubject})


def read_facts(image: ImageFile.ImageFile, body: bytes) -> ImageFacts:
    """Return the facts of an opened picture; `body` is the whole file it was opened from.

    To be called before decoding, which turns a TIFF upright and drops its orientation.
    """
    width, height = stored_size(image)
    return ImageFacts(
        width=width,
        height=height,
        filesize=len(body),
        compression_quality=estimate_quality(getattr(image, "quantization", {})),
        # An MPO is a JPEG followed by more JPEGs; viewers show its first picture.
        format="JPEG" if image.format == "MPO" else str(image.format),
        sha256=hashlib.sha256(body).hexdigest(),
        exif=read_exif(image),
    )


def stored_size(image: ImageFile.ImageFile) -> tuple[int, int]:
    """Return width and height in stored pixels; for a TIFF, Pillow's `size` is that of the upright picture."""
    if isinstance(image, TiffImageFile):
        return image.tag_v2[Base.ImageWidth], image.tag_v2[Base.ImageLength]
    return image.size


def read_exif(image: Image.Image) -> dict[str, Any] | None:
    """Return the EXIF as hex tag to JSON value, or None when there is none.

    IFD0 and the Exif directory are merged, as their tags do not overlap; GPS tags have their own numbers and are
    nested under "0x8825". Rationals are numbers, null when the denominator is 0. Bytes are text if printable, hex
    digits otherwise. Other directories (preview, interoperability) are left out.
    """
    try:
        exif = Image.Image.getexif(image)  # not that of PngImageFile, which may decode the picture first
    except Exception:  # Pillow raises nearly anything on broken EXIF
        return None
    tags = _directory(exif, _TIFF_STRUCTURE if image.format == "TIFF" else frozenset())
    tags |= _directory(_nested(exif, IFD.Exif))
    if gps := _directory(_nested(exif, IFD.GPSInfo)):
        tags[hex(IFD.GPSInfo)] = gps
    return tags or None


def _nested(exif: Image.Exif, pointer: int) -> Mapping[int, Any]:
    try:
        return exif.get_ifd(pointer)
    except Exception:  # as above
        return {}


def _directory(tags: Mapping[int, Any], unwanted: frozenset[int] = frozenset()) -> dict[str, Any]:
    """Return the readable tags of a directory, within the bounds."""
    values: dict[str, Any] = {}
    room = MAX_DIRECTORY - 2
    for tag in sorted(tags):
        if tag in _POINTERS or tag in unwanted:
            continue
        try:
            value = _json_value(tags[tag], "utf-16-le" if tag in _XP_TEXT else "utf-8")
            size = len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
        except Exception:  # one broken tag says nothing about the others
            continue
        needed = size + len(hex(tag)) + 4  # with quotes, colon and comma
        if size <= MAX_VALUE and needed <= room:
            values[hex(tag)] = value
            room -= needed
    return values


def _json_value(value: Any, charset: str) -> Any:
    """Return an EXIF value as JSON; ValueError when it is too large or of an unknown type."""
    if isinstance(value, (str, bytes, tuple, list)) and len(value) > MAX_VALUE:
        raise ValueError("too large")
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes):
        return _text_or_hex(value, charset)
    if isinstance(value, (tuple, list)):
        return [_json_value(part, charset) for part in value]
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (float, Rational)):
        number = float(value)
        return number if math.isfinite(number) else None
    raise ValueError(f"no JSON for {type(value)}")


def _text(value: str) -> str:
    # Pillow decodes every text as Latin-1; cameras and editors write UTF-8.
    with suppress(UnicodeError):
        value = value.encode("latin-1").decode()
    return value.rstrip("\0").replace("\0", " ")


def _text_or_hex(value: bytes, charset: str) -> str:
    try:
        # UserComment begins with the name of its character set, eight bytes.
        text = value.removeprefix(b"ASCII\0\0\0").decode(charset).rstrip("\0")
    except UnicodeError:
        return value.hex()
    return text if text and all(char.isprintable() or char in "\t\r\n" for char in text) else value.hex()
