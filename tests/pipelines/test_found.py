"""What a page or sitemap leads to."""

from __future__ import annotations

from itertools import count

import pytest
from scrapy.http import Response

from crawlproject.frontier.discovery import LISTED, Link
from crawlproject.models import MOST_DEPTH, SCOPE, SITEMAP
from crawlproject.pages.items import FetchedSitemap
from crawlproject.pages.scope import Scope
from crawlproject.pages.sitemaps import INDEX_DEPTH, MOST_SITEMAPS
from crawlproject.pipelines.found import sitemap_links

URL = "https://museum.org/sitemap.xml"
SCOPE_OF_SEED = Scope.parse("domain:museum.org")
ITEM = FetchedSitemap(URL, "museum", 1, None, 7, 0, MOST_SITEMAPS, Response(URL))


def led_to(named: int, in_each_index: int) -> list[Link]:
    """Return all sitemaps that a robots.txt leads to which names so many, each of them an index."""
    numbers = count()

    def links(size: int, indexes: int, most: int) -> list[Link]:
        urls = (f"https://museum.org/{next(numbers)}.xml" for _ in range(size))
        return list(sitemap_links(ITEM, urls, SCOPE_OF_SEED, 1, indexes, most))

    level = found = links(named, 0, MOST_SITEMAPS)
    for indexes in range(1, INDEX_DEPTH + 1):
        level = [new for link in level for new in links(in_each_index, indexes, link.meta[SITEMAP][1])]
        found = found + level
    return found


@pytest.mark.parametrize(
    ("named", "in_each_index", "expected"),
    [(1, 100, 401), (1, 50_000, 500), (3, 7, 171), (10, 50_000, 500), (500, 50_000, 500), (50_000, 9, 500)],
)
def test_a_robots_txt_leads_to_a_bounded_number_of_sitemaps(named: int, in_each_index: int, expected: int) -> None:
    found = led_to(named, in_each_index)
    assert len(found) == expected <= MOST_SITEMAPS


def test_a_sitemap_is_stored_with_what_its_pages_need() -> None:
    [link] = sitemap_links(ITEM, [URL], SCOPE_OF_SEED, 3, 1, 10)
    assert (link.url, link.priority, link.depth, link.source, link.identifier) == (URL, LISTED, 3, "museum", "")
    assert link.meta == {SITEMAP: [1, 9], SCOPE: "domain:museum.org", MOST_DEPTH: 7}
