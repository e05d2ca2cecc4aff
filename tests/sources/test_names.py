"""The spelling of a source's name."""

from __future__ import annotations

import shlex
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproject.sources.domains import domain_of_url
from crawlproject.sources.names import LONGEST_NAME, source_name


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("Flickr", "flickr"),
        ("  museum \n", "museum"),
        ("smithsonian_natural-history.2", "smithsonian_natural-history.2"),
        ("ŽLUŤOUČKÝ", "žluťoučký"),
        ("日本の美術館", "日本の美術館"),
        ("संग्रहालय", "संग्रहालय"),  # with marks
        ("متحف٢", "متحف٢"),
        ("Paral·lel.cat", "paral·lel.cat"),  # IDNA's middle dot
        ("a:b", "a:b"),
        ("2001:db8::7", "2001:db8::7"),
        ("::1", "::1"),
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
        "a\u200db",
        "a\u202eb",
        "\ud800",
        "x" * (LONGEST_NAME + 1),
        "-rf",
        "--all",
        "$(reboot)",
        "`reboot`",
        "a;b",
        "a&b",
        "a|b",
        "a>b",
        "'",
        '"',
        "\\",
        "~",
        "*",
        "a?",
        "[a]",
        "{a,b}",
        "a=b",
        "a%b",
        "!1",
        "#a",
        "a/b",
        "@a",
        None,
        7,
        ["a"],
        True,
    ],
)
def test_an_invalid_source_name(value: object) -> None:
    with pytest.raises(ValueError, match="source"):
        source_name(value)


@pytest.mark.parametrize(
    ("value", "similar"),
    [
        ("Museum of X", "museum_of_x"),
        ("europeana/123", "europeana_123"),
        ("-rf", "rf"),
        ("$(touch /tmp/x)", "touch_tmp_x"),
        ("x" * 500, "x" * 60),
        ("$$$", "museum_of_x"),
        (None, "museum_of_x"),
    ],
)
def test_the_error_names_the_value_and_what_may_stand_for_it(value: object, similar: str) -> None:
    with pytest.raises(ValueError, match="source") as caught:
        source_name(value)
    assert repr(value)[:60] in str(caught.value)
    assert str(caught.value).endswith(f" as in {similar}")
    assert source_name(similar) == similar


def test_what_may_stand_in_a_name_of_all_characters() -> None:
    may = set()
    for number in range(sys.maxunicode + 1):
        try:
            source_name("a" + chr(number) + "a")
        except ValueError:
            continue
        may.add(chr(number))
    kinds = {unicodedata.category(char)[0] for char in may}
    assert kinds == {"L", "M", "N", "P", "S"}
    assert {char for char in may if unicodedata.category(char)[0] in "PS"} == set(
        "._-:\u00b7\u0375\u05f3\u05f4\u30fb"
    )
    assert all(char.isprintable() for char in may)


@given(st.text(max_size=20))
def test_what_is_a_name_is_one_harmless_word_and_no_option(text: str) -> None:
    try:
        name = source_name(text)
    except ValueError:
        return
    assert shlex.split(name) == [name]
    assert not name.startswith("-")
    assert source_name(name) == name


@pytest.mark.parametrize(
    "url",
    [
        "http://münchen.museum/a",
        "http://" + ".".join(["x" * 63] * 3) + "/",
        "http://under_score.museum.org/",
        "http://[2001:db8::1]/",
        "http://localhost/",
        "http://-odd.museum.org/",
    ],
)
def test_the_domain_of_a_host_is_a_name(url: str) -> None:
    domain = domain_of_url(url)
    assert source_name(domain) == domain
