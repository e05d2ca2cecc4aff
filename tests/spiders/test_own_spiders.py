"""A user's own spiders on the frontier: what their callbacks yield, and how their requests end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from crawlproject.state.keys import Keys
from tests.sites import Handler, served
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
KEYS = Keys("crawl", "shop")

SPIDERS = '''
import json
import scrapy
from scrapy.exceptions import DropItem
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

HOME = "http://127.0.0.1:{port}"


class Shop(scrapy.Spider):
    """As `scrapy genspider` makes it, and a callback."""

    name = "shop"
    allowed_domains = ["127.0.0.1"]
    start_urls = [HOME + "/0"]
    stored_attributes = frozenset({{"cb_kwargs"}})
    stored_meta = frozenset({{"page"}})

    def parse(self, response, found_on=None):
        page = response.meta.get("page", 0)
        yield {{"url": response.url, "found_on": found_on, "agent": response.text.split()[0], "page": page}}
        response.meta["page"], response.meta["lost"] = page + 1, True
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, meta=response.meta, cb_kwargs={{"found_on": response.url}})


class Seeded(scrapy.Spider):
    """As brought from scrapy-redis."""

    name = "seeded"
    redis_key = "seeded:start_urls"

    def make_request_from_data(self, data):
        return scrapy.Request(HOME + json.loads(data)["path"], errback=self.failed, priority=2)

    def parse(self, response):
        if response.url.endswith("/raises"):
            raise RuntimeError("a bug in the callback")
        yield {{"url": response.url}}

    def failed(self, failure):
        yield {{"failed": failure.request.url, "status": failure.value.response.status}}


class Rules(CrawlSpider):
    name = "rules"
    allowed_domains = ["127.0.0.1"]
    start_urls = [HOME + "/0"]
    rules = (Rule(LinkExtractor(), callback="parse_page", errback="page_failed", follow=True),)

    def parse_page(self, response):
        yield {{"url": response.url, "text": response.meta["link_text"]}}

    def page_failed(self, failure):
        yield {{"failed": failure.request.url}}


class Errs(scrapy.Spider):
    name = "errs"

    async def start(self):
        yield scrapy.Request("http://127.0.0.1:1/refused", errback=self.failed)
        yield scrapy.Request(HOME + "/broken", errback=self.failed_once)

    def parse(self, response):
        pass

    def failed(self, failure):
        yield scrapy.Request(HOME + "/1", meta=failure.request.meta)

    def failed_once(self, failure):
        return [scrapy.Request(HOME + "/1", meta=failure.request.meta)]


class Keep:
    """Appends each item to a file; drops those of /dropped."""

    def open_spider(self):
        self.file = open("items.jsonl", "a", buffering=1)

    def process_item(self, item):
        if item.get("url", "").endswith("/dropped"):
            raise DropItem("not wanted")
        self.file.write(json.dumps(item) + "\\n")
        return item
'''


class Pages(Handler):
    """Page n links to 2n+1 and 2n+2, and to a page elsewhere; /broken is, /gone is gone."""

    most = 40

    def get(self) -> None:
        server: Any = self.server
        status, body = 200, b""
        if self.path == "/robots.txt":
            status = 404
        else:
            server.seen.append(self.path)
        if self.path[1:].isdigit():
            number = int(self.path[1:])
            links = [f"/{other}" for other in (2 * number + 1, 2 * number + 2, 0) if other < self.most]
            links += ["http://elsewhere.example/"]
            text = self.headers["User-Agent"] + "".join(f' <a href="{link}">x</a>' for link in links)
            body = text.encode()
        elif self.path in {"/broken", "/gone"}:
            status = {"/broken": 500, "/gone": 410}[self.path]
        self.answer(status, body, Content_Type="text/html")


class Project:
    """A folder with spiders of its own, a site, and a Redis."""

    def __init__(self, folder: Path, environ: dict[str, str], url: str, server: Any) -> None:
        self.folder, self.server = folder, server
        self.seen: list[str] = server.seen
        self.redis: Any = redis.Redis.from_url(url)
        (folder / "spiders_of_mine.py").write_text(SPIDERS.format(port=server.server_port))
        catalogue = folder / "catalogue.json"
        catalogue.write_text(
            json.dumps([{"source_name": "site", "image_count": 500_000_000, "hosts": ["127.0.0.1"]}])
        )
        self.environ = environ | {
            "PYTHONPATH": f"{folder}:{ROOT}",
            "CRAWL_SOURCES": str(catalogue),
            "CRAWL_RETRY_DELAY": "0.2",
            "CRAWL_MAX_RETRIES": "1",
            "CRAWL_CIRCUIT_ERRORS": "1",
            "MAX_IDLE_TIME_BEFORE_CLOSE": "1",
            "SCRAPY_SETTINGS_MODULE": "crawlproject.settings",
        }

    def start(self, *words: str, **settings: str) -> subprocess.Popen[str]:
        options = ("-s", "SPIDER_MODULES=spiders_of_mine", "-s", 'ITEM_PIPELINES={"spiders_of_mine.Keep": 1}')
        command = [sys.executable, "-m", "scrapy", words[0], *options, *words[1:]]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environ | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str, **settings: str) -> str:
        """Return what the command has said."""
        said, _ = (process := self.start(*words, **settings)).communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
        return said

    def items(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "items.jsonl").read_text().splitlines()]

    def counts(self, spider: str) -> dict[str, int]:
        return {
            name.decode(): int(count) for name, count in self.redis.hgetall(Keys("crawl", spider).totals).items()
        }


@pytest.fixture
def project(tmp_path: Path, environment: dict[str, str], redis_url: str) -> Iterator[Project]:
    with served(Pages, seen=[]) as server:
        one = Project(tmp_path, environment, redis_url, server)
        yield one
        one.redis.close()


def test_a_generated_spider_crawls_each_page_once(project: Project) -> None:
    said = project.run("crawl", "shop")
    items = project.items()
    pages = [f"/{number}" for number in range(Pages.most)]
    assert Counter(project.seen) == Counter(pages)
    assert Counter("/" + item["url"].rpartition("/")[2] for item in items) == Counter(pages), said
    assert {item["agent"].partition("/")[0] for item in items} == {"crawlproject"}
    assert all(item["found_on"] for item in items if not item["url"].endswith("/0"))
    assert {item["page"] for item in items} == {0, 1, 2, 3, 4, 5}
    assert said.count("meta['lost'] of a request is not stored") == 1
    assert int(project.redis.hget(KEYS.counters, "outstanding") or 0) == 0
    assert project.redis.exists(KEYS.dead) == 0
    assert project.counts("shop")["fetched"] == Pages.most


def test_a_spider_of_scrapy_redis_gets_its_seeds_and_each_failure_once(project: Project) -> None:
    for path in ("/1", "/broken", "/gone", "/raises", "/dropped"):
        project.redis.lpush("seeded:start_urls", json.dumps({"path": path}))
    project.redis.lpush("seeded:start_urls", "no JSON")
    said = project.run("crawl", "seeded")
    base = f"http://127.0.0.1:{project.server.server_port}"
    assert sorted(json.dumps(item) for item in project.items()) == sorted(
        json.dumps(item)
        for item in (
            {"url": base + "/1"},
            {"failed": base + "/broken", "status": 500},
            {"failed": base + "/gone", "status": 410},
        )
    ), said
    assert Counter(project.seen) == {"/1": 1, "/broken": 2, "/gone": 1, "/raises": 5, "/dropped": 1}
    dead = json.loads(project.run("dead", "list", "--json", "--spider", "seeded"))
    reasons = sorted(letter["reason"] for letter in dead)
    assert [reason.partition(":")[0] for reason in reasons] == [
        "internal fault, delivery 5",
        "make_request_from_data failed",
        "status 500 (after 2 attempts)",
    ]
    assert reasons[0].endswith("RuntimeError: a bug in the callback")
    assert int(project.redis.hget(Keys("crawl", "seeded").counters, "outstanding") or 0) == 0


def test_a_crawl_spider_follows_its_rules_and_sees_each_page_once(project: Project) -> None:
    said = project.run("crawl", "rules")
    pages = [f"/{number}" for number in range(Pages.most)]
    assert Counter(project.seen) == Counter(pages), said
    assert Counter("/" + item["url"].rpartition("/")[2] for item in project.items()) == Counter(pages[1:])
    assert {item["text"] for item in project.items()} == {"x"}
    assert int(project.redis.hget(Keys("crawl", "rules").counters, "outstanding") or 0) == 0


def test_what_an_errback_yields_is_new_and_its_request_a_dead_letter(project: Project) -> None:
    project.run("crawl", "errs", CRAWL_MAX_RETRIES="0")
    assert Counter(project.seen) == {"/broken": 1, "/1": 1}
    dead = json.loads(project.run("dead", "list", "--json", "--spider", "errs"))
    assert sorted(letter["url"].rpartition("/")[2] for letter in dead) == ["broken", "refused"]
    assert int(project.redis.hget(Keys("crawl", "errs").counters, "outstanding") or 0) == 0


def test_scrapys_own_commands_work_and_leave_the_frontier_alone(project: Project) -> None:
    project.redis.sadd(KEYS.halted, "site")
    waiting = project.start("crawl", "shop")
    until(lambda: project.redis.hget(KEYS.counters, "outstanding") == b"1")  # a request that is not theirs
    waiting.terminate()
    waiting.communicate(timeout=PATIENCE_S)
    project.redis.srem(KEYS.halted, "site")
    home = f"http://127.0.0.1:{project.server.server_port}/7"
    leader = project.start("crawl", "seeded", MAX_IDLE_TIME_BEFORE_CLOSE="0")
    try:
        assert "crawlproject" in project.run("fetch", "--nolog", "--spider", "shop", home)
        assert project.run("shell", "--nolog", "--spider", "shop", "-c", "response.status", home).strip() == "200"
        assert "found_on" in project.run("parse", "--nolog", "--spider", "shop", home)
    finally:
        leader.terminate()
        leader.communicate(timeout=PATIENCE_S)
    assert project.redis.hget(KEYS.counters, "outstanding") == b"1"
    assert set(project.seen) == {"/7"}
