"""Hosts: their one spelling, by all ways into the crawl, and their registrable domains."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request

from crawlproject.errors import BadSeed
from crawlproject.exclusions import exclusion_names
from crawlproject.frontier.seeds import new_request, parse_seed
from crawlproject.ingest.seed_rows import Columns, line_of
from crawlproject.pages.canonical import canonical_url, image_url
from crawlproject.pages.scope import Scope
from crawlproject.politeness.robots_txt import robots_url
from crawlproject.sources.catalogue import parse_catalogue
from crawlproject.sources.domains import canonical_host, domain_of, domain_of_url, host_of_url, url_fault
from crawlproject.sources.names import LONGEST_NAME, source_name
from crawlproject.spiders.images import ImagesSpider

SPIDER = ImagesSpider()
ONE_HOST = {
    "::1": ["[::1]", "[0:0::1]", "[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::0.0.0.1]", "[::0:1]"],
    "2001:db8::a": ["[2001:db8::a]", "[2001:DB8::000A]", "[2001:0db8:0:0::a]"],
    "192.0.2.7": [
        *("192.0.2.7", "192.0.2.7.", "[::ffff:192.0.2.7]", "[::FFFF:c000:207]", "[0:0:0:0:0:ffff:192.0.2.7]"),
        *("[64:ff9b::192.0.2.7]", "0xc0.0.2.7", "3221225991", "0300.0.02.07", "192.0.519", "192.0.2%2e7"),
        *("１９２.０.２.７", "192。0。2。7", "192.0.2.\u00ad7", "①⑨②.0.2.7"),
    ],
    "xn--strae-oqa.example": [
        *("straße.example", "STRAßE.example.", "Straẞe.EXAMPLE", "stra%C3%9Fe.example", "straße。example"),
        *("XN--Strae-OQA.example", "xn--strae-oqa.example", "stra\u200bße.example"),
    ],
    "xn--nxasmm1c.example": ["βόλος.example", "xn--nxasmm1c.example"],  # with a final sigma
    "xn--nxasmq6b.example": ["βόλοσ.example", "ΒΌΛΟΣ.example"],  # without
    "xn--mgba3gch31f060k.example": ["نامه\u200cای.example", "xn--mgba3gch31f060k.example"],  # a joiner that counts
    "museum.example": [
        *("museum.example", "MUSEUM.example", "museum.example.", "ｍｕｓｅｕｍ.example", "m%75seum.example"),
        *("museum．example", "mu\u00adseum.example", "ⓜuseum.example"),
    ],
}
SPELLINGS = [(host, spelled) for host, all_of_it in ONE_HOST.items() for spelled in all_of_it]
NO_HOSTS = [
    *("[::1%25lo]", "[fe80::1%lo]", "256.1.1.1", "1.2.3.4.5", "museum.0x", "09.1", "ex%2561mple.org", "a%00.org"),
    *("a%2fb.org", "a%40b.org", "a..org", "museum.org..", "a/b", "a@b", "a?b", "a#b", "a\\b", "a b", "\ud800.org"),
    *("a" * 64 + ".org", "ß" * 60 + ".org", "a." * 127 + "org", "a\u200db.org", "1א.org", "١٢٧.0.0.1", "a:b"),
]
COLUMNS = Columns()


def by_a_seed(spelled: str) -> str:
    request = ImagesSpider().request_for(parse_seed(f"http://{spelled}:8080/ä?c#d"))
    assert request.url == f"http://{at(host_of_url(request.url))}:8080/%C3%A4?c#d"
    return host_of_url(request.url)


def by_a_row(spelled: str) -> str:
    line = line_of(1, {"url": f"https://{spelled}/", "uuid": "a"}, "http", COLUMNS).seed
    return urlsplit(parse_seed(str(line)).url).hostname or ""


def by_a_request_of_an_own_spider(spelled: str) -> str:
    new = new_request(Request(f"http://{spelled}/"), SPIDER)
    canonical = Request(f"http://{at(domain_of_url(f'http://{spelled}/'))}/")
    assert new == new_request(canonical, SPIDER)  # stored, and known, as the same
    return str(new.domain)


def by_an_exclusion(spelled: str) -> str:
    return exclusion_names(spelled)[0]


def by_the_catalogue(spelled: str) -> str:
    row = {"source_name": "museum", "image_count": 1, "hosts": [spelled], "robots": "ignore"}
    with parse_catalogue([json.dumps([row]).encode()]) as catalogue:
        [[found]] = catalogue.rows(10)
    [host] = json.loads(found.options)["hosts"]
    assert found.domains.strip() == domain_of(host)
    return str(host)


def at(host: str) -> str:
    return f"[{host}]" if ":" in host else host


WAYS: dict[str, Callable[[str], str]] = {
    "seed": by_a_seed,
    "row of a file": by_a_row,
    "request of an own spider": by_a_request_of_an_own_spider,
    "link": lambda spelled: urlsplit(str(canonical_url(f"//{spelled}/a", "https://a.org/b"))).hostname or "",
    "image of a page": lambda spelled: urlsplit(str(image_url(f"http://{spelled}/?a"))).hostname or "",
    "exclusion": by_an_exclusion,
    "host of the catalogue": by_the_catalogue,
    "robots.txt": lambda spelled: urlsplit(robots_url(f"http://{spelled}/a")).hostname or "",
    "scope": lambda spelled: Scope.of_seed(f"http://{spelled}/", "host").host,
}


@pytest.mark.parametrize("way", WAYS)
def test_all_spellings_are_one_host_whichever_way_they_come(way: str) -> None:
    pairs = [
        pair for pair in SPELLINGS if way != "exclusion" or not pair[1].isdecimal()
    ]  # which is a source's name
    assert [(WAYS[way](spelled), spelled) for _, spelled in pairs] == pairs


def test_a_spelling_that_is_not_the_one_is_refused_at_the_gate_and_no_host_anywhere() -> None:
    for host, spelled in SPELLINGS:
        one = at(host) == spelled.lower()
        assert (url_fault(f"http://{spelled}/") is None) == one, spelled
    for url in (
        "http://u@a.org/",
        "http://@a.org/",
        "ftp://a.org/",
        "http:///a",
        "http://[::1/a",
        "http://a.org:99999/",
    ):
        assert url_fault(url)
    for spelled in NO_HOSTS:
        assert canonical_host(spelled) == domain_of(spelled) == "", spelled
        if not set(spelled) & set("/?#"):  # what is before these is one
            assert url_fault(f"http://{spelled}/")
            with pytest.raises(BadSeed):
                by_a_seed(spelled)


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("www.museum.org", "museum.org"),
        ("a.b.c.museum.org", "museum.org"),
        ("img.museum.co.uk", "museum.co.uk"),
        ("co.uk", "co.uk"),
        ("www.bücher.de", "xn--bcher-kva.de"),
        ("127.0.0.1", "127.0.0.1"),
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8::7", "2001:db8::7"),
        ("localhost.", "localhost"),
        ("gallery", "gallery"),
        ("a..b", ""),
        (".", ""),
    ],
)
def test_domain(host: str, domain: str) -> None:
    assert domain_of(host) == domain
    assert domain_of_url(f"https://user:secret@{at(host)}:8443/a?b#c") == domain


INVALID = ["", "a b", "a\x00b", "a\u200db", "\ud800", "-rf", "$(reboot)", "a/b", "@a"]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("Flickr", "flickr"),
        ("smithsonian_natural-history.2", "smithsonian_natural-history.2"),
        ("ŽLUŤOUČKÝ", "žluťoučký"),
        ("संग्रहालय", "संग्रहालय"),  # with marks
        ("Paral·lel.cat", "paral·lel.cat"),  # IDNA's middle dot
        ("2001:db8::7", "2001:db8::7"),
        ("x" * LONGEST_NAME, "x" * LONGEST_NAME),
    ],
)
def test_source_name(value: str, name: str) -> None:
    assert source_name(value) == name


@pytest.mark.parametrize("value", [*INVALID, "x" * (LONGEST_NAME + 1), None, 7])
def test_an_invalid_source_name(value: object) -> None:
    with pytest.raises(ValueError, match="source"):
        source_name(value)


@given(st.text(max_size=20))
def test_what_is_a_name_is_one_harmless_word_and_no_option(text: str) -> None:
    try:
        name = source_name(text)
    except ValueError:
        return
    assert shlex.split(name) == [name]
    assert not name.startswith("-")
    assert source_name(name) == name


HOSTS = [
    "münchen.museum",
    ".".join(["x" * 63] * 3),
    "under_score.a.org",
    "[2001:db8::1]",
    "localhost",
    "-odd.a.org",
]


@pytest.mark.parametrize("host", HOSTS)
def test_the_domain_of_a_host_is_a_name(host: str) -> None:
    domain = domain_of_url(f"http://{host}/a")
    assert source_name(domain) == domain
