"""What a decoder answers with, and what of it is believed: a picture may have taken it over."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from typing import Any

import pytest

from crawlproject.imaging.messages import (
    ANALYSIS,
    MAX_DIRECTORY,
    MOST_BYTES,
    NO_MEMORY,
    TOO_LARGE,
    UNREADABLE,
    Job,
    Reply,
    packed,
    refused,
    unpacked,
)
from crawlproject.models import Analysis, ImageFacts, Thumbnail
from tests.imaging.analysing import PLUGINS

DIGEST = "090c0973b3f0db3bde726377be113caf74254e28a0abfe390d69627645031fd6"
EXIF: dict[str, Any] = {"0x13b": "Ana", "0x829a": 0.004, "0xa432": [24.0, None], "0x8825": {"0x1": "N"}}
FACTS = ImageFacts(4000, 3000, 123_456, 92, "JPEG", DIGEST, EXIF)
TWO = (Thumbnail(b"\xff\xd8\xff large", 640, 480), Thumbnail(b"\xff\xd8\xff small!", 256, 192))
JOB = Job(
    max_pixels=100_000_000,
    max_size=50_000_000,
    quality=85,
    timeout=10,
    sizes=(640, 256),
    analyses=("my:score", "my:other"),
    return_bodies=True,
    formats=("JPEG", "DRAWN"),
    plugins=PLUGINS,
)
WITHOUT_PIXELS = ImageFacts(40_000, 30_000, 6, None, "DRAWN", DIGEST, None)
WRONG = (ValueError, TypeError, KeyError, OverflowError, RecursionError)


def reply(made: Analysis, size: int | None = None, **changes: Any) -> Reply:
    """Return the reply of a decoder, with other values for some keys."""
    text, data = packed(made)
    return Reply(ANALYSIS, json.dumps(json.loads(text) | changes).encode(), data, JOB, size)


@pytest.mark.parametrize(
    ("made", "size"),
    [
        (Analysis(FACTS, TWO, b"", {"score": [1, None]}, {"other": "ValueError"}), FACTS.filesize),
        (Analysis(ImageFacts(4000, 3000, 4, 92, "JPEG", DIGEST, None), TWO, b"body"), None),
        (Analysis(WITHOUT_PIXELS, (), b"drawn!"), None),
    ],
)
def test_what_is_packed_is_unpacked(made: Analysis, size: int | None) -> None:
    text, data = packed(made)
    assert unpacked(Reply(ANALYSIS, text.encode(), data, JOB, size)) == made


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


# Facts that cannot be, or that no event may have
FALSE_FACTS: list[dict[str, Any]] = [
    {"width": 0},
    {"width": True},
    {"width": None},
    {"height": 2**64},
    {"width": 100_001, "height": 1000},  # more pixels than are decoded
    {"filesize": 123_457},
    {"compression_quality": 0},
    {"compression_quality": 101},
    {"compression_quality": math.nan},
    {"format": "../../etc/passwd"},
    {"format": "PNG"},  # left out by CRAWL_FORMATS
    {"sha256": "00ff"},
    {"sha256": DIGEST.upper()},
    {"sha256": DIGEST + "\n"},
    {"sha256": None},
    {"exif": []},
    {"exif": {"0x13b": [1, math.inf]}},
    {"exif": {"0x13b": 2**64}},
    {"exif": {"0x13b": "\ud800"}},
    {"exif": {"0x13b": nested(17)}},
    {"exif": {"0x13b": "x" * 2 * MAX_DIRECTORY}},
    {"exif": {hex(tag): 1 for tag in range(4000)}},
    {"exif": {"0x8825": 5}},
    {"exif": {"0x13B": 1}},
    {"exif": {"artist": 1}},
    {"more": 1},
    {"x" * 9000 + "\x1b[2J": 1},
]
LIES: list[dict[str, Any]] = [
    *({"facts": asdict(FACTS) | false} for false in FALSE_FACTS),
    {"facts": None},
    {"facts": asdict(FACTS) | {"format": "DRAWN"}},  # which has no thumbnails
    {"thumbnails": []},
    {"thumbnails": [[640, 480, 27]]},
    {"thumbnails": [[640, 480, 13], [256, 192, 14]]},  # cut elsewhere: the second is no JPEG
    {"thumbnails": [[0, 480, 13], [256, 192, 14]]},
    {"thumbnails": [[640, 65_536, 13], [256, 192, 14]]},
    {"thumbnails": [[640, 480.5, 13], [256, 192, 14]]},
    {"thumbnails": 5},
    {"body": None},
    {"body": -1, "thumbnails": [[640, 480, 13], [256, 192, 15]]},
    {"body": 14, "thumbnails": [[640, 480, 13], [256, 192, 0]]},
    {"results": 5},
    {"results": {"unknown": 1}},
    {"results": {"score": math.nan}},
    {"errors": {"score\n": "x"}},
    {"results": {"score": 2**64}},
    {"results": {"score": "x" * MOST_BYTES}},
    {"errors": {"score": ["x"]}},
]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: f"{lie!s:.60}".encode("ascii", "replace").decode())
def test_what_cannot_be_is_no_answer(lie: dict[str, Any]) -> None:
    sound = Analysis(FACTS, TWO)
    assert unpacked(reply(sound, FACTS.filesize)) == sound
    with pytest.raises(WRONG):
        unpacked(reply(sound, FACTS.filesize, **lie))


def test_a_body_is_taken_only_where_one_was_asked_for() -> None:
    made = Analysis(FACTS, TWO, b"another body")
    with pytest.raises(ValueError, match="a body that was not asked for"):
        unpacked(reply(made, FACTS.filesize))
    with pytest.raises(ValueError, match="123456 bytes, not 12"):
        unpacked(reply(made))
    with pytest.raises(ValueError, match="a body that was not asked for"):
        unpacked(reply(made)._replace(job=replace(JOB, return_bodies=False)))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(
            (UNREADABLE, json.dumps(["why", asdict(FACTS) | false]))
            for false in FALSE_FACTS
            if false != {"width": 100_001, "height": 1000}
        ),
        (UNREADABLE, '["why"]'),
        (UNREADABLE, '[["why"], null]'),
        (UNREADABLE, '["why", 5]'),
        (NO_MEMORY, "\ud800"),
        (TOO_LARGE, "\ud800"),
        (b"?", "[]"),
    ],
)
def test_what_is_no_refusal_is_none(kind: bytes, text: str) -> None:
    with pytest.raises(WRONG):
        refused(Reply(kind, text.encode(errors="surrogatepass"), b"", JOB, FACTS.filesize))
