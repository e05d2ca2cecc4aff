"""The crawl of pages on several shards of a Redis Cluster: links, images, revisits, and what was spilled."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawlproject import config
from crawlproject.state.client import BlockingState
from crawlproject.state.shards import shard_of
from tests.spiders.test_pages import LICENCE, Answer, Crawl, html
from tests.state.conftest import cluster, cluster_url
from tests.state.servers import Cluster
from tests.test_crawl import picture
from tests.waiting import PATIENCE_S, until

__all__ = ["cluster", "cluster_url"]

SHARDS = 4
SITES = [f"site-{number}" for number in range(6)]

pytestmark = pytest.mark.slow


class ShardedPages(Crawl):
    """A crawl of several sites on one server, each with a host of its own."""

    def __init__(self, folder: Path, environ: dict[str, str], cluster: Cluster) -> None:
        shared = {"REDIS_URL": cluster.url, "CRAWL_SHARDS": str(SHARDS)}
        super().__init__(folder, environ | shared, cluster.nodes[0].url)
        self.cluster = cluster
        self.rate_by(500_000_000)
        self.pages_state = BlockingState.connect(config.load(shared), "pages")
        self.images_state = BlockingState.connect(config.load(shared), "images")

    def rate_by(self, images: int) -> None:
        """Write a catalogue in which each site has so many images."""
        rows = [{"source_name": site, "image_count": images, "hosts": [f"{site}.example"]} for site in SITES]
        (self.folder / "catalogue.json").write_text(json.dumps(rows))

    def url(self, site: str, path: str) -> str:
        """Return the URL of a path, which no other site has, at the host of a site."""
        return f"{self.home.replace('127.0.0.1', site + '.example')}/{site}{path}"

    def feed(self, *lines: str, spider: str = "pages") -> None:
        key = f"{spider}:start_urls"
        self.cluster.owner_of(key).client.lpush(key, *lines)

    def run(self, spider: str = "pages", **settings: str) -> str:
        """Crawl with two workers until nothing is left; return their logs."""
        both = [self.start(spider, **{"MAX_IDLE_TIME_BEFORE_CLOSE": "3"} | settings) for _ in range(2)]
        said = "".join(worker.communicate(timeout=2 * PATIENCE_S)[0] for worker in both)
        assert [worker.returncode for worker in both] == [0, 0], said
        assert "Traceback" not in said, said
        assert "Bug in" not in said, said
        state = self.pages_state if spider == "pages" else self.images_state
        assert self.counted(state, "outstanding") == [0] * SHARDS, said
        return said

    def counted(self, state: BlockingState, name: str) -> list[int]:
        """Return a counter of each shard."""
        values: list[Any] = [shard.redis.get(getattr(shard.keys, name)) for shard in state.shards]
        return [int(value or 0) for value in values]

    def ends(self, state: BlockingState, name: str) -> dict[int, list[dict[str, Any]]]:
        """Return the events of a stream, by shard."""
        found: dict[int, Any] = {
            shard.number: shard.redis.xrange(getattr(shard.keys, name)) for shard in state.shards
        }
        return {
            number: [json.loads(fields[b"event"]) for _, fields in entries] for number, entries in found.items()
        }

    def checked(self, state: BlockingState, name: str) -> Counter[str]:
        """Return the URLs of all events of a stream, having seen that each is in the shard of its source."""
        found: Counter[str] = Counter()
        for number, events in self.ends(state, name).items():
            assert {shard_of(event["source"], SHARDS) for event in events} <= {number}
            found.update(event["url"] for event in events)
        return found

    def close(self) -> None:
        super().close()
        for state in (self.pages_state, self.images_state):
            state.__exit__(None, None, None)


@pytest.fixture
def crawl(
    cluster: Cluster, cluster_url: str, tmp_path: Path, environment: dict[str, str]
) -> Iterator[ShardedPages]:
    one = ShardedPages(tmp_path, environment, cluster)
    yield one
    one.close()


def test_links_and_images_go_to_the_shards_of_their_sources(crawl: ShardedPages) -> None:
    """Sites are in other shards than the names of their domains tell, and their images on other sites."""
    assert len({shard_of(site, SHARDS) for site in SITES}) > 1
    assert any(shard_of(site, SHARDS) != shard_of(f"{site}.example", SHARDS) for site in SITES)
    pages, images = Counter[str](), Counter[str]()
    for site, other in zip(SITES, SITES[1:] + SITES[:1], strict=True):
        found = [crawl.url(other, f"/{number}-of-{site}.jpg") for number in range(3)]
        for number, url in enumerate(found):
            crawl.answers[f"/{other}/{number}-of-{site}.jpg"] = Answer(picture(number), Content_Type="image/jpeg")
            images[url] = 1
        shown = "".join(f'<img src="{url}">' for url in found) + f'<a rel="license" href="{LICENCE}">x</a>'
        paths = [f"/{site}/", f"/{site}/a", f"/{site}/b", f"/{site}/c"]
        crawl.answers[paths[0]] = Answer(html(*paths[1:], text=f"{site}{shown}"))
        crawl.answers |= {path: Answer(html(*paths, text=path)) for path in paths[1:]}
        pages.update(crawl.url(site, path.removeprefix(f"/{site}")) for path in paths)
    crawl.feed(*(crawl.url(site, "/") for site in SITES))
    log = crawl.run()
    assert crawl.checked(crawl.pages_state, "page_events") == pages, log
    expected = Counter(shard_of(site, SHARDS) for site in SITES for _ in range(3))
    assert crawl.counted(crawl.images_state, "outstanding") == [expected[shard] for shard in range(SHARDS)]
    log = crawl.run("images")
    assert crawl.checked(crawl.images_state, "image_events") == images, log
    assert Counter(crawl.seen) == Counter(dict.fromkeys(crawl.seen, 1))


def test_pages_of_all_shards_are_looked_at_again(crawl: ShardedPages) -> None:
    hour = {"CRAWL_PAGES_REVISIT": "3600"}
    for site in SITES:
        crawl.answers[f"/{site}/"] = Answer(html(text=site))
    crawl.feed(*(crawl.url(site, "/") for site in SITES))
    crawl.run(**hour)
    for shard in crawl.pages_state.shards:
        db, keys = shard.redis, shard.keys
        of_sources: Any = db.scan_iter(keys.revisits_of + "*")
        for key in of_sources:
            lines: Any = db.hgetall(key)
            for page, line in lines.items():
                db.hset(key, page, b"1 " + line.partition(b" ")[2])
            db.zadd(keys.revisits, {key.decode().removeprefix(keys.revisits_of): 1})
    for site in SITES:
        crawl.answers[f"/{site}/"] = Answer(html(f"/{site}/new", text=site + " with news"))
        crawl.answers[f"/{site}/new"] = Answer(html(text="news of " + site))
    log = crawl.run(**hour)
    seen = Counter({f"/{site}/": 2 for site in SITES}) + Counter(f"/{site}/new" for site in SITES)
    assert Counter(crawl.seen) == seen, log
    pages = crawl.checked(crawl.pages_state, "page_events")
    assert pages == {crawl.url(site, path): count for site in SITES for path, count in (("/", 2), ("/new", 1))}


def test_what_a_shard_has_spilled_is_crawled(crawl: ShardedPages) -> None:
    """Each shard has a folder of its own in the store, and leaves those of others alone."""
    store = {"CRAWL_OVERFLOW_STORE": str(crawl.folder / "packs")}
    sites = [next(site for site in SITES if shard_of(site, SHARDS) == shard) for shard in (0, 1)]
    images = [crawl.url(site, f"/{number}.jpg") for site in sites for number in range(400)]
    for url in images:
        path = "/" + url.split("/", 3)[3]
        crawl.answers[path] = Answer(picture(len(path)), Content_Type="image/jpeg")
    for number, site in enumerate(sites):
        some = images[400 * number : 400 * number + 400]
        shown = "".join(f'<img src="{url}">' for url in some) + f'<a rel="license" href="{LICENCE}">x</a>'
        crawl.answers[f"/{site}/"] = Answer(html(text=shown))
    crawl.feed(*(crawl.url(site, "/") for site in sites))
    crawl.rate_by(1)  # so the windows are small
    log = crawl.run(**store)
    crawl.rate_by(500_000_000)
    spilled = crawl.counted(crawl.images_state, "spilled")
    assert [bool(count) for count in spilled] == [shard in (0, 1) for shard in range(SHARDS)], log
    log = crawl.run("images", **store)
    assert crawl.checked(crawl.images_state, "image_events") == Counter(images), log
    assert crawl.counted(crawl.images_state, "spilled") == [0] * SHARDS
    assert crawl.counted(crawl.images_state, "overflow") == [0] * SHARDS


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_pages_of_other_shards_go_on_while_the_one_of_their_images_is_away(
    crawl: ShardedPages, how: signal.Signals
) -> None:
    """Many more pages than the worker may have in progress lead there. All is fetched later, once."""
    first, *shards = crawl.pages_state.shards
    here = crawl.cluster.owner_of(first.keys.rates)
    away = next(shard for shard in shards if crawl.cluster.owner_of(shard.keys.rates) is not here)
    there = crawl.cluster.owner_of(away.keys.rates)
    nodes = {site: crawl.cluster.owner_of(crawl.pages_state.shard_for(site).keys.rates) for site in SITES}
    lost = next(site for site in SITES if nodes[site] is there)
    sites = [site for site in SITES if nodes[site] is not there]
    assert sites
    paths = [f"/p{number}" for number in range(30)]
    pages, images = Counter[str](), Counter[str]()
    for site in sites:
        for number, path in enumerate(paths):
            image = crawl.url(lost, f"/{number}-of-{site}.jpg")
            shown = f'<a rel="license" href="{LICENCE}">x</a><img src="{image}">'
            links = [f"/{site}{one}" for one in paths[number + 1 : number + 3]]
            crawl.answers[f"/{site}{path}"] = Answer(html(*links, text=f"{site}{path}{shown}"))
            crawl.answers[f"/{lost}/{number}-of-{site}.jpg"] = Answer(picture(number), Content_Type="image/jpeg")
            images[image] = pages[crawl.url(site, path)] = 1
    crawl.feed(*(json.dumps({"url": crawl.url(site, paths[0]), "depth": 20}) for site in sites))
    worker = crawl.start("pages", CONCURRENT_REQUESTS="8", MAX_IDLE_TIME_BEFORE_CLOSE="3")
    until(lambda: all(f"/{site}{paths[0]}" in crawl.seen for site in sites))
    there.client.wait(1, 1000)
    nodes_away = (there, crawl.cluster.replica_of(there))
    for node in nodes_away:
        node.kill() if how == signal.SIGKILL else node.process.send_signal(how)
    try:
        until(lambda: all(f"/{site}{path}" in crawl.seen for site in sites for path in paths))
        assert worker.poll() is None
    finally:
        for node in nodes_away:
            node.start() if how == signal.SIGKILL else node.process.send_signal(signal.SIGCONT)
    said, _ = worker.communicate(timeout=2 * PATIENCE_S)
    assert worker.returncode == 0, said
    assert "Traceback" not in said, said
    assert crawl.checked(crawl.pages_state, "page_events") == pages, said
    log = crawl.run("images")
    assert crawl.checked(crawl.images_state, "image_events") == images, log
    assert Counter(crawl.seen) == Counter(dict.fromkeys(crawl.seen, 1))
