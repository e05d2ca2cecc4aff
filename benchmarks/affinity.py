"""What it gains that each shard has a worker of its own: connections, handshakes and look-ups of hosts.

    python -m benchmarks.affinity [--sources N] [--rate R] [--seconds S] [--workers N] [--shards N ...]
        [--schemes http https]

Four workers crawl the images of 120 sources, each with a host of its own, at half a request a second each, on a
Redis Cluster of three masters and three replicas. In one shard any worker takes any request; of four shards each
worker serves one.

The web server counts connections and, over TLS, how many of them took up an earlier session; a name server counts
look-ups. Robots.txt are fetched once for all workers, in any case. The server knows each worker by the contact in
its User-Agent: `kept` is the share of requests that came from the one that asked most of their source. Ends with 1
when a seed did not end as an image, or a worker did not end as it should. A crawl takes some 25 s longer than
`--seconds`.
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

from benchmarks.arrivals import Listener, Report, Sites
from benchmarks.chaos_redis import Frontier, RedisCluster
from benchmarks.name_server import Zone, served
from benchmarks.ours import Crawl, until
from benchmarks.politeness import issue_certificate, size_for
from benchmarks.redis_servers import Cluster

_START_S = 90.0
_SPARE_S = 120.0  # beyond the seconds that the rates alone ask for


class Plan(NamedTuple):
    """What is crawled: so many sources of that rate (rps), for so many seconds."""

    sources: int
    rate: float
    seconds: float
    workers: int
    scheme: str
    shards: int

    @property
    def seeds(self) -> int:
        """How many seeds there are."""
        return self.sources * self.of_each

    @property
    def of_each(self) -> int:
        """How many of each source."""
        return round(self.rate * self.seconds)


class Result(NamedTuple):
    """What a crawl took, in all, how many seeds have ended as images, and how the workers have ended."""

    site: Report
    names: int
    images: int
    codes: list[int]


def run(plan: Plan) -> Result:
    """Crawl to the end."""
    names = [f"s{number}" for number in range(plan.sources)]
    zone = Zone()
    with (
        tempfile.TemporaryDirectory(prefix="affinity-") as folder,
        served(zone) as name_server,
        closing(Cluster(Path(folder))) as cluster,
    ):
        certificate, authority = issue_certificate(Path(folder), (f"{name}.example" for name in names))
        settings = {
            "CRAWL_SHARDS": plan.shards,
            "CRAWL_DNS_SERVERS": name_server,
            "CRAWL_STRAIN": False,
            "MAX_IDLE_TIME_BEFORE_CLOSE": 3,
            "SSL_CERT_FILE": authority,
        }
        sizes = dict.fromkeys(names, size_for(plan.rate))
        handshake = 0.0 if plan.scheme == "https" else None
        with (
            Sites([Listener("127.0.0.1", None, handshake=handshake, agents=True)], certificate) as sites,
            Crawl(Path(folder) / "crawl", sizes, settings, redis_url=cluster.url) as crawl,
            closing(RedisCluster(cluster, plan.shards, "images")) as servers,
        ):
            frontier = Frontier(servers, "images")
            workers = [start(crawl, number) for number in range(plan.workers)]
            try:
                until("all workers are there", _START_S, patiently(lambda: is_complete(frontier, workers)))
                zone.asked.clear()
                for number in range(plan.of_each):
                    servers.push([seed(plan.scheme, name, number, sites.ports[0]) for name in names])
                until("all workers have ended", plan.seconds + _SPARE_S, lambda: all_ended(workers))
            except TimeoutError as error:
                for log in sorted(crawl.home.glob("worker-*.log")):
                    print(f"{log.name}:", *log.read_text().splitlines()[-20:], sep="\n    ", file=sys.stderr)
                print(crawl.scrapy("sources", "--json"), file=sys.stderr)
                raise TimeoutError(f"{error}: {frontier.ended()} of {plan.seeds} seeds have ended") from None
            finally:
                for worker in workers:
                    worker.kill()
                    worker.wait()
            images = len(frontier.events()[frontier.keys.image_events])
        return Result(sites.report, len(zone.asked), images, [worker.returncode for worker in workers])


def start(crawl: Crawl, number: int) -> subprocess.Popen[bytes]:
    """Start a worker that sites know by its contact."""
    own = {"CRAWL_CONTACT": f"mailto:worker-{number}@example.org"}
    return subprocess.Popen(crawl.worker_command(number), cwd=crawl.checkout, env=crawl.environment | own)


def seed(scheme: str, source: str, number: int, port: int) -> str:
    """Return a line of the seed list."""
    url = f"{scheme}://{source}.example:{port}/{source}/{number}"
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


def kept(site: Report) -> float:
    """Return the share of requests that came from the worker that asked most of their source."""
    counts = [[len(moments) for moments in agents.values()] for agents in site["agents"].values()]
    return sum(map(max, counts)) / sum(map(sum, counts))


def show(plan: Plan, result: Result) -> None:
    """Print a line of the table."""
    thousands = plan.seeds / 1000
    cells = (
        plan.scheme,
        str(plan.shards),
        f"{result.site['connections'] / thousands:.1f}",
        f"{result.site['resumed'] / thousands:.1f}" if plan.scheme == "https" else "-",
        f"{result.names / thousands:.1f}",
        f"{kept(result.site):.0%}",
        str(result.images),
    )
    print(_LINE.format(*cells), flush=True)


_LINE = "{:6} {:>6} {:>11} {:>8} {:>8} {:>5} {:>7}"
_TITLES = ("scheme", "shards", "connections", "resumed", "look-ups", "kept", "images")


def main() -> int:
    """Run all crawls and print them side by side."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.affinity", description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=int, default=120)
    parser.add_argument("--rate", type=float, default=0.5, help="requests a second of each")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--schemes", nargs="+", choices=("http", "https"), default=["http", "https"])
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # not without clearing up
    plans = [
        Plan(options.sources, options.rate, options.seconds, options.workers, scheme, shards)
        for scheme in options.schemes
        for shards in options.shards
    ]
    print(f"{plans[0].seeds} seeds of {options.sources} hosts, {options.workers} workers; a 1,000 requests:")
    print(_LINE.format(*_TITLES), flush=True)
    good = True
    for plan in plans:
        result = run(plan)
        good &= result.images == plan.seeds and not any(result.codes)
        show(plan, result)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
