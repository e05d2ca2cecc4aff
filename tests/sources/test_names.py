"""The spelling of a source's name."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproject.sources.domains import domain_of_url
from crawlproject.sources.names import LONGEST_NAME, source_name

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
