"""What a request costs Redis, of this checkout and of others, side by side.

    python -m benchmarks.redis_cpu [CHECKOUT ...] [--rounds N] [--requests N] [--rate N] [--crawl]

The calls of one worker (redis_calls.py), or with `--crawl` a worker itself that fetches small pictures from four
sites, on a Redis of its own. The checkouts take turns; a git worktree of an older version is one. For each: the
CPU time of Redis, the commands that it ran (those within scripts included, `TYPE` among them) and the round trips,
all for one request; medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from redis import Redis

from benchmarks.arrivals import Listener, Sites
from crawlproject.config import SETTINGS
from crawlproject.state import embedded
from crawlproject.state.keys import Keys

KEYS = Keys("crawl", "images")
_CALLS = Path(__file__).with_name("redis_calls.py")
_HERE = Path(__file__).resolve().parents[1]
_HOSTS = [f"127.2.0.{number}" for number in range(1, 5)]
_LONGEST_S = 600.0
_SHOWN = 12  # commands


class Cost(NamedTuple):
    """What one request costs: Redis' CPU in microseconds, commands by name, round trips."""

    cpu: float
    commands: dict[str, float]
    scripts: float  # µs spent in scripts

    @property
    def trips(self) -> float:
        """Calls of scripts: every round trip but a few."""
        return self.commands.get("evalsha", 0.0)


def cost(before: dict[str, Any], after: dict[str, Any], requests: int) -> Cost:
    """Return the difference between two answers to INFO, for one of `requests`."""

    def increase(name: str, part: str) -> float:
        earlier = before.get(name, {part: 0})
        return float(after[name][part] - earlier[part]) / requests

    names = [name for name in after if name.startswith("cmdstat_")]
    used = [info["used_cpu_user"] + info["used_cpu_sys"] for info in (before, after)]
    commands = {name.removeprefix("cmdstat_").partition("|")[0]: increase(name, "calls") for name in names}
    scripts = increase("cmdstat_evalsha", "usec")
    return Cost((used[1] - used[0]) * 1e6 / requests, commands, scripts)


def calls(checkout: Path, url: str, requests: int, rate: float) -> int:
    """Make the calls of a worker of `checkout`; return the number of requests."""
    environ = os.environ | {"PYTHONPATH": str(checkout)}
    command = [sys.executable, str(_CALLS), url, str(requests), str(rate)]
    subprocess.run(command, cwd=checkout, env=environ, check=True, timeout=_LONGEST_S)
    return requests


def crawl(checkout: Path, url: str, requests: int, rate: float) -> int:
    """Have a worker of `checkout` fetch pictures; return how many requests it has made."""
    client: Any = Redis.from_url(url)
    with (
        tempfile.TemporaryDirectory(prefix="redis-cpu-") as folder,
        Sites([Listener(h, h) for h in _HOSTS]) as sites,
    ):
        home = Path(folder)
        rows = [{"source_name": host, "image_count": 500_000_000, "hosts": [host]} for host in _HOSTS]
        (home / "catalogue.json").write_text(json.dumps(rows))
        for host in _HOSTS:
            client.set(KEYS.override_rate_of + host, rate / len(_HOSTS))
        inherited = {name: value for name, value in os.environ.items() if name not in SETTINGS}
        settings = {
            "REDIS_URL": url,
            "CRAWL_SOURCES": home / "catalogue.json",
            "CRAWL_CONTACT": "mailto:benchmark@example.org",
            "CRAWL_ALLOW_NETWORKS": "127.0.0.0/8",
            "IMAGES_STORE": home / "thumbnails",
            "MAX_IDLE_TIME_BEFORE_CLOSE": 1,
            "PYTHONPATH": checkout,
        }
        bases = [f"http://{host}:{port}/" for host, port in zip(_HOSTS, sites.ports, strict=True)]
        for first in range(0, requests, 1000):
            seeds = [f"{bases[n % len(bases)]}{n}" for n in range(first, min(first + 1000, requests))]
            client.lpush(KEYS.seeds, *seeds)
        command = [sys.executable, "-m", "scrapy", "crawl", "images", "--logfile", str(home / "log")]
        environ = inherited | {name: str(value) for name, value in settings.items()}
        subprocess.run(command, cwd=checkout, env=environ, check=True, timeout=_LONGEST_S)
    return int(client.hget(KEYS.totals, "fetched"))


def measure(checkout: Path, options: argparse.Namespace) -> Cost:
    """Return what a request of `checkout` costs."""
    with tempfile.TemporaryDirectory(prefix="redis-cpu-") as folder:
        url = embedded.ensure(Path(folder))
        try:
            with Redis.from_url(url) as client:
                before: Any = client.info("everything")
                run = crawl if options.crawl else calls
                requests = run(checkout, url, options.requests, options.rate)
                return cost(before, client.info("everything"), requests)
        finally:
            embedded.stop(Path(folder))


def table(costs: dict[Path, list[Cost]]) -> str:
    """Return the figures, a column a checkout."""
    rows: list[tuple[str, list[float]]] = []

    def row(title: str, of: Any) -> None:
        rows.append((title, [statistics.median(of(one) for one in found) for found in costs.values()]))

    row("CPU of Redis, us", lambda one: one.cpu)
    row("in scripts, us", lambda one: one.scripts)
    row("round trips", lambda one: one.trips)
    row("commands", lambda one: sum(one.commands.values()))
    first = next(iter(costs.values()))[0].commands
    most = sorted(first, key=lambda name: -first[name])[:_SHOWN]
    for name in dict.fromkeys(["type", *most]):
        row(f"  {name}", lambda one, name=name: one.commands.get(name, 0.0))
    lines = [" " * 20 + "".join(f"{str(path)[-24:]:>26}" for path in costs)]
    lines += [f"{title:20}" + "".join(f"{value:26.3f}" for value in values) for title, values in rows]
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.redis_cpu", description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs="*", type=Path, help="others than this one, measured before it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=150.0, help="requests a second of all sources together")
    parser.add_argument("--crawl", action="store_true", help="a whole worker, not its calls alone")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # not without clearing up
    costs: dict[Path, list[Cost]] = {path.resolve(): [] for path in (*options.checkouts, _HERE)}
    for number in range(options.rounds):
        for path, found in costs.items():
            found.append(measure(path, options))
            print(f"round {number + 1}, {path}: {found[-1].cpu:.1f} us", file=sys.stderr)
    print(table(costs))


if __name__ == "__main__":
    main()
