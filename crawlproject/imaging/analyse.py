"""One picture, from bytes to facts and thumbnail: opened once, decoded once.

The bytes may be anything: a page of HTML, half a file, an attack. Whatever is wrong with them comes out as
`UnreadableImage`.
"""

from __future__ import annotations

import io
import logging
import math
import warnings

from PIL import Image, ImageFile, UnidentifiedImageError
from PIL.ExifTags import Base
from PIL.JpegImagePlugin import JpegImageFile
from PIL.TiffImagePlugin import TiffImageFile

from crawlproject.imaging.errors import UnreadableImage
from crawlproject.imaging.facts import read_facts, stored_size
from crawlproject.imaging.thumbnail import make_thumbnail
from crawlproject.records import Analysis

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF")

# A progressive JPEG has about ten scans. Each is a pass over all pixels, 20 ms for 64 megapixels, and can be
# as small as 95 bytes: a megabyte of them would take minutes.
MAX_SCANS = 200

# What decoding takes, where that is more than the picture itself, which Pillow keeps at 4 bytes a pixel. libwebp
# has two canvases and hands over a copy, AVIF has planes and a copy.
_BYTES_A_PIXEL = {"WEBP": 16, "AVIF": 12}

# All plugins now, rather than by the first thread that meets an unknown format.
Image.init()
# Set once, here, for the whole process: our limit decides, per call, and Pillow's neither warns nor raises.
Image.MAX_IMAGE_PIXELS = None
# Broken EXIF is everyday. Pillow warns of it in ever other words, each a line of the log.
warnings.filterwarnings("ignore", module=r"PIL\.")
# A debug line for every chunk and tag. Scrapy leaves loggers open and drops their lines only in its handler.
logging.getLogger("PIL").setLevel(logging.INFO)


def analyse(
    body: bytes, *, max_pixels: int, longest_side: int = 640, quality: int = 85, memory: float = math.inf
) -> Analysis:
    """Return facts and thumbnail of the picture that `body` is.

    A picture of more than `max_pixels` pixels is refused before anything is decoded. `longest_side` (of the
    thumbnail) is in pixels, `quality` (of its JPEG) 1 to 95. Raises UnreadableImage, its reason one line, and
    MemoryError, at once where decoding would take more than `memory` bytes.
    """
    if not body:
        raise UnreadableImage("empty body")
    try:
        image = _open(body)
        _check_cost(image, body, max_pixels)
        if (needed := memory_needed(image)) > memory:
            raise MemoryError(f"{image.format} of {image.width} x {image.height}: some {needed / 1e6:.0f} MB")
        if image.format == "PNG":
            image.load()  # the EXIF of a PNG may come after its pixels
        return Analysis(read_facts(image, body), make_thumbnail(image, longest_side, quality))
    except (UnreadableImage, MemoryError):
        raise
    except Exception as error:  # on broken bytes Pillow raises nearly anything
        raise UnreadableImage(_reason(body, error)) from error


def _open(body: bytes) -> ImageFile.ImageFile:
    try:
        return Image.open(io.BytesIO(body), formats=FORMATS)
    except UnidentifiedImageError:
        if b"Exif\0\0" not in body:
            raise
        # Pillow looks for a JPEG's resolution in its EXIF, and some broken EXIF costs it the whole picture.
        return Image.open(io.BytesIO(body.replace(b"Exif\0\0", b"Fixe\0\0")), formats=FORMATS)


def _check_cost(image: ImageFile.ImageFile, body: bytes, max_pixels: int) -> None:
    """Refuse what would take too much memory or time to decode."""
    sizes = [stored_size(image)]
    if isinstance(image, TiffImageFile):
        # A tile is decoded whole, however little of it the picture needs: 16 x 16 pixels can take gigabytes.
        sizes.append((image.tag_v2.get(Base.TileWidth, 0), image.tag_v2.get(Base.TileLength, 0)))
    for width, height in sizes:
        if width * height > max_pixels:
            raise UnreadableImage(f"too many pixels: {width} x {height}, CRAWL_MAX_PIXELS is {max_pixels}")
    progressive = isinstance(image, JpegImageFile) and "progressive" in image.info
    if progressive and body.count(b"\xff\xda") > MAX_SCANS:
        raise UnreadableImage(f"JPEG: more than {MAX_SCANS} progressive scans")


def memory_needed(image: ImageFile.ImageFile) -> int:
    """Return about how many bytes it takes to decode an opened picture: less than the truth, if anything."""
    width, height = stored_size(image)
    if isinstance(image, JpegImageFile):
        # Decoded at reduced size where it is large; but a progressive one's coefficients are kept in full.
        each = 2 * len(image.getbands()) if "progressive" in image.info else 1
    else:
        each = _BYTES_A_PIXEL.get(str(image.format), 4)
    return width * height * each


def _reason(body: bytes, error: Exception) -> str:
    """Return one line on why the body could not be read; Pillow's own words where they say something."""
    name = next((name for name in FORMATS if _begins_like(name, body)), None)
    if name is None:
        return f"no picture in a supported format ({', '.join(FORMATS)}), begins with {body[:16]!r}"
    if isinstance(error, UnidentifiedImageError):
        return f"{name}: broken header, or no width or height"
    return f"{name}: {' '.join(str(error).split())[:200] or type(error).__name__}"


def _begins_like(name: str, body: bytes) -> bool:
    accept = Image.OPEN[name][1]
    return accept is not None and accept(body[:16]) is True
