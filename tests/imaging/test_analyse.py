"""Whole bodies, sound ones and all the bad ones that a crawler meets."""

from __future__ import annotations

import hashlib
import io
import struct
import zlib
from typing import Any

import pytest
from PIL import Image, UnidentifiedImageError

from benchmarks.slow_pictures import chunk, longs, tiff
from crawlproject.imaging.failures import MemoryNeeded
from crawlproject.models import DEFAULT_FORMATS as FORMATS
from crawlproject.models import ImageFacts
from tests.imaging.analysing import analyse, picture, reason, refused

pytestmark = pytest.mark.filterwarnings("ignore:::PIL")  # pytest forgets the filter that analyse.py sets


def png(width: int, height: int, pixels: bytes = b"", depth: int = 8) -> bytes:
    """Return a PNG with this header, whatever the pixels."""
    header = struct.pack(">2L5B", width, height, depth, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty body"),
        (b"<!DOCTYPE html><title>Not found</title>", "begins with '<!DOCTYPE html><'"),
        (b"\0\n\r\t" * 9, "not a picture in a supported format"),
        (b"P6 2 2 255 abcdefghijkl", "not a picture in a supported format: PPM, which CRAWL_FORMATS leaves out"),
        (b"\xff\xd8\xff", "JPEG: broken header"),
        (b"GIF89a", "GIF: "),
        (b"\x89PNG\r\n\x1a\n", "PNG: "),
        (b"RIFF\x10\0\0\0WEBPVP8 junkjunk", "WEBP: "),
        (b"II*\0\x08\0\0\0\0\0\0\0\0\0", "TIFF: "),
        (b"BM" + bytes(60), "BMP: "),
        (b"\0\0\0\x1cftypavif" + bytes(20), "AVIF: "),
        (png(5, 5, b"no zlib"), "PNG: "),
        (png(5, 5, zlib.compress(b"\0" * 30)[:-9]), "PNG: image file is truncated"),
        (png(5, 5, zlib.compress(b"\0" * 30), depth=7), "PNG: broken header"),
    ],
)
def test_says_what_is_wrong(body: bytes, words: str) -> None:
    assert words in reason(body)


@pytest.mark.parametrize("format_", FORMATS)
def test_of_half_a_file_with_a_sound_header_its_facts_are_known(format_: str) -> None:
    tags = Image.Exif()
    tags[0x13B] = "Ansel"
    out = io.BytesIO()
    options = {} if format_ in ("GIF", "BMP") else {"exif": tags}
    Image.effect_noise((90, 60), 90).convert("RGB").save(out, format_, **options)
    whole = out.getvalue()
    body = whole[: int(len(whole) * 0.95)]
    exif = None if format_ == "WEBP" else analyse(whole).facts.exif  # there it comes last
    assert (exif is None) == (format_ in ("GIF", "BMP", "WEBP"))
    facts = refused(body).facts
    assert facts == ImageFacts(
        90, 60, len(body), 75 if format_ == "JPEG" else None, format_, hashlib.sha256(body).hexdigest(), exif
    )


def test_of_a_picture_that_is_too_large_the_facts_are_known_without_decoding_it() -> None:
    facts = refused(png(30_000, 20_000, b"no zlib")).facts
    assert facts is not None
    assert (facts.width, facts.height, facts.format) == (30_000, 20_000, "PNG")
    facts = refused(picture("WEBP"), max_pixels=5399).facts
    assert facts is not None
    assert (facts.width, facts.height, facts.format) == (90, 60, "WEBP")


@pytest.mark.parametrize("options", [{}, {"lossless": True}, {"exif": b"Exif\0\0II*\0"}])
def test_a_webp_is_measured_before_it_is_opened(options: dict[str, Any]) -> None:
    body = picture("WEBP", **options)
    assert reason(body, max_pixels=5399) == "too many pixels: 90 x 60, CRAWL_MAX_PIXELS is 5399"
    with pytest.raises(MemoryNeeded, match="some 0 MB for WEBP of 90 x 60 pixels"):
        analyse(body, memory=16 * 5400 - 1)
    assert analyse(body, memory=16 * 5400).facts.width == 90


def tiled(width: int, height: int, tile: int) -> bytes:
    """Return a small TIFF that claims one large tile."""
    pixels = zlib.compress(bytes(width * height))
    tags = {256: width, 257: height, 258: 8, 259: 8, 262: 1, 322: tile, 323: tile, 324: 8, 325: len(pixels)}
    return tiff({tag: longs(value) for tag, value in tags.items()}, pixels)


def test_a_tile_counts_in_full_however_little_of_it_is_used() -> None:
    assert analyse(tiled(32, 32, 32)).facts.width == 32
    assert "16384 x 16384" in reason(tiled(32, 32, 16384))


def test_a_jpeg_that_pillow_rejects_for_broken_exif_is_read() -> None:
    # XResolution as one byte: Pillow takes it for a fraction, and the file for no JPEG.
    entries = struct.pack("<HHLL", 0x11A, 1, 1, 72) + struct.pack("<HHLHH", 0x128, 3, 1, 2, 0)
    block = b"Exif\0\0II*\0" + struct.pack("<LH", 8, 2) + entries + bytes(4)
    body = picture("JPEG", exif=block)
    with pytest.raises(UnidentifiedImageError):
        Image.open(io.BytesIO(body))
    made = analyse(body)
    assert (made.facts.width, made.facts.filesize, made.facts.exif) == (90, len(body), None)
