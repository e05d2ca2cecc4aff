"""By which digest the seen filter knows a request."""

from __future__ import annotations

from typing import Any

from scrapy import Request

from crawlproject.frontier.dupefilter import SeenFilter, digest_of, name_in
from crawlproject.models import IDENTIFIER, PROBE, RETRIES, SITEMAP

SEEN = SeenFilter()


def digest(identifier: str | None, url: str = "https://museum.org/a.jpg", **more: Any) -> bytes:
    return SEEN.digest(Request(url, meta={} if identifier is None else {IDENTIFIER: identifier}, **more))


def test_digests_never_change() -> None:
    """What was seen last year must be found where it was put: a change here forgets half a billion of them."""
    assert digest("6f1c").hex() == "5798e8e94e6213c1"
    assert digest(None).hex() == "e24fbfd7324a9b63"


def test_the_digest_depends_on_identifier_and_url_only() -> None:
    assert digest("1") == digest("1", priority=4, headers={"A": "b"}, dont_filter=True)
    assert digest("1") == SEEN.digest(Request("https://museum.org/a.jpg", meta={IDENTIFIER: "1", RETRIES: 1}))
    others = {
        digest("1"),
        digest("2"),
        digest(""),
        digest("1", "https://museum.org/b.jpg"),
        digest("1", "http://museum.org/a.jpg"),
        digest("1", "https://museum.org/a.jpg?b"),
        digest("馬"),
    }
    assert len(others) == 7
    assert {len(one) for one in others} == {8}


def test_a_sitemap_is_another_request_than_the_page_at_its_address() -> None:
    url = "https://museum.org/sitemap.xml"
    sitemap = SEEN.digest(Request(url, meta={SITEMAP: 0}))
    assert sitemap == SEEN.digest(Request(url, meta={SITEMAP: 1, RETRIES: 1}))
    assert sitemap == digest_of(name_in({SITEMAP: None}), url)
    assert sitemap != digest(None, url)


def test_a_probe_is_another_request_than_a_fetch_whatever_is_known() -> None:
    probes = [
        Request("https://museum.org/a.jpg", meta={IDENTIFIER: "1", PROBE: known})
        for known in ({}, {"filesize": 1})
    ]
    assert len({*map(SEEN.digest, probes), digest("1")}) == 2
