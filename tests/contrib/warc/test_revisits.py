"""Pages of the store that are looked at again: a real site, a real Redis, `scrapy crawl pages`."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response

from crawlproject.contrib.warc.pipeline import exchange_of_page, kept_look
from crawlproject.models import REVISIT, SOURCE
from crawlproject.pages.revisits import Look
from crawlproject.spiders.pages import PagesSpider
from crawlproject.state.source_counts import counts_in
from tests.contrib.warc.warc_reading import all_records
from tests.pipelines.test_page import ETAG, HOUR, URL, read
from tests.spiders import test_pages
from tests.spiders.test_pages import KEYS, Answer, Crawl, html, intervals, make_due, told

HOURLY, DATE = test_pages.HOUR, "Sun, 22 Nov 2026 10:30:00 GMT"
crawl = test_pages.crawl


@pytest.mark.parametrize("kept_at", ["", "2026-11-21T12:00:00.001+00:00"])
async def test_a_page_that_is_not_modified_refers_to_the_record_that_has_it(kept_at: str) -> None:
    before = Look(HOUR, "digest", URL, ETAG, kept_at=kept_at, sha1="A" * 32)
    request = Request(URL, headers={"If-None-Match": ETAG}, meta={SOURCE: "museum", REVISIT: list(before)})
    item: Any = PagesSpider().parse(Response(URL, 304, request=request))
    exchange = exchange_of_page(item)
    assert (exchange is not None) == kept_at.startswith("2026")
    if exchange is not None:
        assert (exchange.not_modified, exchange.body) == (True, b"")
        assert kept_look(item, before, exchange) == before


async def test_an_equal_page_is_as_old_in_the_store_as_its_first_record() -> None:
    first = await read("words")
    exchange = exchange_of_page(first)
    assert first.look is not None
    assert exchange is not None
    look = kept_look(first, first.look, exchange)
    assert (look.kept_at, len(look.sha1)) == (first.fetched_at, 32)
    for text, kept_at in (("words", look.kept_at), ("others", "2026-11-23T12:00:00.001+00:00")):
        again = await read(text)
        again.before, again.fetched_at = look, "2026-11-23T12:00:00.001+00:00"
        exchange = exchange_of_page(again)
        assert again.look is not None
        assert exchange is not None
        assert kept_look(again, again.look, exchange).kept_at == kept_at


def test_a_site_is_asked_only_for_what_has_changed(crawl: Crawl) -> None:
    elsewhere = "http://elsewhere.example/"  # out of scope
    crawl.answers["/"] = Answer(html(elsewhere, text="home"), ETag=ETAG, Last_Modified=DATE)
    crawl.feed(crawl.home + "/")
    store = {"CRAWL_PAGES_STORE": str(crawl.folder / "store"), "CRAWL_PAGES_LINKS": "warc"}
    crawl.through(**HOURLY)
    # What the store has not is fetched whole, and then referred to.
    for _ in range(2):
        make_due(crawl)
        log = crawl.through(**HOURLY, **store)
    assert crawl.server.conditions == [("/", ETAG, DATE)], log
    crawl.answers["/"] = Answer(html(elsewhere, text="home"), ETag='"two"')
    make_due(crawl)
    crawl.through(**HOURLY, **store)
    whole, unmodified, equal = (
        record for record in all_records(crawl.folder / "store") if record.kind in {"response", "revisit"}
    )
    assert (whole.kind, unmodified.kind, equal.kind) == ("response", "revisit", "revisit")
    assert unmodified.named["WARC-Profile"].endswith("/server-not-modified")
    assert equal.named["WARC-Profile"].endswith("/identical-payload-digest")
    for record in (unmodified, equal):
        assert record.named["WARC-Refers-To-Date"] == whole.named["WARC-Date"]
        assert record.named["WARC-Refers-To-Target-URI"] == whole.named["WARC-Target-URI"]
        assert record.named["WARC-Payload-Digest"] == whole.named["WARC-Payload-Digest"]
    [links] = (record.payload for record in all_records(crawl.folder / "store") if record.kind == "metadata")
    assert links.decode() == f'outlink: {elsewhere} {{"text":"to {elsewhere}","rel":""}}\r\n'
    first, *rest = crawl.events(KEYS.page_events)
    assert [one["status"] for one in rest] == [200, 304, 200]
    assert first["record"] is None
    assert all(one["record"] and one["digest"] == first["digest"] for one in rest)
    assert [revisit for *_, revisit in told(crawl)] == [None, *["unchanged"] * 3]
    assert intervals(crawl) == {8 * 3600}
    assert crawl.totals()["revisits_unchanged"] == 3
    assert counts_in(crawl.redis.hget(KEYS.counts, "site"))["good_pages"] == 1  # they add nothing to the budget
    assert not crawl.dead()
