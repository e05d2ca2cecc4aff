"""Events as JSON, and leases."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from crawlproject.models import (
    FetchedImage,
    ImageEvent,
    StoredThumbnail,
)

IMAGE = ImageEvent(
    identifier="6f1c",
    url="https://museum.org/a.jpg",
    source="museum",
    width=4000,
    height=3000,
    filesize=123_456,
    compression_quality=92,
    format="JPEG",
    content_type="image/jpeg",
    sha256="00ff",
    thumbnail="ab/6f1c.jpg",
    fetched_at="2026-01-02T03:04:05.006+00:00",
    status=200,
    final_url="https://cdn.museum.org/a.jpg",
    redirects=1,
    attempts=2,
    fetch_s=0.317,
    exif={"0x13b": "Ana", "0x10f": None},
    opt_out=("noai", "tdm-reservation"),
    thumbnails=(StoredThumbnail("ab/6f1c.jpg", 640, 480),),
)


def test_empty_fields_are_left_out_and_unknown_fields_are_null() -> None:
    none = replace(IMAGE, exif=None, opt_out=(), compression_quality=None, content_type=None, thumbnails=())
    data = json.loads(none.to_json())
    assert not {"exif", "thumbnails", "original", "analysis", "analysis_errors"} & data.keys()
    assert data["opt_out"] == []
    assert data["compression_quality"] is None
    assert data["content_type"] is None


@pytest.mark.parametrize("text", ["žluťoučký 馬", 'a "quoted" \\ name', "line\nbreak\r\u2028", "\x00\x1f"])
def test_an_event_is_one_line_whatever_is_in_it(text: str) -> None:
    written = replace(IMAGE, identifier=text, exif={"0x13b": text}).to_json()
    assert "\n" not in written
    assert "\r" not in written
    data = json.loads(written)
    assert (data["identifier"], data["exif"]["0x13b"]) == (text, text)


def test_a_body_is_not_logged_with_its_item() -> None:
    assert "secret" not in repr(FetchedImage({"identifier": "1", "source": "a"}, b"secret" * 1000))
