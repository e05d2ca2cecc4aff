"""The thumbnails of a picture: small JPEGs or WebPs, upright, on white, in one or several sizes.

Decoding and scaling are what costs. A JPEG is decoded at the smallest of a half, a quarter or an eighth of its
size that is not smaller than the thumbnail, and scaled from there by cykooz_resizer (SIMD, without the GIL), with
a filter of four samples: Lanczos' six would take half as much time again. What both lose, the tables of the
thumbnail's JPEG more than regain.
The picture is decoded once, for the largest size; the others are scaled down from that.

A progressive JPEG brings its coefficients in scans: first the coarse ones, then finer ones, then the last bits of
each (ITU-T T.81, G.1.1). libjpeg decodes all of them, which takes most of the time, though at a quarter of the
size few of a block's 64 show. Here others are left out before it sees them. What remains is a progressive JPEG,
which may end after any scan.
"""

from __future__ import annotations

import io
import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple, cast

from cykooz_resizer import AlphaMulDiv, CropBox, FilterType, ResizeAlg, ResizeOptions, Resizer
from PIL import Image, ImageChops
from PIL.ExifTags import Base
from PIL.JpegImagePlugin import JpegImageFile

from crawlproject.imaging.headers import CHROMINANCE, FRAMES, LUMINANCE, MAX_PARTS, SCAN, segments
from crawlproject.models import Thumbnail

# Pixels converted at a time: a second copy of a large picture, at four bytes a pixel, would double the memory.
_BAND = 1_000_000

# Keeps its buffers, of up to four bytes a pixel of `_BAND` each: to clear new ones takes a twentieth of its time.
# For one thread at a time, as in a decoder.
_resizer = Resizer()

_LONGEST = 16_383  # pixels of a side, all that a WebP can have; of pictures that are much longer than broad

# The quantisation tables of JPEGs, before libjpeg scales them to the quality: that of brightness is flatter than
# the standard's, which is coarse where photographs have their finest details. For 4 % more bytes the worst
# thumbnails have an SSIM of 0.947, not 0.933; with the standard's tables that takes 28 %.
_TABLES = [array("H", [round(math.sqrt(20 * entry)) for entry in LUMINANCE]), array("H", CHROMINANCE)]

# How each format is written, besides its quality.
_WRITTEN: Mapping[str, Mapping[str, Any]] = {
    "JPEG": {
        "qtables": _TABLES,
        "comment": b"",  # else Pillow copies the comment of the original
    },
    "WebP": {
        "method": 2
    },  # libwebp's effort, 0 to 6; 4, the default, takes 1.6 times as long in all, and saves 2 %
}

_PROGRESSIVE = 0xC2  # SOF2; of the other kinds of progressive JPEGs there are next to none
_END = b"\xff\xd9"

# The last coefficient, in zigzag order, that shows at a quarter of the size or less: of 2 x 2. At an eighth the
# first would do, DC, but libjpeg blurs that if it knows no other.
_LAST = 4

# Bits that first scans may leave to later ones: with more of them the picture would be too coarse without these.
_MOST_BITS = 2

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
    width, height = (max(1, int(side * scale)) for side in whole)
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
    if image.mode == "RGBA":
        return image  # which `convert` would copy
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
    """Return an RGBA picture on white, as RGB: white, less by alpha what each colour lacks of it.

    To the same result Pillow would paste it by its alpha, without SIMD, in twice the time.
    """
    if image.mode != "RGBA":
        return image
    lacking = ImageChops.difference(Image.new("RGBA", image.size, (255, 255, 255, 0)), image)  # its alpha stays
    AlphaMulDiv().multiply_alpha_pil_inplace(lacking)
    opaque = Image.new("RGB", image.size, None)
    opaque.paste(lacking)
    return ImageChops.invert(opaque)


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
    options = ResizeOptions(ResizeAlg.convolution(FilterType.catmull_rom), crop_box=crop)
    small = Image.new(image.mode, size, None)
    most = max(image.width, size[0]) * max(image.height, size[1])
    resizer = _resizer if most <= _BAND else Resizer()
    resizer.resize_pil(image, small, options)
    return small


class _Sampling(NamedTuple):
    """How many blocks a component has in each unit."""

    across: int
    down: int


class _Scan(NamedTuple):
    """A scan of AC coefficients, from the number `first` on, at one in `scale` of their size (T.81, B.2.3)."""

    first: int
    scale: int
    refines: bool
    bits_left: int

    @classmethod
    def of(cls, header: bytes, scale: int, sampling: dict[int, _Sampling]) -> _Scan | None:
        """Read its header; None of DC coefficients."""
        components = header[2]
        first, _, bits = header[3 + 2 * components : 6 + 2 * components]
        if first == 0:
            return None
        # libjpeg decodes a component of fewer samples at twice the size rather than enlarge it.
        own, most = sampling[header[3]], [max(each) for each in zip(*sampling.values(), strict=True)]
        is_small = 2 * own.across <= most[0] and 2 * own.down <= most[1]
        return cls(first, scale // 2 if is_small else scale, bits >> 4 > 0, bits & 15)

    @property
    def is_coarse(self) -> bool:
        """Whether it leaves more bits to others than usual."""
        return self.bits_left > _MOST_BITS

    @property
    def is_needed(self) -> bool:
        """Whether it shows. What refines relies on what comes before: where that is left out, so is all of it."""
        if self.scale > 2:
            return self.first <= _LAST and not self.refines
        return self.scale < 2 or not self.refines or self.bits_left > 0


def leave_out_details(image: JpegImageFile) -> None:
    """Have a JPEG that `draft` has reduced decoded without scans that it does not need, if it is progressive."""
    scale = image.decoderconfig[0] if image.decoderconfig else 1
    if scale > 1 and image.info.get("progressive") and image.fp is not None:
        image.fp.seek(0)
        with suppress(IndexError, KeyError, ValueError):  # libjpeg will say what is broken
            image.fp = io.BytesIO(without_details(image.fp.read(), scale))


def without_details(body: bytes, scale: int) -> bytes:
    """Return a JPEG without the scans that hardly show at 1/`scale` of its size: 2, 4 or 8.

    At a half those are left out that bring the last bit of coefficients; at less, all that refine coefficients, or
    begin with fine ones. DC coefficients stay whole. What holds for a component is by the size that it is decoded
    at: one with half of the samples is at twice the scale. A JPEG that is not progressive, has no end, or scans of
    an unusual kind comes back as it is.

    Raises:
        IndexError, KeyError, ValueError: its segments are broken.

    """
    found = list(islice(segments(body), MAX_PARTS + 1))
    if not found or len(found) > MAX_PARTS:
        return body
    last = found[-1][1]
    end = body.find(_END, last + int.from_bytes(body[last : last + 2]))
    if end < 0:
        return body
    sampling: dict[int, _Sampling] = {}
    kept = [body[: found[0][1] - 2]]
    ends = [at - 2 for _, at in found[1:]] + [end]
    for (kind, at), stop in zip(found, ends, strict=True):
        if kind in FRAMES:
            if kind != _PROGRESSIVE:
                return body
            rows = body[at + 8 : at + 8 + 3 * body[at + 7]]
            sampling = {
                rows[row]: _Sampling(rows[row + 1] >> 4, rows[row + 1] & 15) for row in range(0, len(rows), 3)
            }
        scan = _Scan.of(body[at : at + 16], scale, sampling) if kind == SCAN else None
        if scan is not None and scan.is_coarse:
            return body
        if scan is None or scan.is_needed:
            kept.append(body[at - 2 : stop])
    return b"".join(kept) + _END
