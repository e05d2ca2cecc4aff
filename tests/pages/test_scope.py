"""How far a crawl goes, and the one spelling of each page's address."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproject.pages.canonical import LONGEST, MOST_PARAMETERS, canonical_url, image_url
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


BASE = "https://www.museum.example/halls/one.html?x=1#top"


@pytest.mark.parametrize(
    ("href", "url"),
    [
        ("two.html", "https://www.museum.example/halls/two.html"),
        ("two.html#part", "https://www.museum.example/halls/two.html"),
        ("", "https://www.museum.example/halls/one.html?x=1"),
        ("//b.example", "https://b.example/"),
        ("HTTP://B.example:80/a/./b/../c", "http://b.example/a/c"),
        ("https:\\\\b.example\\x", "https://b.example/x"),
        ("\n two \t.html ", "https://www.museum.example/halls/two%20.html"),
        ("?b=2&a=1", "https://www.museum.example/halls/one.html?a=1&b=2"),
        ("/%7euser/%e4", "https://www.museum.example/~user/%E4"),
        ("/ü", "https://www.museum.example/%C3%BC"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("/x;jsessionid=8A3F?a=1", "https://www.museum.example/x?a=1"),
        ("/(S(abcdefghijklmnopqrstuvwx))/x", "https://www.museum.example/x"),
        ("/x?side=left&pid=3", "https://www.museum.example/x?pid=3&side=left"),
        ("/article.php?sid=12", "https://www.museum.example/article.php?sid=12"),
        ("/talk?session_id=7&sessionid=8", "https://www.museum.example/talk?session_id=7&sessionid=8"),
        ("/x?sid=0123456789abcdefABCDEF&id=7", "https://www.museum.example/x?id=7"),
        ("/x;sid=0123456789abcdef", "https://www.museum.example/x"),
        ("/x;sid=12", "https://www.museum.example/x;sid=12"),
        ("/x?share=jetpack-whatsapp&nb=1", "https://www.museum.example/x?nb=1"),
        ("/x?share=42", "https://www.museum.example/x?share=42"),
    ],
)
def test_the_canonical_form(href: str, url: str) -> None:
    assert canonical_url(href, BASE) == url


@pytest.mark.parametrize(
    "href",
    [
        *(
            "javascript:alert(1)",
            "data:text/html,x",
            "mailto:a@b.example",
            "ftp://b.example/",
            "blob:https://b.example/x",
        ),
        *(
            "https://user@b.example/",
            "https://user:secret@b.example/",
            "https://@@b.example/",
            "http://b.example:0/",
        ),
        *("http://", "http://b.example:99999/", "http://a b.example/", "http://[::1", "http://%00.example/"),
        *(f"http://{'a' * 64}.example/", f"http://{'a.' * 130}example/", "/" + "a" * LONGEST),
        *("/?" + "&".join(f"a{number}=1" for number in range(MOST_PARAMETERS + 1)), "http://\ud800.example/"),
    ],
)
def test_what_is_no_address_of_a_page(href: str) -> None:
    assert canonical_url(href, BASE) is None


def test_a_base_that_is_no_address_gives_none() -> None:
    assert canonical_url("x", "javascript:1") is None


# fmt: off
PIECES = st.sampled_from(
    [
        "http://", "https:", "//", "/", "\\", "?", "#", "&", "=", ";", ":", "@", "%", "%25", "%2F", "%e4",
        "%zz", "+", "..", ".", "a", "B", "ü", "ß", "İ", "💥", " ", "\t", "\x00", "\ud800", "[", "]", "|", "^",
        "`", "{", "b.example", "xn--bcher-kva.example", "127.1", "[::1]", ":80", ":443", ":8080", "sid=1",
        "utm_x=2", "jsessionid=3", "/(S(abcdefghijklmnopqrstuvwx))", ";sid=", "?x=", "<", ">", '"', "'", "~",
        "%7E", "%00", "\u3000", "\x7f"
    ]
)
# fmt: on
HREFS = st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=60)


@given(HREFS, st.none() | HREFS.map("http://b.example/".__add__))
def test_a_canonical_address_is_its_own_and_safe_to_request(href: str, base: str | None) -> None:
    found = canonical_url(href, base)
    if found is None:
        return
    assert canonical_url(found) == found
    assert canonical_url(found, "https://elsewhere.example/x") == found
    parts = urlsplit(found)
    assert parts.scheme in {"http", "https"}
    assert parts.hostname
    assert "@" not in parts.netloc
    assert "#" not in found
    assert found.isascii()
    assert len(found) <= LONGEST


@given(HREFS)
def test_an_images_address_is_absolute_and_keeps_its_query(href: str) -> None:
    found = image_url(href, BASE)
    if found is not None:
        assert found.startswith(("http://", "https://"))
        assert image_url(found) == found
        assert "#" not in found
    assert image_url("/i?w=300&utm_x=1&a=%e4#x", BASE) == "https://www.museum.example/i?w=300&utm_x=1&a=%e4"
