"""The thumbnails of a picture: small JPEGs or WebPs, upright, on white, in one or several sizes.

Decoding and scaling are what costs. A JPEG is decoded at a half, a quarter or an eighth of its size, as long as
that is at least one and a half times the size of the thumbnail, and scaled from there by cykooz_resizer (SIMD,
without the GIL): 0.4 of the CPU of Pillow's `thumbnail()`, at the same quality.
The picture is decoded once, for the largest size; the others are scaled down from that.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from cykooz_resizer import CropBox, FilterType, ResizeAlg, ResizeOptions, Resizer
from PIL import Image
from PIL.ExifTags import Base
from PIL.JpegImagePlugin import JpegImageFile

from crawlproject.imaging.progressive import leave_out_details
from crawlproject.models import Thumbnail

# The decoded JPEG has at least this many times the width and height of the thumbnail. So pictures of 1,920 and
# 2,048 pixels, as many are, are decoded at a half for 640. 2 would cost half as much again for these, for worst
# thumbnails that are better by 0.005 of SSIM.
_DRAFT = 1.5

# Pixels converted at a time: a second copy of a large picture, at four bytes a pixel, would double the memory.
_BAND = 1_000_000

_LONGEST = 16_383  # pixels of a side, all that a WebP can have; of pictures that are much longer than broad

# How each format is written, besides its quality.
_WRITTEN: Mapping[str, Mapping[str, Any]] = {
    "JPEG": {"comment": b""},  # else Pillow copies the comment of the original
    "WebP": {
        "method": 2
    },  # libwebp's effort, 0 to 6; 4, the default, takes 1.6 times as long in all, and saves 2 %
}

Box = tuple[float, float, float, float]  # left, upper, right and lower edge

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
_SIDEWAYS = (5, 6, 7, 8)


class Miniature(NamedTuple):
    """A picture of `whole` pixels, upright, on white, in its largest size; without its border."""

    image: Image.Image
    whole: tuple[int, int]


def miniature_of(
    image: Image.Image, sizes: Sequence[int], mode: str, upright: bool = False, enlarge: bool = False
) -> Miniature:
    """Decode the picture, a JPEG perhaps at reduced size, and scale it to the largest of its sizes.

    `enlarge`: also if it is smaller than that. `upright`: whatever its EXIF says. What Pillow raises on broken
    pixels passes through.
    """
    whole = image.size
    largest = max(fit(whole, size, mode, enlarge) for size in sizes)
    scale = largest[0] / min(whole) if mode == "center_crop" else max(largest) / max(whole)
    width, height = (max(1, int(side * scale * _DRAFT)) for side in whole)
    drafted = image.draft(None, (width, height))
    if isinstance(image, JpegImageFile):
        leave_out_details(image)
    image.load()
    # At reduced size the last row and column may cover less than a whole pixel; the box is exact.
    box: Box = drafted[1] if drafted else (0, 0, *image.size)
    small = _small(image, largest, _middle(box) if mode == "center_crop" else box)
    orientation = 1 if upright else _orientation(image)
    if orientation in _UPRIGHT:
        small = small.transpose(_UPRIGHT[orientation])
    return Miniature(small, whole[::-1] if orientation in _SIDEWAYS else whole)


def thumbnails_of(
    miniature: Miniature, sizes: Sequence[int], mode: str, quality: int, form: str, enlarge: bool = False
) -> tuple[Thumbnail, ...]:
    """Return a JPEG (or another `form`) of a picture in each of `sizes`, in pixels, without metadata.

    `mode` says what a size is of: of the longest side (`keep_ratio_largest`), of the shortest (`keep_ratio`), of a
    square in the middle of the picture (`center_crop`), of a white square around it (`border`). Smaller pictures
    keep their size unless `enlarge`.
    """
    small, whole = miniature
    fitted = [_resized(small, fit(whole, size, mode, enlarge), (0, 0, *small.size)) for size in sizes]
    if mode == "border":
        fitted = [_bordered(image, size) for image, size in zip(fitted, sizes, strict=True)]
    return tuple(_written(image, quality, form) for image in fitted)


def fit(
    whole: tuple[int, int], size: int, mode: str = "keep_ratio_largest", enlarge: bool = False
) -> tuple[int, int]:
    """Return the size of a picture in its thumbnail, before its border: never 0, enlarged if `enlarge`."""
    most = math.inf if enlarge else 1.0
    if mode == "center_crop":
        side = size if enlarge else min(size, *whole)
        return side, side
    scale = size / max(whole) if mode != "keep_ratio" else min(size / min(whole), _LONGEST / max(whole))
    width, height = (max(1, int(side * min(scale, most) + 0.5)) for side in whole)  # halves up, as thumbnail()
    return width, height


def _middle(box: Box) -> Box:
    """Return the largest square in the middle of `box`."""
    left, upper, right, lower = box
    across, down = right - left, lower - upper
    side = min(across, down)
    left, upper = left + (across - side) / 2, upper + (down - side) / 2
    return left, upper, left + side, upper + side


def _bordered(image: Image.Image, size: int) -> Image.Image:
    square = Image.new(image.mode, (size, size), "white")
    square.paste(image, ((size - image.width) // 2, (size - image.height) // 2))
    return square


def _written(image: Image.Image, quality: int, form: str) -> Thumbnail:
    out = io.BytesIO()
    image.save(out, form, quality=quality, **_WRITTEN[form])
    return Thumbnail(out.getvalue(), *image.size)


def _small(image: Image.Image, size: tuple[int, int], box: Box) -> Image.Image:
    """Return what is in `box` in the size of a thumbnail, as L or RGB, on white where it is transparent.

    A picture that needs converting is converted a band of columns at a time, each band scaled to its height at
    once. The result is the same as in one piece: the resizer, too, scales the columns first. So is one with
    transparency, of which the resizer makes a copy. It is put on white when it is small.
    """
    if image.mode in ("L", "RGB") and not image.has_transparency_data:
        return _resized(image, size, box)
    eight_bits = _eight_bits(image) if image.mode.startswith("I") or image.mode == "F" else None
    width = max(1, _BAND // image.height)
    if width >= image.width:
        return _on_white(_resized(_plain(image, eight_bits), size, box))
    low: Image.Image | None = None
    for left in range(0, image.width, width):
        band = _plain(image.crop((left, 0, min(left + width, image.width), image.height)), eight_bits)
        low = low or Image.new(band.mode, (image.width, size[1]))
        low.paste(_resized(band, (band.width, size[1]), (0, box[1], band.width, box[3])), (left, 0))
    assert low is not None
    return _on_white(_resized(low, size, (box[0], 0, box[2], size[1])))


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
    try:
        return int(image.getexif().get(Base.Orientation, 1))
    except Exception:  # Pillow raises nearly anything on broken EXIF
        return 1


def _resized(image: Image.Image, size: tuple[int, int], box: Box) -> Image.Image:
    if image.size == size and box == (0, 0, *size):
        return image
    left, upper, right, lower = box
    crop = CropBox(left, upper, right - left, lower - upper)
    options = ResizeOptions(ResizeAlg.convolution(FilterType.lanczos3), crop_box=crop)
    small = Image.new(image.mode, size)
    Resizer().resize_pil(image, small, options)  # a Resizer is cheap to make, and not shared between threads
    return small
