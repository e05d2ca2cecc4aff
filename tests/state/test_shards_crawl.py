"""Crawls of several shards, as a user runs them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawlproject.state.keys import Keys
from crawlproject.state.shards import shard_namespace, shard_of
from crawlproject.state.source_counts import counts_in
from demo.gallery import Fault, Gallery, set_faults
from tests.state.servers import Cluster
from tests.test_crawl import Crawl, size_for, worst_second

SHARDS = 4
MUSEUMS = [f"museum-{number}" for number in range(9)]
RATE = 20

pytestmark = pytest.mark.slow


class ShardedCrawl(Crawl):
    """A crawl of several museums, each with a host of its own, in shards of one Redis or of a cluster."""

    def __init__(
        self, folder: Path, environ: dict[str, str], url: str, cluster: Cluster | None = None, pictures: int = 20
    ) -> None:
        node = url if cluster is None else cluster.nodes[0].url
        super().__init__(folder, environ | {"REDIS_URL": url, "CRAWL_SHARDS": str(SHARDS)}, node)
        self.cluster = cluster
        for museum in MUSEUMS:
            self.source(museum, RATE, pictures)
        rows = [
            {"source_name": museum, "image_count": size_for(RATE), "hosts": [f"{museum}.example"]}
            for museum in MUSEUMS
        ]
        (folder / "catalogue.json").write_text(json.dumps(rows))
        self.shards = [Keys(shard_namespace("crawl", n, SHARDS), "images", "crawl") for n in range(SHARDS)]
        self.pushed: list[str] = []

    def at(self, key: str) -> Any:
        """Return the client of the server that has a key."""
        return self.redis if self.cluster is None else self.cluster.owner_of(key).client

    def keys_for(self, museum: str) -> Keys:
        """Return the keys of the shard of a museum."""
        return self.shards[shard_of(museum, SHARDS)]

    def url(self, museum: str, path: str) -> str:
        """Return the URL of a picture at the host of its museum."""
        return f"{self.gallery.urls[museum].replace('127.0.0.1', museum + '.example')}/{path}"

    def push(self, museum: str, *paths: str, **more: Any) -> None:
        """Push seeds where users push them."""
        users = self.at("images:start_urls")
        for path in paths:
            seed = {"url": self.url(museum, path), "uuid": f"{museum}/{path}", **more}
            users.lpush("images:start_urls", json.dumps(seed))
            self.pushed.append(seed["uuid"])

    def push_all(self) -> None:
        """Push the seeds of all museums: with their source, without it, and those that a redirect leads away."""
        first, other = MUSEUMS[0], next(m for m in MUSEUMS if shard_of(m, SHARDS) != shard_of(MUSEUMS[0], SHARDS))
        moved: dict[str, Fault] = {
            f"/moved-{number}.jpg": {"status": 301, "headers": {"Location": self.url(other, f"{number}.jpg")}}
            for number in range(5)
        }
        set_faults(self.sites / first, moved)
        for museum in MUSEUMS:
            self.push(museum, *(f"{number}.jpg" for number in range(10)), source=museum)
            self.push(museum, *(f"{number}.jpg" for number in range(10, 20)))
        self.push(first, *(name[1:] for name in moved))

    def ends(self) -> Counter[str]:
        """Count how often each identifier has ended, as event or dead letter, in whatever shard."""
        found: Counter[str] = Counter()
        for keys in self.shards:
            for stream in keys.streams:
                for _, fields in self.at(stream).xrange(stream):
                    is_dead = stream == keys.failed_events
                    found[f"dead: {fields[b'reason']}" if is_dead else self._named(fields)] += 1
        return found

    def _named(self, fields: Any) -> str:
        identifier: str = json.loads(fields[b"event"])["identifier"]
        return identifier

    def left(self) -> list[bytes]:
        """Return what is still counted as work, by shard."""
        return [self.at(keys.seeds).hget(keys.counters, "outstanding") or b"0" for keys in self.shards]

    def faults(self, worker: int) -> list[str]:
        """Return the errors in a worker's log."""
        log = self.log(worker)
        assert "Traceback" not in log, log
        assert "Bug in" not in log
        return [line for line in log.splitlines() if " ERROR: " in line]

    def crawled_by(self, worker: int) -> set[str]:
        """Return the museums that a worker has fetched from, by the statistics at the end of its log."""
        return set(re.findall(r"'crawl/([\w-]+)/fetched'", self.log(worker)))


@pytest.fixture
def crawl(redis_url: str, tmp_path: Path, environment: dict[str, str]) -> Iterator[ShardedCrawl]:
    one = ShardedCrawl(tmp_path, environment, redis_url)
    with Gallery(one.sites, tmp_path / "arrivals.jsonl") as one.gallery:
        yield one
    one.stop()


def check(crawl: ShardedCrawl) -> None:
    """Check that each seed has ended once, and no source got more than its rate."""
    assert crawl.ends() == Counter(crawl.pushed)
    assert crawl.left() == [b"0"] * SHARDS
    for museum in MUSEUMS:
        assert worst_second(crawl.arrivals(museum)) <= RATE + 2
    for number, keys in enumerate(crawl.shards):
        packed = crawl.redis.hgetall(keys.counts)
        counts = {source.decode(): counts_in(one).get("thumbnails") for source, one in packed.items()}
        own = {museum: 20 for museum in MUSEUMS if shard_of(museum, SHARDS) == number}
        assert own.items() <= counts.items()


def test_a_worker_alone_crawls_all_shards(crawl: ShardedCrawl) -> None:
    crawl.push_all()
    crawl.run(1, CRAWL_SHARD=",".join(map(str, range(SHARDS))), MAX_IDLE_TIME_BEFORE_CLOSE="3")
    check(crawl)
    assert crawl.faults(0) == []
    assert crawl.crawled_by(0) == set(MUSEUMS)
