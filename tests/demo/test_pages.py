"""What the demo of pages says of a crawl."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from demo.pages import judge_counts, judge_site
from demo.sites import BEHIND_NOFOLLOW, FORBIDDEN, LICENCE, NOINDEX, Arrival, Site

SITE = Site("museum.example", 20, pictures=[b""] * 6, opt_outs=True)
BASE = "http://museum.example:8000"


def event(path: str, **changed: object) -> dict[str, Any]:
    told = {"licence": LICENCE, "found_on": f"{BASE}/real/1.html", "source": SITE.domain}
    return {"url": BASE + path, **told, **changed}


def arrival(path: str) -> Arrival:
    return Arrival(1.0, SITE.domain, SITE.domain, path, 200)


def judged(without: str | None = None, extra: str | None = None, asked: str = "/", **changed: object) -> list[str]:
    pages = (SITE.real() | {extra or "/"}) - {without}
    taken = SITE.licensed() - {without}
    images = [event(path, **changed) for path in taken]
    return list(judge_site(SITE, pages, taken, images, [arrival(path) for path in (asked, *taken)]))


def test_a_site_that_got_all_it_was_promised_is_not_mentioned() -> None:
    assert judged() == []
    assert judged(without="/real/20.html") == []  # 90 % are promised
    assert judged(extra="/events/2026/01") == []


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"without": "/pictures/2.jpg"}, "found and not crawled: /pictures/2.jpg"),
        ({"extra": NOINDEX}, "has an event for /noindex.html"),
        ({"asked": "/pictures/1.jpg"}, "no open licence, or are forbidden: /pictures/1.jpg"),
        ({"asked": BEHIND_NOFOLLOW}, "robots.txt or a nofollow forbids: /behind-nofollow.html"),
        ({"asked": FORBIDDEN + "a.html"}, "robots.txt or a nofollow forbids: /private/a.html"),
        ({"licence": None}, "without their licence, or the page"),
        ({"found_on": "http://other.example:8000/"}, "without their licence, or the page"),
    ],
)
def test_each_broken_promise_is_a_sentence(wrong: dict[str, Any], sentence: str) -> None:
    [said] = judged(**wrong)
    assert sentence in said


def test_what_is_lost_or_doubled_is_told() -> None:
    pages = Counter(links_admitted=3, pages=2, failed=1, not_html=1)
    images = Counter(links_admitted=2, thumbnails=1, link_rot=1)
    assert list(judge_counts(1, ["a", "b"], [event("/1")], pages, images)) == []
    assert list(judge_counts(1, ["a", "a"], [], pages, images)) == ["pages have more than one event: a"]
    assert list(judge_counts(2, ["a"], [], pages, images)) == ["5 pages were admitted, and 4 have ended"]
    assert list(judge_counts(1, ["a"], [], pages, Counter(links_admitted=1, outstanding=1))) == [
        "1 images are outstanding",
        "1 images were admitted, and 0 have ended",
    ]
