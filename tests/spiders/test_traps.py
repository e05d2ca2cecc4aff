"""Sites with traps: a real server with endless spaces of addresses, and `scrapy crawl pages`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.traps import crawl
from demo.traps import TRAPS

# Between the pages of a site, as in every real crawl: the budget grows by each of them before the next is read.
PAUSE_S = 0.05


def test_real_pages_are_found_beside_traps_within_the_budget(tmp_path: Path, environment: dict[str, str]) -> None:
    found, log = crawl(tmp_path, environment, pages=30, delay=PAUSE_S)
    assert [*found] == [*TRAPS]
    assert {trap: site.real for trap, site in found.items() if site.real < 0.9 * site.of} == {}, (found, log)
    assert {trap: site.requests for trap, site in found.items() if site.requests > site.most} == {}
