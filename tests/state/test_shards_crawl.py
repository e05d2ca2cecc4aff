"""A crawl on several shards of a Redis Cluster, as a user runs it, one of whose masters is killed."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import redis

from crawlproject import config
from crawlproject.state.client import BlockingState
from crawlproject.state.keys import Keys
from crawlproject.state.shards import shard_of
from demo.gallery import Fault, Gallery, set_faults
from tests.state.servers import Cluster
from tests.test_crawl import Crawl, size_for, worst_second

SHARDS = 8
MUSEUMS = [f"museum-{number}" for number in range(9)]
RATE = 20

pytestmark = pytest.mark.slow


class ShardedCrawl(Crawl):
    """A crawl of several museums, each with a host of its own, which the catalogue names."""

    def __init__(
        self, folder: Path, environ: dict[str, str], cluster: Cluster, pictures: int, url: str | None = None
    ) -> None:
        shared = {"REDIS_URL": url or cluster.url, "CRAWL_SHARDS": str(SHARDS)}
        super().__init__(folder, environ | shared, cluster.nodes[0].url)
        self.redis.close()
        self.cluster = cluster
        self.keys = Keys("crawl", "images")
        for museum in MUSEUMS:
            self.source(museum, RATE, pictures)
        rows = [
            {"source_name": museum, "image_count": size_for(RATE), "hosts": [f"{museum}.example"]}
            for museum in MUSEUMS
        ]
        (folder / "catalogue.json").write_text(json.dumps(rows))
        self.state = BlockingState.connect(config.load({**shared}))
        self.redis = cluster.owner_of("images:start_urls").client
        self.pushed: list[str] = []

    def url(self, museum: str, path: str) -> str:
        """Return the URL of a picture at the host of its museum."""
        return f"{self.gallery.urls[museum].replace('127.0.0.1', museum + '.example')}/{path}"

    def push(self, museum: str, paths: list[str], **more: Any) -> None:
        """Push seeds where users push them."""
        for path in paths:
            seed = {"url": self.url(museum, path), "uuid": f"{museum}/{path}", **more}
            self.redis.lpush("images:start_urls", json.dumps(seed))
            self.pushed.append(seed["uuid"])

    def ends(self) -> Counter[str]:
        """Count how often each identifier has ended, as event or dead letter, in whatever shard."""
        found: Counter[str] = Counter()
        for shard in self.state.shards:
            for stream in shard.keys.streams:
                entries: Any = shard.redis.xrange(stream)
                for _, fields in entries:
                    if stream == shard.keys.failed_events:
                        assert b"entry" in fields, fields
                        found[f"dead: {fields[b'reason'].decode()}"] += 1
                    else:
                        found[json.loads(fields[b"event"])["identifier"]] += 1
        return found

    def count(self) -> int:
        """Return how many have ended so far, 0 while a shard is away."""
        try:
            return self.ends().total()
        except redis.RedisError:
            return 0

    def left(self) -> list[Any]:
        """Return what is still counted as work, by shard."""
        return [shard.redis.get(shard.keys.outstanding) or b"0" for shard in self.state.shards]

    def faults(self, worker: int) -> list[str]:
        """Return the errors in a worker's log."""
        log = self.log(worker)
        assert "Traceback" not in log, log
        assert "Bug in" not in log
        return [line for line in log.splitlines() if " ERROR: " in line]

    def stop(self) -> None:
        super().stop()
        self.state.__exit__(None, None, None)


@pytest.fixture
def crawl(
    cluster: Cluster, cluster_url: str, tmp_path: Path, environment: dict[str, str]
) -> Iterator[ShardedCrawl]:
    one = ShardedCrawl(tmp_path, environment, cluster, pictures=20)
    yield one
    one.stop()


def test_each_seed_ends_once_in_the_shard_of_its_source(crawl: ShardedCrawl) -> None:
    """Those that name their source, those that do not, and those that a redirect leads to another shard."""
    assert len({shard_of(museum, SHARDS) for museum in MUSEUMS}) > 3
    first, other = MUSEUMS[0], next(m for m in MUSEUMS if shard_of(m, SHARDS) != shard_of(MUSEUMS[0], SHARDS))
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        moved: dict[str, Fault] = {
            f"/moved-{number}.jpg": {"status": 301, "headers": {"Location": crawl.url(other, f"{number}.jpg")}}
            for number in range(5)
        }
        set_faults(crawl.sites / first, moved)
        for museum in MUSEUMS:
            crawl.push(museum, [f"{number}.jpg" for number in range(10)], source=museum)
            crawl.push(museum, [f"{number}.jpg" for number in range(10, 20)])
        crawl.push(first, [name[1:] for name in moved])
        crawl.run(2, MAX_IDLE_TIME_BEFORE_CLOSE="3")
        assert crawl.ends() == Counter(crawl.pushed)
        assert crawl.left() == [b"0"] * SHARDS
        for museum in MUSEUMS:
            arrivals = crawl.arrivals(museum)
            expected = 25 if museum in {first, other} else 20
            assert len(arrivals) == expected, museum
            assert worst_second(arrivals) <= RATE + 2
        counted: Any = [shard.redis.hgetall(shard.keys.counts_of + "thumbnails") for shard in crawl.state.shards]
        for number, counts in enumerate(counted):
            own = {museum.encode(): b"20" for museum in MUSEUMS if shard_of(museum, SHARDS) == number}
            assert own.items() <= counts.items()
    for worker in (0, 1):
        assert crawl.faults(worker) == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_master_that_is_away_pauses_its_shards_alone(crawl: ShardedCrawl, how: signal.Signals) -> None:
    """No seed is lost or doubled, no source gets more than its rate, and the others never notice."""
    count = 160
    for museum in MUSEUMS:
        for number in range(20, count):
            (crawl.sites / museum / f"{number}.jpg").write_bytes((crawl.sites / museum / "0.jpg").read_bytes())
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        crawl.start(2)
        for number in range(count):
            for museum in MUSEUMS:
                crawl.push(museum, [f"{number}.jpg"], source=museum)
        crawl.until(lambda: crawl.count() > 100)
        master = crawl.cluster.owner_of(crawl.state.shard_for(MUSEUMS[0]).keys.seeds)
        there = [
            museum
            for museum in MUSEUMS
            if crawl.cluster.owner_of(crawl.state.shard_for(museum).keys.seeds) is master
        ]
        assert 0 < len(there) < len(MUSEUMS)
        master.client.wait(1, 1000)
        killed_at = time.time()
        if how == signal.SIGKILL:
            master.kill()
        else:
            master.process.send_signal(how)
        try:
            crawl.until(lambda: crawl.count() > 0)
            back_after = time.time() - killed_at
        finally:
            master.start() if how == signal.SIGKILL else master.process.send_signal(signal.SIGCONT)
        crawl.finish()
        crawl.until(lambda: crawl.ends() == Counter(crawl.pushed))
        assert crawl.left() == [b"0"] * SHARDS
        for museum in MUSEUMS:
            arrivals = crawl.arrivals(museum)
            assert worst_second(arrivals) <= RATE + 2
            assert count <= len(arrivals) <= count + 5  # what was settled in the moment of the kill comes again
        others = sorted(
            arrival["t"] for museum in MUSEUMS if museum not in there for arrival in crawl.arrivals(museum)
        )
        during = [moment for moment in others if moment < killed_at + back_after + 1]
        silence = max(after - before for before, after in pairwise(during))
        assert silence < 2, f"others were silent for {silence:.1f} s of {back_after:.1f}"
        assert others[-1] > killed_at + 3
    for worker in (0, 1):
        assert len(crawl.faults(worker)) <= 8, crawl.faults(worker)
