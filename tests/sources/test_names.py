"""The spelling of a source's name."""

from __future__ import annotations

import pytest

from crawlproject.sources.names import LONGEST_NAME, source_name


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
