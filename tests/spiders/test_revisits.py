"""Pages that are looked at again: a real site, a real Redis, `scrapy crawl pages`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spiders.test_pages import IMAGES, KEYS, LICENCE, Answer, Crawl, Site, crawling, html
from tests.spiders.test_sitemaps import totals

HOUR = {"CRAWL_PAGES_REVISIT": "3600", "MAX_IDLE_TIME_BEFORE_CLOSE": "3"}
ETAG = '"one"'


class Conditional(Site):
    """Answers 304 to whoever names the ETag that an answer has; notes what was asked for on a condition."""

    def get(self) -> None:
        server: Any = self.server
        named = self.headers.get("If-None-Match")
        if named or self.headers.get("If-Modified-Since"):
            server.conditions.append((self.path, named, self.headers.get("If-Modified-Since")))
        answer = server.answers.get(self.path)
        if named is None or answer is None or answer.headers.get("ETag") != named:
            super().get()
            return
        server.seen.append(self.path)
        self.send_response(304)
        self.send_header("ETag", named)
        self.end_headers()


@pytest.fixture
def crawl(tmp_path: Path, environment: dict[str, str], redis_url: str) -> Iterator[Crawl]:
    with crawling(tmp_path, environment, redis_url, Conditional) as one:
        yield one


def conditions(crawl: Crawl) -> list[tuple[str, str | None, str | None]]:
    found: list[tuple[str, str | None, str | None]] = crawl.server.conditions
    return found


def make_due(crawl: Crawl) -> None:
    """Have all looks be due, as after a long time."""
    for key in crawl.redis.scan_iter(KEYS.revisits_of + "*"):
        for page, line in crawl.redis.hgetall(key).items():
            crawl.redis.hset(key, page, b"1 " + line.partition(b" ")[2])
        crawl.redis.zadd(KEYS.revisits, {key.decode().removeprefix(KEYS.revisits_of): 1})


def intervals(crawl: Crawl) -> set[float]:
    """Return the seconds between the last look at each page and the next one."""
    lines = (line for key in crawl.redis.scan_iter(KEYS.revisits_of + "*") for line in crawl.redis.hvals(key))
    return {int(line.split(b"\n")[0].split()[1]) / 1e6 for line in lines}


def told(crawl: Crawl) -> list[tuple[str, int, str | None]]:
    """Return path, status and `revisit` of the events of pages."""
    return [
        (one["url"].removeprefix(crawl.home), one["status"], one["revisit"])
        for one in crawl.events(KEYS.page_events)
    ]


def test_a_home_page_comes_back_and_what_is_new_on_it_is_crawled(
    crawl: Crawl,
) -> None:
    image = f'<img src="/a.jpg"><a rel="license" href="{LICENCE}">licence</a>'
    crawl.answers |= {
        "/": Answer(html("/a", text="home" + image)),
        "/a": Answer(html("/", text="a")),
        "/b": Answer(html("/", text="b")),
    }
    crawl.feed(crawl.home + "/")
    crawl.through(**HOUR)
    assert crawl.seen == ["/", "/a"]  # not due yet
    make_due(crawl)
    crawl.answers["/"] = Answer(html("/a", "/b", text="home, with news" + image), ETag=ETAG)
    log = crawl.through(**HOUR)
    assert crawl.seen == ["/", "/a", "/", "/b"], log
    assert told(crawl) == [("/", 200, None), ("/a", 200, None), ("/", 200, "changed"), ("/b", 200, None)]
    assert crawl.redis.hget(IMAGES.counters, "outstanding") == b"1"
    assert int(crawl.redis.hget(IMAGES.totals, "links_admitted")) == 1
    assert intervals(crawl) == {3600}
    counted = totals(crawl)
    assert (counted["revisits"], counted.get("revisits_unchanged")) == (1, None)
    make_due(crawl)
    log = crawl.through(**HOUR)
    assert conditions(crawl) == [("/", ETAG, None)], log
    assert told(crawl)[4:] == [("/", 304, "unchanged")]
    assert intervals(crawl) == {2 * 3600}
