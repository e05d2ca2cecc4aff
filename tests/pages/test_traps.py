"""What links are refused or put off by their form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproject.pages.traps import Verdict, judge

HOST = "https://museum.example"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (f"{HOST}/{'a' * 1024}", "length"),
        (f"{HOST}/{'/'.join(map(str, range(17)))}", "segments"),
        (f"{HOST}/a/b/a/c/a", "repetition"),
        (f"{HOST}/x/x/x", "repetition"),
        (f"{HOST}/x?a=1&b=2&c=3&d=4&e=5&f=6&g=7", "parameters"),
        (f"{HOST}/events/2191/04/", "calendar"),
        (f"{HOST}/calendar/1989/12", "calendar"),
        (f"{HOST}/x?month=2099-07", "calendar"),
    ],
)
def test_traps_are_refused(url: str, reason: str) -> None:
    assert judge(url, 1, year=2026) == Verdict("refused", reason)


def test_links_too_deep_are_refused() -> None:
    assert judge(f"{HOST}/x", 21, year=2026) == Verdict("refused", "depth")


@pytest.mark.parametrize(
    ("url", "depth", "nofollow", "reason"),
    [
        (f"{HOST}/x?id=1", 1, False, "query"),
        (f"{HOST}/x", 9, False, "depth"),
        (f"{HOST}/x", 1, True, "nofollow"),
        (f"{HOST}/events/2026/04", 1, False, "calendar"),
        (f"{HOST}/2191/04/", 1, False, "year"),
        (f"{HOST}/object/1942-8", 1, False, "year"),
        (f"{HOST}/newspaper/1905-04-03/", 1, False, "year"),
        (f"{HOST}/topic/4711/2", 1, False, "year"),
    ],
)
def test_poor_links(url: str, depth: int, nofollow: bool, reason: str) -> None:
    assert judge(url, depth, nofollow=nofollow, year=2026) == Verdict("poor", reason)


@pytest.mark.parametrize(
    "url",
    [
        *(
            f"{HOST}/",
            HOST,
            f"{HOST}/a/a/b",
            f"{HOST}/2026/04/a-post",
            f"{HOST}/1234/5678",
            f"{HOST}/isbn/1850-99",
        ),
        *(f"{HOST}/{'/'.join(map(str, range(16)))}", f"{HOST}/calendar", f"{HOST}/events/opening"),
    ],
)
def test_plain_links(url: str) -> None:
    assert judge(url, 8, year=2026) == Verdict("plain")


@given(st.text(), st.integers(0, 30), st.booleans())
def test_every_text_has_a_verdict(text: str, depth: int, nofollow: bool) -> None:
    verdict = judge(f"{HOST}/{text}", depth, nofollow=nofollow, year=2026)
    assert (verdict.worth == "plain") == (verdict.reason == "")
