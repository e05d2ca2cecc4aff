"""The links of a page."""

from __future__ import annotations

import pytest

from crawlproject.pages.links import MOST_LINKS, Link
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
