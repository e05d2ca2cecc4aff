"""A whole crawl whose pages are kept, as its spider sees them, and as independent readers find them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawlproject.contrib.warc.pipeline import exchange_of
from crawlproject.contrib.warc.records import Place
from tests.contrib.warc.warc_reading import at, segments
from tests.sites import Handler, served
from tests.spiders.test_own_spiders import Project

SPIDER = '''
import json
import scrapy
from crawlproject.contrib.warc.pipeline import exchange_of

HOME = "http://127.0.0.1:{port}"


class Keeper(scrapy.Spider):
    name = "keeper"
    keeps_exchanges = True

    def parse(self, response):
        cut = response.body[:2000]
        exchange = exchange_of(response, cut, truncated=len(cut) < len(response.body))
        yield {{"url": response.url, "exchange": exchange, "warc": None}}


class Keep:
    """Appends each item to a file."""

    def open_spider(self):
        self.file = open("items.jsonl", "a", buffering=1)

    def process_item(self, item):
        if isinstance(item, dict):
            self.file.write(json.dumps(item) + "\\n")
        return item
'''

HEAD = b"HTTP/1.1 200 Fine\r\ncontent-TYPE: text/html\r\nX-odd:  \xe9\r\n"
PIPELINES = json.dumps({"crawlproject.contrib.warc.pipeline.PageStorePipeline": 1, "spiders_of_mine.Keep": 2})


def page(path: str) -> bytes:
    return f"<title>{path}</title>".encode() + b"<p>text</p>" * (1000 if path == "/long" else 10)


class Site(Handler):
    """Pages with odd heads: compressed, in chunks."""

    def get(self) -> None:
        if self.path == "/robots.txt":
            self.answer(404)
            return
        body = gzip.compress(page(self.path))
        self.wfile.write(HEAD + b"Content-Encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n")
        for part in (body[:20], body[20:], b""):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))


@pytest.fixture
def project(tmp_path: Path, environment: dict[str, str], redis_url: str) -> Iterator[Project]:
    with served(Site, seen=[]) as server:
        one = Project(tmp_path, environment, redis_url, server)
        (tmp_path / "spiders_of_mine.py").write_text(SPIDER.format(port=server.server_port))
        one.environ |= {"CRAWL_PAGES_STORE": str(tmp_path / "store")}
        yield one
        one.redis.close()


@pytest.mark.slow
def test_pages_are_kept_as_they_came_and_items_say_where(project: Project) -> None:
    home = f"http://127.0.0.1:{project.server.server_port}"
    project.redis.lpush("keeper:start_urls", home + "/one", home + "/long")
    said = project.run("crawl", "-s", f"ITEM_PIPELINES={PIPELINES}", "keeper")
    items = {item["url"].removeprefix(home): item for item in project.items()}
    assert items.keys() == {"/one", "/long"}, said
    store = project.folder / "store"
    for path, item in items.items():
        assert item["exchange"] is None
        record = at(store, Place(**item["warc"]))
        assert record.payload == page(path)[:2000]
        assert record.named["WARC-Target-URI"] == home + path
        assert record.named["WARC-IP-Address"] == "127.0.0.1"
        assert ("WARC-Truncated" in record.named) is (path == "/long")
        assert [name for name, _ in record.http] == [
            "content-TYPE",
            "X-odd",
            "X-Crawl-Content-Encoding",
            "X-Crawl-transfer-encoding",
            "Content-Length",
        ]
    data = gzip.decompress(segments(store)[0].read_bytes())
    for path in items:
        assert b"GET %s HTTP/1.1\r\n" % path.encode() in data
    assert HEAD in data
    assert project.counts("keeper")["fetched"] == 2


def test_heads_are_made_of_scrapys_headers_where_their_own_bytes_are_not_at_hand() -> None:
    from scrapy import Request
    from scrapy.http import Response

    request = Request("http://museum.example/a?b#c", headers={"Accept": "*/*"})
    response = Response("http://museum.example/a?b", 404, {"X-Two": ["1", "2"]}, b"<p>", request=request)
    made = exchange_of(response)
    assert made.request_head == b"GET /a?b HTTP/1.1\r\nHost: museum.example\r\nAccept: */*\r\n\r\n"
    assert made.response_head == b"HTTP/1.1 404 Not Found\r\nX-Two: 1\r\nX-Two: 2\r\n\r\n"
    assert (made.body, made.ip, made.truncated) == (b"<p>", "", False)
