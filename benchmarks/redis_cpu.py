"""What a request costs Redis, of this checkout and of others, side by side.

    python -m benchmarks.redis_cpu [CHECKOUT ...] [--rounds N] [--requests N] [--rate N] [--crawl]
    python -m benchmarks.redis_cpu --shards N ... [--sources N] [--workers N] [--wait] [OPTION ...]

The calls of one worker (redis_calls.py), or with `--crawl` a worker itself that fetches small pictures from four
sites, on a Redis of its own. The checkouts take turns; a git worktree of an older version is one. For each: the
CPU time of Redis, the commands that it ran (those within functions included) and the round trips,
all for one request; medians of the rounds.

With `--shards` further columns are this checkout with so many shards, on a Redis Cluster of three masters with a
replica each. CPU time is that of the masters; of each of them also the share of a core that it has at the given
rate. What the first column has is on one Redis, without a replica.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from redis import Redis

from benchmarks.arrivals import Listener, Sites
from benchmarks.redis_servers import Cluster, Shards
from crawlproject import config
from crawlproject.config import SETTINGS
from crawlproject.state import embedded
from crawlproject.state.keys import Keys

KEYS = Keys("crawl", "images")
_CALLS = Path(__file__).with_name("redis_calls.py")
_HERE = Path(__file__).resolve().parents[1]
_SOURCES = 8  # of the calls; of a worker, half as many
_CALLING = ("fcall", "evalsha")  # a function, or a script, of which older checkouts have some
_LONGEST_S = 600.0
_SHOWN = 12  # commands
_NODE_TIMEOUT_S = 15.0  # no master is to be replaced because the machine is busy


class Cost(NamedTuple):
    """What one request costs: Redis' CPU in microseconds, commands by name, round trips."""

    cpu: float
    commands: dict[str, float]
    scripts: float  # µs spent in functions, or scripts
    masters: Sequence[float]  # CPU of each server, of all requests by one
    lease: float  # ms that a lease call takes, from the call to its answer; of a worker this is not known

    @property
    def trips(self) -> float:
        """Calls of functions, or of scripts: every round trip but a few."""
        return sum(self.commands.get(name, 0.0) for name in _CALLING)


class Column(NamedTuple):
    """What is measured: a version, on one Redis, or with so many shards on a Redis Cluster."""

    checkout: Path
    shards: int | None = None
    waits: bool = False  # CRAWL_REDIS_WAIT=all

    def __str__(self) -> str:
        if self.shards is None:
            return str(self.checkout)[-24:]
        return f"{self.shards} on a cluster" + ", waits" * self.waits

    @property
    def settings(self) -> dict[str, str]:
        """What it needs beside REDIS_URL."""
        shards = {"CRAWL_SHARDS": str(self.shards)} if (self.shards or 1) > 1 else {}
        return shards | ({"CRAWL_REDIS_WAIT": "all"} if self.waits else {})


def cost(before: Sequence[Any], after: Sequence[Any], requests: int, lease: float) -> Cost:
    """Return the difference between answers to INFO of each server, for one of `requests`."""

    def increase(name: str, part: str) -> float:
        sums = [sum(info.get(name, {part: 0})[part] for info in infos) for infos in (before, after)]
        return float(sums[1] - sums[0]) / requests

    def used(info: Any) -> float:
        return float(info["used_cpu_user"] + info["used_cpu_sys"])

    names = {name for info in after for name in info if name.startswith("cmdstat_")}
    masters = [(used(late) - used(early)) * 1e6 / requests for early, late in zip(before, after, strict=True)]
    commands: dict[str, float] = {}
    for name in names:
        plain = name.removeprefix("cmdstat_").partition("|")[0]
        commands[plain] = commands.get(plain, 0.0) + increase(name, "calls")
    scripts = sum(increase(f"cmdstat_{name}", "usec") for name in _CALLING)
    return Cost(sum(masters), commands, scripts, masters, lease)


def calls(column: Column, url: str, options: argparse.Namespace) -> tuple[int, float]:
    """Make the calls of a worker; return the number of requests, and what a lease call takes (ms)."""
    environ = os.environ | {"PYTHONPATH": str(column.checkout)} | column.settings
    more = [] if options.shards is None else [str(column.shards or 1), str(options.sources), str(options.workers)]
    command = [sys.executable, str(_CALLS), url, str(options.requests), str(options.rate), *more]
    done = subprocess.run(
        command, cwd=column.checkout, env=environ, check=True, timeout=_LONGEST_S, stdout=subprocess.PIPE
    )
    return int(options.requests), float(done.stdout)


def crawl(column: Column, url: str, options: argparse.Namespace) -> tuple[int, float]:
    """Have a worker fetch pictures; return how many requests it has made, and nothing about lease calls."""
    hosts = [f"127.2.{number // 250}.{number % 250 + 1}" for number in range(options.sources // 2)]
    with (
        tempfile.TemporaryDirectory(prefix="redis-cpu-") as folder,
        Sites([Listener(h, h) for h in hosts]) as sites,
        Shards(config.load({"REDIS_URL": url} | column.settings)) as shards,
    ):
        home = Path(folder)
        rows = [{"source_name": host, "image_count": 500_000_000, "hosts": [host]} for host in hosts]
        (home / "catalogue.json").write_text(json.dumps(rows))
        for host in hosts:
            shards.redis.set(shards.keys_for(host).override_rate_of + host, options.rate / len(hosts))
        inherited = {name: value for name, value in os.environ.items() if name not in SETTINGS}
        settings = {
            "REDIS_URL": url,
            **column.settings,
            "CRAWL_SOURCES": home / "catalogue.json",
            "CRAWL_CONTACT": "mailto:benchmark@example.org",
            "CRAWL_ALLOW_NETWORKS": "127.0.0.0/8",
            "IMAGES_STORE": home / "thumbnails",
            "MAX_IDLE_TIME_BEFORE_CLOSE": 1,
            "PYTHONPATH": column.checkout,
        }
        bases = [f"http://{host}:{port}/" for host, port in zip(hosts, sites.ports, strict=True)]
        for first in range(0, options.requests, 1000):
            seeds = [f"{bases[n % len(bases)]}{n}" for n in range(first, min(first + 1000, options.requests))]
            shards.redis.lpush(KEYS.seeds, *seeds)
        command = [sys.executable, "-m", "scrapy", "crawl", "images", "--logfile", str(home / "log")]
        environ = inherited | {name: str(value) for name, value in settings.items()}
        subprocess.run(command, cwd=column.checkout, env=environ, check=True, timeout=_LONGEST_S)
        found: list[Any] = [shards.redis.hget(keys.totals, "fetched") for keys in shards.keys]
    return sum(int(count or 0) for count in found), math.nan


@contextmanager
def servers(column: Column, folder: Path) -> Iterator[tuple[str, Sequence[Any]]]:
    """Start what a column runs on: its REDIS_URL, and a client of each server that is measured."""
    if column.shards is not None:
        with closing(Cluster(folder, node_timeout=_NODE_TIMEOUT_S)) as cluster:
            yield cluster.url, [master.client for master in cluster.masters()]
        return
    url = embedded.ensure(folder)
    try:
        with Redis.from_url(url) as client:
            yield url, [client]
    finally:
        embedded.stop(folder)


def measure(column: Column, options: argparse.Namespace) -> Cost:
    """Return what a request costs."""
    with (
        tempfile.TemporaryDirectory(prefix="redis-cpu-") as folder,
        servers(column, Path(folder)) as (url, clients),
    ):
        before = [client.info("everything") for client in clients]
        run = crawl if options.crawl else calls
        requests, lease = run(column, url, options)
        return cost(before, [client.info("everything") for client in clients], requests, lease)


def table(costs: dict[Column, list[Cost]], rate: float) -> str:
    """Return the figures; a master's share of a core is that at `rate`."""
    rows: list[tuple[str, list[float]]] = []

    def row(title: str, of: Any) -> None:
        rows.append((title, [statistics.median(of(one) for one in found) for found in costs.values()]))

    row("CPU of Redis, us", lambda one: one.cpu)
    row("in functions, us", lambda one: one.scripts)
    row("round trips", lambda one: one.trips)
    row("a lease call, ms", lambda one: one.lease)
    row("commands", lambda one: sum(one.commands.values()))
    first = next(iter(costs.values()))[0].commands
    most = sorted(first, key=lambda name: -first[name])[:_SHOWN]
    for name in most:
        row(f"  {name}", lambda one, name=name: one.commands.get(name, 0.0))
    if any(column.shards for column in costs):
        for number in range(3):  # of one Redis there is the first
            row(
                f"master {number + 1}, core, %",
                lambda one, number=number: sum(one.masters[number : number + 1]) * rate / 1e4,
            )
    lines = [" " * 20 + "".join(f"{column!s:>26}" for column in costs)]
    lines += [f"{title:20}" + "".join(f"{value:26.3f}" for value in values) for title, values in rows]
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.redis_cpu", description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs="*", type=Path, help="others than this one, measured before it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--shards", type=int, nargs="+", metavar="N", help="this checkout with so many")
    parser.add_argument("--sources", type=int, default=_SOURCES, help="with --shards")
    parser.add_argument(
        "--wait",
        dest="waits",
        action="store_const",
        const=(False, True),
        default=(False,),
        help="with --shards, the same with CRAWL_REDIS_WAIT=all, too",
    )
    parser.add_argument("--workers", type=int, default=1, help="whose calls they are, with --shards")
    parser.add_argument("--rate", type=float, default=150.0, help="requests a second of all sources together")
    parser.add_argument("--crawl", action="store_true", help="a whole worker, not its calls alone")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # not without clearing up
    columns = [Column(path.resolve()) for path in (*options.checkouts, _HERE)]
    costs: dict[Column, list[Cost]] = {
        column: []
        for column in (
            *columns,
            *(Column(_HERE, number, waits) for number in options.shards or () for waits in options.waits),
        )
    }
    for number in range(options.rounds):
        for column, found in costs.items():
            found.append(measure(column, options))
            print(f"round {number + 1}, {column}: {found[-1].cpu:.1f} us", file=sys.stderr)
    print(table(costs, options.rate))


if __name__ == "__main__":
    main()
