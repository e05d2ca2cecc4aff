"""Thumbnails of every kind of picture, by both engines, and how good they are."""

from __future__ import annotations

import io
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFile, ImageOps

from crawlproject.imaging import thumbnail as module
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.imaging.headers import SCAN, segments
from crawlproject.imaging.thumbnail import fit, miniature_of, thumbnails_of, without_details
from crawlproject.models import THUMBNAIL_MODES, Thumbnail
from tests.imaging.analysing import analyse, psnr


def encoded(image: Image.Image, format_: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format_, **options)
    return out.getvalue()


def opened(body: bytes) -> ImageFile.ImageFile:
    return Image.open(io.BytesIO(body))


def thumbnails(
    body: bytes,
    sizes: Sequence[int] = (640,),
    mode: str = "keep_ratio_largest",
    quality: int = 95,
    form: str = "JPEG",
) -> tuple[Thumbnail, ...]:
    return thumbnails_of(miniature_of(opened(body), sizes, mode), sizes, mode, quality, form)


def thumbnail(body: bytes, size: int = 640, mode: str = "keep_ratio_largest") -> ImageFile.ImageFile:
    made = opened(thumbnails(body, (size,), mode)[0].data)
    assert made.format == "JPEG"
    return made


def colour(image: Image.Image, x: int, y: int) -> tuple[int, ...]:
    """Return the colour of a pixel, to the nearest 16: JPEG is not exact."""
    value = image.convert("RGB").getpixel((x, y))
    assert isinstance(value, tuple)
    return tuple(min(255, round(band / 16) * 16) for band in value)


def textured(size: tuple[int, int]) -> Image.Image:
    """Return a picture with gradients, noise, edges and fine lines, as hard to scale as a photograph."""
    width, height = size
    bands = [Image.effect_noise((width // step, height // step), 70).resize(size) for step in (2, 5, 9)]
    image = Image.blend(Image.merge("RGB", bands), Image.linear_gradient("L").resize(size).convert("RGB"), 0.4)
    draw = ImageDraw.Draw(image)
    for step in range(0, width, 23):
        draw.line((step, 0, width - step, height), fill=(step % 256, 90, 200), width=step % 4)
        draw.ellipse((step, step // 2, step + 60, step // 2 + 40), outline="white")
    return image


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((1600, 1200), (640, 480)),
        ((640, 480), (640, 480)),
        ((3, 2), (3, 2)),
        ((5000, 3), (640, 1)),
        ((1, 4000), (1, 640)),
    ],
)
@pytest.mark.parametrize("format_", ["JPEG", "PNG"])
def test_longest_side_is_bounded_and_nothing_enlarged(
    size: tuple[int, int], expected: tuple[int, int], format_: str
) -> None:
    assert fit(size, 640) == expected
    assert thumbnail(encoded(Image.new("RGB", size), format_)).size == expected


@pytest.mark.parametrize(
    ("size", "mode", "decoded"),
    [
        ((1280, 851), "keep_ratio_largest", (640, 426)),
        ((1279, 851), "keep_ratio_largest", (1279, 851)),
        ((1600, 1280), "keep_ratio", (800, 640)),
        ((1400, 1280), "center_crop", (700, 640)),
    ],
)
def test_a_jpeg_is_decoded_at_the_smallest_size_that_its_thumbnail_can_be_made_of(
    size: tuple[int, int], mode: str, decoded: tuple[int, int]
) -> None:
    image = opened(encoded(Image.new("RGB", size, "red"), "JPEG"))
    miniature_of(image, (640,), mode)
    assert image.size == decoded


def test_a_jpeg_keeps_more_of_fine_details_than_the_standard_tables_would() -> None:
    image = textured((640, 400)).convert("L")
    made = thumbnails(encoded(image, "PNG"), quality=85)[0].data
    usual = encoded(image, "JPEG", quality=89)
    assert len(made) < len(usual)
    assert psnr(opened(made), image) > psnr(opened(usual), image) + 1


def test_drops_comment_and_exif() -> None:
    tags = Image.Exif()
    tags[0x13B] = "Ada"
    body = encoded(Image.new("RGB", (30, 20)), "JPEG", comment=b"made by", exif=tags)
    made = thumbnail(body)
    assert opened(body).info["comment"] == b"made by"
    assert made.info.keys().isdisjoint({"comment", "exif"})


CORNERS = {(0, 0): "red", (1, 0): "lime", (0, 1): "blue", (1, 1): "white"}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_is_upright(orientation: int, format_: str) -> None:
    image = Image.new("RGB", (96, 64))
    for (x, y), name in CORNERS.items():
        image.paste(name, (x * 48, y * 32, x * 48 + 48, y * 32 + 32))
    tags = Image.Exif()
    tags[0x112] = orientation
    made = thumbnail(encoded(image, format_, exif=tags), size=48)
    image.getexif()[0x112] = orientation
    upright = ImageOps.exif_transpose(image)
    assert made.size == ((48, 32) if orientation < 5 else (32, 48)) == (upright.width // 2, upright.height // 2)
    for x in (4, made.width - 5):
        for y in (4, made.height - 5):
            assert colour(made, x, y) == colour(upright, 2 * x, 2 * y)


def see_through(mode: str) -> bytes:
    """Return a PNG of 800 x 400: its left half transparent (and black), its right half red or grey."""
    image = Image.new("RGBA", (800, 400))
    image.paste((208, 0, 0, 255) if mode in ("RGB", "RGBA", "P", "P+") else (96, 96, 96, 255), (400, 0, 800, 400))
    if mode in ("RGBA", "LA"):
        return encoded(image.convert(mode), "PNG")
    if mode == "P+":  # alpha in the palette, a byte a colour
        return encoded(image.quantize(4), "PNG")
    plain = image.convert("RGB").quantize(4) if mode == "P" else image.convert("RGB").convert(mode)
    return encoded(plain, "PNG", transparency=plain.getpixel((0, 0)))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "P+", "L", "RGB"])
@pytest.mark.parametrize("longest_side", [640, 1000])
def test_transparency_is_white(mode: str, longest_side: int) -> None:
    image = opened(see_through(mode))
    assert (image.mode, "transparency" in image.info) == (
        mode[0] if "+" in mode else mode,
        len(mode) < 4 and mode != "LA",
    )
    made = thumbnail(see_through(mode), longest_side)
    assert colour(made, 50, 50) == (255, 255, 255)
    assert colour(made, made.width - 50, 50) == ((208, 0, 0) if mode[0] in "RP" else (96, 96, 96))


def test_every_colour_is_on_white_by_its_alpha() -> None:
    across, down = Image.linear_gradient("L").rotate(90), Image.linear_gradient("L")
    image = Image.merge("RGBA", (across, ImageOps.invert(across), across, down))
    white = Image.new("RGB", image.size, "white")
    white.paste(image, (0, 0), image)
    made = miniature_of(opened(encoded(image, "PNG")), (256,), "keep_ratio_largest").image
    assert (made.mode, made.tobytes()) == (white.mode, white.tobytes())


@pytest.mark.parametrize(
    ("mode", "fill", "format_", "expected"),
    [
        ("1", 1, "PNG", (255, 255, 255)),
        ("L", 96, "JPEG", (96, 96, 96)),
        ("P", "red", "GIF", (255, 0, 0)),
        ("CMYK", (0, 255, 255, 0), "JPEG", (255, 0, 0)),
        ("CMYK", (0, 255, 255, 0), "TIFF", (255, 0, 0)),
        ("YCbCr", (96, 128, 128), "JPEG", (96, 96, 96)),
        ("LAB", (255, 128, 128), "TIFF", (255, 255, 255)),
        ("I;16", 96 * 257, "PNG", (96, 96, 96)),
        ("I;16B", 96 * 257, "TIFF", (96, 96, 96)),
        ("I", 96, "TIFF", (96, 96, 96)),
        ("F", 96 / 255, "TIFF", (96, 96, 96)),
        ("F", 96.0, "TIFF", (96, 96, 96)),
        ("F", float("nan"), "TIFF", (0, 0, 0)),
        ("F", float("-inf"), "TIFF", (0, 0, 0)),
    ],
)
@pytest.mark.parametrize("width", [300, 900])
def test_every_mode_has_its_colour(
    mode: str, fill: Any, format_: str, expected: tuple[int, ...], width: int
) -> None:
    made = thumbnail(encoded(Image.new(mode, (width, 40), fill), format_))
    assert colour(made, 10, 10) == expected


def test_16_bits_are_scaled_not_clipped() -> None:
    ramp = Image.linear_gradient("L").convert("I").point(lambda value: value * 257).convert("I;16")
    made = thumbnail(encoded(ramp, "PNG"))
    expected = Image.linear_gradient("L")
    assert made.mode == "L"
    assert psnr(made, expected) > 40


@pytest.mark.parametrize("mode", ["I", "F"])
def test_values_outside_all_ranges_are_stretched(mode: str) -> None:
    image = Image.new(mode, (60, 20), -100_000)
    image.paste(100_000, (20, 0, 40, 20))
    image.paste(0, (40, 0, 60, 20))
    made = thumbnail(encoded(image, "TIFF"))
    assert [colour(made, x, 10)[0] for x in (8, 30, 50)] == [0, 255, 128]


@pytest.mark.parametrize(
    ("mode", "whole", "made"),
    [
        ("keep_ratio_largest", (1600, 1000), (640, 400)),
        ("keep_ratio", (1600, 1000), (1024, 640)),
        ("keep_ratio", (1000, 1600), (640, 1024)),
        ("center_crop", (1600, 1000), (640, 640)),
        ("center_crop", (5, 4000), (5, 5)),
        ("border", (1600, 1000), (640, 640)),
        ("border", (300, 200), (640, 640)),
    ],
)
@pytest.mark.parametrize("format_", ["JPEG", "PNG"])
def test_a_mode_says_what_the_size_is_the_size_of(
    mode: str, whole: tuple[int, int], made: tuple[int, int], format_: str
) -> None:
    (one,) = thumbnails(encoded(Image.new("RGB", whole, "red"), format_), mode=mode)
    assert (one.width, one.height) == opened(one.data).size == made


def striped(whole: tuple[int, int]) -> Image.Image:
    """Return a picture that is blue, but for a lime fifth at its beginning and a red one at its end."""
    image, (width, height) = Image.new("RGB", whole, "blue"), whole
    across = width > height
    fifth = max(whole) // 5
    image.paste("lime", (0, 0, fifth, height) if across else (0, 0, width, fifth))
    image.paste("red", (width - fifth, 0, width, height) if across else (0, height - fifth, width, height))
    return image


@pytest.mark.parametrize(
    ("mode", "size"),
    [
        ("keep_ratio_largest", (256, 192)),
        ("keep_ratio", (341, 256)),
        ("center_crop", (256, 256)),
        ("border", (256, 256)),
    ],
)
def test_a_small_picture_is_enlarged_where_that_is_wanted(mode: str, size: tuple[int, int]) -> None:
    body = encoded(Image.new("RGB", (120, 90), "red"), "JPEG")
    miniature = miniature_of(opened(body), (256,), mode, enlarge=True)
    (made,) = thumbnails_of(miniature, (256,), mode, 85, "JPEG", enlarge=True)
    assert (made.width, made.height) == opened(made.data).size == size


@pytest.mark.parametrize("whole", [(5000, 2000), (2000, 5000)])
@pytest.mark.parametrize("image_mode", ["RGB", "RGBA"])  # the latter is converted a band at a time
def test_a_crop_is_of_the_middle(whole: tuple[int, int], image_mode: str) -> None:
    body = encoded(striped(whole).convert(image_mode), "PNG" if image_mode == "RGBA" else "JPEG", quality=95)
    made = thumbnail(body, 400, "center_crop")
    assert made.size == (400, 400)
    for x, y in ((2, 2), (397, 2), (2, 397), (397, 397), (200, 200)):
        assert colour(made, x, y) == (0, 0, 255)


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_border_is_white_and_even_and_the_picture_upright(orientation: int) -> None:
    tags = Image.Exif()
    tags[0x112] = orientation
    body = encoded(Image.new("RGB", (1000, 500), "blue"), "JPEG", exif=tags)
    made = thumbnail(body, 200, "border")
    assert made.size == (200, 200)
    sides = [(100, 20), (100, 180), (20, 100), (180, 100)]
    white, blue = (sides[:2], sides[2:]) if orientation == 1 else (sides[2:], sides[:2])
    assert {colour(made, *at) for at in white} == {(255, 255, 255)}
    assert {colour(made, *at) for at in [*blue, (100, 100)]} == {(0, 0, 255)}


@pytest.mark.parametrize("form", ["JPEG", "WebP"])
def test_a_ratio_that_is_kept_makes_no_picture_longer_than_its_format_can_be(form: str) -> None:
    body = encoded(Image.new("RGB", (60_000, 30)), "PNG")
    made = opened(thumbnails(body, (20,), "keep_ratio", 85, form)[0].data)
    assert made.size == (16_383, 8)


@pytest.mark.parametrize("mode", THUMBNAIL_MODES)
def test_further_sizes_are_the_same_pictures_in_whatever_order(mode: str) -> None:
    body = encoded(textured((1600, 1000)), "JPEG", quality=95)
    large, small = thumbnails(body, (640, 256), mode)
    assert thumbnails(body, (256, 640), mode) == (small, large)
    assert thumbnails(body, (640,), mode) == (large,)
    (alone,) = thumbnails(body, (256,), mode)
    assert (small.width, small.height) == (alone.width, alone.height)
    assert psnr(opened(small.data), opened(alone.data)) > 35


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
    monkeypatch.setattr(module, "leave_out_details", lambda image: None)
    assert psnr(made, small(body, size)) > 42


def test_what_is_left_is_what_the_original_says(monkeypatch: pytest.MonkeyPatch) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "Maker"
    body = jpeg(photograph(), exif=exif, comment=b"\xff\xd9\xff\xda in a comment")
    made = analyse(body, sizes=(300,))
    assert (made.facts.width, made.facts.height, made.facts.filesize) == (2000, 1400, len(body))
    monkeypatch.setattr(module, "leave_out_details", lambda image: None)
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
