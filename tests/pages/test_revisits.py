"""What is kept of a page that is looked at again, and when that is."""

from __future__ import annotations

import pytest

from crawlproject.pages.revisits import LONGEST_S, Look, is_home, look_of, verdict

HOUR = 3600.0
LOOK = Look(HOUR, "digest", "http://museum.example/", '"1"', "Sun, 22 Nov 2026 10:30:00 GMT")


def test_the_less_a_page_changes_the_later_it_is_looked_at_again() -> None:
    first = LOOK.after(None, HOUR)
    assert first.interval == HOUR
    unchanged = LOOK.after(first, HOUR)
    assert unchanged.interval == 2 * HOUR
    assert LOOK.after(unchanged, HOUR).interval == 4 * HOUR
    assert LOOK.after(LOOK._replace(interval=LONGEST_S), HOUR).interval == LONGEST_S
    changed = LOOK._replace(digest="other")
    assert changed.after(LOOK._replace(interval=8 * HOUR), HOUR).interval == 4 * HOUR
    assert changed.after(first, HOUR).interval == HOUR


def test_a_look_says_whether_it_has_found_something_new() -> None:
    assert [verdict(None, "x"), verdict(LOOK, "digest"), verdict(LOOK, "x")] == [None, "unchanged", "changed"]


def test_a_site_is_told_what_it_has_named_and_nothing_that_is_no_header() -> None:
    headers = {b"ETag": [b'W/"a-1"'], b"Last-Modified": [LOOK.modified.encode()]}
    look = look_of("http://museum.example/", headers, "digest")
    assert look.conditions == {"If-None-Match": 'W/"a-1"', "If-Modified-Since": LOOK.modified}
    for etag, modified in ((b'"a"\nb"', b"1 May 2026"), (b"a", b"0"), (b'"' + b"a" * 300 + b'"', b"")):
        headers = {b"ETag": [etag], b"Last-Modified": [modified]}
        assert look_of("http://museum.example/", headers, "digest").conditions == {}


@pytest.mark.parametrize(
    ("url", "is_it"),
    [
        ("http://museum.example/", True),
        ("http://a.museum.example:8080/", True),
        ("http://museum.example/?page=2", False),
        ("http://museum.example/a", False),
    ],
)
def test_a_home_page_is_the_root_of_a_host(url: str, is_it: bool) -> None:
    assert is_home(url) is is_it
