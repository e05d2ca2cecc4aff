"""The thumbnail of a picture: a small JPEG or WebP, upright, on white.

Decoding and scaling are what costs. A JPEG is decoded at a half, a quarter or an eighth of its size, as long as
that is at least twice the size of the thumbnail, and scaled from there by cykooz_resizer (SIMD, without the GIL):
0.4 of the CPU of Pillow's `thumbnail()`, at the same quality. Where cykooz_resizer has no wheel, Pillow scales.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import cast

from PIL import Image
from PIL.ExifTags import Base

try:
    from cykooz_resizer import CropBox, FilterType, ResizeAlg, ResizeOptions, Resizer
except ImportError:  # there are wheels for the usual platforms only
    Resizer = None

# The decoded JPEG has at least this many times the width and height of the thumbnail. 1.25 would save a tenth
# of the CPU where it makes a difference, but the worst thumbnails would be half a dB worse (benchmarks/draft.py).
_DRAFT = 2.0

# Pixels converted at a time: a second copy of a large picture, at four bytes a pixel, would double the memory.
_BAND = 1_000_000

# EXIF orientation to the transposition that turns the picture upright.
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def make_thumbnail(image: Image.Image, longest_side: int = 640, quality: int = 85, form: str = "JPEG") -> bytes:
    """Return a JPEG (or another `form`) of the picture, of its first frame.

    Its longest side has at most `longest_side` pixels, and its metadata are left out. Smaller pictures keep their
    size. Decodes `image`, if a JPEG perhaps at reduced size. What Pillow raises on broken pixels passes through.
    """
    size = fit(image.size, longest_side)
    drafted = image.draft(None, (math.ceil(size[0] * _DRAFT), math.ceil(size[1] * _DRAFT)))
    image.load()
    # At reduced size the last row and column may cover less than a whole pixel; the box is exact.
    box = drafted[1] if drafted else (0, 0, *image.size)
    small = _small(image, size, box)
    turn = _UPRIGHT.get(_orientation(image))
    if turn is not None:
        small = small.transpose(turn)
    out = io.BytesIO()
    small.save(out, form, quality=quality, comment=b"")  # else Pillow copies the comment of the original
    return out.getvalue()


def fit(size: tuple[int, int], longest_side: int) -> tuple[int, int]:
    """Return the size of a picture's thumbnail: same proportions, never enlarged, never 0."""
    scale = min(1.0, longest_side / max(size))
    width, height = (max(1, int(side * scale + 0.5)) for side in size)  # halves up, as Pillow's thumbnail()
    return width, height


def _small(image: Image.Image, size: tuple[int, int], box: tuple[float, float, float, float]) -> Image.Image:
    """Return the picture in the size of its thumbnail, as L or RGB, on white where it is transparent.

    A picture that needs converting is converted a band of columns at a time, each band scaled to its height at
    once. The result is the same as in one piece: the resizer, too, scales the columns first.
    """
    if image.mode in ("L", "RGB") and not image.has_transparency_data:
        return _resized(image, size, box)
    eight_bits = _eight_bits(image) if image.mode.startswith("I") or image.mode == "F" else None
    width = max(1, _BAND // image.height)
    if width >= image.width:
        return _resized(_on_white(_plain(image, eight_bits)), size, box)
    grey = eight_bits is not None or (image.mode == "1" and not image.has_transparency_data)
    low = Image.new("L" if grey else "RGB", (image.width, size[1]))
    for left in range(0, image.width, width):
        band = image.crop((left, 0, min(left + width, image.width), image.height))
        plain = _on_white(_plain(band, eight_bits))
        low.paste(_resized(plain, (band.width, size[1]), (0, box[1], band.width, box[3])), (left, 0))
    return _resized(low, size, (box[0], 0, box[2], size[1]))


def _plain(image: Image.Image, eight_bits: Callable[[Image.Image], Image.Image] | None) -> Image.Image:
    """Return the picture in mode L, RGB or RGBA, whichever mode Pillow opened it in."""
    if eight_bits is not None:
        return eight_bits(image)
    if image.has_transparency_data:
        return image.convert("RGBA")
    if image.mode in ("L", "RGB"):
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def _eight_bits(image: Image.Image) -> Callable[[Image.Image], Image.Image]:
    """Return a function that scales a picture of 16 or 32 bits, or parts of it, to mode L; Pillow would clip it.

    16-bit values are divided by 257. 32-bit values, whole or real, are scaled from 0 to 1, 255 or 65535, the first
    range that contains them all; values outside these ranges (elevations, negative numbers) are stretched from
    lowest to highest.
    """
    low, high = 0.0, 65535.0
    if not image.mode.startswith("I;16"):
        least, most = cast("tuple[float, float]", image.getextrema())
        low, high = min(0.0, least), next((top for top in (1.0, 255.0, 65535.0) if most <= top), most)
        if not math.isfinite(high - low):
            low, high = 0.0, 255.0
    scale = 255 / (high - low)

    def convert(part: Image.Image) -> Image.Image:
        values = part if part.mode == "F" else part.convert("I")
        grey = values.point(lambda value: value * scale + (0.5 - low * scale)).convert("L")
        grey.info.pop("transparency", None)  # its value is of the old range
        return grey

    return convert


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode != "RGBA":
        return image
    white = Image.new("RGB", image.size, "white")
    white.paste(image, (0, 0), image)
    return white


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation that is left after decoding: Pillow turns a TIFF itself, then reports 1."""
    if image.format == "JXL" and not getattr(image, "jpeg", False):
        return 1  # libjxl has turned it, whatever its EXIF says
    try:
        return int(image.getexif().get(Base.Orientation, 1))
    except Exception:  # Pillow raises nearly anything on broken EXIF
        return 1


def _resized(image: Image.Image, size: tuple[int, int], box: tuple[float, float, float, float]) -> Image.Image:
    if image.size == size:
        return image
    if Resizer is None:
        return image.resize(size, Image.Resampling.LANCZOS, box)
    options = ResizeOptions(ResizeAlg.convolution(FilterType.lanczos3), crop_box=CropBox(*box))
    small = Image.new(image.mode, size)
    Resizer().resize_pil(image, small, options)  # a Resizer is cheap to make, and not shared between threads
    return small
