"""Analyses that come with crawlproject, for `CRAWL_ANALYSES`: of an upright picture in RGB, each returns JSON.

CRAWL_ANALYSES=phash,colours
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from operator import mul
from statistics import median
from typing import Any

from PIL import Image

_SIDE = 32  # pixels of the picture that a pHash is of
_LOW = 8  # frequencies across and down that are looked at
_COSINES = [
    [math.cos(math.pi * frequency * (2 * at + 1) / (2 * _SIDE)) for at in range(_SIDE)]
    for frequency in range(_LOW)
]
_SMALL = (64, 64)  # pixels, for what needs no detail
_COLOURS = 5


def dhash(image: Image.Image) -> str:
    """Return the difference hash, as `imagehash.dhash`: in 16 hex digits, which pixels are lighter than the last.

    The hashes of two near copies differ in few of the 64 bits.
    """
    grey = _grey(image, _LOW + 1, _LOW)
    rows = (grey[start : start + _LOW + 1] for start in range(0, len(grey), _LOW + 1))
    return _hex(right > left for row in rows for left, right in pairwise(row))


def phash(image: Image.Image) -> str:
    """Return the perceptual hash, as `imagehash.phash`: in 16 hex digits, which frequencies are above the median.

    It withstands more than `dhash`: other contrasts, blur, strong compression. The frequencies are those of a
    discrete cosine transform (DCT-II) of the picture at 32 x 32 pixels.
    """
    grey = _grey(image, _SIDE, _SIDE)
    rows = [grey[start : start + _SIDE] for start in range(0, len(grey), _SIDE)]
    across = [[sum(map(mul, row, cosine)) for row in rows] for cosine in _COSINES]
    # Rounded, so that what should be zero is neither above nor below it.
    low = [round(sum(map(mul, column, cosine)), 6) for cosine in _COSINES for column in across]
    middle = median(low)
    return _hex(value > middle for value in low)


def colours(image: Image.Image) -> list[list[Any]]:
    """Return up to five colours that the picture consists of, with their shares, as in `[["#1c3d5a", 0.62], ...]`.

    By an octree (Gervautz and Purgathofer), the most frequent first.
    """
    small = image.convert("RGB").resize(_SMALL, Image.Resampling.BOX)  # others would add colours at edges
    found = small.quantize(_COLOURS, Image.Quantize.FASTOCTREE)
    palette, pixels = bytes(found.getpalette("RGB") or ()), found.width * found.height
    counts = sorted(enumerate(found.histogram()), key=lambda each: -each[1])
    return [["#" + palette[3 * at : 3 * at + 3].hex(), round(count / pixels, 3)] for at, count in counts if count]


try:
    from blurhash_rs import blurhash_encode
except ImportError:
    pass
else:

    def blurhash(image: Image.Image) -> str:
        """Return the BlurHash (blurha.sh): 28 characters, from which a blurred picture can be drawn at once."""
        small = image.convert("RGB")
        small.thumbnail(_SMALL)
        text: str = blurhash_encode(small, 4, 3)
        return text


def __getattr__(name: str) -> Any:
    if name == "blurhash":
        raise ImportError("blurhash needs the extra `analyses`: pip install blurhash-rs")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _grey(image: Image.Image, width: int, height: int) -> bytes:
    return image.convert("L").resize((width, height), Image.Resampling.LANCZOS).tobytes()


def _hex(bits: Iterable[bool]) -> str:
    return f"{int(''.join('01'[bit] for bit in bits), 2):016x}"
