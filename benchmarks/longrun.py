"""Does a worker stay as it is, however long it runs?

    python -m benchmarks.longrun [--requests N] [--hosts N] [--rate N] [--spider pages] [--deadline SECONDS]

One worker fetches N small pictures, or pages of 8 KB that lead to each other, from sites (arrivals.py) on as many
addresses of this machine as there are hosts, and is looked at every second: its memory, its open files and
connections, and Redis' memory. Prints the figures at twenty moments and the slope of the worker's memory per
100,000 requests, by least squares over what comes after the first quarter. Takes ten minutes, fifteen at most
unless `--deadline` says otherwise. Ends with 1 when that slope is above 10 MiB.

Seeds are pushed as the worker comes along, so that Redis holds no more than a few thousand at a time. Its memory
grows all the same, by the hash of each request that it has seen. Of pages only the first of each host is pushed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression
from typing import Any

from benchmarks.arrivals import Listener, Sites
from benchmarks.ours import Crawl, until
from crawlproject.state.keys import Keys

PAGES = "pages"
MOST = 10.0  # MiB per 100,000 requests
DEADLINE = 900.0  # seconds
_AHEAD = 4_000  # seeds that wait in Redis
_FEED = 1_000
_EVERY = 1.0  # seconds between two looks
_MEBI = 1024 * 1024


@dataclass(frozen=True)
class Look:
    """What was seen of the worker and Redis at one moment; memory in MiB."""

    seconds: float
    requests: int
    memory: float
    files: int
    connections: int
    redis: float


def look(pid: int, redis: Any, seconds: float, keys: Keys) -> Look:
    """Look at the worker."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    names = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            names.append(str(file.readlink()))
        except FileNotFoundError:
            continue  # closed meanwhile
    sockets = sum(name.startswith("socket:") for name in names)
    done = sum(int(value) for value in redis.hvals(keys.counts_of + "fetched"))
    return Look(seconds, done, resident, len(names), sockets, redis.info("memory")["used_memory"] / _MEBI)


def slope(looks: Sequence[Look]) -> float:
    """Return the growth of the worker's memory in MiB per 100,000 requests, its first quarter left out."""
    settled = [one for one in looks if one.requests > looks[-1].requests / 4]
    return linear_regression([one.requests for one in settled], [one.memory for one in settled]).slope * 100_000


def addresses(hosts: int) -> list[str]:
    """Return so many addresses of this machine."""
    return [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(hosts)]


def run(
    requests: int, hosts: int, rate: float, home: Path, deadline: float = DEADLINE, spider: str = "images"
) -> list[Look]:
    """Have one worker of `spider` make so many requests; return what was seen of it.

    Raises:
        TimeoutError: it does not start.

    """
    names, keys = addresses(hosts), Keys("crawl", spider)
    settings: dict[str, object] = {
        "MAX_IDLE_TIME_BEFORE_CLOSE": 0,
        "CRAWL_STRAIN": False,
        "CRAWL_STREAM_MAXLEN": 10_000,
        "CRAWL_EVENTS_UNREAD": "drop",
    }
    if spider == PAGES:
        settings |= {"CRAWL_PAGES_DELAY": 0, "CRAWL_PAGES_BUDGET_MAX": 0, "CRAWL_PAGES_STORE": home / "warc"}
    looks: list[Look] = []
    with (
        Sites([Listener(name, name) for name in names]) as sites,
        Crawl(home / "crawl", {}, settings) as crawl,
    ):
        redis: Any = crawl.redis
        rows = [{"source_name": name, "image_count": 500_000_000, "hosts": [name]} for name in names]
        (crawl.home / "catalogue.json").write_text(json.dumps(rows))
        for name in names:
            redis.set(keys.override_rate_of + name, rate)
        bases = [f"http://{name}:{port}/" for name, port in zip(names, sites.ports, strict=True)]
        worker = crawl.worker(0, spider)
        try:
            until("the worker leads", 30, lambda: redis.exists(keys.pulse))
            began, fed, next_look = time.monotonic(), 0, 0.0
            if spider == PAGES:
                redis.lpush(keys.seeds, *(f"{base}tree/{-(-requests // hosts)}/0" for base in bases))
                fed = requests
            while not looks or looks[-1].requests < requests:
                seconds = time.monotonic() - began
                if seconds > deadline:
                    print(f"stopped after {seconds:.0f} s", file=sys.stderr)
                    break
                waiting = redis.llen(keys.seeds) + int(redis.get(keys.outstanding) or 0)
                if fed < requests and waiting < max(_AHEAD, 4 * hosts):
                    redis.lpush(keys.seeds, *(f"{bases[n % hosts]}{n}" for n in range(fed, fed + _FEED)))
                    fed += _FEED
                elif seconds >= next_look:
                    next_look = seconds + _EVERY
                    looks.append(look(worker.pid, redis, seconds, keys))
                    if worker.poll() is not None:
                        raise RuntimeError(f"the worker ended with status {worker.returncode}")
                else:
                    time.sleep(0.05)
        finally:
            worker.terminate()
            worker.wait(60)
    return looks


def table(looks: Sequence[Look]) -> str:
    """Return the figures of some moments as lines of text."""
    lines = [f"{'s':>6}{'requests':>10}{'MiB':>8}{'files':>7}{'sockets':>9}{'Redis MiB':>11}"]
    shown = [looks[round(number * (len(looks) - 1) / 20)] for number in range(21)]
    lines += [
        f"{one.seconds:6.0f}{one.requests:10}{one.memory:8.1f}{one.files:7}{one.connections:9}{one.redis:11.1f}"
        for one in shown
    ]
    last = looks[-1]
    lines.append(
        f"{last.requests} requests in {last.seconds:.0f} s, {last.requests / last.seconds:.0f} a second; "
        f"memory {slope(looks):+.2f} MiB per 100,000, at most {max(one.memory for one in looks):.0f} MiB; "
        f"at most {max(one.files for one in looks)} open files, {max(one.connections for one in looks)} sockets"
    )
    return "\n".join(lines)


def main() -> int:
    """Run it and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.longrun", description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rate", type=float, help="of each host; default: 600 a second for all together")
    parser.add_argument("--spider", choices=("images", PAGES), default="images")
    parser.add_argument("--deadline", type=float, default=DEADLINE, help="when it is stopped (seconds)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # not without clearing up
    with tempfile.TemporaryDirectory(prefix="longrun-") as folder:
        rate = options.rate or 600 / options.hosts
        looks = run(options.requests, options.hosts, rate, Path(folder), options.deadline, options.spider)
    print(table(looks))
    return 1 if slope(looks) > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
