"""The sites of pages, read as the crawler reads them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape
from urllib.parse import urljoin, urlsplit, urlunsplit

import pytest
from scrapy.http import Headers

from crawlproject.pages.page import Page, read_page
from demo.sites import (
    AFTER_NOINDEX,
    BEHIND_NOFOLLOW,
    FORBIDDEN,
    HTML,
    NOINDEX,
    Site,
)
from demo.traps import TRAPS

HOST = "museum.example:8000"


def read(site: Site, path: str) -> Page:
    answer = site.answer(HOST, path)
    assert answer.status == 200, path
    page = read_page(f"http://{HOST}{path}", Headers({"Content-Type": HTML}), answer.body, datetime.now(UTC))
    assert page is not None
    return page


def paths(page: Page) -> list[str]:
    home = f"http://{HOST}"
    return [link.url.removeprefix(home) for link in page.links if link.url.startswith(home)]


def test_every_real_page_can_be_reached() -> None:
    site = Site("museum.example", 40, opt_outs=True)
    reached, waiting = {"/"}, ["/"]
    while waiting:
        for path in paths(read(site, waiting.pop())):
            if path not in reached and path not in {NOINDEX, BEHIND_NOFOLLOW} and not path.startswith(FORBIDDEN):
                reached.add(path)
                waiting.append(path)
    assert reached | {AFTER_NOINDEX} == site.real()
    assert paths(read(site, NOINDEX)) == [AFTER_NOINDEX]


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_leads_to_ever_more_addresses(trap: str) -> None:
    site = Site("museum.example", 4, [trap])
    waiting = [f"http://{HOST}/"]
    known = set(waiting)
    for _ in range(60):
        url = waiting.pop(0)
        parts = urlsplit(url)
        answer = site.answer(parts.netloc, urlunsplit(("", "", *parts[2:])))
        assert answer.status == 200, url
        found = {urljoin(url, unescape(link)) for link in re.findall(r'href="([^"]*)"', answer.body.decode())}
        waiting += sorted(found - known)
        known |= found
    assert len(waiting) > 60
