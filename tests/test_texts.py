"""Untrusted texts as shown: none moves a cursor, ends a line, or reveals a password."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request

from crawlproject.texts import one_line, printable, shown_seed, url_fault, without_userinfo

NASTY = "\x00\x07\x1b[31m\r\n\t\x7f\x85\x9b\u200f\u2028\u2029\u202e\u2066\ufeff\ud800"


def test_what_is_printable_stays_and_the_rest_is_marked() -> None:
    assert printable("Žižkov 馬 😀") == "Žižkov 馬 😀"
    assert printable(NASTY).isprintable()
    assert len(printable("x" * 1000)) == 200
    assert printable("abc", 2) == "ab"


@given(st.text(st.characters()))
def test_every_text_is_made_printable(text: str) -> None:
    assert printable(text).isprintable()


@given(st.recursive(st.text(st.characters()) | st.integers() | st.none(), st.lists))
def test_json_of_one_line_says_the_same_on_one_line(data: object) -> None:
    text = one_line(data)
    assert json.loads(text) == data
    assert text.isascii() or len(text.splitlines()) == 1
    text.encode()  # it is written to files and Redis


def test_json_of_one_line_keeps_letters_and_escapes_control_characters() -> None:
    text = one_line({"title": "馬 😀 " + NASTY})
    assert text.startswith('{"title":"馬 😀 ')
    assert text.isprintable()
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:pw@h/", "http://***@h/"),
        ("http://user@h", "http://***@h"),
        ("http://:pw@h/", "http://***@h/"),
        ("ftp://u:p@h/ and //a@b", "ftp://***@h/ and //***@b"),
        ("http://u:p@w@h/", "http://***@h/"),
        ("http://u:p/w@h/x", "http://***@h/x"),
        ("http://u:p?w@h/x", "http://***@h/x"),
        ("http://u:p\\w@h/x", "http://***@h/x"),
        ('{"url": "http:\\/\\/u:p@h\\/x"', '{"url": "http:\\/\\/***@h\\/x"'),
        # these have no userinfo
        ("http://h/@u/x", "http://h/@u/x"),
        ("http://h:8080/a@b", "http://h:8080/a@b"),
        ("http://h:8080?a@b", "http://h:8080?a@b"),
        ("http://[::1]:80/a@b", "http://[::1]:80/a@b"),
        ("u:p@h", "u:p@h"),
    ],
)
def test_user_names_and_passwords_are_masked(text: str, shown: str) -> None:
    assert without_userinfo(text) == shown


@pytest.mark.parametrize(
    "seed",
    [
        "http://me:S3CRET@h/",
        '{"url": "http://me:S3CRET@h/"}',
        r'{"url": "http:\u002f\u002fme:S3CRET\u0040h/"}',
        r'{"url": "http:\u002f\u002fme:S3CRET\u0040g/", "url": "http://***@h/"}',
        r'{"url": [{"http:\/\/me:S3CRET\u0040h/": 1}]}',
        '{"url": "http://me:S3CRET@h/',
        '"http://me:S3CRET@h/"',
    ],
)
def test_a_seed_is_shown_without_its_password(seed: str) -> None:
    shown = shown_seed(seed)
    assert "S3CRET" not in shown
    assert "***@h/" in shown


@pytest.mark.parametrize(
    "seed", ["", "x", "[" * 100_000, '{"url": NaN}', '{"a": 1, "a": 2}', '{"url":  "http://h/@x"}']
)
def test_a_seed_without_one_is_shown_as_it_came(seed: str) -> None:
    assert shown_seed(seed) == seed


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_a_host_cannot_forge_a_log_line(host: str) -> None:
    """Scrapy logs a request's URL as it is; everything after the host is percent-encoded by then."""
    url = f"http://{host}/\u2028"
    if url_fault(url) is None:
        asked = Request(url).url
        assert asked.isascii()
        assert asked.isprintable()
        assert url_fault(asked) is None
        assert "@" not in asked.split("/")[2]


@pytest.mark.parametrize(
    "text",
    [
        "//a:b" * 100_000,
        "//a:b" * 100_000 + "@",
        "@" + "//a:b" * 100_000,
        "//a:b" * 100_000 + " @" * 1000,
        ("//a:b" * 50 + "@ ") * 2000,
        "\\\\/" * 100_000 + "@",
    ],
)
def test_masking_takes_time_linear_in_the_length(text: str) -> None:
    began = time.process_time()
    without_userinfo(text)
    assert time.process_time() - began < 1  # it was minutes
