"""The mode `probe`: what a seed may say, what a response becomes, what a decoder may answer."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response

from crawlproject.contrib import probes
from crawlproject.contrib.probes.events import ProbeEvent
from crawlproject.errors import BadSeed
from crawlproject.frontier import codec
from crawlproject.frontier.dead_letters import failed_event
from crawlproject.frontier.seeds import parse_seed
from crawlproject.imaging.messages import INSPECTED, Inspected, Reply
from crawlproject.models import IDENTIFIER, MODE
from crawlproject.politeness.outcomes import KEPT_BACK, Failure
from crawlproject.spiders.images import ImagesSpider
from tests.imaging.test_messages import DIGEST, EXIF, FALSE_FACTS, JOB, WRONG
from tests.spiders.test_images import URL, request, spider
from tests.test_docs import keys

__all__ = ["spider"]


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        (True, {}),
        ({"etag": '"1"', "filesize": 9, "final_url": None}, {"etag": '"1"', "filesize": 9}),
        (False, None),
        (None, None),
    ],
)
def test_what_a_seed_says_goes_with_its_request(
    spider: ImagesSpider, said: Any, stored: dict[str, Any] | None
) -> None:
    made = spider.request_for(parse_seed(json.dumps({"url": URL, "source": "museum", "probe": said})))
    assert made.meta.get(MODE) == (None if stored is None else ["probe", stored])
    assert codec.decode(codec.encode(made, spider), spider).meta == made.meta
    assert spider.wanted_bytes(made) == (0 if stored is None else 32_769)
    failed = failed_event("1-1", {b"entry": codec.encode(made, spider), b"reason": b"y"})
    assert failed is not None
    assert failed["probe"] == (stored is not None)


def test_what_cannot_be_known_is_refused(spider: ImagesSpider) -> None:
    with pytest.raises(BadSeed, match="etag or last_modified of a probe is not a valid header value"):
        parse_seed('{"url": "http://a/", "probe": {"etag": "x\\r\\nA: b"}}')
    modes: list[Any] = [["probe", {"etag": 1}], ["other", {}], ["probe", True], "probe", {}, []]
    for mode in modes:
        with pytest.raises(ValueError, match="meta 'crawl_mode' with an invalid value"):
            codec.encode(request(crawl_mode=mode), spider)


def test_a_probe_is_another_request_than_a_fetch_whatever_is_known() -> None:
    metas: list[dict[str, Any]] = [{}, {MODE: ["probe", {}]}, {MODE: ["probe", {"filesize": 1}]}]
    digests = [codec.digest(Request(URL, meta={IDENTIFIER: "1", **meta})) for meta in metas]
    assert len(set(digests)) == 2


@pytest.mark.parametrize("status", [206, 304])
def test_a_probe_keeps_no_more_than_a_fetch(spider: ImagesSpider, status: int) -> None:
    asked = request()
    asked.meta[MODE] = ["probe", {"etag": '"1"'}]
    asked.headers["If-None-Match"] = '"1"'
    headers = {"X-Robots-Tag": "noai", "Content-Range": "bytes 0-3/9"}
    found = spider.parse(Response(URL, status=status, body=b"body", headers=headers, request=asked))
    assert found == Failure(KEPT_BACK, "opt-out: noai (X-Robots-Tag)", status)


@pytest.mark.parametrize(
    "false", [each for each in FALSE_FACTS if "height" not in each and "filesize" not in each]
)
def test_what_cannot_be_is_no_answer_of_a_decoder(spider: ImagesSpider, false: dict[str, Any]) -> None:
    sound: dict[str, Any] = {"format": "JPEG", "width": 40, "height": 30, "compression_quality": 92, "exif": EXIF}
    sound |= {"sha256": DIGEST}
    asked = request(crawl_mode=["probe", {}])
    item = spider.parse(Response(URL, body=b"body", request=asked))
    assert isinstance(item, Inspected)

    def read(told: dict[str, Any]) -> dict[str, Any]:
        return asdict(item.event(Reply(INSPECTED, json.dumps(told).encode(), b"", JOB, None)))  # type: ignore[call-overload, no-any-return]

    assert {name: read(sound)[name] for name in sound} == sound
    if any(value is None and name != "format" for name, value in false.items()):
        return  # it may come later in the file
    with pytest.raises(WRONG):
        read(sound | false)


def test_its_event_is_documented_field_for_field() -> None:
    text = (Path(probes.__file__).parent / "README.md").read_text(encoding="utf-8")
    named = keys(text.split("## The event image_probes\n")[1].split("\n## ")[0])
    assert named == [field.name for field in fields(ProbeEvent)]
