"""Stored requests: they come back as they were stored, and foreign entries are never trusted."""

from __future__ import annotations

import json
import math
import re
import time
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy import Request, Spider

from crawlproject.errors import BadEntry
from crawlproject.frontier import codec
from crawlproject.frontier.dead_letters import failed_event, read_dead_letter
from crawlproject.models import (
    AGAIN,
    EXTRA,
    FOUND,
    FREE_RETRIES,
    IDENTIFIER,
    LEASE,
    MODE,
    OPT_OUT,
    RETRIES,
    SOURCE,
    VIA,
    Lease,
)
from crawlproject.pages.canonical import canonical_url
from crawlproject.spiders.images import ImagesSpider


class AnySpider(ImagesSpider):
    def failed(self, failure: Any) -> None: ...

    needs_meta = frozenset()
    stored_attributes = frozenset(Request("http://localhost/").to_dict())
    stored_headers = frozenset({"A", "B-C", "Content-Type", "Accept"})


SPIDER = AnySpider()
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
        {"meta": {IDENTIFIER: "馬 \x00", SOURCE: "museum", RETRIES: 1, FREE_RETRIES: 2, AGAIN: True}},
        {
            "meta": {
                "redirect_times": 3,
                "redirect_urls": [URL],
                "redirect_reasons": [301, "meta refresh"],
                "depth": 2,
            }
        },
        {"meta": {FOUND: {"found_on": "http://a/", "alt": "馬"}}},
        {"meta": {VIA: [1_790_000_000]}},
        {"meta": {VIA: [1_790_000_000, 8, "a/b"]}},
        {"meta": {EXTRA: {"TEXT": "馬", "n": [1, 2.5, None, {}], "long": "x" * 2_000}}},
        {"cb_kwargs": {"list": [1, 2.5, None, [], {}, b"\xff"]}},
        {"cookies": {"a": "b"}, "encoding": "latin-1", "dont_filter": True, "flags": ["x"]},
        {"cb_kwargs": {"a": 1}, "callback": SPIDER.parse, "priority": 3},
    ],
)
def test_a_request_comes_back_as_it_was(more: dict[str, Any]) -> None:
    request = Request(URL, **more)
    again = codec.decode(codec.encode(request, SPIDER), SPIDER)
    assert attributes(again) == attributes(request)


@pytest.mark.parametrize(
    ("url", "page", "stored"),
    [
        ("https://a.example/halls/1", "https://a.example/halls/", (24, "")),
        ("https://a.example/halls/1", "https://a.example/halls/?page=2", (24, "?page=2")),
        ("https://a.example/", "https://b.example/", (8, "b.example/")),
        ("https://a.example/", "https://a.example/" + "x" * 512, (18, "x" * 512)),
    ],
)
def test_a_request_says_where_and_when_it_was_found(url: str, page: str, stored: tuple[int, str]) -> None:
    moment, *where = codec.via(url, page)
    assert tuple(where) == stored
    assert 0 <= time.time() - moment < 60
    moved = Request("https://c.example/", meta={VIA: [1_790_000_000, *where], "redirect_urls": [url]})
    for request in (Request(url, meta={VIA: [1_790_000_000, *where]}), moved):
        assert codec.found_by(request) == {"found_on": page, "discovered_at": "2026-09-21T14:13:20+00:00"}


def test_without_a_page_or_of_one_with_a_long_address_only_the_time_is_stored() -> None:
    assert len(codec.via(URL)) == len(codec.via(URL, URL + "x" * 513)) == 1
    assert codec.found_by(Request(URL, meta={VIA: [1_790_000_000]})) == {
        "discovered_at": "2026-09-21T14:13:20+00:00"
    }
    assert codec.found_by(Request(URL)) == {}


_PATHS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.text("/[]|%é?&=^\\", max_size=9)


@given(_PATHS, _PATHS, _PATHS)
def test_where_it_was_found_is_read_back_whatever_scrapy_makes_of_its_address(
    both: str, one: str, other: str
) -> None:
    url, page = (canonical_url(f"https://a.example/{both}{rest}") for rest in (one, other))
    if url is not None and page is not None:
        assert codec.found_by(Request(url, meta={VIA: codec.via(url, page)}))["found_on"] == page


@pytest.mark.parametrize(
    "value",
    [
        [],
        [1, 2],
        [-1],
        [2**32],
        [1.5],
        ["1"],
        [1, -1, "x"],
        [1, 2, 3],
        [1, 2, "x" * 513],
        [1, 2, "x", 4],
        "1",
        None,
    ],
)
def test_a_request_with_an_impossible_origin_is_refused(value: object) -> None:
    with pytest.raises(BadEntry, match="'via'"):
        codec.decode(packed({"url": URL, "meta": {VIA: value}}), SPIDER)


@pytest.mark.parametrize(("given", "stored"), [(-1000, 0), (-1, 0), (0, 0), (2, 2), (4, 4), (5, 4), (10**6, 4)])
def test_the_header_is_what_the_scripts_read(given: int, stored: int) -> None:
    entry = codec.encode(Request(URL, priority=given), SPIDER, deliveries=7)
    assert entry[:3] == bytes((codec.VERSION, 7, stored))
    assert codec.decode(entry, SPIDER).priority == stored


def test_deliveries_are_counted_in_the_header() -> None:
    entry = codec.encode(Request(URL), SPIDER, deliveries=2)
    assert entry[1] == 2
    counted = codec.with_deliveries(entry, 3)
    assert counted[1] == 3
    assert attributes(codec.decode(counted, SPIDER)) == attributes(codec.decode(entry, SPIDER))
    assert codec.with_deliveries(entry, 1000)[1] == 255


def test_what_belongs_to_one_attempt_is_left_out() -> None:
    lease = Lease("1:museum", 0.0, 0.1, 0, b"")
    options = {"download_slot": "museum.org", "download_timeout": 30.0, "proxy": "http://10.0.0.1:3128"}
    meta = options | {LEASE: lease, OPT_OUT: ["noai"], "object": object(), IDENTIFIER: "1"}
    request = Request(URL, meta=meta)
    assert codec.decode(codec.encode(request, SPIDER), SPIDER).meta == {IDENTIFIER: "1"}
    assert request.meta[LEASE] is lease  # the request itself keeps it


@pytest.mark.parametrize(
    "more",
    [
        {"cb_kwargs": {"x": object()}},
        {"meta": {IDENTIFIER: "\ud800"}},
        {"meta": {IDENTIFIER: 5}},
        {"callback": SPIDER.request_for},
        {"body": b"x" * codec.LONGEST_ENTRY},
        {"callback": lambda response: None},
    ],
)
def test_what_cannot_be_stored_is_refused_at_once(more: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        codec.encode(Request(URL, **more), SPIDER)


class Lists(Spider):
    name = "lists"
    stored_attributes = frozenset({"cb_kwargs"})

    def list_page(self, response: Any) -> None: ...


@pytest.mark.parametrize(
    ("more", "remedy"),
    [
        ({"callback": Lists.list_page}, "its callback is list_page: rename it parse_list_page"),
        ({"errback": Lists.list_page}, "its errback is list_page: rename it failed_list_page"),
        ({"body": b"x"}, 'to use it, declare stored_attributes = frozenset({"body", "cb_kwargs"})'),
    ],
)
def test_what_cannot_be_stored_is_refused_with_the_remedy(more: dict[str, Any], remedy: str) -> None:
    spider = Lists()
    bound = {name: value.__get__(spider) if callable(value) else value for name, value in more.items()}
    with pytest.raises(ValueError, match=re.escape(remedy)):
        codec.encode(Request(URL, **bound), spider)


def test_no_scrapy_option_is_read_back_from_redis() -> None:
    hostile = {"proxy": "http://10.0.0.1:3128", "download_maxsize": 0, "download_slot": "museum", "opt_out": []}
    hostile |= dict.fromkeys(("handle_httpstatus_all", "dont_redirect", "dont_obey_robotstxt"), True)
    hostile |= {"lease": "1.0:museum", "slot": 0.0}
    entry = packed({"url": URL, "meta": hostile | {IDENTIFIER: "1", "redirect_times": 1}})
    assert codec.decode(entry, ImagesSpider()).meta == {IDENTIFIER: "1", "redirect_times": 1}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        *(
            ({"meta": meta}, "no 'identifier' in its meta")
            for meta in ({}, {SOURCE: "museum"}, {b"identifier": "1"})
        ),
        ({"method": "POST"}, "stored request has"),
        ({"cookies": {"session": "1"}}, "stored request has"),
        ({"cb_kwargs": {"a": 1}}, "stored request has"),
        ({"headers": {"Authorization": "Basic x"}}, "stored request has"),
        ({"headers": {b"Host": [b"127.0.0.1"]}}, "stored request has"),
    ],
)
def test_what_the_spider_needs_is_there_and_what_it_does_not_use_is_not(more: dict[str, Any], said: str) -> None:
    with pytest.raises(BadEntry, match=said):
        codec.decode(packed({"url": URL, "meta": {IDENTIFIER: "1"}} | more), ImagesSpider())


def test_headers_that_middlewares_have_set_are_not_stored() -> None:
    headers = {"User-Agent": "crawler", "Accept": "*/*", "referer": "https://museum.org/", "Connection": "close"}
    request = Request(URL, headers=headers, meta={IDENTIFIER: "1"})
    again = codec.decode(codec.encode(request, ImagesSpider()), ImagesSpider())
    assert again.headers == {b"Referer": [b"https://museum.org/"]}


@pytest.mark.parametrize("name", ["Host", "TE"])
def test_no_spider_can_store_headers_of_one_connection(name: str) -> None:
    class Careless(AnySpider):
        stored_headers = frozenset({name.title()})

    with pytest.raises(BadEntry, match="has a header"):
        codec.decode(packed({"url": URL, "headers": {name: "x"}}), Careless())


WILD = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(0, 9), inner),
    max_leaves=20,
)
NAMES = st.sampled_from(sorted([*Request(URL).to_dict(), "_class", "extra"]))
META = st.sampled_from(
    [IDENTIFIER, SOURCE, RETRIES, FREE_RETRIES, AGAIN, "redirect_urls", "redirect_times", "proxy"]
)


@settings(max_examples=60, deadline=None)
@given(
    data=st.dictionaries(NAMES, WILD), meta=st.dictionaries(META, WILD), whole=WILD, header=st.binary(max_size=4)
)
def test_any_entry_is_bad_or_a_request_that_can_be_stored_again(
    data: dict[str, Any], meta: dict[str, Any], whole: object, header: bytes
) -> None:
    for entry in (
        packed(data),
        packed({"url": URL} | data),
        packed({"url": URL} | data | {"meta": meta}),
        packed({"url": URL, "meta": meta}),
        packed(whole),
        header + packed(whole, b""),
        header,
    ):
        began = time.thread_time()
        try:
            request = codec.decode(entry, SPIDER)
        except BadEntry as error:
            assert "\n" not in str(error) or "cannot be read" in str(error)
        else:
            codec.encode(request, SPIDER)
        codec.renewed(entry)
        assert time.thread_time() - began < 1


ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=40)
LONG = st.builds(lambda char, count: char * count, st.sampled_from("xž馬"), st.integers(600, 2_060))
VALUES = ANY_TEXT | LONG | st.integers() | st.floats() | st.none() | st.booleans() | st.lists(st.integers(0, 9))


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(ANY_TEXT, VALUES, max_size=6))
def test_an_extra_is_refused_by_its_stored_size_and_if_json_cannot_have_it(extra: dict[str, Any]) -> None:
    try:
        json.dumps(extra, allow_nan=False)
        size: float = len(msgpack.packb(extra))
    except (ValueError, OverflowError):
        size = math.inf
    assert (codec.extra_fault(extra) is None) == (size <= codec.LONGEST_EXTRA)


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        codec.encode(Request(URL), SPIDER)[:-1],
        codec.encode(Request(URL), SPIDER) + b"\x00",
        b"\x02" + codec.encode(Request(URL), SPIDER)[1:],
        b"\x01\x00\x00" + b"\xdf\xff\xff\xff\xff",  # a map of four thousand million
        packed({"url": 5}),
        packed({"url": URL, "headers": 5}),
        packed({"url": URL, "callback": "no_such_method"}),
        packed({"url": URL, "_class": "subprocess.Popen"}),
        packed({"url": msgpack.ExtType(5, b"x")}),
        packed({"url": "file:///etc/passwd"}),
        packed({"url": URL, "body": b"x" * 1_048_576}),
        packed({"url": URL, "meta": {IDENTIFIER: ""}}),
        packed({"url": URL, "meta": {RETRIES: -1}}),
        packed({"url": URL, "meta": {AGAIN: 1}}),
        packed({"url": URL, "meta": {FOUND: {"alt": "x" * 9000}}}),
        # large or deep
        b"\x01\x00\x00" + b"\x91" * 1_000_000,  # lists in lists
        packed({"url": URL, "headers": {str(n): "x" for n in range(100_000)}}),
        packed([0] * 1_000_000),
    ],
)
def test_a_malformed_entry_is_a_bad_entry_and_quickly_so(entry: bytes) -> None:
    began = time.thread_time()
    with pytest.raises(BadEntry, match=r"^stored request "):
        codec.decode(entry, SPIDER)
    assert codec.peek(entry) is not None
    assert time.thread_time() - began < 1


def test_a_renewed_request_has_nothing_counted_against_it() -> None:
    meta = {
        IDENTIFIER: "1",
        SOURCE: "museum",
        RETRIES: 1,
        FREE_RETRIES: 5,
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


# Digests


def digest(identifier: str | None, url: str = "https://museum.org/a.jpg", **more: Any) -> bytes:
    return codec.digest(Request(url, meta={} if identifier is None else {IDENTIFIER: identifier}, **more))


def test_digests_never_change() -> None:
    assert digest("6f1c").hex() == "5798e8e94e6213c1"
    assert digest(None).hex() == "e24fbfd7324a9b63"


def test_a_value_that_a_mode_fails_on_is_a_fault_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    half = SimpleNamespace(stored=lambda value: {"from": value.start})  # of a plug-in
    monkeypatch.setattr(codec, "modes", lambda: {"half": half})
    entry = bytes((1, 0, 0)) + msgpack.packb({"url": "http://a/", "meta": {MODE: ["half", {}]}})
    with pytest.raises(BadEntry, match="meta 'crawl_mode' with an invalid value"):
        codec.decode(entry, AnySpider())


@pytest.mark.parametrize(
    "at", ["0-1", "1700000000000-0", "999999999999999-0", "18446744073709551615-18446744073709551615"]
)
def test_any_id_of_an_entry_is_a_time(at: str) -> None:
    time = read_dead_letter(at, {})["time"]
    assert "1970-01-01" <= time <= "9999-12-31T23:59:59.000+00:00"


@pytest.mark.parametrize(
    "entry", [b"", b"\x00", b"\x01\x00\x00\xc1", b"\xff" * 90, b"\x01\x00\x00\x93\x01\x02\x03"]
)
def test_what_is_no_request_has_neither_identifier_nor_url(entry: bytes) -> None:
    letter = read_dead_letter("1-1", {b"entry": entry, b"deliveries": b"many"})
    assert (letter["identifier"], letter["url"], letter["source"], letter["deliveries"]) == (None, None, None, 0)
    assert letter["reason"] == "not written by crawlproject"
    event = failed_event("1-1", {b"entry": entry, b"reason": b"\xff", b"fetch": b"[" * 9999, b"deliveries": b"x"})
    assert event is not None
    assert (event["identifier"], event["url"], event["status"]) == (None, None, None)


def test_what_a_seed_kept_is_in_its_dead_letter() -> None:
    said = {"url": "http://a/", "extra": {"TEXT": "ž"}}
    assert read_dead_letter("1-1", {b"seed": json.dumps(said).encode()})["extra"] == {"TEXT": "ž"}
    entry = b"\x01\x00\x00" + msgpack.packb({"url": "http://a/", "meta": {"extra": {"TEXT": "ž"}}})
    assert read_dead_letter("1-1", {b"entry": entry})["extra"] == {"TEXT": "ž"}


@pytest.mark.parametrize("extra", [3, ["x"], {"a": b"\xff"}, {"a": float("nan")}, {"a": "x" * 3000}])
def test_what_no_seed_can_keep_is_not_shown(extra: object) -> None:
    entry = b"\x01\x00\x00" + msgpack.packb({"url": "http://a/", "meta": {"extra": extra}})
    assert read_dead_letter("1-1", {b"entry": entry})["extra"] is None


@pytest.mark.parametrize("mode", [5, True, "x", {"a": 1}, [], [["probe"]]])
def test_what_is_no_mode_is_that_of_no_failed_event(mode: object) -> None:
    entry = b"\x01\x00\x00" + msgpack.packb({"url": "http://a/", "meta": {"crawl_mode": mode}})
    event = failed_event("1-1", {b"entry": entry, b"reason": b"x"})
    assert event is not None
    assert event["url"] == "http://a/"
    assert True not in event.values()
