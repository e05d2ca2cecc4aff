"""The facts in the beginning of a picture are those of the whole, or not known."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from random import Random
from typing import Any

import pytest
from PIL import Image, PngImagePlugin

from benchmarks.slow_pictures import chunk
from crawlproject.contrib.probes.beginning import read_beginning
from crawlproject.contrib.probes.events import ProbedFacts
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.imaging.messages import Job
from crawlproject.models import IMAGE_FORMATS, ImageFacts
from tests.imaging.analysing import analyse

PIXELS = 10_000_000
JOB = Job(PIXELS, 10**9, 85, 60, formats=tuple(IMAGE_FORMATS))
XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'


def noise(size: tuple[int, int] = (300, 200), mode: str = "RGB") -> Image.Image:
    """Return a picture that no format makes small."""
    count = len(Image.new(mode, size).tobytes())
    return Image.frombytes(mode, size, Random(1).randbytes(count))


def saved(form: str, image: Image.Image | None = None, **more: Any) -> bytes:
    out = io.BytesIO()
    (image or noise()).save(out, form, **more)
    return out.getvalue()


def exif(note: int = 0) -> bytes:
    tags = Image.Exif()
    tags[0x010F], tags[0x0112] = "Maker", 6
    tags.get_ifd(0x8769)[0x927C] = Random(2).randbytes(note)  # the maker's note
    return tags.tobytes()


def png_with(*chunks: bytes) -> bytes:
    """Return a PNG with chunks between its pixels and its end."""
    body = saved("PNG")
    return body[:-12] + b"".join(chunks) + body[-12:]


def many_frames(form: str, **more: Any) -> bytes:
    frames = [Image.new("RGB", (90, 60), (n * 40, 0, 0)) for n in range(4)]
    return saved(form, frames[0], save_all=True, append_images=frames[1:], **more)


def gif_beyond_its_screen() -> bytes:
    body = bytearray(saved("GIF", noise((90, 60), "L")))
    body[6:10] = struct.pack("<HH", 10, 10)
    return bytes(body)


def xmp_in_png() -> bytes:
    info = PngImagePlugin.PngInfo()
    info.add_itxt("XML:com.adobe.xmp", XMP.decode())
    return saved("PNG", pnginfo=info)


def raw_profile_in_png() -> bytes:
    info = PngImagePlugin.PngInfo()
    info.add_text("Raw profile type exif", f"\nexif\n{len(exif())}\n{exif().hex()}", zip=True)
    return saved("PNG", pnginfo=info)


SAVED: dict[str, Callable[[], bytes]] = {
    "jpeg": lambda: saved("JPEG", quality=83),
    "jpeg progressive": lambda: saved("JPEG", progressive=True, quality=40, exif=exif()),
    "jpeg grey": lambda: saved("JPEG", noise(mode="L")),
    "jpeg cmyk": lambda: saved("JPEG", noise(mode="CMYK"), subsampling=0),
    "jpeg, a note of the maker": lambda: saved("JPEG", exif=exif(50_000)),
    "jpeg, a large profile": lambda: saved("JPEG", exif=exif(), icc_profile=Random(3).randbytes(100_000)),
    "jpeg, orientation in XMP": lambda: saved("JPEG", xmp=XMP),
    "jpeg, broken EXIF": lambda: saved("JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01\x1a\0\x05"),
    "mpo": lambda: saved("MPO", save_all=True, append_images=[noise()], exif=exif()),
    "png": lambda: saved("PNG"),
    "png palette": lambda: saved("PNG", noise().quantize(200)),
    "png, exif before": lambda: saved("PNG", exif=exif()),
    "png, exif after": lambda: png_with(chunk(b"eXIf", exif().removeprefix(b"Exif\0\0"))),
    "png, exif as text before": raw_profile_in_png,
    "png, exif as text after": lambda: png_with(
        chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(b"\nexif\n4\n" + exif().hex().encode()))
    ),
    "png, XMP": xmp_in_png,
    "png, a large profile": lambda: saved("PNG", icc_profile=Random(3).randbytes(60_000)),
    "apng": lambda: many_frames("PNG"),
    "gif": lambda: saved("GIF", noise(mode="L"), comment=b"x" * 2_000),
    "gif, several frames": lambda: many_frames("GIF"),
    "gif beyond its screen": gif_beyond_its_screen,
    "webp": lambda: saved("WEBP"),
    "webp lossless": lambda: saved("WEBP", noise(mode="RGBA"), lossless=True),
    "webp, a pixel": lambda: saved("WEBP", noise((1, 1)), lossless=True),
    "webp, exif": lambda: saved("WEBP", exif=exif()),
    "webp, xmp": lambda: saved("WEBP", xmp=XMP),
    "webp, a profile": lambda: saved("WEBP", icc_profile=Random(3).randbytes(60_000)),
    "webp, several frames": lambda: many_frames("WEBP", exif=exif()),
    "tiff": lambda: saved("TIFF", exif=exif()),
    "tiff, big": lambda: saved("TIFF", big_tiff=True),
    "tiff, compressed": lambda: saved("TIFF", compression="tiff_lzw"),
    "tiff, big-endian": lambda: saved("TIFF", noise((200, 100), "I;16B")),
    "bmp": lambda: saved("BMP"),
    "avif": lambda: saved("AVIF"),
    "avif, exif": lambda: saved("AVIF", exif=exif(), quality=90),
    "avif, alpha": lambda: saved("AVIF", noise((301, 203), "RGBA")),
    "avif, several frames": lambda: many_frames("AVIF"),
    "jpeg2000": lambda: saved("JPEG2000"),
    "qoi": lambda: saved("QOI"),
}


def of_whole(body: bytes) -> ImageFacts:
    return analyse(body, max_pixels=PIXELS, formats=JOB.formats).facts


def look(body: bytes, *, whole: bool = False) -> ProbedFacts:
    return read_beginning(body, JOB, whole=whole)


def agree(found: ProbedFacts, facts: ImageFacts) -> None:
    """Check that what is known is as in the facts of the whole picture."""
    assert found.format == facts.format
    assert (found.width, found.height) in {(None, None), (facts.width, facts.height)}
    assert found.compression_quality in {None, facts.compression_quality}
    assert found.exif in (None, facts.exif or {})


def cuts(size: int) -> Iterator[int]:
    """Yield how much of a body there may be: all places near its beginning, and some others."""
    yield from range(100, min(size, 1_500))
    yield from (cut for cut in chain(range(1_500, size, 997), (4_096, 32_768)) if cut < size)


@pytest.mark.parametrize("name", SAVED)
def test_whatever_is_known_from_a_beginning_is_as_in_the_whole(name: str) -> None:
    body = SAVED[name]()
    facts = of_whole(body)
    for cut in cuts(len(body)):
        agree(look(body[:cut]), facts)
    whole = look(body, whole=True)
    agree(whole, facts)
    assert (whole.width, whole.height, whole.sha256) == (facts.width, facts.height, facts.sha256)
    assert whole.compression_quality == facts.compression_quality


# Where the beginning of so many bytes must do; None: the size comes later, or is not looked for.
@pytest.mark.parametrize(
    ("name", "enough", "exif_known"),
    [
        ("jpeg", 700, True),
        ("jpeg, a note of the maker", None, False),
        ("png", 24, False),
        ("png, exif before", 200, True),
        ("png, exif after", 24, False),
        ("webp, exif", 30, False),
        ("gif", 2_900, True),
        ("tiff", 400, False),
        ("avif", 400, False),
        ("bmp", 54, True),
    ],
)
def test_how_much_of_a_picture_is_enough(name: str, enough: int | None, exif_known: bool) -> None:
    body = SAVED[name]()
    facts = of_whole(body)
    if enough is not None:
        found = look(body[: max(enough, 32)])
        assert (found.width, found.height) == (facts.width, facts.height)
    found = look(body[:32_768])
    assert (found.width is not None) == (enough is not None)
    assert (found.exif is not None) == exif_known
    assert found.sha256 is None


def test_no_exif_is_something_else_than_none_known() -> None:
    assert look(saved("JPEG")).exif == {}
    assert look(saved("JPEG", exif=exif(60_000))[:32_768]).exif is None
    assert look(saved("PNG")[:32_768]).exif is None
    assert look(saved("PNG"), whole=True).exif == {}


def claims(width: int, height: int) -> dict[str, bytes]:
    jpeg = bytearray(saved("JPEG"))
    at = jpeg.index(b"\xff\xc0") + 5
    jpeg[at : at + 4] = struct.pack(">HH", height & 0xFFFF, width & 0xFFFF)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return {"JPEG": bytes(jpeg), "PNG": png + chunk(b"IDAT", b"")}


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_what_claims_billions_of_pixels_is_refused(form: str) -> None:
    body = claims(65_535, 65_535)[form]
    for whole in (False, True):
        with pytest.raises(UnreadableImage, match="too many pixels: 65535 x 65535, CRAWL_MAX_PIXELS is"):
            look(body, whole=whole)
    for size in ((0, 5), (5, 0)):
        with pytest.raises(UnreadableImage, match=f"^{form}: broken header, or no width or height"):
            look(claims(*size)[form], whole=True)


def test_segments_without_end_tell_nothing() -> None:
    endless = b"\xff\xd8" + b"\xff\xe1\0\x02" * 8_000
    assert look(endless) == ProbedFacts("JPEG")
    with pytest.raises(UnreadableImage, match="JPEG: broken header, or no width or height"):
        look(endless, whole=True)
    assert look(b"\x89PNG\r\n\x1a\n" + chunk(b"tEXt", b"") * 2_000) == ProbedFacts("PNG")
    loop = b"II*\0\x08\0\0\0" + b"\xff\xff" + b"\0" * 30_000
    assert look(loop) == ProbedFacts("TIFF")


def test_what_is_no_picture_is_unreadable() -> None:
    for body in (b"", b"<html>not found</html>", b"\xff\xd8", b"GIF"):
        for whole in (False, True):
            with pytest.raises(UnreadableImage):
                look(body, whole=whole)


@pytest.mark.parametrize("name", SAVED)
def test_broken_headers_raise_nothing_else(name: str) -> None:
    body, random = SAVED[name](), Random(4)
    for _ in range(200):
        broken = bytearray(body[:4_096])
        for _ in range(random.randrange(1, 9)):
            broken[random.randrange(len(broken))] = random.randrange(256)
        for whole in (False, True):
            try:
                look(bytes(broken), whole=whole)
            except UnreadableImage as error:
                assert "\n" not in str(error)
