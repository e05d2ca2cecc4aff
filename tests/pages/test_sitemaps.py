"""Sitemaps, and what they may cost."""

from __future__ import annotations

import pytest

from crawlproject.pages import sitemaps
from crawlproject.pages.images import FoundImage
from crawlproject.pages.licences import Licence
from crawlproject.pages.sitemaps import SitemapPage, read_sitemap, sitemaps_of_robots

URL = "https://museum.example/sitemap.xml"
HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
    'xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">'
)


def pages(body: str | bytes) -> list[str]:
    return [page.url for page in read_sitemap(URL, body.encode() if isinstance(body, str) else body).pages]


def test_pages_with_dates_and_images() -> None:
    body = f"""{HEAD}
      <url><loc> https://museum.example/a?b=2&amp;a=1 </loc><lastmod>2026-01-02T03:04:05+00:00</lastmod>
        <changefreq>daily</changefreq>
        <image:image><image:loc>/i.jpg?w=1</image:loc><image:title>A  vase</image:title>
          <image:license>http://creativecommons.org/licenses/by/4.0/deed.de</image:license></image:image>
        <image:image><image:loc>mailto:x</image:loc></image:image></url>
      <url><lastmod>yesterday</lastmod><loc><![CDATA[/b]]></loc></url>
      <url><loc>javascript:x</loc></url><url/></urlset>"""
    found = read_sitemap(URL, body.encode())
    licence = Licence("https://creativecommons.org/licenses/by/4.0/", "CC BY 4.0")
    image = FoundImage("https://museum.example/i.jpg?w=1", licence, title="A vase")
    assert found.pages == [
        SitemapPage("https://museum.example/a?a=1&b=2", (image,)),
        SitemapPage("https://museum.example/b"),
    ]
    assert found.sitemaps == []


def test_an_index_names_sitemaps() -> None:
    body = (
        "<sitemapindex><sitemap><loc>/s1.xml.gz</loc><lastmod>2026-01</lastmod></sitemap>"
        "<sitemap><loc>/s2.xml</loc></sitemap></sitemapindex>"
    )
    found = read_sitemap(URL, body.encode())
    assert found.pages == []
    assert found.sitemaps == [
        "https://museum.example/s1.xml.gz",
        "https://museum.example/s2.xml",
    ]


def test_texts() -> None:
    text = (
        b"\xef\xbb\xbfhttps://museum.example/a\r\nhttps://museum.example/b\n\nnot a line\nhttp://museum.example/c"
    )
    expected = ["https://museum.example/a", "https://museum.example/b", "http://museum.example/c"]
    assert pages(text) == expected
    assert pages(f"\n{HEAD[38:]}<url><loc>/a</loc></url></urlset>") == ["https://museum.example/a"]


def test_what_was_read_before_a_fault_counts() -> None:
    found = read_sitemap(URL, f"{HEAD}<url><loc>/a</loc></url><url><loc>/b</loc></wrong>".encode())
    assert [page.url for page in found.pages] == ["https://museum.example/a"]


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>',
        '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE x [<!ENTITY % a SYSTEM "http://127.0.0.1/x">%a;]>',
    ],
)
def test_entities_are_refused(doctype: str) -> None:
    found = read_sitemap(URL, f"{doctype}<urlset><url><loc>/&a;</loc></url></urlset>".encode())
    assert found.pages == []


def test_the_numbers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sitemaps, "MOST_URLS", 100)
    body = HEAD + "".join(f"<url><loc>/{number}</loc></url>" for number in range(300)) + "</urlset>"
    found = read_sitemap(URL, body.encode())
    assert len(found.pages) == 100
    text = "\n".join(f"http://museum.example/{number}" for number in range(300))
    found = read_sitemap(URL, text.encode())
    assert len(found.pages) == 100


def test_images_of_a_page_are_bounded() -> None:
    image = "<image:image><image:loc>/i</image:loc></image:image>"
    body = f"{HEAD}<url><loc>/a</loc>{image * (sitemaps.MOST_IMAGES + 5)}</url></urlset>"
    found = read_sitemap(URL, body.encode())
    assert len(found.pages[0].images) == sitemaps.MOST_IMAGES


@pytest.mark.parametrize(
    "body",
    [
        *(
            b"<a>" * 100_000,
            b"<urlset><url><loc>" + b"a" * 1_000_000,
            b"<a " + b"b='1' " * 50_000,
        ),
        *(
            b"<urlset><url><loc>" + b"<![CDATA[a]]>" * 50_000,
            b"\x1f\x8b",
            b"\x1f\x8b\x08\0\0\0\0\0\0\0" + b"x" * 1000,
        ),
        *(
            b"",
            b"<?xml version='1.0' encoding='no-such'?><a/>",
            b"http://" + b"a" * 300_000,
            b"\xff\xfe<",
        ),
        *(b"<?xml version='1.0' encoding='base64'?><a/>", b"<urlset><url><loc>\xed\xa0\x80</loc></url></urlset>"),
    ],
)
def test_no_sitemap_raises(body: bytes) -> None:
    assert read_sitemap(URL, body).pages == []


def test_a_robots_txt_names_sitemaps() -> None:
    body = (
        b"\xef\xbb\xbfSitemap: /first.xml\nUser-agent: *\nDisallow: /\rSITEMAP :https://b.example/s.xml.gz # x\r\n"
        b"Sitemap: /first.xml#x\nSitemap:\nSitemap: javascript:x\n# Sitemap: /no.xml\n  sitemap:\t/third.xml"
    )
    assert sitemaps_of_robots(body, "https://museum.example/robots.txt") == [
        "https://museum.example/first.xml",
        "https://b.example/s.xml.gz",
        "https://museum.example/third.xml",
    ]


def test_the_sitemaps_of_a_robots_txt_are_bounded() -> None:
    body = b"".join(b"Sitemap: /%d\n" % number for number in range(20_000))
    assert len(sitemaps_of_robots(body, URL)) == 2 * sitemaps.MOST_SITEMAPS


@pytest.mark.parametrize(
    "body",
    [
        f"{HEAD}<url><loc>/a</loc></url>" + "<x/>" * 2_100_000,
        f"{HEAD}<url><loc>/a</loc></url>" + "<x>" * 1000,
        f"{HEAD}<url><loc>/a</loc></url>" + "".join(f"<x{number}/>" for number in range(30_000)),
        f"{HEAD}<url><loc>/a</loc></url>" + "".join(f'<x a{number}=""/>' for number in range(30_000)),
        f"{HEAD}<url><loc>/a</loc></url><!--" + "x" * 3_000_000,
        f"{HEAD}<url><loc>/a</loc></url><x " + "".join(f'a{number}="" ' for number in range(300_000)),
    ],
    ids=["elements", "nested", "names", "attributes", "comment", "tag"],
)
def test_what_no_honest_sitemap_has_ends_the_reading(body: str) -> None:
    parts = "<url><loc>/b</loc></url></urlset>"
    found = read_sitemap(URL, (body + parts).encode())
    assert [page.url for page in found.pages] == ["https://museum.example/a"]


def test_declarations_are_refused() -> None:
    body = '<!DOCTYPE urlset [<!ATTLIST url a CDATA "b">]><urlset><url><loc>/a</loc></url></urlset>'
    assert read_sitemap(URL, body.encode()) == sitemaps.Sitemap()
    assert pages("<!DOCTYPE urlset><urlset><url><loc>/a</loc></url></urlset>") == ["https://museum.example/a"]


def test_images_of_a_sitemap_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sitemaps, "MOST_URLS", 4)
    image = "<image:image><image:loc>/i.jpg</image:loc></image:image>"
    found = read_sitemap(URL, (HEAD + f"<url><loc>/a</loc>{image * 3}</url>" * 3 + "</urlset>").encode())
    assert [len(page.images) for page in found.pages] == [3, 3, 2]


def test_the_lines_of_a_robots_txt_about_sitemaps() -> None:
    robots = b"User-agent: *\r\nDisallow:\r\nSitemap: /a.xml\r\n  sitemap : /b.xml # two\n"
    kept = sitemaps.sitemap_lines(robots)
    assert b"isallow" not in kept
    assert sitemaps_of_robots(kept, "https://museum.example/robots.txt") == [
        "https://museum.example/a.xml",
        "https://museum.example/b.xml",
    ]
    assert sitemaps.sitemap_lines(b"User-agent: *\nAllow: /\n") == b""
