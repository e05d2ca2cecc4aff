"""The sites of pages, read as the crawler reads them."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from html import unescape
from urllib.parse import urljoin, urlsplit, urlunsplit

import pytest
from aiodns import DNSResolver
from scrapy.http import Headers

from crawlproject.pages.page import Page, read_page
from demo.sites import (
    AFTER_NOINDEX,
    BEHIND_NOFOLLOW,
    FORBIDDEN,
    HTML,
    LICENCE,
    NOAI,
    NOFOLLOW,
    NOINDEX,
    Site,
    Sites,
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


def test_pages_ask_for_what_they_are_named_after() -> None:
    site = Site("museum.example", 4, opt_outs=True)
    assert paths(read(site, NOFOLLOW)) == []
    assert read(site, NOINDEX).rules.opt_outs == ("noindex",)
    assert read(site, NOAI).images == ()
    assert f"Disallow: {FORBIDDEN}".encode() in site.answer(HOST, "/robots.txt").body
    assert FORBIDDEN + "a.html" in paths(read(site, "/"))


def test_every_second_picture_has_an_open_licence() -> None:
    site = Site("museum.example", 5, pictures=[b"1", b"2", b"3", b"4"])
    licences: Mapping[str, str | None] = {
        image.url: image.licence and image.licence.url
        for number in range(1, 6)
        for image in read(site, f"/real/{number}.html").images
    }
    assert {url.removeprefix(f"http://{HOST}") for url, licence in licences.items() if licence} == site.licensed()
    assert set(licences.values()) == {LICENCE, None}
    assert site.answer(HOST, "/pictures/4.jpg").body == b"4"
    assert site.answer(HOST, "/pictures/5.jpg").status == 404


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


async def test_sites_are_told_apart_by_their_names() -> None:
    with Sites([Site("a.example", 1), Site("b.example", 1)]) as web:
        resolver = DNSResolver(nameservers=[web.name_server])
        for name in ("a.example", "b.example", "deep.below.b.example"):
            found = await resolver.query_dns(name, "A")
            assert [getattr(record.data, "addr", None) for record in found.answer] == ["127.0.0.1"]
        for host, status in (("a.example", 200), ("b.example", 200), ("c.example", 404)):
            connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=20)
            connection.request("GET", "/", headers={"Host": f"{host}:{web.port}"})
            response = connection.getresponse()
            assert response.status == status
            assert (f"Page 0 of {host}".encode() in response.read()) is (status == 200)
            connection.close()
        assert [(one.source, one.path, one.status) for one in web.arrivals] == [
            ("a.example", "/", 200),
            ("b.example", "/", 200),
            ("", "/", 404),
        ]
