"""What the demo of pages says of a crawl."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from rich.console import Console

from demo.pages import CLAIMED, judge_counts, judge_site, progress
from demo.sites import BEHIND_NOFOLLOW, FORBIDDEN, LICENCE, NOINDEX, Arrival, Site, Sites

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


def test_too_few_real_pages_break_the_promise() -> None:
    real = sorted(SITE.real())
    [said] = judge_site(SITE, set(real[: len(real) * 9 // 10]) - {"/"}, SITE.licensed(), [], [])
    assert f"of the {len(real)} real pages of museum.example" in said


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


def test_each_site_is_shown_with_its_progress_and_rate() -> None:
    domain = next(iter(CLAIMED))
    web = Sites([Site(domain, 10, pictures=[b""] * 4)])
    web.arrivals += [Arrival(100.0, domain, domain, path, 200) for path in ("/", "/real/1.html", "/x/1")]
    console = Console(width=110)
    with console.capture() as captured:
        counts = ({"sources": {domain: {"pages": 3}}}, {"sources": {domain: {"thumbnails": 1}}})
        console.print(progress(web, *counts, now=101.0))
    assert captured.get().splitlines()[1].split() == [domain, "2", "11", "1", "1", "2", "24.2/s", "0.6/s"]
