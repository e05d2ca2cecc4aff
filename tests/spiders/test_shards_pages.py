"""The crawl of pages on two shards, each in a Redis of its own: images and redirects from one to the other."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawlproject.state.keys import Keys
from crawlproject.state.shards import shard_namespace, shard_of
from tests.shards import domain_in
from tests.spiders.test_pages import LICENCE, Answer, Crawl, html
from tests.state.servers import Server
from tests.test_crawl import picture
from tests.waiting import PATIENCE_S, until

SHARDS = 2
SITES = [domain_in(number % SHARDS, SHARDS, f"site-{number}-") for number in range(4)]
PAGES, IMAGES = (
    [Keys(shard_namespace("crawl", number, SHARDS), spider, "crawl") for number in range(SHARDS)]
    for spider in ("pages", "images")
)

pytestmark = pytest.mark.slow


class ShardedPages(Crawl):
    """A crawl of several sites on one server, each with a host of its own."""

    def __init__(self, folder: Path, environ: dict[str, str], servers: list[Server]) -> None:
        shared = {"REDIS_URL": " ".join(one.url for one in servers), "CRAWL_SHARDS": str(SHARDS)}
        super().__init__(folder, environ | shared | {"CRAWL_SHARD": "0,1"}, servers[0].url)
        self.servers = servers
        rows = [{"source_name": site, "image_count": 500_000_000, "hosts": [site]} for site in SITES]
        (folder / "catalogue.json").write_text(json.dumps(rows))

    def url(self, site: str, path: str) -> str:
        """Return the URL of a path, which no other site has, at the host of a site."""
        return f"{self.home.replace('127.0.0.1', site)}/{site}{path}"

    def run(self, spider: str = "pages", **settings: str) -> str:
        return self.end(self.start(spider, **{"MAX_IDLE_TIME_BEFORE_CLOSE": "2"} | settings))

    def end(self, worker: subprocess.Popen[str]) -> str:
        """Wait until a worker has nothing left to do; return its log."""
        said, _ = worker.communicate(timeout=2 * PATIENCE_S)
        assert worker.returncode == 0, said
        assert "Traceback" not in said, said
        assert "Bug in" not in said, said
        return said

    def ended(self, keys: list[Keys], stream: str, *, own: bool = True) -> Counter[str]:
        """Return the URLs of all events of a stream, having seen that each is in the shard of its source.

        Without `own`, redirects have led some elsewhere.
        """
        found: Counter[str] = Counter()
        for number, server in enumerate(self.servers):
            for _, fields in server.client.xrange(getattr(keys[number], stream)):
                event = json.loads(fields[b"event"])
                assert not own or shard_of(event["source"], SHARDS) == number
                found[event["url"]] += 1
            assert int(server.client.hget(keys[number].counters, "outstanding") or 0) == 0
            assert not server.client.xlen(keys[number].dead)
        return found

    def close(self) -> None:
        super().close()
        for server in self.servers:
            server.kill()


@pytest.fixture
def crawl(tmp_path: Path, environment: dict[str, str]) -> Iterator[ShardedPages]:
    one = ShardedPages(tmp_path, environment, [Server(tmp_path, appendfsync="always") for _ in range(SHARDS)])
    yield one
    one.close()


def test_images_and_redirects_go_to_the_shards_of_their_sources(crawl: ShardedPages) -> None:
    """Each page leads to one of the next site, by a redirect, and shows images of that."""
    pages, images = Counter[str](), Counter[str]()
    for site, other in zip(SITES, SITES[1:] + SITES[:1], strict=True):
        found = [crawl.url(other, f"/{number}-of-{site}.jpg") for number in range(3)]
        for number, url in enumerate(found):
            crawl.answers[f"/{other}/{number}-of-{site}.jpg"] = Answer(picture(number), Content_Type="image/jpeg")
            images[url] = 1
        shown = "".join(f'<img src="{url}">' for url in found) + f'<a rel="license" href="{LICENCE}">x</a>'
        crawl.answers[f"/{site}/"] = Answer(html(f"/{site}/moved", text=f"{site}{shown}"))
        led_to = crawl.url(other, f"/led-to-from-{site}")
        crawl.answers[f"/{site}/moved"] = Answer(b"", status=301, Location=led_to)
        crawl.answers[f"/{other}/led-to-from-{site}"] = Answer(html(text=f"led to from {site}"))
        pages.update((crawl.url(site, "/"), crawl.url(site, "/moved")))
    crawl.feed(*(crawl.url(site, "/") for site in SITES))
    log = crawl.run()
    assert Counter(crawl.seen) == Counter(dict.fromkeys(crawl.seen, 1)), log
    assert crawl.ended(PAGES, "page_events", own=False) == pages, log
    log = crawl.run("images")
    assert crawl.ended(IMAGES, "image_events") == images, log
    assert Counter(crawl.seen) == Counter(dict.fromkeys(crawl.seen, 1))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_pages_go_on_while_the_shard_of_their_images_is_away(crawl: ShardedPages, how: signal.Signals) -> None:
    """Many more pages than the worker may have in progress lead there. All is fetched later, once."""
    here, lost, paths = SITES[0], SITES[1], [f"/p{number}" for number in range(30)]
    pages, images = Counter[str](), Counter[str]()
    for number, path in enumerate(paths):
        image = crawl.url(lost, f"/{number}.jpg")
        shown = f'<a rel="license" href="{LICENCE}">x</a><img src="{image}">'
        links = [f"/{here}{one}" for one in paths[number + 1 : number + 3]]
        crawl.answers[f"/{here}{path}"] = Answer(html(*links, text=f"{path}{shown}"))
        crawl.answers[f"/{lost}/{number}.jpg"] = Answer(picture(number), Content_Type="image/jpeg")
        images[image] = pages[crawl.url(here, path)] = 1
    crawl.feed(json.dumps({"url": crawl.url(here, paths[0]), "depth": 20}))
    worker = crawl.start("pages", CONCURRENT_REQUESTS="8", MAX_IDLE_TIME_BEFORE_CLOSE="2")
    until(lambda: f"/{here}{paths[0]}" in crawl.seen)
    there = crawl.servers[1]
    there.kill() if how == signal.SIGKILL else there.process.send_signal(how)
    try:
        until(lambda: all(f"/{here}{path}" in crawl.seen for path in paths))
        assert worker.poll() is None
    finally:
        there.start() if how == signal.SIGKILL else there.process.send_signal(signal.SIGCONT)
    said = crawl.end(worker)
    assert crawl.ended(PAGES, "page_events") == pages, said
    log = crawl.run("images")
    assert crawl.ended(IMAGES, "image_events") == images, log
    assert Counter(crawl.seen) == Counter(dict.fromkeys(crawl.seen, 1))
