"""Whole bodies in each format, sound ones and all the bad ones that a crawler meets."""

from __future__ import annotations

import hashlib
import io
import random
import struct
import zlib
from typing import Any

import pytest
from PIL import Image, UnidentifiedImageError

from benchmarks.fuzz_pictures import psd
from benchmarks.slow_pictures import chunk, longs, tiff
from crawlproject.imaging.analyse import MAX_COMMENTS
from crawlproject.imaging.failures import MemoryNeeded, UnreadableImage
from crawlproject.models import DEFAULT_FORMATS, IMAGE_FORMATS, Analysis, ImageFacts
from tests.imaging import analysing
from tests.imaging.analysing import analyse, broken, refused

pytestmark = pytest.mark.filterwarnings("ignore:::PIL")  # pytest forgets the filter that analyse.py sets

LIMIT = 1_000_000
FURTHER = [name for name in IMAGE_FORMATS if name not in DEFAULT_FORMATS]


def picture(name: str, size: tuple[int, int] = (90, 60), noise: bool = False, **options: Any) -> bytes:
    """Return a picture in any of the formats."""
    grey = Image.effect_noise(size, 90) if noise else Image.linear_gradient("L").resize(size)
    image = grey.convert("RGB")
    if name == "PSD":
        return psd(image, packed=noise)
    out = io.BytesIO()
    image.save(out, name, **({"sizes": [size]} if name == "ICO" else {}), **options)
    return out.getvalue()


def grey(image: Image.Image, column: int, row: int) -> int:
    value = image.convert("L").getpixel((column, row))
    assert isinstance(value, int)
    return value


def look(body: bytes, *formats: str, **more: Any) -> Analysis:
    return analyse(body, formats=formats, **{"max_pixels": LIMIT, **more})


def reason(body: bytes, *formats: str, **more: Any) -> str:
    return analysing.reason(body, formats=formats, **{"max_pixels": LIMIT, **more})


@pytest.mark.parametrize("name", FURTHER)
def test_gives_facts_and_thumbnail(name: str) -> None:
    size = (240, 160) if name == "ICO" else (900, 600)
    body = picture(name, size)
    made = look(body, name, sizes=(120,))
    assert made.facts == ImageFacts(*size, len(body), None, name, hashlib.sha256(body).hexdigest(), None)
    with Image.open(io.BytesIO(made.thumbnails[0].data)) as thumbnail:
        assert (thumbnail.format, thumbnail.size) == ("JPEG", (120, 80))
        shades = [grey(thumbnail, 60, row) for row in (5, 40, 75)]
    assert shades == sorted(shades)
    assert shades[2] - shades[0] > 150  # the gradient, the right way up


@pytest.mark.parametrize("name", FURTHER)
def test_a_format_that_the_setting_leaves_out_is_named(name: str) -> None:
    words = f"not a picture in a supported format: {name}, which CRAWL_FORMATS leaves out"
    assert reason(picture(name), *DEFAULT_FORMATS) == words
    assert reason(picture(name), "PNG") == words


@pytest.mark.parametrize("name", ["EPS", "PDF", "DDS", "IM", "XBM", "FITS"])
def test_what_only_pillow_knows_is_never_read(name: str) -> None:
    out = io.BytesIO()
    bodies = {
        "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        "FITS": b"SIMPLE  =                    T",
    }
    if name not in bodies:
        Image.new("1" if name == "XBM" else "RGB", (9, 9)).save(out, name)
    installed = [*DEFAULT_FORMATS, *FURTHER]
    assert "begins with" in reason(bodies.get(name) or out.getvalue(), *installed)


@pytest.mark.parametrize("name", IMAGE_FORMATS)
def test_the_limit_on_pixels_is_exact(name: str) -> None:
    body = picture(name)
    assert look(body, name, max_pixels=5400).facts.width == 90
    assert reason(body, name, max_pixels=5399) == "too many pixels: 90 x 60, CRAWL_MAX_PIXELS is 5399"


@pytest.mark.parametrize("name", FURTHER)
def test_memory_is_estimated_before_anything_is_decoded(name: str) -> None:
    body = picture(name)
    with pytest.raises(MemoryNeeded):
        look(body, name, memory=5400 * 4 - 1)
    assert look(body, name, memory=5400 * 30 + 20_000).facts.width == 90


@pytest.mark.parametrize("name", FURTHER)
def test_only_unreadable_image_is_ever_raised(name: str) -> None:
    rng = random.Random(name)
    body = picture(name, noise=True)
    outcomes: set[type] = set()
    for _ in range(150):
        try:
            outcomes.add(type(look(broken(body, rng), name, memory=500_000_000)))
        except (UnreadableImage, MemoryNeeded) as error:
            assert str(error).isprintable()
            outcomes.add(type(error))
    assert {Analysis, UnreadableImage} <= outcomes <= {Analysis, UnreadableImage, MemoryNeeded}


def icon(body: bytes, width: int = 16, height: int = 16) -> bytes:
    """Return an ICO whose directory claims this size of the picture in it."""
    return struct.pack("<HHH4BHHII", 0, 1, 1, width, height, 0, 0, 1, 32, len(body), 22) + body


def dib(width: int, height: int) -> bytes:
    return struct.pack("<LllHHLL16x", 40, width, 2 * height, 1, 32, 0, 0)


def test_an_icon_is_measured_by_what_is_in_it() -> None:
    out = io.BytesIO()
    Image.new("RGBA", (48, 32), "red").save(out, "PNG")
    assert look(icon(out.getvalue()), "ICO").facts.width == 48  # not 16, as its directory says
    assert reason(icon(out.getvalue()), "ICO", max_pixels=1000).startswith("too many pixels: 48 x 32")


def codestream(width: int, height: int, across: int, down: int, components: int = 3) -> bytes:
    """Return the header of a JPEG 2000 codestream, and nothing else."""
    size = struct.pack(">H8IH", 0, width, height, 0, 0, across, down, 0, 0, components)
    size += bytes([7, 1, 1]) * components
    coding = b"\xff\x52" + struct.pack(">H5B5B", 12, 0, 0, 0, 1, 0, 5, 4, 4, 0, 1)
    return b"\xff\x4f\xff\x51" + struct.pack(">H", 2 + len(size)) + size + coding


def jp2(width: int, height: int, stream: bytes) -> bytes:
    """Return a JP2 whose box claims this size of the codestream in it."""

    def box(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I4s", 8 + len(data), kind) + data

    header = box(b"ihdr", struct.pack(">IIHBBBB", height, width, 3, 7, 7, 0, 0))
    header += box(b"colr", struct.pack(">BBBI", 1, 0, 0, 16))
    made = box(b"jP  ", b"\r\n\x87\n") + box(b"ftyp", b"jp2 \0\0\0\0jp2 ")
    return made + box(b"jp2h", header) + box(b"jp2c", stream)


def test_a_jpeg_2000_is_measured_by_its_header() -> None:
    words = "too many pixels: 30000 x 30000"
    huge = codestream(30_000, 30_000, 30_000, 30_000)
    assert words in reason(huge, "JPEG2000")
    assert words in reason(jp2(30_000, 30_000, codestream(16, 16, 16, 16)), "JPEG2000")


def test_a_tga_is_one_by_its_end_alone() -> None:
    body = picture("TGA")
    assert look(body, "TGA").facts.format == "TGA"
    assert "not a picture in a supported format (TGA), begins with" in reason(body[:-26], "TGA")
    assert "not a picture in a supported format" in reason(b"\0\0\2" + bytes(40), "TGA")
    assert reason(b"TRUEVISION-XFILE.\0", "TGA").startswith("TGA: ")
    png = picture("PNG") + b"TRUEVISION-XFILE.\0"
    assert look(png, *DEFAULT_FORMATS, "TGA").facts.format == "PNG"


BROKEN: dict[str, list[bytes]] = {
    "ICO": [
        b"\0\0\1\0",
        b"\0\0\1\0\xff\xff" + bytes(16 * 65_535),
        icon(b""),
        icon(dib(5, 5)),
        struct.pack("<HHH4BHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, 100, 0xFFFFFFFF),
    ],
    "JPEG2000": [
        codestream(0, 5, 5, 5),
        codestream(5, 5, 5, 5, components=0),
        codestream(5, 5, 5, 5, components=16_384),
        codestream(5, 5, 5, 5),
        jp2(16, 16, b""),
        jp2(16, 16, b"")[:12] + b"\0\0\0\1jp2h" + b"\xff" * 8,
    ],
    "PPM": [
        *(b"P5 2 2 0\n1234", b"P5 0 2 255\n1234", b"P5 99999999999999999999 2 255\n", b"P5 " + b"9" * 100_000),
        *(b"Pf 2 2 nan\n" + bytes(16), b"P5 2 2 255\n123", b"P2 2 2 255\n1 2 3 -4", b"P1 2 2\n1 0 1 2"),
    ],
}


@pytest.mark.parametrize(("name", "body"), [(name, body) for name, bodies in BROKEN.items() for body in bodies])
def test_what_is_broken_is_unreadable(name: str, body: bytes) -> None:
    assert reason(body, name).startswith(f"{name}: ")


@pytest.mark.parametrize(
    "body",
    [
        b"P3 500 500 255\n" + b"#\n" * 500_000,
        b"P2 2 2 255\n1 2 3\n" + b"#" * (MAX_COMMENTS + 1) + b"\n4\n",
    ],
)
def test_the_comments_of_a_ppm_are_bounded(body: bytes) -> None:
    assert reason(body, "PPM") == f"PPM: more than {MAX_COMMENTS} comments"


@pytest.mark.parametrize(
    "body",
    [
        b"P6 2 1 255\n\x00\x00\x00\xff\xff\xff",
        b"P3 2 1 255\n0 0 0 255 255 255",
        b"P2\n# by hand\n2 1\n9\n0 9\n",
        b"P4 2 1\n\x80",
        b"P1 2 1\n10",
        b"Pf 2 1 -1\n" + struct.pack("<ff", 0, 1),
    ],
)
def test_every_kind_of_ppm_is_read(body: bytes) -> None:
    made = look(body, "PPM")
    assert (made.facts.width, made.facts.height, made.facts.format) == (2, 1, "PPM")
    with Image.open(io.BytesIO(made.thumbnails[0].data)) as thumbnail:
        assert grey(thumbnail, 1, 0) - grey(thumbnail, 0, 0) > 200


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
    assert words in analysing.reason(body)


@pytest.mark.parametrize("name", [name for name in IMAGE_FORMATS if name not in ("TGA", "ICO")])
def test_of_half_a_file_with_a_sound_header_its_facts_are_known(name: str) -> None:
    tags = Image.Exif()
    tags[0x13B] = "Ansel"
    has_exif = name in DEFAULT_FORMATS and name not in ("GIF", "BMP")
    options: dict[str, Any] = {"exif": tags} if has_exif else {}
    whole = picture(name, noise=True, **options)
    body = whole[: len(whole) * 19 // 20]
    exif = {"0x13b": "Ansel"} if has_exif and name != "WEBP" else None  # there it comes last
    quality = 75 if name == "JPEG" else None
    digest = hashlib.sha256(body).hexdigest()
    assert refused(body, formats=(name,)).facts == ImageFacts(90, 60, len(body), quality, name, digest, exif)


def test_of_a_picture_that_is_too_large_the_facts_are_known_without_decoding_it() -> None:
    facts = refused(png(30_000, 20_000, b"no zlib")).facts
    assert facts is not None
    assert (facts.width, facts.height, facts.format) == (30_000, 20_000, "PNG")
    facts = refused(analysing.picture("WEBP"), max_pixels=5399).facts
    assert facts is not None
    assert (facts.width, facts.height, facts.format) == (90, 60, "WEBP")


@pytest.mark.parametrize("options", [{}, {"lossless": True}, {"exif": b"Exif\0\0II*\0"}])
def test_a_webp_is_measured_before_it_is_opened(options: dict[str, Any]) -> None:
    body = analysing.picture("WEBP", **options)
    assert analysing.reason(body, max_pixels=5399) == "too many pixels: 90 x 60, CRAWL_MAX_PIXELS is 5399"
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
    assert "16384 x 16384" in analysing.reason(tiled(32, 32, 16384))


def test_a_jpeg_that_pillow_rejects_for_broken_exif_is_read() -> None:
    # XResolution as one byte: Pillow takes it for a fraction, and the file for no JPEG.
    entries = struct.pack("<HHLL", 0x11A, 1, 1, 72) + struct.pack("<HHLHH", 0x128, 3, 1, 2, 0)
    block = b"Exif\0\0II*\0" + struct.pack("<LH", 8, 2) + entries + bytes(4)
    body = analysing.picture("JPEG", exif=block)
    with pytest.raises(UnidentifiedImageError):
        Image.open(io.BytesIO(body))
    made = analyse(body)
    assert (made.facts.width, made.facts.filesize, made.facts.exif) == (90, len(body), None)
