"""A crawl on a Redis Cluster, as a user runs it, whose master is killed and whose slot is moved."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from crawlproject.state.keys import Keys
from demo.gallery import Gallery
from demo.redis_servers import client_of
from tests.state.servers import Cluster
from tests.test_crawl import Crawl

KEYS = Keys("{crawl}", "images")

COMMANDS = (
    "stats",
    "sources",
    "sources photos",
    "top --interval 1 --json",
    "explain photos",
    "report photos",
    "rate photos 5",
    "halt photos",
    "exclude museum.example",
    "excluded",
    "include museum.example",
    "dead list",
    "events --readers",
)

pytestmark = pytest.mark.slow


def test_each_seed_ends_once_though_the_master_is_killed_and_the_slot_moved(
    cluster: Cluster, cluster_url: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    count = 300
    master = cluster.owner_of(KEYS.seeds)
    crawl = Crawl(tmp_path, environment | {"REDIS_URL": cluster_url}, master.url)
    crawl.redis.close()
    crawl.redis = client_of(cluster_url)
    crawl.keys = KEYS
    crawl.source("photos", 40, pictures=count)

    def ended(number: int) -> bool:
        try:
            return bool(crawl.redis.xlen(KEYS.image_events) >= number)
        except redis.ConnectionError:
            return False

    try:
        with Gallery(crawl.sites, tmp_path / "arrivals.jsonl") as crawl.gallery:
            crawl.start(2)
            crawl.seed("photos", *(f"{number}.jpg" for number in range(50)))
            crawl.until(lambda: ended(1))
            crawl.keys = replace(KEYS, namespace="crawl")  # where users push them
            crawl.seed("photos", *(f"{number}.jpg" for number in range(50, count)))
            crawl.keys = KEYS
            crawl.until(lambda: ended(40))
            master.client.wait(1, 1000)
            master.kill()
            crawl.until(lambda: ended(100))
            master.start()
            crawl.until(cluster.is_whole)
            cluster.move_slot(KEYS.seeds)
            crawl.finish()
            for words in COMMANDS:
                crawl.command(words)
            assert crawl.redis.sismember(KEYS.halted, "photos")
            crawl.command(f"events {tmp_path}/events.jsonl")
            lines = (tmp_path / "events.jsonl").read_text().splitlines()
            named = Counter(json.loads(line).get("identifier") for line in lines)
            assert {f"photos-{number}.jpg": 1 for number in range(count)}.items() <= named.items()
            (tmp_path / "more.txt").write_text("http://museum.example/1.jpg\n")
            crawl.command(f"feed {tmp_path}/more.txt")
            assert crawl.redis.llen("images:start_urls") == 1
            arrivals = crawl.arrivals("photos")
        assert crawl.outcomes() == Counter(f"photos-{number}.jpg" for number in range(count))
        assert crawl.redis.hget(KEYS.counters, "outstanding") == b"0"
        assert count <= len(arrivals) <= count + 5  # what was settled in the moment of the kill is fetched again
        for worker in (0, 1):
            log = crawl.log(worker)
            assert "Traceback" not in log
            assert "Bug in" not in log
            faults = [line for line in log.splitlines() if " ERROR: " in line]
            assert 1 <= len(faults) <= 6, faults
    finally:
        crawl.stop()
