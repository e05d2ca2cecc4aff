"""What the bytes of a picture say besides its pixels: size, memory to decode it, digest, JPEG quality, EXIF.

Some headers are read before Pillow opens the picture. Opening a WebP allocates its canvas: by then it is too late
for a limit. Pillow reads the parts of JPEG, PNG, GIF and TIFF one by one, in Python, some when it opens the
picture, and libjpeg passes over all pixels in each scan: megabytes of tiny parts take minutes.

EXIF is untrusted and often broken: a tag that cannot be read is left out, and so is one too large for the event.
It makes no readable picture fail.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from numbers import Rational
from typing import Any, NamedTuple

from PIL import Image, ImageFile
from PIL.ExifTags import IFD, Base
from PIL.TiffImagePlugin import TiffImageFile

from crawlproject.imaging.failures import UnreadableImage
from crawlproject.imaging.messages import MAX_DIRECTORY
from crawlproject.models import ImageFacts

# Segments of a JPEG before its first scan, chunks of a PNG, blocks of a GIF before its picture, strips or tiles
# of a TIFF. Each takes 1 to 30 us; sound pictures rarely have a tenth of these.
MAX_PARTS = 100_000

# Scans of a JPEG, and pixels in all scans together. A progressive JPEG has about ten scans. Each is a pass over
# all pixels, of 10 to 60 ms for 49 megapixels, and can be as small as ten bytes.
MAX_SCANS = 200
MAX_SCANNED = 2_000_000_000


class Header(NamedTuple):
    """The size of a picture, roughly how many bytes it takes to decode, and whether a JPEG has several scans."""

    width: int
    height: int
    memory: int
    in_scans: bool = False


def jpeg(body: bytes) -> Header | None:
    """Read size and components (ITU-T T.81, annex B), and bound the segments.

    Pixels whose components come in several scans, as in all progressive pictures, wait for the last of them as
    coefficients of two bytes each, even if the picture is decoded at reduced size.
    """
    frame, scan = b"", b""
    parts, end = 0, 2
    for kind, at in segments(body):
        parts = _counted("JPEG", parts + 1 + at - 2 - end, "segments, or bytes between them")
        if kind == SCAN:
            scan = body[at : at + 3]
            break
        if kind in FRAMES:
            frame = body[at - 1 : at + 8 + 3 * 255]  # with its kind
        end = at + int.from_bytes(body[at : at + 2])
    if len(frame) < 9 or len(scan) < 3:
        return None
    height, width, count = struct.unpack_from(">HHB", frame, 4)
    sampling = [(each >> 4, each & 15) for each in frame[10 : 9 + 3 * count : 3]]
    largest = max((across for across, _ in sampling), default=0) * max((down for _, down in sampling), default=0)
    if not largest or not width or not height:
        return None
    if frame[0] not in _PROGRESSIVE and scan[2] >= count:
        return Header(width, height, width * height)  # decoded at reduced size, if large
    samples = sum(across * down for across, down in sampling) / largest
    return Header(width, height, int(2 * width * height * samples), in_scans=True)


def bound_scans(body: bytes, header: Header | None) -> None:
    """Bound the scans of a JPEG with this header. Raises UnreadableImage."""
    if header is None or not header.in_scans:  # only the first is read
        return
    most = min(MAX_SCANS, max(MAX_SCANNED // (header.width * header.height), 1))
    scans = (kind for kind, _ in segments(body) if kind == SCAN)
    if next(islice(scans, most, None), None) is not None:
        raise UnreadableImage(f"JPEG: more than {most} scans of {header.width} x {header.height} pixels")


# Kinds of segments: SOF0 to SOF15, and those of them that are progressive.
SCAN = 0xDA
FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
# None of them is without a length, but EOI. Others that libjpeg meets in a scan it passes over.
_MARKER = re.compile(rb"\xff([\xc0-\xcf\xd9-\xfe])")


def segments(body: bytes) -> Iterator[tuple[int, int]]:
    """Yield kind and place, after the marker, of a JPEG's segments; what is between them is passed over."""
    at = 2
    while (found := _MARKER.search(body, at)) is not None and found[1] != b"\xd9":
        at = found.end()
        yield found[1][0], at
        at += int.from_bytes(body[at : at + 2])


def png(body: bytes) -> None:
    """Bound the chunks (RFC 2083, 3.2)."""
    at, parts = 8, 0
    while at < len(body) and body[at + 4 : at + 8] != b"IEND":
        at += 12 + int.from_bytes(body[at : at + 4])
        parts = _counted("PNG", parts + 1, "chunks")


def gif(body: bytes) -> None:
    """Bound the blocks before the first picture (GIF89a, 22 to 26)."""
    at, parts = 13, 0
    if body[10:11] >= b"\x80":
        at += 3 * (2 << (body[10] & 7))  # colours
    while (byte := body[at : at + 1]) not in (b"", b",", b";"):
        at += 1
        if byte == b"!":  # an extension, of a label and some blocks; Pillow passes over all else
            at += 1
            while size := int.from_bytes(body[at : at + 1]):
                at += 1 + size
                parts = _counted("GIF", parts + 1, "blocks")
            at += 1
        parts = _counted("GIF", parts + 1, "blocks")


def tiff(body: bytes) -> None:
    """Bound the strips or tiles of the first picture (TIFF 6.0, section 2, and BigTIFF)."""
    order = "<" if body.startswith(b"II") else ">"
    big = body[2:3] == b"+"
    first, number, entry = ("8xQ", "Q", "HHQ8x") if big else ("4xL", "H", "HHL4x")
    (at,) = struct.unpack_from(order + first, body)
    (count,) = struct.unpack_from(order + number, body, at)
    at += struct.calcsize(order + number)
    size = struct.calcsize(order + entry)
    entries = body[at : at + size * min(count, max(len(body) - at, 0) // size)]
    for tag, _, values in struct.iter_unpack(order + entry, entries):
        if tag in _PLACES:
            _counted("TIFF", values, _PLACES[tag])


# Tags with a value for each strip or tile: where it is, and how long.
_PLACES = {0x111: "strips", 0x117: "strips", 0x144: "tiles", 0x145: "tiles"}


def _counted(form: str, parts: int, name: str) -> int:
    """Return the number of parts so far, unless it is too large."""
    if parts > MAX_PARTS:
        raise UnreadableImage(f"{form}: more than {MAX_PARTS} {name}")
    return parts


def webp(body: bytes) -> Header | None:
    """Read the size of the canvas (RFC 9649, section 2)."""
    kind, data = body[12:16], body[20:30]
    if len(data) < 10:
        return None
    if kind == b"VP8X":
        width, height = 1 + int.from_bytes(data[4:7], "little"), 1 + int.from_bytes(data[7:10], "little")
    elif kind == b"VP8L":
        bits = int.from_bytes(data[1:5], "little")
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    else:
        width, height = (int.from_bytes(data[at : at + 2], "little") & 0x3FFF for at in (6, 8))
    return Header(width, height, 16 * width * height)  # libwebp has two canvases and a copy


# Each returns None, or raises nearly anything, if the header is broken.
READERS: Mapping[str, Callable[[bytes], Header | None]] = {
    "JPEG": jpeg,
    "WEBP": webp,
}

# Each raises UnreadableImage if there are too many parts; on a broken header whatever it likes.
BOUNDS: Mapping[str, Callable[[bytes], None]] = {"PNG": png, "GIF": gif, "TIFF": tiff}

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
    if not exif:
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


# The JPEG quality that corresponds to a file's quantisation tables, as ImageMagick estimates it.
#
# The algorithm is that of `JPEGSetImageQuality` in ImageMagick's coders/jpeg.c (6 and 7 alike). It compares two
# figures of the file, the sum of all table entries and the sum of a few selected entries, with the same two
# figures of the tables that libjpeg makes for every quality. ImageMagick lists those as four arrays of 101
# numbers; here they are computed, with the same result, from the tables in the JPEG standard.

# What `identify -format %Q` prints when it has no estimate.
NO_ESTIMATE = 92

# ITU-T T.81, tables K.1 and K.2, row by row.
LUMINANCE = (
    *(16, 11, 10, 16, 24, 40, 51, 61),
    *(12, 12, 14, 19, 26, 58, 60, 55),
    *(14, 13, 16, 24, 40, 57, 69, 56),
    *(14, 17, 22, 29, 51, 87, 80, 62),
    *(18, 22, 37, 56, 68, 109, 103, 77),
    *(24, 35, 55, 64, 81, 104, 113, 92),
    *(49, 64, 78, 87, 103, 121, 120, 101),
    *(72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMINANCE = (
    *(17, 18, 24, 47, 99, 99, 99, 99),
    *(18, 21, 26, 66, 99, 99, 99, 99),
    *(24, 26, 56, 99, 99, 99, 99, 99),
    *(47, 66, 99, 99, 99, 99, 99, 99),
    *(99,) * 32,
)


def _scaled(table: Sequence[int], quality: int) -> list[int]:
    """Return a standard table at a quality of 1-100, by libjpeg's formula (`jpeg_set_quality`, baseline)."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return [min(255, max(1, (entry * percent + 50) // 100)) for entry in table]


def _probe(tables: Mapping[int, Sequence[int]]) -> int:
    """Return the sum of the entries that ImageMagick selects, of table 0 and, if present, table 1."""
    probe = tables[0][2] + tables[0][53]
    if 1 in tables:
        probe += tables[1][0] + tables[1][63]
    return probe


def _total(tables: Mapping[int, Sequence[int]]) -> int:
    return sum(map(sum, tables.values()))


def _marks(*standard: Sequence[int]) -> list[tuple[int, int]]:
    """Return probe and total of the standard tables for every quality, from 1 to 100."""
    scaled = [dict(enumerate(_scaled(table, quality) for table in standard)) for quality in range(1, 101)]
    return [(_probe(tables), _total(tables)) for tables in scaled]


_ONE_TABLE = _marks(LUMINANCE)
_TWO_TABLES = _marks(LUMINANCE, CHROMINANCE)


def estimate_quality(tables: Mapping[int, Sequence[int]]) -> int | None:
    """Return the JPEG quality, 1-100, that ImageMagick's `identify -format %Q` prints for these tables.

    `tables` are the quantisation tables by their number in the file, 64 entries each, row by row (Pillow's
    `JpegImageFile.quantization`). Tables far from libjpeg's have no estimate below 51, and then the answer
    is `NO_ESTIMATE`, as with `identify`. None: there are no tables.
    """
    if not tables:
        return None
    if 0 not in tables:
        return NO_ESTIMATE
    probe, total = _probe(tables), _total(tables)
    for quality, (probe_mark, total_mark) in enumerate(_TWO_TABLES if 1 in tables else _ONE_TABLE, start=1):
        if probe < probe_mark and total < total_mark:
            continue
        # The first quality that is not clearly too low: below 51 ImageMagick requires both figures to fit.
        if quality > 50 or (probe <= probe_mark and total <= total_mark):
            return quality
        break
    return NO_ESTIMATE
