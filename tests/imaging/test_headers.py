"""What the header of a picture says: how many parts it has, the memory it takes, its facts and its quality."""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image, ImageFile, JpegImagePlugin, TiffImagePlugin

from benchmarks import slow_pictures
from benchmarks.slow_pictures import chunk
from crawlproject.imaging import headers
from crawlproject.imaging.failures import MemoryNeeded, UnreadableImage
from crawlproject.imaging.headers import MAX_PARTS, MAX_SCANS, MAX_VALUE, NO_ESTIMATE, estimate_quality, read_facts
from crawlproject.imaging.messages import MAX_DIRECTORY
from crawlproject.models import ImageFacts
from tests.imaging.analysing import analyse, picture, reason, refused

pytestmark = pytest.mark.filterwarnings("ignore:::PIL")  # pytest forgets the filter that analyse.py sets


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (slow_pictures.comments, "JPEG: more than 100000 segments, or bytes between them"),
        (slow_pictures.chunks, "PNG: more than 100000 chunks"),
        (slow_pictures.extensions, "GIF: more than 100000 blocks"),
        (slow_pictures.strips, "TIFF: more than 100000 strips"),
        (slow_pictures.tiles, "TIFF: more than 100000 tiles"),
    ],
    ids=["JPEG", "PNG", "GIF", "strips", "tiles"],
)
def test_parts_are_counted_before_they_are_read(make: Callable[[int], bytes], words: str) -> None:
    assert analyse(make(MAX_PARTS // 100)).facts.width
    assert reason(make(MAX_PARTS + 1)) == words


# Pillow takes the third byte for the version, which in a BigTIFF of the other order it is not.
@pytest.mark.parametrize(("order", "big"), [("<", False), ("<", True), (">", False)])
@pytest.mark.parametrize(
    ("tag", "name"), [(0x111, "strips"), (0x117, "strips"), (0x144, "tiles"), (0x145, "tiles")]
)
def test_strips_and_tiles_are_counted_in_tiffs_of_all_kinds(order: str, big: bool, tag: int, name: str) -> None:
    mark = b"II" if order == "<" else b"MM"

    def made(count: int) -> bytes:
        if big:
            return mark + struct.pack(f"{order}HHHQQHHQQQ", 43, 8, 0, 16, 1, tag, 4, count, 0, 0)
        return mark + struct.pack(f"{order}HLHHHLLL", 42, 8, 1, tag, 4, count, 0, 0)

    headers.tiff(made(MAX_PARTS))
    with pytest.raises(UnreadableImage, match=f"TIFF: more than {MAX_PARTS} {name}"):
        headers.tiff(made(MAX_PARTS + 1))


def test_junk_between_the_segments_of_a_jpeg_is_bounded() -> None:
    body = picture()  # whose first segment ends at 20
    assert analyse(body[:20] + bytes(1000) + body[20:]).facts.width == 90
    assert reason(body[:20] + bytes(MAX_PARTS + 1) + body[20:]).startswith("JPEG: more than 100000 segments")


@pytest.mark.parametrize("progressive", [False, True])
def test_scans_are_bounded_however_they_are_made(progressive: bool) -> None:
    few, many = (slow_pictures.scans(count, (90, 60), progressive) for count in (MAX_SCANS, MAX_SCANS + 1))
    assert analyse(few).facts.width == 90
    assert reason(many) == f"JPEG: more than {MAX_SCANS} scans of 90 x 60 pixels"
    facts = refused(many).facts
    assert facts is not None
    assert (facts.width, facts.format) == (90, "JPEG")


def test_scans_of_attachments_do_not_count() -> None:
    body = picture(progressive=True)
    preview = b"\xff\xe1" + struct.pack(">H", 60_002) + b"\xff\xda" * 30_000
    film = b"\xff\xda\0\2" * 10_000  # phones append one
    assert analyse(body[:2] + preview + body[2:] + film).facts.width == 90


@pytest.mark.parametrize(
    ("body", "each"),
    [
        (picture(), 1),
        (picture(progressive=True, subsampling=0), 6),
        (picture(progressive=True, subsampling=2), 3),
        (slow_pictures.scans(3, (90, 60)), 6),
    ],
    ids=["baseline", "progressive", "subsampled", "a scan for each component"],
)
def test_a_jpeg_of_several_scans_needs_memory_for_its_coefficients(body: bytes, each: int) -> None:
    with pytest.raises(MemoryNeeded):
        analyse(body, memory=90 * 60 * each - 1)
    assert analyse(body, memory=90 * 60 * each).facts.width == 90


ASCII, SHORT, LONG, RATIONAL, UNDEFINED, DOUBLE, BYTE = 2, 3, 4, 5, 7, 12, 1
EXIF_IFD, GPS_IFD = 0x8769, 0x8825

Entry = tuple[int, int, int, bytes]


def opened(body: bytes) -> ImageFile.ImageFile:
    return Image.open(io.BytesIO(body))


def facts(body: bytes) -> ImageFacts:
    return read_facts(opened(body), body)


def directory(entries: list[Entry], start: int) -> bytes:
    """Return a TIFF directory that begins at offset `start`: entries of tag, type, count, data."""
    table, data = struct.pack("<H", len(entries)), b""
    end = start + 2 + 12 * len(entries) + 4
    for tag, type_, count, value in entries:
        if len(value) <= 4:
            table += struct.pack("<HHL4s", tag, type_, count, value)
        else:
            table += struct.pack("<HHLL", tag, type_, count, end + len(data))
            data += value
    return table + bytes(4) + data


def exif(main: list[Entry], more: list[Entry] | None = None) -> bytes:
    """Return an EXIF block with a second directory, byte for byte as told, unlike what Pillow would write."""
    if more is None:
        return b"Exif\0\0II*\0" + struct.pack("<L", 8) + directory(main, 8)
    here = [*main, (EXIF_IFD, LONG, 1, bytes(4))]
    second = 8 + len(directory(here, 8))
    here[-1] = (EXIF_IFD, LONG, 1, struct.pack("<L", second))
    return b"Exif\0\0II*\0" + struct.pack("<L", 8) + directory(here, 8) + directory(more, second)


def text(tag: int, value: bytes) -> Entry:
    return tag, ASCII, len(value), value


def exif_of(block: bytes, format_: str = "JPEG") -> dict[str, Any] | None:
    found = facts(picture(format_, exif=block)).exif
    json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
    return found


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_size_is_that_of_the_stored_pixels_and_exif_tells_the_orientation(format_: str) -> None:
    tags = Image.Exif()
    tags[0x112] = 6
    body = picture(format_, exif=tags)
    image = opened(body)
    if format_ == "PNG":
        image.load()
    found = read_facts(image, body)
    assert (found.width, found.height, found.exif) == (90, 60, {"0x112": 6})


def test_merges_the_exif_directory_and_nests_gps() -> None:
    tags = Image.Exif()
    tags[0x13B] = "Ada"
    tags.get_ifd(EXIF_IFD).update(
        {0x829A: TiffImagePlugin.IFDRational(1, 250), 0x9000: b"0232", 0x9101: b"\1\2\3\0"}
    )
    tags.get_ifd(GPS_IFD).update({0: b"\2\3\0\0", 1: "N", 2: (51.0, 30.0, 12.5)})
    assert facts(picture("JPEG", exif=tags)).exif == {
        "0x13b": "Ada",
        "0x829a": 0.004,
        "0x9000": "0232",
        "0x9101": "01020300",
        "0x8825": {"0x0": "02030000", "0x1": "N", "0x2": [51.0, 30.0, 12.5]},
    }


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        (text(0x13B, b"Ada\0\0\0\0"), "Ada"),
        (text(0x8298, b"photographer\0editor\0"), "photographer editor"),
        (text(0x13B, "José 写真\0".encode()), "José 写真"),
        (text(0x13B, b"Jos\xe9\0"), "José"),
        (text(0x13B, b"\xed\xa0\x80\0"), "í\xa0\x80"),  # UTF-8 of half a surrogate
        ((0x9C9B, BYTE, 10, "título".encode("utf-16-le")[:10]), "títul"),
        ((0x9C9B, BYTE, 5, b"\x00\xd8a\0b"), "00d8610062"),
        ((0x9286, UNDEFINED, 13, b"ASCII\0\0\0hello"), "hello"),
        ((0xA300, UNDEFINED, 1, b"\3"), "03"),
        ((0xA302, UNDEFINED, 6, b"\xff\xfe\xfd\xfc\0\1"), "fffefdfc0001"),
        ((0x829D, RATIONAL, 1, struct.pack("<2L", 28, 10)), 2.8),
        ((0x829D, RATIONAL, 1, struct.pack("<2L", 28, 0)), None),
        ((0xA432, RATIONAL, 2, struct.pack("<4L", 24, 1, 0, 0)), [24.0, None]),
        ((0x9201, DOUBLE, 2, struct.pack("<2d", float("inf"), 1.5)), [None, 1.5]),
    ],
)
def test_values_become_json(entry: Entry, value: Any) -> None:
    assert exif_of(exif([entry])) == {hex(entry[0]): value}


def test_leaves_out_large_values() -> None:
    fits, not_quite = b"x" * (MAX_VALUE - 2), b"x" * (MAX_VALUE - 1)
    maker = (0x927C, UNDEFINED, 30000, bytes(30000))
    block = exif([text(0x10E, fits), text(0x13B, not_quite)], [maker, text(0x9003, b"now!!")])
    assert exif_of(block) == {"0x10e": fits.decode(), "0x9003": "now!!"}


def test_the_whole_is_bounded_however_many_tags_there_are() -> None:
    flood = [text(tag, b"y" * 900) for tag in range(0x9003, 0x9003 + 60)]
    found = exif_of(exif([text(0x13B, b"Ada!!")], flood))
    assert found is not None
    assert found["0x13b"] == "Ada!!"
    assert 10_000 < len(json.dumps(found)) < 2 * MAX_DIRECTORY


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", "I;16", "F"])
@pytest.mark.parametrize("compression", ["raw", "tiff_deflate"])
def test_the_pixel_layout_of_a_tiff_is_not_exif(mode: str, compression: str) -> None:
    tags = Image.Exif()
    tags[0x13B] = "Ada"
    assert facts(picture("TIFF", mode=mode, exif=tags, compression=compression)).exif == {"0x13b": "Ada"}
    assert facts(picture("TIFF", mode=mode, compression=compression)).exif is None


def test_finds_the_exif_of_a_png_after_its_pixels() -> None:
    plain = picture("PNG")
    block = exif([text(0x13B, b"Ada!!")])[6:]
    body = plain[:-12] + chunk(b"eXIf", block) + plain[-12:]
    image = opened(body)
    image.load()
    assert read_facts(image, body).exif == {"0x13b": "Ada!!"}


GOOD = exif([text(0x13B, b"Ada!!"), text(0x10F, b"Canon\0")], [text(0x9003, b"2024:01:01 00:00:00\0")])


@pytest.mark.parametrize("length", range(6, len(GOOD)))
def test_truncated_exif_gives_what_can_be_read(length: int) -> None:
    found = exif_of(GOOD[:length], "PNG")
    whole = exif_of(GOOD)
    assert whole is not None
    assert found is None or found.items() <= whole.items()


def test_one_broken_directory_does_not_cost_the_others() -> None:
    nowhere = (EXIF_IFD, LONG, 1, struct.pack("<L", 60000))
    assert exif_of(exif([text(0x13B, b"Ada!!"), nowhere])) == {"0x13b": "Ada!!"}
    assert exif_of(exif([text(0x13B, b"Ada!!"), (EXIF_IFD, ASCII, 3, b"no!")])) == {"0x13b": "Ada!!"}


# What identify of ImageMagick 6.9.11-60 printed for the pictures of these names.
RECORDED = {
    **{f"{kind}-{quality}": quality for kind in ("cmyk", "progressive") for quality in (1, 2, 30, 50, 51, 85, 99)},
    **{"preset-web_low": 61, "preset-web_high": 86, "preset-high": 92, "preset-maximum": 94},
    **{
        "preset-grey-web_low": 53,
        "preset-grey-web_high": 87,
        "preset-grey-high": 92,
        "preset-grey-maximum": 95,
    },
    **{
        "odd-1": 95,
        "odd-3": 95,
        "odd-5": 92,
        "odd-7": 70,
        "odd-24": 92,
        "odd-25": 50,
        "odd-48": 16,
        "odd-49": 97,
    },
    **{"odd-grey-1": 99, "odd-grey-3": 92, "odd-grey-5": 51, "odd-grey-17": 45, "odd-grey-21": 16},
    **{"flat-1": 100, "flat-2": 99, "flat-16": 87, "flat-255": 1, "flat-grey-1": 100, "flat-grey-255": 1},
    **{"peak-0-2": 83, "peak-0-53": 83, "peak-0-54": 93, "peak-1-0": 83, "peak-1-62": 93, "peak-1-63": 83},
    **{"three-tables-1": 96, "three-tables-16": 90, "three-tables-255": 92},
}


def jpeg(mode: str, **options: Any) -> bytes:
    out = io.BytesIO()
    Image.new(mode, (24, 16), 128 if mode == "L" else "olive").save(out, "JPEG", **options)
    return out.getvalue()


def odd_tables(seed: int) -> list[list[int]]:
    """One to four tables that no quality setting makes: libjpeg's, each entry more or less off."""
    rng = random.Random(seed)
    scale, spread = rng.choice([0.03, 0.1, 0.3, 1, 3]), rng.choice([0, 0.1, 0.5])
    standard = tables(jpeg("RGB", quality=50))
    return [
        [
            max(1, min(255, round(entry * scale * rng.uniform(1 - spread, 1 + spread))))
            for entry in standard[number % 2]
        ]
        for number in range(rng.randint(1, 4))
    ]


def made(name: str) -> bytes:
    """Return the picture of a name in RECORDED."""
    kind, _, last = name.rpartition("-")
    if kind.startswith("preset"):
        return jpeg("L" if "grey" in kind else "RGB", quality=last)
    number = int(last)
    if kind.startswith("peak"):
        flat = [[9] * 64, [9] * 64]
        flat[int(kind[5:])][number] = 60
        return jpeg("RGB", qtables=flat)
    return {
        "odd": lambda: jpeg("CMYK", qtables=odd_tables(number)),
        "odd-grey": lambda: jpeg("L", qtables=odd_tables(1000 + number)[:1]),
        "flat": lambda: jpeg("RGB", qtables=[[number] * 64] * 2),
        "flat-grey": lambda: jpeg("L", qtables=[[number] * 64]),
        "three-tables": lambda: jpeg("RGB", qtables=[[number] * 64, [9] * 64, [3] * 64]),
        "cmyk": lambda: jpeg("CMYK", quality=number),
        "progressive": lambda: jpeg("RGB", quality=number, progressive=True),
    }[kind]()


def tables(body: bytes) -> dict[int, list[int]]:
    image = Image.open(io.BytesIO(body))
    assert isinstance(image, JpegImagePlugin.JpegImageFile)
    return image.quantization


def test_equals_what_identify_printed_once() -> None:
    assert {name: estimate_quality(tables(made(name))) for name in RECORDED} == RECORDED


@pytest.mark.parametrize("quality", range(1, 101))
def test_finds_the_quality_given_to_libjpeg(quality: int) -> None:
    assert estimate_quality(tables(jpeg("RGB", quality=quality))) == quality
    assert estimate_quality(tables(jpeg("L", quality=quality))) == quality


@pytest.mark.parametrize(("quality", "said"), [(80, NO_ESTIMATE), (85, 63), (90, 76), (95, 88)])
def test_table_numbers_matter_as_they_do_to_identify(quality: int, said: int) -> None:
    luminance, chrominance = tables(jpeg("RGB", quality=quality)).values()
    # Recorded from pictures whose tables had been renumbered.
    assert estimate_quality({0: luminance, 2: chrominance}) == said
    assert estimate_quality({1: chrominance, 3: luminance}) == NO_ESTIMATE
