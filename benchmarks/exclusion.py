"""How soon `scrapy crawl pages` leaves alone what is excluded.

    python -m benchmarks.exclusion [--rounds N]

Two workers crawl two domains of 200 requests a second without end (benchmarks/arrivals.py); one of them is
excluded. Judged by what its site saw: how many requests arrived afterwards, and how long after the exclusion the
last of them. Ends with 1 when that was more than 0.5 s, or the other domain got nothing any more.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.arrivals import Listener, Sites
from benchmarks.name_server import Zone, served
from benchmarks.ours import Crawl, until
from crawlproject.state.keys import Keys

KEYS = Keys("crawl", "pages")
WANTED_S = 0.5
_EXCLUDED, _KEPT = "gone.example", "kept.example"
_PAGES = 1_000_000  # of each domain: more than are fetched
_FULL_SPEED = 500  # pages of both, after which they are crawled as fast as they may
_AFTERWARDS_S = 5.0


class Seen(NamedTuple):
    """What the sites saw after an exclusion."""

    arrivals: int  # at the excluded domain
    last_s: float  # from the exclusion to the last of them
    others: int  # arrivals at the other domain in the same time


def measure(home: Path) -> Seen:
    """Crawl, exclude a domain, and return what was seen."""
    with served(Zone()) as name_server:
        settings = {
            "CRAWL_DNS_SERVERS": name_server,
            "CRAWL_PAGES_DELAY": 0,
            "CRAWL_PAGES_BUDGET_MAX": 0,
            "MAX_IDLE_TIME_BEFORE_CLOSE": 0,
            "CRAWL_STRAIN": False,
        }
        sizes = {_EXCLUDED: 500_000_000, _KEPT: 500_000_000}
        with Sites([Listener("127.0.0.1", None, pages=_PAGES)]) as sites, Crawl(home, sizes, settings) as crawl:
            store: Any = crawl.redis
            store.lpush(KEYS.seeds, *(f"http://{domain}:{sites.ports[0]}/0" for domain in sizes))
            workers = [crawl.worker(number, "pages") for number in range(2)]
            try:
                until("all workers are there", 90, lambda: store.zcard(KEYS.workers) == len(workers))
                until("they are at full speed", 90, lambda: store.xlen(KEYS.page_events) > _FULL_SPEED)
                crawl.scrapy("exclude", "--spider", "pages", _EXCLUDED)
                time.sleep(_AFTERWARDS_S)
            finally:
                for worker in workers:
                    worker.kill()
                    worker.wait()
            changes = [json.loads(fields[b"event"]) for _, fields in store.xrange(KEYS.audit)]
    [excluded_at] = [_monotonic(one["time"]) for one in changes if one["event"] == "crawl_excluded"]
    after = [one - excluded_at for one in sites.report["arrivals"][_EXCLUDED] if one > excluded_at]
    others = sum(one > excluded_at for one in sites.report["arrivals"][_KEPT])
    return Seen(len(after), max(after, default=0.0), others)


def _monotonic(stamp: str) -> float:
    """Return a time of Redis, which is on this machine, by the clock of the sites."""
    return datetime.fromisoformat(stamp).timestamp() - time.time() + time.monotonic()


def main() -> int:
    """Run it and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exclusion", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ok = True
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="exclusion-") as folder:
            seen = measure(Path(folder) / "crawl")
        print(
            f"{seen.arrivals} requests after the exclusion, the last {seen.last_s:.3f} s later; of the other "
            f"domain {seen.others}",
            flush=True,
        )
        ok = ok and seen.last_s <= WANTED_S and seen.others > 0
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
