"""Sites with traps: a real server with endless spaces of addresses, and `scrapy crawl pages`."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import FAST
from benchmarks.ours import ROOT, Crawl
from crawlproject.state.keys import Keys
from demo.sites import Site, Sites
from demo.traps import TRAPS

KEYS = Keys("crawl", "pages")
# Between the pages of a site, as in every real crawl: the budget grows by each of them before the next is read.
PAUSE_S = 0.05


class Crawled(NamedTuple):
    """What a crawl found in the site with one trap."""

    real: int  # real pages with an event
    of: int  # real pages that there are
    requests: int  # but for robots.txt
    most: int  # requests that its budget allows


def crawl(home: Path, pages: int) -> tuple[dict[str, Crawled], str]:
    """Crawl sites with so many real pages, a trap each, until nothing is left; return what was found, and the log.

    A site may admit 2 links for each of its real pages and 4 more for each good one, as by default with 500. It
    may admit 8 for each real page at most, not a million: some traps have no end in which no two pages are alike.
    """
    # The widths of the traps are in proportion, too: what counts is how many pages fill the budget.
    sites = {trap: Site(f"{trap}.example", pages, [trap], trap_width=max(5, pages // 10)) for trap in TRAPS}
    sizes = {site.domain: FAST for site in sites.values()}
    most = 8 * pages
    settings: dict[str, object] = {"CRAWL_PAGES_DELAY": PAUSE_S, "CRAWL_PAGES_BUDGET_MAX": most}
    with Sites(list(sites.values())) as web:
        settings["CRAWL_DNS_SERVERS"] = web.name_server
        with Crawl(home, sizes, settings, more=lambda domain: {"hosts": [domain]}) as one:
            store: Any = one.redis
            store.lpush(KEYS.seeds, *(web.url(site.domain) for site in sites.values()))
            subprocess.run(one.worker_command(0, "pages"), cwd=ROOT, env=one.environment, check=True)
            events = Counter(json.loads(fields[b"event"])["url"] for _, fields in store.xrange(KEYS.page_events))
            log = (one.home / "worker-0.log").read_text()
    assert events.total() == len(events)
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
    return found, log


def test_real_pages_are_found_beside_traps_within_the_budget(tmp_path: Path) -> None:
    found, log = crawl(tmp_path / "crawl", pages=30)
    assert [*found] == [*TRAPS]
    assert {trap: site.real for trap, site in found.items() if site.real < 0.9 * site.of} == {}, (found, log)
    assert {trap: site.requests for trap, site in found.items() if site.requests > site.most} == {}
