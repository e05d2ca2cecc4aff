"""WARC records: what independent readers make of them."""

from __future__ import annotations

import gzip
import json
import re
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from crawlproject.contrib.warc.pipeline import links_as_fields
from crawlproject.contrib.warc.records import Earlier, Exchange, head, kept_head, members, payload_digest, warcinfo
from crawlproject.pages.links import Link
from tests.contrib.warc.warc_reading import STARTED, Read, by_cdxj, by_fastwarc, by_warcio, exchange, text
from tests.test_linear import MOST_S, fault

CHUNKED = head(b"HTTP/1.1 200 OK", [(b"transfer-ENCODING", b"chunked"), (b"X-Other", b"1")])


def written(folder: Path, *exchanges: Exchange) -> Path:
    """Return a file with these exchanges."""
    info, first = warcinfo("a.warc.gz", {"software": "crawlproject", "operator": ""})
    folder.mkdir(exist_ok=True)
    file = folder / "a.warc.gz"
    file.write_bytes(first + b"".join(b"".join(members(one, info)) for one in exchanges))
    return file


def only(file: Path, kind: str) -> Read:
    """Return the one record of its kind; two readers must agree on it."""
    (one,) = (record for record in by_warcio(file) if record.kind == kind)
    (other,) = (record for record in by_fastwarc(file) if record.kind == kind)
    assert one == other
    return one


def test_each_record_says_what_it_is(tmp_path: Path) -> None:
    info, response, request = by_warcio(written(tmp_path, exchange(1)))
    assert info.named["WARC-Filename"] == "a.warc.gz"
    assert (info.payload, response.payload) == (b"software: crawlproject\r\n", text(1))
    for record in (response, request):
        assert record.named["WARC-Target-URI"] == "http://museum.example/1"
        assert record.named["WARC-Date"] == "2026-11-22T10:30:00.123456Z"
        assert record.named["WARC-IP-Address"] == "192.0.2.7"
        assert record.named["WARC-Warcinfo-ID"] == info.named["WARC-Record-ID"]
        assert re.fullmatch("sha1:[A-Z2-7]{32}", record.named["WARC-Block-Digest"])
        assert re.fullmatch("sha1:[A-Z2-7]{32}", record.named["WARC-Payload-Digest"])
        assert "WARC-Truncated" not in record.named
    assert request.named["WARC-Concurrent-To"] == response.named["WARC-Record-ID"]
    assert len({record.named["WARC-Record-ID"] for record in (info, response, request)}) == 3
    data = gzip.decompress((tmp_path / "a.warc.gz").read_bytes())
    assert data.count(b"WARC/1.1\r\nWARC-Type: ") == 3


def test_heads_are_kept_as_they_came(tmp_path: Path) -> None:
    lines = (
        b"HTTP/1.1 200 Tr\xe8s bien",
        b"x-lOwEr:no space",
        b"X-Twice: 1",
        b"X-Twice: 2",
        b"X-Latin: \xe9",
        b" folded",
    )
    odd = b"\r\n".join((*lines, b"", b""))
    sent = b"GET /1?a=%20 HTTP/1.1\r\nHost: museum.example\r\nx-odd: \xff\r\n\r\n"
    file = written(tmp_path, exchange(1, b"<p>", response_head=odd, request_head=sent))
    data = gzip.decompress(file.read_bytes())
    assert b"\r\n\r\n" + odd + b"<p>\r\n\r\n" in data
    assert b"\r\n\r\n" + sent + b"\r\n\r\n" in data
    for record in (only(file, "response"), next(one for one in by_fastwarc(file) if one.kind == "response")):
        assert record.payload == b"<p>"
        assert [name for name, _ in record.http] == ["x-lOwEr", "X-Twice", "X-Twice", "X-Latin"]


@pytest.mark.parametrize(
    ("received", "kept"),
    [
        # as it came: the length is right, or is not said
        ([(b"Content-Length", b"5")], [(b"Content-Length", b"5")]),
        ([(b"Server", b"x")], [(b"Server", b"x")]),
        # undone: the transfer coding, the content coding, the rest of a body
        (
            [(b"transfer-encoding", b"chunked"), (b"X", b"1")],
            [(b"X-Crawl-transfer-encoding", b"chunked"), (b"X", b"1"), (b"Content-Length", b"5")],
        ),
        (
            [(b"Content-Encoding", b"br"), (b"Content-Length", b"3")],
            [(b"X-Crawl-Content-Encoding", b"br"), (b"X-Crawl-Content-Length", b"3"), (b"Content-Length", b"5")],
        ),
        ([(b"Content-Length", b"900")], [(b"X-Crawl-Content-Length", b"900"), (b"Content-Length", b"5")]),
        ([(b"Content-Length", b"5, 5")], [(b"X-Crawl-Content-Length", b"5, 5"), (b"Content-Length", b"5")]),
    ],
    ids=["length", "none", "chunked", "decoded", "cut", "twice"],
)
def test_headers_that_do_not_hold_for_what_is_kept_are_renamed(
    received: list[tuple[bytes, bytes]], kept: list[tuple[bytes, bytes]]
) -> None:
    line = b"HTTP/1.1 200 OK"
    assert kept_head(head(line, received), 5) == head(line, kept)


def test_a_body_that_looks_like_a_chunk_is_not_taken_for_one(tmp_path: Path) -> None:
    file = written(tmp_path, exchange(1, b"5\r\nhello\r\n0\r\n\r\n", response_head=CHUNKED))
    assert only(file, "response").payload == b"5\r\nhello\r\n0\r\n\r\n"


def test_a_body_that_was_cut_says_so(tmp_path: Path) -> None:
    received = head(b"HTTP/1.1 200 OK", [(b"Content-Length", b"900000")])
    file = written(tmp_path, exchange(1, b"x" * 100, response_head=received, truncated=True))
    response = only(file, "response")
    assert response.named["WARC-Truncated"] == "length"
    assert response.payload == b"x" * 100


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://a.example/\r\nWARC-Type: warcinfo", "http://a.example/%0D%0AWARC-Type:%20warcinfo"),
        ("http://a.example/<ü>", "http://a.example/%3C%C3%BC%3E"),
        ("http://[2001:db8::1]/%20?a=[b]#c", "http://[2001:db8::1]/%20?a=[b]#c"),
    ],
    ids=["line", "letters", "plain"],
)
def test_no_url_can_add_a_header(tmp_path: Path, url: str, kept: str) -> None:
    file = written(tmp_path, exchange(1, url=url))
    assert only(file, "response").named["WARC-Target-URI"] == kept
    assert len(by_warcio(file)) == 3


def test_an_unknown_address_is_left_out_and_any_time_zone_becomes_utc(tmp_path: Path) -> None:
    east = STARTED.astimezone(timezone(timedelta(hours=9)))
    response = only(written(tmp_path, exchange(1, ip="", fetched_at=east)), "response")
    assert "WARC-IP-Address" not in response.named
    assert response.named["WARC-Date"] == "2026-11-22T10:30:00.123456Z"


def test_bodies_that_were_cut_are_not_called_equal(tmp_path: Path) -> None:
    earlier = Earlier(STARTED, payload_digest(b"x"))
    file = written(
        tmp_path, exchange(1, b"x", truncated=True, earlier=earlier), exchange(2, b"y", earlier=earlier)
    )
    assert [record.kind for record in by_fastwarc(file)].count("response") == 2


def test_a_page_kept_earlier_is_kept_by_reference_long_after(tmp_path: Path) -> None:
    first = exchange(1)
    earlier = Earlier(first.fetched_at, payload_digest(first.body))
    again: dict[str, Any] = {"url": first.url, "fetched_at": STARTED + timedelta(days=3), "earlier": earlier}
    unmodified = head(b"HTTP/1.1 304 Not Modified", [(b"ETag", b'"1"'), (b"Content-Length", b"99")])
    others = [
        exchange(1, **again),
        exchange(1, text(2), **again),
        exchange(1, b"", response_head=unmodified, not_modified=True, **again),
    ]
    files = written(tmp_path, first), written(tmp_path / "later", *others)
    for read in (by_warcio, by_fastwarc):
        [kept] = [record for record in read(files[0]) if record.kind == "response"]
        equal, changed, same = [record for record in read(files[1]) if record.kind in {"response", "revisit"}]
        assert changed.payload == text(2)
        for record, profile in ((equal, "identical-payload-digest"), (same, "server-not-modified")):
            assert record.named["WARC-Profile"].endswith(f"/warc/1.1/revisit/{profile}")
            assert record.named["WARC-Refers-To-Target-URI"] == kept.named["WARC-Target-URI"]
            assert record.named["WARC-Refers-To-Date"] == kept.named["WARC-Date"]
            assert record.named["WARC-Payload-Digest"] == kept.named["WARC-Payload-Digest"]
            assert "WARC-Refers-To" not in record.named
            assert record.payload == b""
        assert same.http == [("ETag", '"1"'), ("Content-Length", "99")]
    assert [line["mime"] for line in by_cdxj(files[1])] == ["warc/revisit", "text/html", "warc/revisit"]


def test_a_page_that_is_not_modified_after_a_record_without_a_whole_body_names_no_digest(tmp_path: Path) -> None:
    unmodified = head(b"HTTP/1.1 304 Not Modified", [])
    earlier = Earlier(STARTED, "")
    file = written(tmp_path, exchange(1, b"", response_head=unmodified, not_modified=True, earlier=earlier))
    assert "WARC-Payload-Digest" not in only(file, "revisit").named


@pytest.mark.parametrize("unit", ["Content-Length: 1\r\n", " ", "a:\r\n"])
def test_a_head_is_read_in_a_time_linear_in_its_length(unit: str) -> None:
    def made(size: int) -> str:
        return "HTTP/1.1 200 OK\r\nContent-Length: 1" + unit * (size // len(unit)) + "x\r\n\r\n"

    assert not fault(lambda text: kept_head(text.encode(), 1), made, 10 * MOST_S)


def test_what_a_page_says_stands_behind_it_in_a_record_of_its_own(tmp_path: Path) -> None:
    links = links_as_fields(
        [Link("https://a.example/", text="Caf\xe9 \u2028", rel="nofollow"), Link("https://b.example/?c=d")]
    )
    earlier = Earlier(STARTED, payload_digest(text(2)))
    file = written(tmp_path, exchange(1, metadata=links), exchange(2, metadata=links, earlier=earlier))
    records = by_warcio(file)
    assert [one.kind for one in records[1:]] == ["response", "request", "metadata", "revisit", "request"]
    assert records[3].named["WARC-Concurrent-To"] == records[1].named["WARC-Record-ID"]
    assert records[3].named["Content-Type"] == "application/warc-fields"
    values = [
        line.partition(": ")[2].partition(" ") for line in only(file, "metadata").payload.decode().splitlines()
    ]
    assert [(url, json.loads(said)) for url, _, said in values] == [
        ("https://a.example/", {"text": "Caf\xe9 \u2028", "rel": "nofollow"}),
        ("https://b.example/?c=d", {"text": "", "rel": ""}),
    ]
    assert [line["url"] for line in by_cdxj(file)] == ["http://museum.example/1", "http://museum.example/2"]
