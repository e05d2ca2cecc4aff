"""How far a crawl goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproject.pages.canonical import canonical_url
from crawlproject.pages.scope import Scope

SEED = "https://www.museum.co.uk:8443/start"


@pytest.mark.parametrize(
    ("scope", "text", "within", "without"),
    [
        (
            "domain",
            "domain:museum.co.uk",
            ["http://museum.co.uk/", "https://a.b.museum.co.uk/x", "http://WWW.museum.co.uk./"],
            [
                "http://othermuseum.co.uk/",
                "http://co.uk/",
                "http://museum.co.uk.evil.example/",
                "x",
                "",
                "http://[/",
            ],
        ),
        (
            "host",
            "host:www.museum.co.uk",
            ["http://www.museum.co.uk/any?x", "https://www.museum.co.uk:99/"],
            ["http://museum.co.uk/", "http://a.www.museum.co.uk/"],
        ),
        (
            "*.museum.co.uk/collection/*/photo",
            "pattern:*.museum.co.uk/collection/*/photo",
            ["http://museum.co.uk/collection/1/photo7", "http://a.museum.co.uk/collection/x/y/photo?z"],
            [
                "http://museum.co.uk/collection/photo",
                "http://museum.co.uk/a/collection/1/photo",
                "http://b.example/",
            ],
        ),
        (
            "www.museum.co.uk/a*b$",
            "pattern:www.museum.co.uk/a*b$",
            ["http://www.museum.co.uk/ab", "http://www.museum.co.uk/axbxb", "http://www.museum.co.uk/ab#c"],
            ["http://www.museum.co.uk/abc", "http://museum.co.uk/ab", "http://www.museum.co.uk/"],
        ),
        (
            "https://www.museum.co.uk",
            "pattern:www.museum.co.uk",
            ["http://www.museum.co.uk/x", "http://www.museum.co.uk"],
            ["http://museum.co.uk/"],
        ),
    ],
)
def test_what_is_in_a_scope(scope: str, text: str, within: list[str], without: list[str]) -> None:
    found = Scope.of_seed(SEED, scope)
    assert found.text == text
    assert Scope.parse(text) == found
    assert [url for url in within if not found.has(url)] == []
    assert [url for url in without if found.has(url)] == []


def test_addresses_and_names_without_a_domain_are_their_own() -> None:
    assert Scope.of_seed("http://127.0.0.1:8000/").has("http://127.0.0.1:9/x")
    assert Scope.of_seed("http://[::1]/").text == "domain:::1"
    assert Scope.of_seed("http://[::1]/").has("http://[::1]:8/x")
    assert Scope.of_seed("http://gallery/").has("http://gallery/x")
    assert Scope.of_seed("http://bücher.example/").has("http://xn--bcher-kva.example/")


@pytest.mark.parametrize(
    ("seed", "scope", "text"),
    [
        ("https://straße.example/", "domain", "domain:xn--strae-oqa.example"),
        ("https://straße.example/", "host", "host:xn--strae-oqa.example"),
        ("https://xn--strae-oqa.example/", "*.straße.example/", "pattern:*.xn--strae-oqa.example/"),
        (
            "https://bücher.example/",
            "bücher.example/gemälde 1*",
            "pattern:xn--bcher-kva.example/gem%C3%A4lde%201*",
        ),
    ],
)
def test_a_scope_is_spelled_as_the_addresses_of_pages_are(seed: str, scope: str, text: str) -> None:
    found = Scope.of_seed(seed, scope)
    assert found.text == text
    assert Scope.parse(text) == found
    page = canonical_url(seed + "gemälde 1")
    assert page is not None
    assert found.has(page)


@pytest.mark.parametrize("length", [270, 284, 285, 286, 300])
@pytest.mark.parametrize("letter", ["a", "ä"])
def test_a_pattern_that_is_taken_is_read_again_from_where_it_is_stored(length: int, letter: str) -> None:
    pattern = "museum.example/".ljust(length, letter)
    try:
        found = Scope.parse(pattern)
    except ValueError as error:
        assert "too long" in str(error)
    else:
        assert Scope.parse(found.text) == found


def test_a_scope_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ValueError, match=r"scope .* is not UTF-8"):
        Scope.parse("museum.example/gem\udce4lde")


@pytest.mark.parametrize(
    "scope",
    [
        *(
            "*museum.co.uk",
            "www.*.co.uk",
            "(a+)+$",
            "a b",
            "*." + "a" * 300 + ".example",
            "museum.example/" + "*a" * 8,
        ),
        *("other.example/x", "host:other.example", "domain:other.example", "user@www.museum.co.uk"),
    ],
)
def test_no_scope_is_the_whole_web_or_about_other_hosts(scope: str) -> None:
    with pytest.raises(ValueError, match=r"scope '.*"):
        Scope.of_seed(SEED, scope)


def test_a_seed_without_a_host_has_no_scope() -> None:
    with pytest.raises(ValueError, match="must begin with http"):
        Scope.of_seed("mailto:a@b.example")


@given(st.text(alphabet="ab*$/?", max_size=12), st.text(alphabet="ab/?", max_size=12))
def test_a_pattern_means_what_its_asterisks_say(pattern: str, path: str) -> None:
    import re

    whole = re.escape(pattern.removesuffix("$")).replace(r"\*", ".*")
    expected = re.match(f"/{whole}" + ("$" if pattern.endswith("$") else ""), f"/{path}") is not None
    assert Scope.parse(f"museum.example/{pattern[:12]}").has(f"http://museum.example/{path}") == expected
