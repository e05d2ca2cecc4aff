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

from demo.gallery import Gallery
from tests.conftest import Scrapy
from tests.state.servers import Cluster
from tests.test_crawl import Crawl, worst_second
from tests.waiting import PATIENCE_S

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
        to_shards = ("reshard", "--to", "4", "--on", cluster_url)
        refused = scrapy(*to_shards, CRAWL_HEARTBEAT_TIMEOUT="3")
        assert refused.returncode == 1
        time.sleep(5)  # the pulse of who has led, and their heartbeats
        had_ended = {json.loads(line)["identifier"] for line in events.read_text().splitlines()}
        done = scrapy(*to_shards, CRAWL_HEARTBEAT_TIMEOUT="3")
        assert done.returncode == 0, done.stderr

        crawl.environ |= {"REDIS_URL": cluster_url, "CRAWL_SHARDS": "4"}
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
