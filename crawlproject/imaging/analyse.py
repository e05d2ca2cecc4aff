"""One picture, from bytes to facts and thumbnail: opened once, decoded once.

The bytes may be anything: a page of HTML, half a file, an attack. Whatever is wrong with them raises
`UnreadableImage`.
"""

from __future__ import annotations

import hashlib
import io
import logging
import math
import warnings

from PIL import Image, ImageFile, UnidentifiedImageError
from PIL.ExifTags import Base
from PIL.JpegImagePlugin import JpegImageFile
from PIL.TiffImagePlugin import TiffImageFile

from crawlproject.imaging.facts import read_facts, stored_size
from crawlproject.imaging.failures import MemoryNeeded, UnreadableImage
from crawlproject.imaging.thumbnail import make_thumbnail
from crawlproject.models import Analysis, ImageFacts

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF")

# A progressive JPEG has about ten scans. Each is a pass over all pixels (20 ms for 64 megapixels) and can be as
# small as 95 bytes: a megabyte of scans would take minutes.
MAX_SCANS = 200

# Load all plugins now, rather than in the first thread that meets an unknown format.
Image.init()
# Set once for the whole process: `max_pixels` decides, per call, and Pillow's limit neither warns nor raises.
Image.MAX_IMAGE_PIXELS = None
# Broken EXIF is common. Pillow words its warnings differently each time, and each would be a line of the log.
warnings.filterwarnings("ignore", module=r"PIL\.")
# Pillow logs a debug line for every chunk and tag. Scrapy would drop these only in its handler.
logging.getLogger("PIL").setLevel(logging.INFO)


def analyse(
    body: bytes,
    *,
    max_pixels: int,
    longest_side: int = 640,
    quality: int = 85,
    form: str = "JPEG",
    memory: float = math.inf,
) -> Analysis:
    """Return facts and thumbnail of the picture in `body`.

    A picture of more than `max_pixels` pixels is refused before anything is decoded. Of the thumbnail,
    `longest_side` is in pixels, `quality` 1 to 95, `form` one of `THUMBNAIL_FORMATS`. Raises UnreadableImage, with
    a reason of one line and what its header says, and MemoryError; before decoding that is MemoryNeeded, if it
    would take more than `memory` bytes.
    """
    if not body:
        raise UnreadableImage("empty body")
    image: ImageFile.ImageFile | None = None
    facts: ImageFacts | None = None
    try:
        if body[8:12] == b"WEBP":  # merely opening a WebP allocates its canvas
            _check_size("WEBP", _webp_size(body), max_pixels, memory)
        image = _open(body)
        for size in _sizes(image):
            _check_size(str(image.format), size, max_pixels, memory, _bytes_a_pixel(image))
        if (
            isinstance(image, JpegImageFile)
            and "progressive" in image.info
            and body.count(b"\xff\xda") > MAX_SCANS
        ):
            raise UnreadableImage(f"JPEG: more than {MAX_SCANS} progressive scans")
        if image.format == "PNG":
            image.load()  # the EXIF of a PNG may come after its pixels
        facts = read_facts(image, body)
        return Analysis(facts, make_thumbnail(image, longest_side, quality, form))
    except MemoryError:
        raise
    except Exception as error:  # on broken bytes Pillow may raise nearly anything
        reason = str(error) if isinstance(error, UnreadableImage) else _reason(body, error)
        raise UnreadableImage(reason, facts or _facts_of_header(image, body)) from error


def _facts_of_header(image: ImageFile.ImageFile | None, body: bytes) -> ImageFacts | None:
    """Return what is known of a picture that could not be decoded; None if nothing is. `image`: it was opened."""
    try:
        if image is not None:
            return read_facts(image, body)
        width, height = _webp_size(body) if body[8:12] == b"WEBP" else (0, 0)
        digest = hashlib.sha256(body).hexdigest()
        # Pillow opens none but whole WebPs. Their EXIF comes after the pixels.
        return ImageFacts(width, height, len(body), None, "WEBP", digest, None) if width and height else None
    except MemoryError:
        raise
    except Exception:  # as above
        return None


def _open(body: bytes) -> ImageFile.ImageFile:
    try:
        return Image.open(io.BytesIO(body), formats=FORMATS)
    except UnidentifiedImageError:
        if b"Exif\0\0" not in body:
            raise
        # Pillow looks for a JPEG's resolution in its EXIF, and fails to open the picture if that EXIF is broken.
        return Image.open(io.BytesIO(body.replace(b"Exif\0\0", b"Fixe\0\0")), formats=FORMATS)


def _check_size(
    form: str, size: tuple[int, int], max_pixels: int, memory: float, bytes_a_pixel: float = 16
) -> None:
    """Refuse a picture that would take too much memory to decode."""
    width, height = size
    if width * height > max_pixels:
        raise UnreadableImage(f"too many pixels: {width} x {height}, CRAWL_MAX_PIXELS is {max_pixels}")
    needed = int(width * height * bytes_a_pixel)
    if needed > memory:
        raise MemoryNeeded(f"some {needed / 1e6:.0f} MB for {form} of {width} x {height} pixels", needed)


def _sizes(image: ImageFile.ImageFile) -> list[tuple[int, int]]:
    """Return the sizes of the parts that are decoded as a whole."""
    sizes = [stored_size(image)]
    if isinstance(image, TiffImageFile):
        # A tile is decoded as a whole, however little of it the picture needs: 16 x 16 pixels can take gigabytes.
        sizes.append((image.tag_v2.get(Base.TileWidth, 0), image.tag_v2.get(Base.TileLength, 0)))
    return sizes


def _webp_size(body: bytes) -> tuple[int, int]:
    """Return the size of the canvas; (0, 0) if it cannot be found in the header (RFC 9649, section 2)."""
    kind, data = body[12:16], body[20:30]
    if len(data) < 10:
        return 0, 0
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[4:7], "little"), 1 + int.from_bytes(data[7:10], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(data[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return int.from_bytes(data[6:8], "little") & 0x3FFF, int.from_bytes(data[8:10], "little") & 0x3FFF


def _bytes_a_pixel(image: ImageFile.ImageFile) -> float:
    """Return roughly how many bytes decoding takes per stored pixel; an underestimate, if anything."""
    if not isinstance(image, JpegImageFile):
        # Pillow keeps a picture at 4 bytes a pixel. libwebp adds two canvases and a copy; AVIF adds planes and a
        # copy.
        return {"WEBP": 16, "AVIF": 12}.get(str(image.format), 4)
    if "progressive" not in image.info:
        return 1  # large pictures are decoded at reduced size
    # All coefficients are kept, two bytes each, even if it is decoded at reduced size.
    factors = [(across, down) for _, across, down, _ in image.layer]
    largest = max(across for across, _ in factors) * max(down for _, down in factors)
    return 2 * sum(across * down for across, down in factors) / largest


def _reason(body: bytes, error: Exception) -> str:
    """Return one line on why the body could not be read, in Pillow's own words if it has any."""
    name = next((name for name in FORMATS if _begins_like(name, body)), None)
    if name is None:
        return f"not a picture in a supported format ({', '.join(FORMATS)}), begins with {body[:16]!r}"
    if isinstance(error, UnidentifiedImageError):
        return f"{name}: broken header, or no width or height"
    return f"{name}: {' '.join(str(error).split())[:200] or type(error).__name__}"


def _begins_like(name: str, body: bytes) -> bool:
    accept = Image.OPEN[name][1]
    return accept is not None and accept(body[:16]) is True
