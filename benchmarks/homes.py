"""What it gains that each shard has a home: connections and look-ups of hosts, with and without.

    python -m benchmarks.homes [--sources N] [--rate R] [--seconds S] [--shards N] [--workers N]

Four workers crawl the images of 120 sources, each with a host of its own, at half a request a second each, on a
Redis Cluster of three masters and three replicas: once as one shard, of which any worker takes any request, and
once in 64 shards, each of which has a worker as its home. The web server counts connections, each of which would
be a TLS handshake, and a name server the look-ups. Robots.txt are fetched once for all workers, either way. Ends
with 1 when a seed did not end as an image. Takes some four minutes.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import redis

from benchmarks.arrivals import Listener, Sites
from benchmarks.chaos_redis import Frontier, RedisCluster
from benchmarks.name_server import Zone, served
from benchmarks.ours import Crawl, until
from benchmarks.politeness import size_for
from benchmarks.redis_servers import Cluster

_START_S = 90.0
_SPARE_S = 120.0  # beyond the seconds that the rates alone ask for


class Plan(NamedTuple):
    """What is crawled: so many sources of that rate (rps), for so many seconds."""

    sources: int
    rate: float
    seconds: float
    workers: int

    @property
    def seeds(self) -> int:
        """How many seeds there are."""
        return self.sources * self.of_each

    @property
    def of_each(self) -> int:
        """How many of each source."""
        return round(self.rate * self.seconds)


class Result(NamedTuple):
    """What a crawl took, in all, and how many seeds have ended as images."""

    connections: int
    names: int
    images: int


def run(plan: Plan, shards: int) -> Result:
    """Crawl to the end."""
    names = [f"s{number}" for number in range(plan.sources)]
    zone = Zone()
    with (
        tempfile.TemporaryDirectory(prefix="homes-") as folder,
        served(zone) as name_server,
        closing(Cluster(Path(folder))) as cluster,
    ):
        settings = {
            "CRAWL_SHARDS": shards,
            "CRAWL_DNS_SERVERS": name_server,
            "CRAWL_STRAIN": False,
            "MAX_IDLE_TIME_BEFORE_CLOSE": 3,
        }
        sizes = dict.fromkeys(names, size_for(plan.rate))
        with (
            Sites([Listener("127.0.0.1", None)]) as sites,
            Crawl(Path(folder) / "crawl", sizes, settings, redis_url=cluster.url) as crawl,
            closing(RedisCluster(cluster, shards, "images")) as servers,
        ):
            frontier = Frontier(servers, "images")
            workers = [crawl.worker(number) for number in range(plan.workers)]
            try:
                until("all workers are there", _START_S, patiently(lambda: is_complete(frontier, workers)))
                zone.asked.clear()
                for number in range(plan.of_each):
                    servers.push([seed(name, number, sites.ports[0]) for name in names])
                until("all workers have ended", plan.seconds + _SPARE_S, lambda: all_ended(workers))
            except TimeoutError as error:
                raise TimeoutError(f"{error}: {frontier.ended()} of {plan.seeds} seeds have ended") from None
            finally:
                for worker in workers:
                    worker.kill()
                    worker.wait()
            images = len(frontier.events()[frontier.keys.image_events])
        return Result(sites.report["connections"], len(zone.asked), images)


def seed(source: str, number: int, port: int) -> str:
    """Return a line of the seed list."""
    url = f"http://{source}.example:{port}/{source}/{number}"
    return json.dumps({"url": url, "uuid": f"{source}-{number}", "source": source})


def is_complete(frontier: Frontier, workers: list[subprocess.Popen[bytes]]) -> bool:
    """Tell whether all workers have registered."""
    registered = frontier.registered()
    return all(f":{worker.pid}:".encode() in registered for worker in workers)


def all_ended(workers: list[subprocess.Popen[bytes]]) -> bool:
    """Tell whether all workers have closed by themselves."""
    return all(worker.poll() is not None for worker in workers)


def patiently(ask: Callable[[], bool]) -> Callable[[], bool]:
    """Return `ask`, but False where Redis does not answer yet."""

    def asked() -> bool:
        try:
            return ask()
        except redis.RedisError:
            return False

    return asked


def main() -> int:
    """Run both and print them side by side."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.homes", description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=int, default=120)
    parser.add_argument("--rate", type=float, default=0.5, help="requests a second of each")
    parser.add_argument("--seconds", type=float, default=80.0)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # not without clearing up
    plan = Plan(options.sources, options.rate, options.seconds, options.workers)
    print(f"{plan.seeds} seeds of {plan.sources} hosts, {plan.workers} workers", flush=True)
    good = True
    for shards in (1, options.shards):
        result = run(plan, shards)
        good &= result.images == plan.seeds
        print(
            f"{shards:3} shards: {1000 * result.connections / plan.seeds:6.1f} connections and "
            f"{1000 * result.names / plan.seeds:6.1f} look-ups a 1,000 requests; {result.images} images",
            flush=True,
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
