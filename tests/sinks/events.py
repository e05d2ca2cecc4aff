"""Events as workers leave them in the streams."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import msgpack
import redis

from crawlproject.state.keys import Keys

KEYS = Keys("crawl", "images")


def image(number: int, **more: Any) -> dict[str, Any]:
    """Return the event of an image."""
    return {
        "event": "image_metadata_updates", "identifier": f"id.{number}", "url": f"http://a.org/{number}.jpg",
        "source": "museum", "width": 1600, "height": 1200 + number, "filesize": 100_000 + number,
        "compression_quality": 88, "format": "JPEG", "content_type": "image/jpeg",
        "sha256": hashlib.sha256(str(number).encode()).hexdigest(), "thumbnail": f"ab/id.{number}.jpg",
        "thumbnails": [{"name": f"ab/id.{number}.jpg", "width": number + 1, "height": 2}],
        "fetched_at": "2026-11-22T06:44:34.200+00:00", "status": 200, "final_url": f"http://b.org/{number}.jpg",
        "redirects": 1, "attempts": 1, "fetch_s": 0.288, "opt_out": ["noai"], "exif": {"0x13b": "Ansel"},
        "alt": f"馬 {number}", "licence": "https://creativecommons.org/licenses/by/4.0/", **more,
    }  # fmt: skip


def gone(number: int, **more: Any) -> dict[str, Any]:
    """Return the event of an image that is gone."""
    return {
        "event": "link_rot", "identifier": f"id.{number}", "url": f"http://a.org/{number}.jpg", "source": "museum",
        "status": 410, "time": "2026-11-22T06:44:34.200+00:00", "final_url": f"http://a.org/{number}.jpg",
        "redirects": 0, "attempts": 2, "fetch_s": None, "spider": "images", **more,
    }  # fmt: skip


def dead_letter(number: int, **more: Any) -> dict[str, Any]:
    """Return the fields of a dead letter's entry in the stream of failures."""
    request = {
        "url": f"http://a.org/{number}.jpg",
        "meta": {"identifier": f"id.{number}", "source": "museum"},
    }
    attempt = {"status": 503, "kind": "http_5xx", "attempts": 3, "fetch_s": 1.5, "redirects": 0}
    return {
        "spider": "images", "fetch": json.dumps(attempt), "entry": b"\x01\x00\x02" + msgpack.packb(request),
        "source": "a.org", "reason": "status 503 (after 3 attempts)", "deliveries": 0, **more,
    }  # fmt: skip


def emit(client: redis.Redis, numbers: Iterable[int]) -> None:
    """Add events to their streams: each third is link rot, or a dead letter."""
    with client.pipeline(transaction=False) as pipe:
        for number in numbers:
            if number % 6 == 2:
                pipe.xadd(KEYS.link_rot_events, {"event": json.dumps(gone(number))})
            elif number % 6 == 5:
                pipe.xadd(KEYS.failed_events, dead_letter(number))  # type: ignore[arg-type]
            else:
                pipe.xadd(KEYS.image_events, {"event": json.dumps(image(number))})
        pipe.execute()


def status_of(number: int) -> str:
    """Return the status of the row of an event that `emit` has added."""
    return {2: "gone", 5: "failed"}.get(number % 6, "ok")
