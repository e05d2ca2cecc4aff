"""The links of a page, and which are refused or put off by their form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproject.pages.links import LONGEST_TEXT, MOST_LINKS, MOST_OUTLINKS, Link, outlinks
from crawlproject.pages.traps import Verdict, judge
from crawlproject.texts import one_line
from tests.pages.reading import URL, read


def urls(html: str) -> list[str]:
    return [link.url for link in read(html).links]


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ("<a href=one>", ["https://museum.example/halls/one"]),
        ("<a href='/two#x'>", ["https://museum.example/two"]),
        ("<iframe src=frame></iframe>", ["https://museum.example/halls/frame"]),
        ("<frameset><frame src=frame></frameset>", ["https://museum.example/halls/frame"]),
        ("<link rel='prev nofollow' href=0>", ["https://museum.example/halls/0"]),
        ("<link rel=alternate hreflang=de href=de>", ["https://museum.example/halls/de"]),
        ("<meta http-equiv=Refresh content='3; URL=later'>", ["https://museum.example/halls/later"]),
        ("<meta http-equiv=refresh content=\"0;url='later' or so\">", ["https://museum.example/halls/later"]),
        ("<noscript><a href=one></a></noscript>", ["https://museum.example/halls/one"]),
        ("<a href=' one\n'>&amp;", ["https://museum.example/halls/one"]),
        ("<link rel=stylesheet href=s><link rel=alternate type=application/rss+xml href=f><a name=x>", []),
        ("<a href='#top'><a href=''><a href='.'><a>", []),
        ("<a href='javascript:x'><a href='MAILTO:a@b.example'><a href='data:text/html,x'><a href=tel:1>", []),
        ("<a href='http://user:secret@b.example/'><a href='http://'>", []),
        ("<!-- <a href=one> --><script>'<a href=two>'</script><template><a href=three></template>", []),
    ],
)
def test_what_links(html: str, found: list[str]) -> None:
    assert urls(html) == found


def test_each_address_is_one_link_and_followed_if_one_of_them_may_be() -> None:
    page = read("<a href=a rel=nofollow><a href=a#x><a href=./a?utm_source=x><a href=b rel='x NoFollow'>")
    assert page.links == (Link(f"{URL}a", False), Link(f"{URL}b", True))


@pytest.mark.parametrize(
    ("base", "joined"),
    [
        ("/other/", "https://museum.example/other/one"),
        ("javascript:alert(1)", f"{URL}one"),
        ("x" * 3000, f"{URL}one"),
    ],
)
def test_links_are_joined_to_the_first_base_that_is_an_address(base: str, joined: str) -> None:
    assert urls(f"<base target=x><base href='{base}'><base href='/second/'><a href=one>") == [joined]


def test_nofollow_pages_have_no_links() -> None:
    html = "<a href=one>"
    assert read(f"<meta name=robots content=nofollow>{html}").links == ()
    assert read(html, X_Robots_Tag="none").links == ()
    assert read(f"<meta name=robots content=noindex>{html}").links != ()


def test_the_number_of_links_is_bounded() -> None:
    page = read("".join(f"<a href={number}>" for number in range(MOST_LINKS + 500)))
    assert len(page.links) == MOST_LINKS


def test_all_addresses_of_a_page_together_have_a_bounded_length() -> None:
    page = read(f"<base href=/{'a/' * 900}>" + "".join(f"<a href={n}?b>" for n in range(900)))
    assert len(page.links) == 274


def told(html: str) -> list[tuple[str, ...]]:
    """Return what is reported of the links of a page, their addresses without what they have in common."""
    links = outlinks(read(html, link_texts=True).links)
    return [(one["url"].removeprefix(URL), one["text"], one["rel"]) for one in links]


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ("<a href=a> The <b>next</b>\n page </a>", [("a", "The next page", "")]),
        ("<a href=a rel='NoFollow  ugc'>x</a>", [("a", "x", "nofollow ugc")]),
        ("<a href=a><img src=i alt=x></a><a href='a#b' rel=up>later</a>", [("a", "later", "")]),
        ("<a href=a>first</a><a href='./a?utm_source=x' rel=up>second</a>", [("a", "first", "")]),
        ("<map><area href=a alt=' A  hall ' rel=up></map>", [("a", "A hall", "up")]),
        ("<iframe src=a>no frames</iframe>", [("a", "", "")]),
        ("<link rel=Next href=a title=t>", [("a", "", "next")]),
        ("<a href=a>one<div><a href=b>two</a></div></a>", [("a", "onetwo", ""), ("b", "two", "")]),
        ("<a href='javascript:x'>x</a><a href=' java\tscript:x'>y</a><a href='data:,x'>z</a>", []),
    ],
)
def test_what_links_say_is_told_where_it_is_asked_for(html: str, found: list[tuple[str, ...]]) -> None:
    assert told(html) == found
    assert not any(link.text or link.rel for link in read(html).links)


def test_what_links_say_is_bounded() -> None:
    [(_, text, rel)] = told(f"<a href=a rel='{'r ' * 5_000}'>{'<i> w</i>' * 5_000}</a>")
    assert len(text) <= LONGEST_TEXT
    assert len(rel) <= LONGEST_TEXT
    assert text.startswith("w w w")
    [(_, text, _)] = told(f"<a href=a>{' ' * 150_000}x</a>")
    assert text == ""
    deep = "".join(f"<div><a href={number}>{number} " for number in range(500))  # in each other
    assert [text for _, text, _ in told(deep)][:2] == [
        " ".join(map(str, range(first, 500)))[:LONGEST_TEXT].strip() for first in (0, 1)
    ]


def test_of_a_hundred_thousand_links_the_first_are_told() -> None:
    assert len(told("".join(f"<a href={number}>" for number in range(30_000)))) == MOST_LINKS


def test_all_that_is_told_of_links_is_less_than_a_megabyte_whatever_their_characters() -> None:
    links = [Link("u" * 100, text="\x85" * LONGEST_TEXT, rel="\u202e" * LONGEST_TEXT)] * MOST_LINKS
    kept = outlinks(links)
    assert len(kept) == MOST_OUTLINKS // 300
    line = one_line(kept)
    assert len(line.encode()) < 1_000_000
    assert line.isprintable()


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
