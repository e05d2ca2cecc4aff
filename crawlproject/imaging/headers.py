"""What the headers of some formats say, read before Pillow opens the picture.

Opening a WebP allocates its canvas: by then it is too late for a limit.

Pillow reads the parts of JPEG, PNG, GIF and TIFF one by one, in Python, some when it opens the picture, and
libjpeg passes over all pixels in each scan: megabytes of tiny parts take minutes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from crawlproject.imaging.failures import UnreadableImage

# Segments of a JPEG before its first scan, chunks of a PNG, blocks of a GIF before its picture, strips or tiles
# of a TIFF. Each takes 1 to 30 us; sound pictures rarely have a tenth of these.
MAX_PARTS = 100_000

# Scans of a JPEG, and pixels in all scans together. A progressive JPEG has about ten scans. Each is a pass over
# all pixels, of 10 to 60 ms for 49 megapixels, and can be as small as ten bytes.
MAX_SCANS = 200
MAX_SCANNED = 2_000_000_000


class Header(NamedTuple):
    """The size of a picture, and roughly how many bytes it takes to decode."""

    width: int
    height: int
    memory: int


def jpeg(body: bytes) -> Header | None:
    """Read size and components (ITU-T T.81, annex B), and bound the segments.

    Pixels whose components come in several scans, as in all progressive pictures, wait for the last of them as
    coefficients of two bytes each, even if the picture is decoded at reduced size.
    """
    frame = _frame(body)
    if frame is None:
        return None
    if not frame.in_scans:
        return Header(frame.width, frame.height, frame.width * frame.height)  # decoded at reduced size, if large
    return Header(frame.width, frame.height, int(2 * frame.width * frame.height * frame.samples))


def bound_scans(body: bytes) -> None:
    """Bound the scans of a JPEG. Raises UnreadableImage."""
    frame = _frame(body)
    if frame is None or not frame.in_scans:  # only the first is read
        return
    most = min(MAX_SCANS, max(MAX_SCANNED // (frame.width * frame.height), 1))
    scans = (kind for kind, _ in segments(body) if kind == SCAN)
    if next(islice(scans, most, None), None) is not None:
        raise UnreadableImage(f"JPEG: more than {most} scans of {frame.width} x {frame.height} pixels")


class _Frame(NamedTuple):
    """The size of a JPEG, its samples for each pixel, and whether they come in several scans."""

    width: int
    height: int
    samples: float
    in_scans: bool


def _frame(body: bytes) -> _Frame | None:
    """Read what comes before the first scan; None if it is broken."""
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
    samples = sum(across * down for across, down in sampling) / largest
    return _Frame(width, height, samples, frame[0] in _PROGRESSIVE or scan[2] < count)


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


def boxes(body: bytes) -> Iterator[tuple[bytes, int]]:
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


# Each returns None, or raises nearly anything, if the header is broken.
READERS: Mapping[str, Callable[[bytes], Header | None]] = {
    "JPEG": jpeg,
    "WEBP": webp,
}

# Each raises UnreadableImage if there are too many parts; on a broken header whatever it likes.
BOUNDS: Mapping[str, Callable[[bytes], None]] = {"PNG": png, "GIF": gif, "TIFF": tiff}
