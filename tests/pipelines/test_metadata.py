"""From an analysed picture to its event."""

from __future__ import annotations

from typing import Any

import pytest

from crawlproject.models import Fetch, FetchedImage, ImageEvent, ImageFacts, LinkRotEvent, StoredThumbnail
from crawlproject.pipelines.metadata import MetadataPipeline
from crawlproject.politeness.outcomes import UNREADABLE, Failure

FACTS = ImageFacts(4000, 3000, 123_456, 92, "JPEG", "00ff", {"0x13b": "Ana"})


def test_an_event_contains_everything_known_about_the_picture() -> None:
    item = FetchedImage(
        identifier="6f1c",
        url="https://museum.org/a.jpg",
        source="museum",
        content_type="image/jpeg",
        fetched_at="2026-01-02T03:04:05.006+00:00",
        fetch=Fetch(final_url="https://cdn.museum.org/a.jpg", redirects=1, attempts=2, fetch_s=0.317),
        body=b"",
        facts=FACTS,
        thumbnails=(StoredThumbnail("ab/6f1c.jpg", 640, 480), StoredThumbnail("ab/6f1c@256.jpg", 256, 192)),
        original="00/00ff.jpg",
        opt_out=("noai",),
        found={"found_on": "https://museum.org/", "alt": "A cow"},
    )
    assert MetadataPipeline().process_item(item) == ImageEvent(
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
        exif={"0x13b": "Ana"},
        opt_out=("noai",),
        found_on="https://museum.org/",
        alt="A cow",
        thumbnails=(StoredThumbnail("ab/6f1c.jpg", 640, 480), StoredThumbnail("ab/6f1c@256.jpg", 256, 192)),
        original="00/00ff.jpg",
    )


@pytest.mark.parametrize(
    "item",
    [
        LinkRotEvent("1", "http://a/", "museum", 404, "2026-01-02T03:04:05.006+00:00", "http://a/", 0, 1, 0.1),
        Failure(UNREADABLE, "empty body"),
        {"any": "thing"},
    ],
)
def test_other_items_pass(item: Any) -> None:
    assert MetadataPipeline().process_item(item) is item
