"""What the layouts of the seen filter take: bytes and microseconds of Redis a request, and how many are lost.

    python -m benchmarks.seen_filter [--sizes N,N] [--capacity N] [--rounds N]

Requests that differ, 500 a call, into a private Redis: first new ones, then the same once more, then others that
are only looked up, each of which that is known is a false positive. The layouts take turns, so that their ratios
come from one run; what the calls themselves cost is measured by calls that do nothing, and left out.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import redis

from crawlproject.config import SeenRules
from crawlproject.state import embedded, functions
from crawlproject.state.keys import Keys

KEYS = Keys("crawl", "pages")
LIBRARY = functions.library_with(Path(__file__).with_name("mark_seen.lua").read_text())
LAYOUTS = {"exact": 0.0, "bloom:0.01": 0.01, "bloom:0.001": 0.001}
_BATCH, _SIZE = 500, 32
_STRANGERS = 1_000_000  # that are looked up, at most as many as there are


class Cost(NamedTuple):
    """Of one request: bytes, microseconds of Redis when it is new and when it is known; shares taken for known."""

    size: float
    new: float
    known: float
    lost: float  # of those that were marked
    false: float  # of those that were looked up at the end


class Marks:
    """The seen filter of one Redis, without a crawl around it."""

    def __init__(self, client: Any, rules: SeenRules) -> None:
        self.client = client
        self.rules = rules.packed()
        client.function_load(LIBRARY.text, replace=True)

    def call(self, digests: bytes, *, is_link: bool = True, what: str = "mark") -> tuple[int, int]:
        """Mark requests; return how many of them were new, and how many known."""
        arguments = {"digests": digests, "is_link": is_link, "what": what, **self.rules}
        new, known = self.client.execute_command(*functions.command("mark_seen", KEYS, arguments, library=LIBRARY))
        return new, known


def digests(seed: str, count: int) -> Iterator[bytes]:
    """Yield `count` digests, `_BATCH` in each."""
    chance = random.Random(seed)
    for first in range(0, count, _BATCH):
        yield chance.randbytes(_SIZE * min(_BATCH, count - first))


def _during(marks: Marks, seed: str, count: int, what: str = "mark") -> tuple[float, int]:
    """Return the microseconds of Redis for each of `count` requests, and how many of them were known."""
    before, known = _cpu(marks.client), 0
    for some in digests(seed, count):
        known += marks.call(some, what=what)[1]
    return (_cpu(marks.client) - before) / count * 1e6, known


def _cpu(client: Any) -> float:
    used = client.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])


def measure(client: Any, rate: float, count: int, capacity: int) -> Cost:
    """Fill the filter of an empty Redis with `count` requests; `rate`: of CRAWL_SEEN_LINKS."""
    client.flushall()
    marks = Marks(client, SeenRules(capacity, rate))
    marks.call(b"", what="nothing")
    calls, _ = _during(marks, "calls", min(count, 200_000), "nothing")
    empty = client.info("memory")["used_memory"]
    new, lost = _during(marks, "ours", count)
    size = client.info("memory")["used_memory"] - empty
    known, _ = _during(marks, "ours", count)
    strangers = min(count, _STRANGERS)
    _, false = _during(marks, "others", strangers, "look")
    return Cost(size / count, new - calls, known - calls, lost / count, false / strangers)


def main() -> None:
    """Measure, and print a table for each size."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default="500000,5000000", help="requests")
    parser.add_argument("--capacity", type=int, default=SeenRules().seen_capacity)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crawl-seen-") as folder:
        url = embedded.ensure(Path(folder))
        try:
            with redis.Redis.from_url(url, socket_timeout=600) as client:
                for count in map(int, options.sizes.split(",")):
                    _print(client, count, options.capacity, options.rounds)
        finally:
            embedded.stop(Path(folder))


def _print(client: Any, count: int, capacity: int, rounds: int) -> None:
    print(f"{count:,} requests, capacity {capacity:,}")
    print(f"{'layout':12}{'B':>8}{'us new':>8}{'us known':>10}{'lost':>12}{'false positives':>18}")
    costs: dict[str, list[Cost]] = {layout: [] for layout in LAYOUTS}
    for _ in range(rounds):
        for layout, rate in LAYOUTS.items():
            costs[layout].append(measure(client, rate, count, capacity))
    for layout, found in costs.items():
        cost = Cost(*map(statistics.median, zip(*found, strict=True)))
        print(
            f"{layout:12}{cost.size:8.2f}{cost.new:8.2f}{cost.known:10.2f}{cost.lost:12.2e}{cost.false:18.2e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
