"""What a catalogue may look like."""

from __future__ import annotations

import json
from typing import Any

import pytest

from crawlproject.errors import CatalogueError
from crawlproject.sources import catalogue as catalogues
from crawlproject.sources.catalogue import Catalogue, parse_catalogue
from crawlproject.sources.rates import Limit, limit_of, rate_for, rate_of

NOT_GONE = (403, ["403"], [200], [429], [500], [True])


def row(name: str, size: Any, **more: Any) -> dict[str, Any]:
    return {"source_name": name, "image_count": size, **more}


def parse(text: str | bytes, size: int = 7) -> Catalogue:
    """Parse a catalogue that comes in chunks of `size` bytes."""
    whole = text.encode() if isinstance(text, str) else text
    return parse_catalogue(whole[first : first + size] for first in range(0, len(whole), size))


def limits(catalogue: Catalogue) -> dict[str, float]:
    return {row.source: row.rate for rows in catalogue.rows(2) for row in rows}


def hosts_of(catalogue: Catalogue) -> dict[str, str]:
    return {domain: source for hosts in catalogue.hosts(2) for domain, source in hosts.items()}


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
        catalogue = parse(form)
        assert limits(catalogue) == {"flickr": 200.0, "museum": 0.2, "both": 0.2, "nowhere": 0.2}
        assert hosts_of(catalogue) == {"flickr.com": "flickr"}


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("img.museum.org", "museum.org"),
        ("cdn.museum.co.uk", "museum.co.uk"),
        ("127.0.0.1", "127.0.0.1"),
        ("Bücher.de", "xn--bcher-kva.de"),
        ("museum.org:8080", "museum.org"),
        ("*.museum.org", "museum.org"),
        ("https://museum.org/x", "museum.org"),
        ("[::1]:80", "::1"),
    ],
)
def test_a_host_may_be_spelled_as_in_a_url_and_stands_for_its_registrable_domain(host: str, domain: str) -> None:
    assert hosts_of(parse(json.dumps([row("museum", 1, hosts=[host])]))) == {domain: "museum"}


def test_a_row_says_which_domains_it_holds_for() -> None:
    rows = [
        row("bound", 1, hosts=["img.museum.org", "www.museum.org"], source_url="https://archive.org/"),
        row("photos", 1, source_url="https://photos.org/"),
        row("empty", 1, hosts=[""]),
    ]
    catalogue = parse(json.dumps(rows))
    # The page of a source with hosts, on a platform, takes nothing from that.
    assert hosts_of(catalogue) == {"museum.org": "bound", "photos.org": "photos"}
    assert {one.source: (one.domains, bool(one.has_hosts)) for some in catalogue.rows(9) for one in some} == {
        "bound": (" museum.org ", True),
        "photos": (" photos.org ", False),
        "empty": (" ", False),
    }


def test_options_hold_for_the_hosts_of_a_row_and_one_without_is_left_out() -> None:
    hosts = ["IMG.large.org:80", "*.cdn.large.org", "::1"]
    rows = [
        row("photos", 10**9, robots="ignore", circuit={"errors": 0.5}, source_url="https://photos.org/"),
        row("museum", 1, robots="ignore", hosts=["museum.org"], gone=[403, 400, 403]),
        row("large", 1, robots="ignore", hosts=hosts, source_url="http://a.b"),
    ]
    catalogue = parse(json.dumps(rows))
    assert {one.source: one.options for some in catalogue.rows(9) for one in some} == {
        "museum": '{"robots": "ignore", "gone": [400, 403], "hosts": ["museum.org"]}',
        "large": '{"robots": "ignore", "hosts": ["::1", "cdn.large.org", "img.large.org"]}',
    }
    [left_out] = catalogue.bad
    assert left_out.reason.startswith(
        '"circuit" and "robots" of photos without "hosts": anybody\'s seed could name'
    )


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_host_that_several_claim_goes_to_the_smallest(order: tuple[int, ...]) -> None:
    rows = [
        row("large", 400_000_000, hosts=["cdn.org"]),
        row("small", 6_000, hosts=["cdn.org"]),
        row("middle", 1_000_000, source_url="http://cdn.org"),
    ]
    assert hosts_of(parse(json.dumps([rows[number] for number in order]))) == {"cdn.org": "small"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not JSON"),
        (b"\xff\xfe\xff", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('[{"source_name": "museum", "image_count": 1}', "not JSON"),
        ("{}", "none of the 1 rows"),
        ('{"rows":\n[]}', "row 1: not JSON"),
        ('"flickr"', "array"),
    ],
)
def test_an_invalid_catalogue(text: str | bytes, complaint: str) -> None:
    for size in (1, 70_000):
        with pytest.raises(CatalogueError, match=complaint):
            parse(text, size)


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (5, "not an object"),
        ({}, "source None"),
        (row("a b", 1), "source 'a b'"),
        (row("$(reboot)", 1), "as in reboot"),
        ({"source_name": "museum"}, "image_count of museum"),
        (row("museum", -1), "not -1"),
        (row("museum", True), "not True"),
        (row("museum", 1, hosts="museum.org"), "hosts of museum"),
        (row("museum", 1, hosts=["a.org", "256.1.1.1"]), "has '256.1.1.1', which is no host"),
        (row("museum", 1, source_url=5), "source_url of museum"),
        (row("museum", 1, circuit=5), "circuit must be"),
        (row("museum", 1, circuit={"error": 0.5}), "error is not a circuit rule"),
        (row("museum", 1, circuit={"errors": 2}), "errors=2 must be a number from 0 to 1"),
        (row("museum", 1, circuit={"window": 86_400}), "window=86400 must be a number from 1 to 3600"),
        (row("museum", 1, robots="obey"), "robots can be"),
        *((row("museum", 1, gone=one), "gone must be a list of") for one in NOT_GONE),
        (row("GOOD", 1), "good is listed twice"),
    ],
)
def test_a_bad_row_is_left_out_and_named(bad: Any, complaint: str) -> None:
    catalogue = parse(json.dumps([row("good", 1), bad, row("late", 6_000, hosts=["late.org"])]))
    assert limits(catalogue) == {"good": 0.2, "late": rate_for(6_000)}
    assert hosts_of(catalogue) == {"late.org": "late"}
    (left_out,) = catalogue.bad
    assert left_out.number == 2
    assert complaint in left_out.reason
    named = {"good", "museum"} if isinstance(bad, dict) else set()
    assert left_out.source in named | {None}


def test_a_catalogue_without_a_valid_row_is_refused() -> None:
    with pytest.raises(CatalogueError) as caught:
        parse(json.dumps([row("museum", -1), 5]))
    assert str(caught.value) == (
        "none of the 2 rows of the catalogue is valid; row 1: "
        "image_count of museum must be a whole number from 0, not -1"
    )


def test_a_catalogue_may_be_json_lines() -> None:
    lines = [json.dumps(row("museum", 5_000, hosts=["museum.org"])), "", "{", json.dumps(row("flickr", 10**9))]
    catalogue = parse("\n".join(lines))
    assert limits(catalogue) == {"museum": 0.2, "flickr": 200.0}
    assert hosts_of(catalogue) == {"museum.org": "museum"}
    assert [(bad.number, bad.source) for bad in catalogue.bad] == [(2, None)]
    assert catalogue.bad[0].reason.startswith("not JSON: ")


def test_neither_a_row_nor_an_array_is_read_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogues, "_LONGEST_ROW", 1000)
    with pytest.raises(CatalogueError, match="a row of more than 1000 bytes"):
        parse('{"source_name": "' + "1" * 3000)
    monkeypatch.setattr(catalogues, "_LONGEST_ARRAY", 2000)
    with pytest.raises(CatalogueError, match="an array of more than 2000 bytes: write it as JSON lines"):
        parse("[" + "1" * 3000)


def test_what_it_no_longer_names_differs_from_what_it_names_invalidly() -> None:
    rows = [row("museum", 1, hosts=["museum.org"]), row("louvre", -1)]
    catalogue = parse(json.dumps(rows))
    assert catalogue.without_sources(["museum", "louvre", "flickr", "caf\udce9"]) == ["flickr", "caf\udce9"]
    hosts = {"museum.org": "museum", "louvre.fr": "louvre", "flickr.com": "flickr", "old.org": "museum"}
    assert catalogue.without_hosts(hosts) == ["flickr.com", "old.org"]


def test_a_full_temporary_folder_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        catalogues, "_TABLES", catalogues._TABLES.replace("BEGIN", "PRAGMA max_page_count = 9; BEGIN")
    )
    with pytest.raises(CatalogueError, match="the temporary folder does not hold the catalogue"):
        parse(json.dumps([row(f"source{number}", 1) for number in range(5000)]), 70_000)


@pytest.mark.parametrize(
    ("size", "rate"),
    [
        (0, 0.2),
        (5_000, 0.2),
        (5_001, 0.2019984),  # 0.2 + 199.8 * 5,001 / 499,995,000
        (1_000_000, 0.5996040),
        (450_000_000, 180.0217982),
        (499_999_999, 200.0),  # the formula alone gives a little more
        (500_000_000, 200.0),
    ],
)
def test_rate_by_size(size: int, rate: float) -> None:
    assert rate_for(size) == pytest.approx(rate, abs=1e-6)
    assert 0.2 <= rate_for(size) <= 200.0


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        (b"5", Limit(5.0)),
        (b" 0.25\n", Limit(0.25)),
        (b"0", Limit(0.0)),
        *((nonsense, None) for nonsense in (b"-0.1", b"nan", b"inf", b"", b"5 rps", b"\xff")),
        (b"5 over-robots", Limit(5.0, over_robots=True)),
        (b"0 over-robots", Limit(0.0, over_robots=True)),
        *(
            (nonsense, None)
            for nonsense in (b"over-robots", b"5 over-robots over-robots", b"-1 over-robots", b"1_0")
        ),
    ],
)
def test_a_limit_as_an_operator_writes_it(value: bytes, limit: Limit | None) -> None:
    assert limit_of(value) == limit
    assert limit is None or limit_of(str(limit).encode()) == limit
    if b"robots" not in value:
        assert rate_of(value) == (None if limit is None else limit.rps)
