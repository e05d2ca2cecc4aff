"""Sites with traps: how many of their real pages `scrapy crawl pages` finds, and for how many requests.

    python -m benchmarks.traps [--pages N] [--delay SECONDS]

Seven sites, each with N real pages (500) and another endless space of addresses (demo/traps.py), crawled at once
until nothing is left, by one worker. On each page the links to real pages stand before those into the trap. A site
may admit 2 links for each of its real pages and 4 more for each good one, as by default if there are 500; but no
more than 8 for each real page, where the default is a million: some traps have no end in which no two pages are
alike. Prints, of each site, the real pages that were found, the requests that it got, and what became of links.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import redis

from benchmarks.ours import ROOT, SCRAPY
from crawlproject.config import SETTINGS
from crawlproject.state import embedded
from crawlproject.state.keys import Keys
from demo.sites import Site, Sites
from demo.traps import TRAPS

KEYS = Keys("crawl", "pages")


class Crawled(NamedTuple):
    """What a crawl found in the site with one trap."""

    real: int  # real pages with an event
    of: int  # real pages that there are
    requests: int  # but for robots.txt
    most: int  # requests that its budget allows


def crawl(home: Path, environ: Mapping[str, str], pages: int, delay: float) -> tuple[dict[str, Crawled], str]:
    """Crawl until nothing is left, with the Redis of `environ`; return what was found by trap, and the log.

    Raises:
        RuntimeError: the worker has failed.

    """
    # The widths of the traps are in proportion, too: what counts is how many pages fill the budget.
    sites = {trap: Site(f"{trap}.example", pages, [trap], trap_width=max(5, pages // 10)) for trap in TRAPS}
    rows = [
        {"source_name": one.domain, "image_count": 500_000_000, "hosts": [one.domain]} for one in sites.values()
    ]
    (home / "catalogue.json").write_text(json.dumps(rows))
    most = 8 * pages
    store: Any = redis.Redis.from_url(environ["REDIS_URL"])
    with store, Sites(list(sites.values())) as web:
        settings = {
            "CRAWL_SOURCES": home / "catalogue.json",
            "CRAWL_CONTACT": "mailto:traps@example.org",
            "CRAWL_DNS_SERVERS": web.name_server,
            "CRAWL_ALLOW_NETWORKS": "127.0.0.0/8",
            "CRAWL_PAGES_DELAY": delay,
            "CRAWL_PAGES_BUDGET_MAX": most,
            "MAX_IDLE_TIME_BEFORE_CLOSE": 1,
        }
        store.lpush(KEYS.seeds, *(web.url(site.domain) for site in sites.values()))
        worker = subprocess.run(
            [*SCRAPY, "crawl", "pages"],
            cwd=ROOT,
            env={**environ, **{name: str(value) for name, value in settings.items()}},
            capture_output=True,
            text=True,
            check=False,
        )
        if worker.returncode:
            raise RuntimeError(f"the worker has ended with status {worker.returncode}:\n{worker.stderr}")
        events = Counter(json.loads(fields[b"event"])["url"] for _, fields in store.xrange(KEYS.page_events))
        doubled = [url for url, times in events.items() if times > 1]
        assert not doubled, doubled
        requests = Counter(one.source for one in web.arrivals if one.path != "/robots.txt")
        found = {
            trap: Crawled(
                sum(web.url(site.domain, path) in events for path in site.real()),
                len(site.real()),
                requests[site.domain],
                most + 1,  # the seed is not counted
            )
            for trap, site in sites.items()
        }
    return found, worker.stderr


def main() -> None:
    """Crawl once, and print what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pages", type=int, default=500, help="real pages of each site")
    parser.add_argument("--delay", type=float, default=0.05, help="CRAWL_PAGES_DELAY")
    arguments = parser.parse_args()
    environ = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        url = embedded.ensure(home / "redis")
        try:
            found, log = crawl(home, environ | {"REDIS_URL": url}, arguments.pages, arguments.delay)
            with redis.Redis.from_url(url) as store:
                totals: Any = store.hgetall(KEYS.totals)
        finally:
            embedded.stop(home / "redis")
    for trap, site in found.items():
        print(f"{trap:10} {site.real:4} of {site.of} real pages, {site.requests:5} requests")
    print({name.decode(): int(count) for name, count in totals.items() if name.startswith(b"links_")})
    print("refused:", dict(re.findall(r"'links/refused/(\w+)': (\d+)", log)))


if __name__ == "__main__":
    main()
