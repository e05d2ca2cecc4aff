"""Stored requests: what goes in comes out, and what was not written by us is never believed."""

from __future__ import annotations

import datetime
import os
import pickle
import random
from pathlib import Path
from typing import Any

import msgpack
import pytest
from scrapy import Request
from scrapy.http import Response

from crawlproject.errors import BadEntry
from crawlproject.frontier import codec
from crawlproject.records import AGAIN, IDENTIFIER, LEASE, OPT_OUT, RETRIES, SOURCE, WAIVED, Lease
from crawlproject.spiders.images import ImagesSpider

SPIDER = ImagesSpider()
URL = "https://museum.org/a.jpg?b=1"


def packed(data: object, header: bytes = b"\x01\x00\x00") -> bytes:
    body: bytes = msgpack.packb(data)
    return header + body


def attributes(request: Request) -> dict[str, Any]:
    return request.to_dict(spider=SPIDER)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"callback": SPIDER.parse, "errback": SPIDER.failed},
        {"method": "POST", "body": b"\x00\xff", "headers": {"A": ["1", "2"], "B-C": "ž"}},
        {"meta": {IDENTIFIER: "馬 \x00", SOURCE: "museum", RETRIES: 1, WAIVED: 2, AGAIN: True}},
        {"meta": {"nested": {"list": [1, 2.5, None, [], {}, b"\xff"]}, "redirect_times": 3}},
        {"cookies": {"a": "b"}, "encoding": "latin-1", "dont_filter": True, "flags": ["x"]},
        {"cb_kwargs": {"a": 1}, "callback": SPIDER.parse, "priority": 3},
    ],
)
def test_a_request_comes_back_as_it_was(more: dict[str, Any]) -> None:
    request = Request(URL, **more)
    again = codec.decode(codec.encode(request, SPIDER), SPIDER)
    assert attributes(again) == attributes(request)


@pytest.mark.parametrize(
    "url", ["http://localhost/", "http://a/" + "x" * 5000, "https://xn--bcher-kva.de/%C3%BC#f"]
)
def test_a_url_is_always_stored(url: str) -> None:
    entry = codec.encode(Request(url), SPIDER)
    assert codec.peek(entry)["url"] == codec.decode(entry, SPIDER).url == url
    assert codec.decode(codec.renewed(entry), SPIDER).url == url


@pytest.mark.parametrize(("given", "stored"), [(-1000, 0), (-1, 0), (0, 0), (2, 2), (4, 4), (5, 4), (10**6, 4)])
def test_the_header_is_what_the_scripts_read(given: int, stored: int) -> None:
    entry = codec.encode(Request(URL, priority=given), SPIDER, deliveries=7)
    assert entry[:3] == bytes((codec.VERSION, 7, stored))
    assert codec.decode(entry, SPIDER).priority == stored


def test_deliveries_are_counted_in_the_header() -> None:
    entry = codec.encode(Request(URL), SPIDER, deliveries=2)
    assert codec.deliveries_of(entry) == 2
    counted = codec.with_deliveries(entry, 3)
    assert codec.deliveries_of(counted) == 3
    assert attributes(codec.decode(counted, SPIDER)) == attributes(codec.decode(entry, SPIDER))
    assert codec.deliveries_of(codec.with_deliveries(entry, 1000)) == 255
    assert codec.deliveries_of(b"") == 0


def test_what_belongs_to_one_attempt_is_left_out() -> None:
    lease = Lease("1:museum", 0.0, 0.1, 0, b"")
    meta = {
        LEASE: lease,
        OPT_OUT: ["noai"],
        "download_slot": "museum.org",
        "download_timeout": 30.0,
        "download_latency": 0.1,
        "download_maxsize": 5,
        "download_warnsize": 0,
        IDENTIFIER: "1",
    }
    request = Request(URL, meta=meta)
    assert codec.decode(codec.encode(request, SPIDER), SPIDER).meta == {IDENTIFIER: "1"}
    assert request.meta[LEASE] is lease  # the request itself keeps it


@pytest.mark.parametrize(
    "more",
    [
        {"meta": {"x": object()}},
        {"meta": {"x": datetime.datetime.now(datetime.UTC)}},
        {"meta": {"x": "\ud800"}},
        {"callback": lambda response: None},
        {"errback": print},
    ],
)
def test_what_cannot_be_stored_is_refused_at_once(more: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        codec.encode(Request(URL, **more), SPIDER)


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("header", [b"", b"\x01\x00\x00"])
def test_a_pickle_is_never_loaded(tmp_path: Path, header: bytes) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
    with pytest.raises(BadEntry):
        codec.decode(header + bomb, SPIDER)
    assert codec.peek(header + bomb) == {}
    assert not (tmp_path / "exploded").exists()
    pickle.loads(bomb)
    assert (tmp_path / "exploded").exists()  # it would have


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"\x01",
        b"\x01\x00",
        b"\x01\x00\x00",
        b"https://museum.org/a.jpg",
        codec.encode(Request(URL), SPIDER)[:-1],
        codec.encode(Request(URL), SPIDER) + b"\x00",
        b"\x00" + codec.encode(Request(URL), SPIDER)[1:],
        b"\x02" + codec.encode(Request(URL), SPIDER)[1:],
        b"\x01\x00\x00" + b"\x91" * 10_000,
        b"\x01\x00\x00" + b"\xdf\xff\xff\xff\xff",  # a map of four thousand million
        packed(None),
        packed([URL]),
        packed({"url": 5}),
        packed({"url": ""}),
        packed({"url": "no url"}),
        packed({"url": b"\xff"}),
        packed({"url": URL, "headers": 5}),
        packed({"url": URL, "meta": 5}),
        packed({"url": URL, "meta": [1]}),
        packed({"url": URL, "callback": "no_such_method"}),
        packed({"url": URL, "callback": "name"}),
        packed({"url": URL, "callback": "crawler"}),
        packed({"url": URL, "errback": ["failed"]}),
        packed({"url": URL, "extra": 1}),
        packed({URL: 1}),
        packed({1: URL}),
        packed({"url": URL, "_class": "subprocess.Popen"}),
        packed({"url": URL, "_class": "scrapy.http.FormRequest"}),
        packed({"url": msgpack.ExtType(5, b"x")}),
    ],
)
def test_an_entry_that_is_none_is_a_bad_entry(entry: bytes) -> None:
    with pytest.raises(BadEntry) as caught:
        codec.decode(entry, SPIDER)
    assert str(caught.value).startswith("stored request ")


def test_noise_is_a_bad_entry_or_a_request_and_never_anything_else() -> None:
    chance = random.Random(7)
    good = codec.encode(Request(URL, callback=SPIDER.parse, meta={IDENTIFIER: "1", "n": [1, {"a": b"b"}]}), SPIDER)
    bad = 0
    for _ in range(3000):
        entry = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            entry[chance.randrange(len(entry))] = chance.randrange(256)
        try:
            assert isinstance(codec.decode(bytes(entry), SPIDER), Request)
        except BadEntry:
            bad += 1
        codec.peek(bytes(entry))
        codec.renewed(bytes(entry))
    assert 100 < bad < 3000


def test_a_renewed_request_has_nothing_counted_against_it() -> None:
    meta = {
        IDENTIFIER: "1",
        SOURCE: "museum",
        RETRIES: 1,
        WAIVED: 5,
        "redirect_urls": [URL, "https://cdn.org/1"],
        "redirect_times": 2,
        "redirect_ttl": 3,
        "redirect_reasons": [301, 302],
    }
    request = Request("https://cdn.org/2", meta=meta, priority=3, errback=SPIDER.failed)
    again = codec.renewed(codec.encode(request, SPIDER, deliveries=2))
    assert again[:3] == bytes((codec.VERSION, 0, 3))
    decoded = codec.decode(again, SPIDER)
    assert decoded.url == URL
    assert decoded.meta == {IDENTIFIER: "1", SOURCE: "museum"}
    assert decoded.errback == SPIDER.failed
    assert codec.renewed(again) == again


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"\x01",
        b"\x01\x02\x03",
        b"\x01\x02\x03noise",
        packed([1]),
        packed({"url": URL, "meta": {"redirect_urls": 5}}),
        packed({"url": URL, "meta": {"redirect_urls": []}}),
        packed({"url": URL, "meta": {b"bytes": 1}}),
        packed({"url": URL, "meta": 5}),
        packed({"meta": {}}),
    ],
)
def test_renewing_what_is_no_request_of_ours_raises_nothing(entry: bytes) -> None:
    again = codec.renewed(entry)
    assert codec.deliveries_of(again) == 0
    assert again[2:3] == entry[2:3]
    if not codec.peek(entry):
        assert again[3:] == entry[3:]


@pytest.mark.parametrize(
    ("meta", "url"),
    [
        ({}, "https://cdn.org/2"),
        ({"redirect_urls": []}, "https://cdn.org/2"),
        ({"redirect_urls": [URL, "x"]}, URL),
    ],
)
def test_the_url_that_it_all_began_with(meta: dict[str, Any], url: str) -> None:
    request = Request("https://cdn.org/2", meta=meta)
    assert codec.seed_url(request) == url
    assert codec.seed_url(Response("https://cdn.org/2", request=request).request or Request(URL)) == url
