"""`make demo-cluster`: the crawl of `make demo` on a Redis Cluster of six nodes, one of which is killed.

Everything is under `.crawl/demo-cluster/`; a second run starts afresh.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

from crawlproject.sources.rates import rate_for
from crawlproject.state.client import crawl_dir
from crawlproject.state.shards import shard_namespace, shard_of
from demo import images, sources
from demo.gallery import Arrival, Gallery
from demo.redis_servers import Cluster, Server
from demo.tables import print_table

SHARDS = 4  # then two masters have two of the demo's sources each
NAMESPACE = "{crawl}"  # of the crawl's keys on a cluster, by default


def main() -> int:
    """Run the demo; return 1 when its outcome is not the expected one."""
    home = crawl_dir() / "demo-cluster"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    print(f"Painting {sum(source.pictures for source in sources.SOURCES)} pictures ...")
    sources.build(home / "sites")
    print(f"Starting a Redis Cluster of three masters and three replicas, for {SHARDS} shards ...")
    cluster = Cluster(home)
    try:
        with Gallery(home / "sites", home / "arrivals.jsonl") as gallery:
            killer = Killer(cluster)
            tallies = images.crawl(home, cluster.url, gallery, killer.look, shards=SHARDS)
            arrivals = gallery.arrivals()
    except KeyboardInterrupt:
        print("\nstopped")
        return 130
    finally:
        cluster.close()
    good = images.report(tallies, arrivals)
    killer.report(arrivals)
    good &= killer.killed is not None and each_ended_once(home)
    print(f"\nLogs: {home}/worker-*.log; of Redis: {home}/redis-*/log")
    return 0 if good else 1


class Killer:
    """Kills the master that has the fastest source, once a tenth of all seeds have ended."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.masters = {source.name: cluster.owner_of(tag_of(source.name)) for source in sources.SOURCES}
        self.killed: Server | None = None
        self.killed_at = 0.0

    def look(self, done: int) -> None:
        """Kill it, if so many seeds are enough and it lives."""
        if self.killed is not None or done <= images.SEEDS / 10:
            return
        fastest = max(sources.SOURCES, key=lambda source: rate_for(source.image_count)).name
        self.killed = self.masters[fastest]
        print(f"\nKilling the master at port {self.killed.port}, which has {fastest} ...", flush=True)
        self.killed.kill()
        self.killed_at = time.time()

    def report(self, arrivals: list[Arrival]) -> None:
        """Print how long each source had no request after that, until its last one."""
        rows: list[tuple[object, ...]] = [
            ("source", "shard", "its master", "a request each", "longest pause then")
        ]
        for source in sources.SOURCES:
            fate = "was killed" if self.masters[source.name] is self.killed else "lives"
            seen = [arrival["t"] for arrival in arrivals if arrival["source"] == source.name]
            longest = longest_pause(seen, self.killed_at)
            pause = "-" if longest is None else f"{longest:.1f} s"
            each = f"{1 / rate_for(source.image_count):.2g} s"
            rows.append((source.name, shard_of(source.name, SHARDS), fate, each, pause))
        print()
        print_table(rows)
        print()


def longest_pause(moments: list[float], since: float) -> float | None:
    """Return the longest time without a request after `since` and before the last one; None if there was none."""
    later = [since, *sorted(moment for moment in moments if moment > since)]
    return max((after - before for before, after in pairwise(later)), default=None)


def tag_of(source: str) -> str:
    """Return the hash tag of the keys of a source's shard."""
    return shard_namespace(NAMESPACE, shard_of(source, SHARDS), SHARDS)


def each_ended_once(home: Path) -> bool:
    """Print and return whether the files of events have each seed once."""
    files = sorted(home.glob("events.[0-9][0-9].jsonl"))  # one for each shard
    events = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    ended = Counter(event["identifier"] for event in events if "identifier" in event)
    twice = sum(count - 1 for count in ended.values())
    print(f"The files of events have {len(ended)} of {images.SEEDS} seeds, {twice} of them again.")
    return len(ended) == images.SEEDS and twice == 0


if __name__ == "__main__":
    raise SystemExit(main())
