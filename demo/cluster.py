"""`make demo-cluster`: the crawl of `make demo` on a Redis Cluster of six nodes, one of which is killed.

Everything is under `.crawl/demo-cluster/`; a second run starts afresh.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

from benchmarks.redis_servers import Cluster
from crawlproject.state.client import crawl_dir
from demo import images, sources
from demo.gallery import Gallery

SLOT = "{crawl}"  # the hash tag of the crawl's keys


def main() -> int:
    """Run the demo; return 1 when its outcome is not the expected one."""
    home = crawl_dir() / "demo-cluster"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    print(f"Painting {sum(source.pictures for source in sources.SOURCES)} pictures ...")
    sources.build(home / "sites")
    print("Starting a Redis Cluster of three masters and three replicas ...")
    cluster = Cluster(home)
    try:
        with Gallery(home / "sites", home / "arrivals.jsonl") as gallery:
            killer = Killer(cluster)
            tallies = images.crawl(home, cluster.url, gallery, killer.look)
            arrivals = gallery.arrivals()
    except KeyboardInterrupt:
        print("\nstopped")
        return 130
    finally:
        cluster.close()
    good = images.report(tallies, arrivals)
    good &= killer.has_killed and each_ended_once(home)
    print(f"\nLogs: {home}/worker-*.log; of Redis: {home}/redis-*/log")
    return 0 if good else 1


class Killer:
    """Kills the master that has the crawl, once a third of its seeds have ended."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.has_killed = False

    def look(self, done: int) -> None:
        """Kill it, if so many seeds are enough and it lives."""
        if not self.has_killed and done > images.SEEDS / 3:
            master = self.cluster.owner_of(SLOT)
            print(f"\nKilling the master at port {master.port}, which has the crawl ...", flush=True)
            master.kill()
            self.has_killed = True


def each_ended_once(home: Path) -> bool:
    """Print and return whether the file of events has each seed once."""
    events = map(json.loads, (home / "events.jsonl").read_text().splitlines())
    ended = Counter(event["identifier"] for event in events if "identifier" in event)
    twice = sum(count - 1 for count in ended.values())
    print(f"The file of events has {len(ended)} of {images.SEEDS} seeds, {twice} of them again.")
    return len(ended) == images.SEEDS and twice == 0


if __name__ == "__main__":
    raise SystemExit(main())
