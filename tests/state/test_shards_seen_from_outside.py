"""A crawl on several shards as its operators and readers see it, while a master of the cluster is killed."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from benchmarks.ours import events_in
from demo.gallery import Gallery
from tests.following import following
from tests.forks import forks
from tests.state.servers import Cluster
from tests.state.test_shards_crawl import MUSEUMS, SHARDS, ShardedCrawl

pytestmark = pytest.mark.slow


@pytest.fixture
def crawl(
    cluster: Cluster, cluster_url: str, tmp_path: Path, environment: dict[str, str]
) -> Iterator[ShardedCrawl]:
    one = ShardedCrawl(tmp_path, environment, cluster_url, cluster, pictures=40)
    yield one
    one.stop()


def identifiers(path: Path) -> Counter[str]:
    events = events_in(path)
    return Counter(event["identifier"] for event in events if "identifier" in event)


def test_each_event_is_in_the_file_once_and_orders_by_key_are_heeded(crawl: ShardedCrawl) -> None:
    path, cluster = crawl.folder / "events.jsonl", crawl.cluster
    assert cluster is not None
    last = MUSEUMS[-1]
    keys = crawl.keys_for(last)
    orders = cluster.owner_of(keys.halted)
    orders.client.sadd(keys.halted, last)
    with (
        Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery,
        following(crawl.environ, str(path)) as reader,
    ):
        crawl.start(SHARDS, MAX_IDLE_TIME_BEFORE_CLOSE="2")
        for museum in MUSEUMS:
            crawl.push(museum, *(f"{number}.jpg" for number in range(40)), source=museum)
        crawl.until(lambda: crawl.at(keys.seeds).xlen(keys.halted_events))
        crawl.until(lambda: identifiers(path).total() > 40)
        master = next(node for node in cluster.masters() if node is not orders)
        master.client.wait(1, 1000)
        master.kill()
        crawl.until(lambda: identifiers(path).total() > 200)
        master.start()
        crawl.until(cluster.is_whole)
        crawl.until(lambda: identifiers(path).total() >= 40 * (len(MUSEUMS) - 1))
        assert not [name for name in identifiers(path) if name.startswith(f"{last}/")]
        crawl.at(keys.halted).srem(keys.halted, last)
        crawl.finish()

        def has_all() -> bool:
            try:
                return identifiers(path).total() >= len(crawl.pushed)
            except redis.RedisError:
                return False

        crawl.until(has_all)
        reader.send_signal(signal.SIGTERM)
        _, said = reader.communicate(timeout=60)
        assert reader.returncode == 0, said
    assert identifiers(path) == Counter(crawl.pushed)
    assert f"of {SHARDS}: Redis does not answer" in said
    assert f"of {SHARDS}: Redis answers again" in said
    assert "Traceback" not in said
    assert crawl.left() == [b"0"] * SHARDS
    rows = json.loads(forks().run(["sources", "--json"], crawl.environ).stdout)
    assert {row["source"]: row["successful"] for row in rows} == dict.fromkeys(MUSEUMS, 40)
    done = forks().run(["events", str(path), "--json"], crawl.environ)
    assert json.loads(done.stdout) == {"events": 0, "skipped": 0}
