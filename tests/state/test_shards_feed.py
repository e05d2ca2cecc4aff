"""`scrapy feed` with several shards: a file, killed and resumed; a topic; what it says while a shard is away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from crawlproject.state.keys import Keys
from tests.conftest import Scrapy
from tests.contrib.kafka.broker import Broker
from tests.state.servers import Cluster
from tests.waiting import until

SHARDS = "4"
USERS = Keys("{images:start_urls}", "images", "crawl")


@pytest.fixture
def environ(cluster_url: str, environment: dict[str, str]) -> dict[str, str]:
    return environment | {"REDIS_URL": cluster_url, "CRAWL_SHARDS": SHARDS}


def fed(cluster: Cluster) -> list[bytes]:
    """Return what users have pushed, in order."""
    found: Any = cluster.owner_of(USERS.users_seeds).client.lrange(USERS.users_seeds, 0, -1)
    return list(reversed(found))


def waiting(redis_url: str) -> list[bytes]:
    """Return the seeds that wait, in order."""
    with redis.Redis.from_url(redis_url) as client:
        found: Any = client.lrange(USERS.users_seeds, 0, -1)
    return list(reversed(found))


@pytest.mark.slow
def test_a_killed_feed_is_resumed_exactly(
    redis_url: str, environment: dict[str, str], scrapy: Scrapy, tmp_path: Path
) -> None:
    urls = [f"http://s{number % 9}.example/{number}.jpg" for number in range(20_000)]
    file = tmp_path / "seeds.txt"
    file.write_text("\n".join(urls))
    command = [sys.executable, "-m", "scrapy", "feed", str(file)]
    environ = environment | {"REDIS_URL": redis_url, "CRAWL_SHARDS": SHARDS}
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL) as feed:
        until(lambda: len(waiting(redis_url)) >= 1_000)
        feed.kill()
    before = len(waiting(redis_url))
    done = scrapy("feed", str(file), "--resume", REDIS_URL=redis_url, CRAWL_SHARDS=SHARDS)
    assert done.stdout == f"{len(urls) - before} seeds fed, 0 rejected\n", done.stderr
    assert waiting(redis_url) == [url.encode() for url in urls]


@pytest.mark.slow
def test_a_topic_is_fed_and_waits_while_the_node_of_the_seeds_is_away(
    cluster: Cluster, environ: dict[str, str], broker: Broker
) -> None:
    broker.tell("topic", "inbound_images", 1)
    urls: list[str | bytes | None] = [f"http://s{number % 9}.example/{number}.jpg" for number in range(40)]
    broker.send("inbound_images", urls[:20])
    command = [sys.executable, "-m", "scrapy", "feed", "--kafka"]
    feed = subprocess.Popen(command, env=environ | {"CRAWL_KAFKA_BROKERS": broker.address})
    try:
        until(lambda: len(fed(cluster)) == 20)
        master = cluster.owner_of(USERS.users_seeds)
        replica = cluster.replica_of(master)
        replica.kill()
        master.kill()
        broker.send("inbound_images", urls[20:])
        for server in (master, replica):
            server.start()
        until(cluster.is_whole)
        until(lambda: len(set(fed(cluster))) == 40)  # it goes on by itself
    finally:
        feed.terminate()
        assert feed.wait(30) == 0
