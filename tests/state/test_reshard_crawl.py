"""A crawl that is divided in the middle, as a user does it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from demo.gallery import Gallery
from tests.conftest import Scrapy
from tests.spiders.test_pages import LICENCE, Answer, html
from tests.spiders.test_shards_pages import SITES, ShardedPages
from tests.state.servers import Cluster
from tests.test_crawl import Crawl, picture, worst_second
from tests.waiting import PATIENCE_S, until

MUSEUMS = [f"museum-{number}" for number in range(6)]
RATE = 20
PICTURES = 60

pytestmark = pytest.mark.slow


@pytest.fixture
def crawl(tmp_path: Path, environment: dict[str, str], redis_url: str) -> Iterator[Crawl]:
    """A crawl of several museums on one Redis."""
    one = Crawl(tmp_path, environment, redis_url)
    for museum in MUSEUMS:
        one.source(museum, RATE, PICTURES)
    yield one
    one.stop()


def test_each_seed_ends_once_and_nothing_seen_is_fetched_again(
    crawl: Crawl, cluster: Cluster, cluster_url: str, scrapy: Scrapy
) -> None:
    """Workers are killed, the crawl is divided, others go on; users push the same seeds again, and new ones."""
    events = crawl.folder / "events.jsonl"
    first, rest = [f"{n}.jpg" for n in range(40)], [f"{n}.jpg" for n in range(40, PICTURES)]
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        for museum in MUSEUMS:
            crawl.seed(museum, *first)
        crawl.environ["CRAWL_HEARTBEAT_TIMEOUT"] = "3"
        crawl.start(2, MAX_IDLE_TIME_BEFORE_CLOSE="60")
        follow = [sys.executable, "-m", "scrapy", "events", str(events), "--follow"]
        reader = subprocess.Popen(follow, env=crawl.environ)
        crawl.until(lambda: events.exists() and events.read_bytes().count(b"\n") >= 60)
        for process in crawl.workers:
            process.kill()
            process.wait()
        reader.send_signal(signal.SIGTERM)
        assert reader.wait(PATIENCE_S) == 0
        to_shards = ("reshard", "--to", "16", "--on", cluster_url)
        refused = scrapy(*to_shards, CRAWL_HEARTBEAT_TIMEOUT="600")  # however long it takes to start
        assert refused.returncode == 1
        time.sleep(5)  # the pulse of who has led, and their heartbeats
        had_ended = {json.loads(line)["identifier"] for line in events.read_text().splitlines()}
        done = scrapy(*to_shards, CRAWL_HEARTBEAT_TIMEOUT="3")
        assert done.returncode == 0, done.stderr

        crawl.environ |= {"REDIS_URL": cluster_url, "CRAWL_SHARDS": "16"}
        crawl.redis.close()
        crawl.redis = cluster.owner_of("images:start_urls").client
        for museum in MUSEUMS:
            crawl.seed(museum, *first, *rest)
        crawl.run(2, MAX_IDLE_TIME_BEFORE_CLOSE="3")
        crawl.command(f"events {events}")

        ends = Counter(json.loads(line)["identifier"] for line in events.read_text().splitlines())
        assert ends == Counter(f"{museum}-{name}" for museum in MUSEUMS for name in (*first, *rest))
        fetched: Counter[str] = Counter()
        for museum in MUSEUMS:
            arrivals = crawl.arrivals(museum)
            assert worst_second(arrivals) <= RATE + 2
            fetched += Counter(f"{museum}{arrival['path']}" for arrival in arrivals)
        again = {name.replace("/", "-") for name, times in fetched.items() if times > 1}
        assert not again & had_ended  # but what the killed workers had on their way
        assert set(fetched.values()) <= {1, 2}
    for worker in (2, 3):
        log = crawl.log(worker)
        assert "Traceback" not in log, log
        assert " ERROR: " not in log, log


@pytest.fixture
def pages(
    cluster: Cluster, cluster_url: str, tmp_path: Path, environment: dict[str, str], redis_url: str
) -> Iterator[ShardedPages]:
    """A crawl of pages on six sites, to be divided."""
    one = ShardedPages(tmp_path, environment, cluster)
    one.redis.close()
    one.redis = redis.Redis.from_url(redis_url)
    yield one
    one.close()


def test_a_crawl_of_pages_is_divided_in_the_middle(
    pages: ShardedPages, cluster_url: str, redis_url: str, scrapy: Scrapy
) -> None:
    """Each page is fetched once, and each image, which pages of before and of after show."""
    paths = [f"/p{number}" for number in range(40)]
    expected_pages, expected_images = Counter[str](), Counter[str]()
    for site, other in zip(SITES, SITES[1:] + SITES[:1], strict=True):
        for number, path in enumerate(paths):
            image = f"/{other}/{number // 2}-of-{site}.jpg"  # each is on two pages
            url = pages.url(other, image.removeprefix(f"/{other}"))
            shown = f'<a rel="license" href="{LICENCE}">x</a><img src="{url}">'
            links = [f"/{site}{paths[at]}" for at in (number + 1, number + 7, number // 2) if at < len(paths)]
            pages.answers[f"/{site}{path}"] = Answer(html(*links, text=f"{site}{path}{shown}"))
            pages.answers[image] = Answer(picture(number), Content_Type="image/jpeg")
            expected_pages[pages.url(site, path)] = 1
            expected_images[url] = 1
    former = {"REDIS_URL": redis_url, "CRAWL_SHARDS": "1"}
    pages.redis.lpush("pages:start_urls", *(pages.url(site, paths[0]) for site in SITES))
    pages.rate_by(2_000_000)
    worker = pages.start("pages", MAX_IDLE_TIME_BEFORE_CLOSE="60", **former)
    until(lambda: pages.redis.xlen("crawl:pages") >= 60)
    worker.send_signal(signal.SIGTERM)
    said = worker.communicate(timeout=PATIENCE_S)[0]
    assert worker.returncode == 0, said
    assert len(pages.seen) < 6 * len(paths), said
    time.sleep(6)
    done = scrapy("reshard", "--to", "4", "--on", cluster_url, REDIS_URL=redis_url)
    assert done.returncode == 0, done.stderr
    pages.rate_by(500_000_000)
    pages.feed(*(pages.url(site, paths[0]) for site in SITES))  # seen
    log = pages.run()
    assert pages.checked(pages.pages_state, "page_events") == expected_pages, log
    log = pages.run("images")
    assert pages.checked(pages.images_state, "image_events") == expected_images, log
    fetched = Counter(pages.seen)
    assert {path: times for path, times in fetched.items() if times > 1} == {}
