"""What the headers of some formats say, read before Pillow opens the picture.

Opening a WebP allocates its canvas, and opening an ICO or a JPEG XL decodes it: by then it is too late for a
limit. OpenJPEG takes memory by the tiles and components that a JPEG 2000 claims; when there is not enough, Pillow
calls the picture broken.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from PIL.BmpImagePlugin import DibImageFile
from PIL.IcoImagePlugin import IcoFile
from PIL.PngImagePlugin import PngImageFile

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CODESTREAM = b"\xff\x4f\xff\x51"  # of a JPEG 2000: start, and the marker of the size

# How many bytes decoding takes, measured.
_TILE = 8_000  # of each tile of a JPEG 2000
_TILE_COMPONENT = 1_200  # of each component of each tile
_SAMPLE = 6  # of each sample of the largest tile: a number of 32 bits, a byte, and what it is decoded from
_JXL_PIXEL = 24


class Header(NamedTuple):
    """The size of a picture, and roughly how many bytes it takes to decode."""

    width: int
    height: int
    memory: int


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


def icon(body: bytes) -> Header:
    """Read the size of the picture that Pillow will decode, which the directory of the icon may not tell."""
    first = IcoFile(io.BytesIO(body)).entry[0]
    file = io.BytesIO(body)
    file.seek(first.offset)
    if body.startswith(PNG_SIGNATURE, first.offset):
        width, height = PngImageFile(file).size
    else:
        width, height = DibImageFile(file).size
        height //= 2  # the lower half is its mask
    return Header(width, height, 8 * width * height)


def jpeg2000(body: bytes) -> Header:
    """Read the size of the codestream (ITU-T T.800, A.5.1), which is what is decoded, whatever the boxes say."""
    at = 0 if body.startswith(_CODESTREAM) else next(at for kind, at in _boxes(body) if kind == b"jp2c")
    magic, right, lower, left, upper, across, down, tiles_left, tiles_upper, components = struct.unpack_from(
        ">4s4x8IH", body, at
    )
    width, height = right - left, lower - upper
    if magic != _CODESTREAM or min(width, height, across, down) < 1 or not 1 <= components <= 4:
        raise ValueError("no codestream that can be decoded")
    tiles = -(-(right - tiles_left) // across) * -(-(lower - tiles_upper) // down)
    tile = min(across, width) * min(down, height)
    kept = tiles * (_TILE + _TILE_COMPONENT * components)
    return Header(width, height, 4 * width * height + _SAMPLE * components * tile + kept)


def jxl(body: bytes) -> Header:
    """Read the size in the codestream (ISO 18181-1, SizeHeader), which may be in boxes (18181-2)."""
    at = 0
    if not body.startswith(b"\xff\x0a"):
        at = next(at + 4 * (kind == b"jxlp") for kind, at in _boxes(body) if kind in (b"jxlc", b"jxlp"))
        if not body.startswith(b"\xff\x0a", at):
            raise ValueError("no codestream")
    bits = _Bits(body[at + 2 : at + 14])
    small = bits.read(1)
    height = bits.side(small)
    ratio = bits.read(3)
    width = height * _RATIOS[ratio][0] // _RATIOS[ratio][1] if ratio else bits.side(small)
    return Header(width, height, _JXL_PIXEL * width * height)


# Width to height, by their numbers in a JPEG XL; 0: the width is given.
_RATIOS = ((0, 1), (1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))


class _Bits:
    """Reads numbers of some bits, the lowest bit first."""

    def __init__(self, data: bytes) -> None:
        self._value, self._left = int.from_bytes(data, "little"), 8 * len(data)

    def read(self, count: int) -> int:
        if count > self._left:
            raise ValueError("the header ends early")
        value = self._value & ((1 << count) - 1)
        self._value >>= count
        self._left -= count
        return value

    def side(self, small: int) -> int:
        """Read a width or a height: if `small`, a multiple of 8 up to 256."""
        return 8 * (1 + self.read(5)) if small else 1 + self.read((9, 13, 18, 30)[self.read(2)])


def _boxes(body: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield kind and beginning of the boxes of a JP2 or a JPEG XL (ISO 14496-12, 4.2)."""
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
    "WEBP": webp,
    "ICO": icon,
    "JPEG2000": jpeg2000,
    "JXL": jxl,
}
