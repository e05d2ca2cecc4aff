"""What a decoder answers with, and what of it is believed."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from crawlproject.imaging.messages import packed, unpacked
from crawlproject.models import Analysis, ImageFacts, Thumbnail

FACTS = ImageFacts(4000, 3000, 123_456, 92, "JPEG", "00ff", {"0x13b": "Ana"})
TWO = (Thumbnail(b"large", 640, 480), Thumbnail(b"small!", 256, 192))


@pytest.mark.parametrize(
    "made",
    [
        Analysis(FACTS, TWO, b"", {"score": [1, None]}, {"other": "ValueError"}),
        Analysis(FACTS, TWO),
        Analysis(FACTS, TWO[:1], b"body"),
        Analysis(FACTS, (), b"<svg/>"),
    ],
)
def test_what_is_packed_is_unpacked(made: Analysis) -> None:
    text, data = packed(made)
    assert unpacked(text.encode(), data) == made


@pytest.mark.parametrize(
    "lie",
    [
        {"thumbnails": [[640, 480, 4]]},
        {"thumbnails": [[640, 480, 6]]},
        {"thumbnails": [[640, 480, -1], [640, 480, 6]]},
        {"thumbnails": [[640, 5]]},
        {"thumbnails": 5},
        {"thumbnails": [[640, "high", 5]]},
        {"body": None},
        {"results": 5},
        {"errors": None},
        {"facts": {}},
        {"facts": asdict(FACTS) | {"format": "../../etc/passwd"}},
        {"facts": asdict(FACTS) | {"more": 1}},
    ],
)
def test_what_cannot_be_is_no_answer(lie: dict[str, Any]) -> None:
    text, data = packed(Analysis(FACTS, TWO[:1]))
    with pytest.raises((ValueError, TypeError, KeyError)):
        unpacked(json.dumps(json.loads(text) | lie).encode(), data)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"null", b"\xff"])
def test_what_is_no_json_object_of_the_right_kind_is_no_answer(text: bytes) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        unpacked(text, b"")
