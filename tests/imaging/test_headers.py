"""What is read of a picture before it is opened: how many parts it has, and how much memory it takes."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from benchmarks import slow_pictures
from crawlproject.imaging import headers
from crawlproject.imaging.failures import MemoryNeeded, UnreadableImage
from crawlproject.imaging.headers import MAX_PARTS, MAX_SCANS
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
