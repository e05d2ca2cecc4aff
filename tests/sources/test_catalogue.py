"""The rate of a source, the source of a host, and the format of a catalogue."""

from __future__ import annotations

import json
from typing import Any

import pytest

from crawlproject.errors import CatalogueError
from crawlproject.sources.catalogue import parse_catalogue
from crawlproject.sources.domains import domain_of, domain_of_url
from crawlproject.sources.names import LONGEST_NAME, source_name
from crawlproject.sources.rates import override_of, rate_for


@pytest.mark.parametrize(
    ("size", "rate"),
    [
        (0, 0.2),
        (1, 0.2),
        (4_999, 0.2),
        (5_000, 0.2),
        (5_001, 0.2019984),  # 0.2 + 199.8 * 5,001 / 499,995,000
        (10_000, 0.2039960),
        (1_000_000, 0.5996040),
        (25_000_000, 10.1900999),
        (450_000_000, 180.0217982),
        (499_999_999, 200.0),  # the formula alone gives a little more
        (500_000_000, 200.0),
        (10**15, 200.0),
    ],
)
def test_rate_by_size(size: int, rate: float) -> None:
    assert rate_for(size) == pytest.approx(rate, abs=1e-6)
    assert 0.2 <= rate_for(size) <= 200.0


def test_a_larger_source_is_never_slower() -> None:
    rates = [rate_for(size) for size in (0, 5_000, 5_001, 6_000, 10**6, 10**8, 499_999_999, 500_000_000, 10**9)]
    assert rates == sorted(rates)


@pytest.mark.parametrize(
    ("value", "rate"),
    [
        (b"5", 5.0),
        (b" 0.25\n", 0.25),
        (b"1e2", 100.0),
        (b"0", 0.0),
        (b"-0.1", None),
        (b"nan", None),
        (b"inf", None),
        (b"", None),
        (b"fast", None),
        (b"5 rps", None),
        (b"\xff", None),
    ],
)
def test_override(value: bytes, rate: float | None) -> None:
    assert override_of(value) == rate


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("museum.org", "museum.org"),
        ("www.museum.org", "museum.org"),
        ("a.b.c.museum.org", "museum.org"),
        ("Images.MUSEUM.org.", "museum.org"),
        ("img.museum.co.uk", "museum.co.uk"),
        ("museum.co.uk", "museum.co.uk"),
        ("co.uk", "co.uk"),
        ("upload.wikimedia.org", "wikimedia.org"),
        ("www.bücher.de", "xn--bcher-kva.de"),
        ("www.xn--bcher-kva.de", "xn--bcher-kva.de"),
        ("127.0.0.1", "127.0.0.1"),
        ("10.1.2.3", "10.1.2.3"),
        ("::1", "::1"),
        ("2001:db8::7", "2001:db8::7"),
        ("localhost", "localhost"),
        ("localhost.", "localhost"),
        ("gallery", "gallery"),
        ("a..b", "a..b"),
        ("ü..b", "ü..b"),
        ("", ""),
        (".", ""),
    ],
)
def test_domain(host: str, domain: str) -> None:
    assert domain_of(host) == domain


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        ("https://user:secret@www.museum.org:8443/a?b#c", "museum.org"),
        ("http://[::1]:8080/", "::1"),
        ("http://127.0.0.1:8000/x", "127.0.0.1"),
        ("no url", ""),
        ("mailto:a@b.org", ""),
    ],
)
def test_domain_of_a_url(url: str, domain: str) -> None:
    assert domain_of_url(url) == domain


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("Flickr", "flickr"),
        ("  museum \n", "museum"),
        ("smithsonian_natural-history.2", "smithsonian_natural-history.2"),
        ("ŽLUŤOUČKÝ", "žluťoučký"),
        ("a:b", "a:b"),
        ("x" * LONGEST_NAME, "x" * LONGEST_NAME),
    ],
)
def test_source_name(value: str, name: str) -> None:
    assert source_name(value) == name


@pytest.mark.parametrize(
    "value",
    [
        "",
        "  ",
        "a b",
        "a\tb",
        "a\nb",
        "a\u00a0b",
        "a\x00b",
        "\ud800",
        "x" * (LONGEST_NAME + 1),
        None,
        7,
        ["a"],
        True,
    ],
)
def test_an_invalid_source_name(value: object) -> None:
    with pytest.raises(ValueError, match="source"):
        source_name(value)


def row(name: str, size: Any, **more: Any) -> dict[str, Any]:
    return {"source_name": name, "image_count": size, **more}


def test_a_catalogue_gives_each_source_its_rate() -> None:
    text = json.dumps(
        [
            row("Flickr", 500_000_000, display_name="Flickr", source_url="https://www.flickr.com"),
            {"source_name": "museum", "media_count": 5_000, "source_url": ""},
            {"source_name": "both", "image_count": 0, "media_count": 10**9},
            row("nowhere", 1, source_url=None, hosts=None),
        ]
    )
    for form in (text, text.encode(), b"\xef\xbb\xbf" + text.encode()):
        catalogue = parse_catalogue(form)
        assert catalogue.limits == {"flickr": 200.0, "museum": 0.2, "both": 0.2, "nowhere": 0.2}
        assert catalogue.hosts == {"flickr.com": "flickr"}


def test_an_empty_catalogue_is_valid() -> None:
    catalogue = parse_catalogue("[]")
    assert (dict(catalogue.limits), dict(catalogue.hosts)) == ({}, {})


def test_hosts_are_registrable_domains() -> None:
    hosts = ["img.museum.org", "www.museum.org", "cdn.museum.co.uk", "127.0.0.1", "Bücher.de"]
    catalogue = parse_catalogue(json.dumps([row("museum", 1, hosts=hosts, source_url="https://museum.net/x")]))
    domains = ("museum.org", "museum.co.uk", "127.0.0.1", "xn--bcher-kva.de", "museum.net")
    assert catalogue.hosts == dict.fromkeys(domains, "museum")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_host_that_several_claim_goes_to_the_smallest(order: tuple[int, ...]) -> None:
    rows = [
        row("large", 400_000_000, hosts=["cdn.org"]),
        row("small", 6_000, hosts=["cdn.org"]),
        row("middle", 1_000_000, source_url="http://cdn.org"),
    ]
    assert parse_catalogue(json.dumps([rows[number] for number in order])).hosts == {"cdn.org": "small"}


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_host_claimed_by_equals_always_goes_to_the_same_source(names: tuple[str, str]) -> None:
    rows = [row(name, 1, hosts=["cdn.org"]) for name in names]
    assert parse_catalogue(json.dumps(rows)).hosts == {"cdn.org": "a"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        (b"\xff\xfe\xff", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("{}", "array"),
        ('"flickr"', "array"),
        ("null", "array"),
    ],
)
def test_an_invalid_catalogue(text: str | bytes, complaint: str) -> None:
    with pytest.raises(CatalogueError, match=complaint):
        parse_catalogue(text)


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (5, "not an object"),
        ([], "not an object"),
        ({}, "source None"),
        (row("", 1), "source ''"),
        (row("a b", 1), "source 'a b'"),
        ({"source_name": "museum"}, "image_count of museum"),
        (row("museum", None), "image_count of museum"),
        (row("museum", -1), "not -1"),
        (row("museum", 1.0), "not 1.0"),
        (row("museum", "100"), "not '100'"),
        (row("museum", True), "not True"),
        (row("museum", 1, hosts="museum.org"), "hosts of museum"),
        (row("museum", 1, hosts=[1]), "hosts of museum"),
        (row("museum", 1, hosts={"a": 1}), "hosts of museum"),
        (row("museum", 1, source_url=5), "source_url of museum"),
        (row("museum", 1, source_url="http://[::1"), ""),
        (row("museum", 1, circuit=5), "circuit must be"),
        (row("museum", 1, circuit={"error": 0.5}), "error is not a circuit rule"),
        (row("museum", 1, circuit={"errors": 2}), "errors=2 must be a number from 0 to 1"),
        (row("museum", 1, robots="obey"), "robots can be"),
        (row("GOOD", 1), "good is listed twice"),
    ],
)
def test_a_bad_row_is_left_out_and_named(bad: Any, complaint: str) -> None:
    catalogue = parse_catalogue(json.dumps([row("good", 1), bad, row("late", 6_000, hosts=["late.org"])]))
    assert catalogue.limits == {"good": 0.2, "late": rate_for(6_000)}
    assert catalogue.hosts == {"late.org": "late"}
    (left_out,) = catalogue.bad
    assert left_out.number == 2
    assert complaint in left_out.reason
    named = {"good", "museum"} if isinstance(bad, dict) else set()
    assert left_out.source in named | {None}


def test_a_bad_row_names_its_source() -> None:
    rows = [row("good", 1), row(" Museum", -1), {"image_count": 1}]
    assert [left_out.source for left_out in parse_catalogue(json.dumps(rows)).bad] == ["museum", None]


def test_a_catalogue_without_a_valid_row_is_refused() -> None:
    with pytest.raises(CatalogueError) as caught:
        parse_catalogue(json.dumps([row("museum", -1), 5]))
    assert str(caught.value) == (
        "none of the 2 rows of the catalogue is valid; row 1: "
        "image_count of museum must be a whole number from 0, not -1"
    )
