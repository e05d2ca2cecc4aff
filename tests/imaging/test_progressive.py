from __future__ import annotations

import io
from random import Random

import pytest
from PIL import Image

from crawlproject.imaging import thumbnail
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.imaging.headers import SCAN, segments
from crawlproject.imaging.thumbnail import miniature_of, without_details
from tests.imaging.analysing import analyse, psnr


def photograph(size: tuple[int, int] = (2000, 1400), mode: str = "RGB") -> Image.Image:
    """Return something with coarse shapes and fine ones, more of them in its brightness than in its colours."""
    quarter = (size[0] // 4, size[1] // 4)
    grey = Image.frombytes("L", quarter, Random(1).randbytes(quarter[0] * quarter[1])).convert("RGB")
    coloured = Image.frombytes("RGB", quarter, Random(2).randbytes(3 * quarter[0] * quarter[1]))
    noise = Image.blend(grey, coloured, 0.2).resize(size, Image.Resampling.BICUBIC)
    smooth = Image.merge(
        "RGB", [Image.linear_gradient("L"), Image.radial_gradient("L"), Image.linear_gradient("L")]
    )
    return Image.blend(smooth.resize(size), noise, 0.3).convert(mode)


def jpeg(image: Image.Image, *, subsampling: int = 2, **options: object) -> bytes:
    """Return a progressive JPEG of it."""
    stream = io.BytesIO()
    image.save(stream, "JPEG", **{"quality": 88, "progressive": True, "subsampling": subsampling, **options})
    return stream.getvalue()


def scans(body: bytes) -> int:
    """Return the number of its scans."""
    return sum(kind == SCAN for kind, _ in segments(body))


def small(body: bytes, size: int) -> Image.Image:
    """Return its thumbnail before it is encoded."""
    return miniature_of(Image.open(io.BytesIO(body)), (size,), "keep_ratio_largest").image


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("subsampling", [0, 2])
@pytest.mark.parametrize(("size", "scale"), [(640, 2), (300, 4), (150, 8)])
def test_a_thumbnail_without_details_is_the_same(
    mode: str, subsampling: int, size: int, scale: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = jpeg(photograph(mode=mode), subsampling=subsampling)
    less = without_details(body, scale)
    assert scans(less) < scans(body)
    assert len(less) < 0.85 * len(body)
    made = small(body, size)
    monkeypatch.setattr(thumbnail, "leave_out_details", lambda image: None)
    assert psnr(made, small(body, size)) > 42


def test_what_is_left_is_what_the_original_says(monkeypatch: pytest.MonkeyPatch) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "Maker"
    body = jpeg(photograph(), exif=exif, comment=b"\xff\xd9\xff\xda in a comment")
    made = analyse(body, sizes=(300,))
    assert (made.facts.width, made.facts.height, made.facts.filesize) == (2000, 1400, len(body))
    monkeypatch.setattr(thumbnail, "leave_out_details", lambda image: None)
    assert analyse(body, sizes=(300,)).facts == made.facts


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95, 0.9999])
def test_what_is_cut_short_is_still_unreadable(share: float) -> None:
    body = jpeg(photograph())
    cut = body[: int(len(body) * share)]
    assert without_details(cut, 4) == cut
    with pytest.raises(UnreadableImage, match="truncated"):
        analyse(cut, sizes=(300,))


def test_a_marker_within_a_scan_is_passed_over_as_by_libjpeg() -> None:
    """It resynchronises at the next restart marker, and takes what is between for nothing."""
    body = bytearray(jpeg(photograph((640, 440), "L"), restart_marker_blocks=7))
    starts = [at for kind, at in segments(bytes(body)) if kind == SCAN]
    body[starts[3] + 60 : starts[3] + 62] = b"\xff\x27"
    assert scans(bytes(body)) == len(starts)
    assert analyse(bytes(body), sizes=(100,)).facts.width == 640


def test_a_marker_that_libjpeg_passes_over_hides_no_scans() -> None:
    body = jpeg(photograph((640, 440), "L"))
    first = next(at for kind, at in segments(body) if kind == SCAN)
    scan = body[first - 2 : first + 8] + b"\0"
    many = body[: first - 2] + scan + b"\xff\x27\xff\xff" + 5000 * scan + body[first - 2 :]
    with pytest.raises(UnreadableImage, match="more than 200 scans"):
        analyse(many)
