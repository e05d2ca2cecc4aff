"""Whether a body is a page, what it says and forbids, and that none harms its reader."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.http import Headers

from crawlproject.pages.images import MOST_IMAGES
from crawlproject.pages.links import MOST_LINKS
from crawlproject.pages.page import MAX_BYTES, Page, is_html, read_page
from crawlproject.pages.revisits import LONGEST_S, Look, is_home, look_of, verdict
from crawlproject.pages.rules import Rules, rules_of
from tests.pages.reading import NOW, URL, read


def test_title_language_and_rules() -> None:
    page = read(
        "<html lang=en-GB><title> The\n halls &amp; rooms </title><meta name=robots content=noindex>",
        X_Robots_Tag="noai",
    )
    assert (page.title, page.language, page.rules.opt_outs) == ("The halls & rooms", "en-GB", ("noai", "noindex"))


@pytest.mark.parametrize(
    ("html", "header", "language"),
    [
        ("<html lang=de_AT>", "", "de-AT"),
        ("<html xml:lang=fr>", "en", "fr"),
        ("<p>", "pt-BR", "pt-BR"),
        ("<p>", "de, en", None),
        ("<html lang='no language'>", "", None),
        ("<html lang>", "", None),
    ],
)
def test_the_language_is_what_is_said(html: str, header: str, language: str | None) -> None:
    assert read(html, Content_Language=header).language == language


def test_a_page_without_anything() -> None:
    page = read("")
    assert (page.title, page.language, page.digest, page.links, page.images) == (None, None, None, (), ())


def test_what_is_no_html_is_no_page() -> None:
    assert read_page(URL, Headers({"Content-Type": ["image/png"]}), b"<html>", NOW) is None
    assert read_page(URL, Headers({"X-Content-Type-Options": ["nosniff"]}), b"<html>", NOW) is None
    assert read_page(URL, Headers(), b"<html>", NOW) is not None


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("text/html", b"<p>x", True),
        ("application/xhtml+xml", b"<?xml version='1.0'?><html/>", True),
        ("text/html", PNG, False),
        ("text/html", b"\xff\xd8\xff\xe0", False),
        ("text/html", b"\xff\xfe<\0h\0t\0m\0l\0>\0", True),
        ("", b"\n <!DOCTYPE html><p>", True),
        ("", b"<!-- x --><p>", True),
        ("", b"<bold>", False),
        ("", b"<svg xmlns=...>", False),
        ("", b"plain", False),
        ("*/*", b"<title>x", True),
        ("text/plain", b"<html>", False),
        ("application/xml", b"<html>", False),
        ("image/png", b"<html>", False),
    ],
)
def test_html_is_told_by_type_and_bytes(content_type: str, body: bytes, expected: bool) -> None:
    assert is_html(content_type, body) is expected


def test_nosniff_forbids_to_look() -> None:
    assert not is_html("", b"<html>", nosniff=True)
    assert is_html("text/html", b"<html>", nosniff=True)


@given(st.text(), st.binary())
def test_no_bytes_raise(content_type: str, body: bytes) -> None:
    is_html(content_type, body)


@pytest.mark.parametrize(
    ("headers", "metas", "rules"),
    [
        ([], [], Rules(False, ())),
        (["none"], [], Rules(True, ("noindex",))),
        ([], [("robots", "NOINDEX,NOFOLLOW")], Rules(True, ("noindex",))),
        ([], [("googlebot", "none")], Rules(False, ())),
        (["noai"], [("robots", "noimageindex")], Rules(False, ("noai", "noimageindex"))),
        (["otherbot: none", "crawlproject: nofollow"], [], Rules(True, ())),
        ([], [("robots", "unavailable_after: 2020-01-01")], Rules(False, ("noindex",))),
        ([], [("tdm-reservation", " 1 ")], Rules(False, ("tdm-reservation",))),
        ([], [("tdm-reservation", "0"), ("description", "noindex")], Rules(False, ())),
    ],
)
def test_headers_and_meta_tags_apply_together(
    headers: list[str], metas: list[tuple[str, str]], rules: Rules
) -> None:
    assert rules_of(Headers({"X-Robots-Tag": headers}), metas, NOW) == rules


@given(st.dictionaries(st.binary(), st.lists(st.binary())), st.lists(st.tuples(st.text(), st.text())))
def test_no_rules_raise(headers: dict[bytes, list[bytes]], metas: list[tuple[str, str]]) -> None:
    rules_of(Headers(headers), [*metas, *(("robots", content) for _, content in metas)], NOW)


def test_the_digest_is_that_of_the_visible_text_without_a_picture() -> None:
    plain = read("<p>One <b>two</b></p>").digest
    dressed = (
        "<title>t</title><style>p{}</style><nav></nav><p class=x>One\n\n <i>two</i><script>3</script><!-- 4 -->"
    )
    assert read(dressed).digest == plain
    assert read("<p>One <b>three</b></p>").digest != plain


def test_the_digest_is_that_of_the_images_too() -> None:
    def digest(html: str, url: str = URL) -> str | None:
        return read(html, url=url).digest

    one = digest("<p>Next</p><img src=/1.jpg alt=Boat>")
    assert digest("<p class=x>Next</p><img alt=Boat src=/1.jpg width=7>") == one
    others = ("<p>Next</p>", "<p>Next</p><img src=/2.jpg alt=Boat>", "<p>Next</p><img src=/1.jpg alt=Ship>")
    assert len({one, *map(digest, others), digest("<img src=/1.jpg alt=Boat>")}) == 5
    assert digest("<img src=/1.jpg>", "https://other.example/") != digest("<img src=/2.jpg>")


@pytest.mark.parametrize(
    "image", ["logo.png", "img/logo.png", "../logo.png", "/logo.png", "https://b.example/logo.png"]
)
def test_relative_addresses_of_one_image_do_not_make_digests_without_end(image: str) -> None:
    paths = ["news/about/", "about/news/about/", "news/about/news/about/", "about/news/about/news/about/"]
    digests = {read(f"News<img src={image}>", url=f"https://museum.example/{path}").digest for path in paths}
    assert len(digests) == 1


def test_images_of_one_name_in_two_folders_or_at_two_sizes_are_two() -> None:
    def digest(image: str, path: str) -> str | None:
        return read(f"Next<img src={image}>", url=f"https://museum.example/{path}").digest

    assert digest("01.jpg", "rome/01.html") != digest("01.jpg", "oslo/01.html")
    assert digest("/iiif/7/full/90,/0/default.jpg", "7") != digest("/iiif/8/full/90,/0/default.jpg", "8")
    assert digest("/a/img/01.jpg", "a/01.html") != digest("/b/img/01.jpg", "b/01.html")


@pytest.mark.parametrize(
    ("body", "content_type", "title"),
    [
        ("<title>é€</title>".encode(), "text/html", "é€"),
        ("<title>é€</title>".encode("cp1252"), "text/html", "é€"),
        ("<title>é</title>".encode("cp1252"), "text/html; charset=ISO-8859-1", "é"),
        ("<meta charset=shift_jis><title>館</title>".encode("cp932"), "text/html", "館"),
        ("\ufeff<title>館</title>".encode("utf-16-le"), "text/html; charset=utf-8", "館"),
        ("\ufeff<title>館</title>".encode(), "text/html; charset=latin-1", "館"),
        *(
            ("<title>é</title>".encode(), f"text/html; charset={name}", "é")
            for name in (
                "base64",
                "zlib",
                "rot13",
                "punycode",
                "idna",
                "utf-7",
                "unicode_escape",
                "undefined",
                "no-such",
            )
        ),
        *(
            (f"<meta charset={name}><title>é</title>".encode(), "text/html", "é")
            for name in ("base64", "punycode", "idna", "utf-7")
        ),
    ],
)
def test_encodings(body: bytes, content_type: str, title: str) -> None:
    assert read(body, content_type=content_type).title == title


def test_the_first_bytes_are_read_and_no_character_cut_in_two_changes_the_encoding() -> None:
    cut = read_page(URL, Headers(), "<title>é".encode() + "é".encode()[:1], NOW)
    assert cut is not None
    assert cut.title == "é"
    assert read("<a href=one>" + "x" * MAX_BYTES + "<a href=two>").links == read("<a href=one>").links


def filled(unit: str) -> str:
    return (unit * (MAX_BYTES // len(unit) + 1))[:MAX_BYTES]


def numbered(unit: str) -> str:
    return "".join(unit.format(number) for number in range(MAX_BYTES // len(unit)))[:MAX_BYTES]


LD = "<script type='application/ld+json'>"
HOSTILE = {
    "deep": filled("<div>"),
    "options": "<select>" + filled("<option>x"),
    "links": numbered("<a href=/p{}>x</a>"),
    "parameters": numbered("<a href='?{}" + "&a=%fc" * 200 + "'>"),
    "hosts": numbered("<a href=//ü{}.example>"),
    "quotes": filled("<a href=\"<a href='"),
    "one attribute": f"<a href='{'a' * MAX_BYTES}'>",
    "attributes": "<p " + numbered("a{} ") + ">",
    "candidates": f"<img srcset='{numbered('a{} {}w,'.replace('{}', '{0}'))}'>",
    "commas": f"<img srcset='{filled(', ')}'>",
    "brackets": f"<img srcset='a {filled('(x)')}'>",
    "spaces": f"<img srcset='a{' ' * MAX_BYTES}'>",
    "licences": filled("<figure><a rel=license href=/x></a><img src=y></figure>"),
    "licences deep": "<div typeof=x>" * 39 + filled("<a rel=license href=/x></a><img src=y>"),
    "json deep": LD + "[" * 100_000,
    "json objects": LD + '{"a":' * 50_000,
    "json numbers": LD + "[" + "1," * 120_000 + "1]",
    "json digits": LD + "9" * 200_000,
    "json surrogates": LD + '{"@type":"ImageObject","name":"\\ud800","contentUrl":"/\\ud800","license":"\\udfff"}',
    "json strings": LD + '["' + "]]" * 100_000,
    "refresh": filled("<meta http-equiv=refresh content='0;url=x'>"),
    "a long refresh": f"<meta http-equiv=refresh content='{'0' * MAX_BYTES}'>",
    "nuls": "x" * 1500 + "\0" * MAX_BYTES,
    "surrogates": filled("&#xd800;<a href=&#xdfff;>"),
    "titles": filled("<title>x</title>"),
    "comments": filled("<!--"),
    "cdata": filled("<svg><![CDATA["),
    "templates": filled("<template>"),
}


def check(page: Page) -> None:
    assert len(page.links) <= MOST_LINKS
    assert len(page.images) <= MOST_IMAGES
    urls = [link.url for link in page.links] + [image.url for image in page.images]
    assert len(set(urls)) >= max(len(page.links), len(page.images))
    for url in urls:
        parts = urlsplit(url)
        assert parts.scheme in {"http", "https"}
        assert parts.hostname
        assert "@" not in parts.netloc
        assert not parts.fragment
    for text in (page.title, *(text for image in page.images for text in (image.alt, image.title, image.creator))):
        assert text is None or 0 < len(text) <= 500
        assert text is None or text.encode()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_page_is_read_within_limits(name: str) -> None:
    check(read(HOSTILE[name].encode("utf-8", "replace")))


@pytest.mark.parametrize(
    "charset", ["utf-8", "utf-16", "gb18030", "big5", "iso-2022-jp", "shift_jis", "punycode", "hz"]
)
@pytest.mark.parametrize("body", [b"\xe4\xff\x80" * 80_000, b"\x1b$B" * 80_000, b"~{" * 120_000, b"a-" * 125_000])
def test_broken_encodings_are_read(charset: str, body: bytes) -> None:
    headers = Headers({"Content-Type": [f"text/html; charset={charset}"]})
    read_page(URL, headers, b"\xef\xbb\xbf" + body, NOW)
    page = read_page(URL, headers, b"<p>" + b"x" * 1500 + body, NOW)
    assert page is not None
    check(page)


@pytest.mark.parametrize("attribute", [" {:x}", ' {:x}=">"', 'a{:x}=""', " {:x}='<a b>'"])
@pytest.mark.parametrize("head", ["<p ", "<svg><![CDATA[><p ", '<!-- <a b=" --><p ', "<p a='>' b='>'", "<p <x y "])
def test_a_page_with_an_element_of_thousands_of_attributes_is_not_parsed(head: str, attribute: str) -> None:
    html = "<a href=x>" + head + "".join(attribute.format(number) for number in range(15_000))
    assert read(html + ">").links == ()


def test_a_page_of_many_unclosed_elements_is_parsed_whole() -> None:
    links = "".join(f"<p><font size=-1><a href=/{number}>x" for number in range(600))
    assert len(read(links).links) == 600


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
    headers = Headers({"ETag": 'W/"a-1"', "Last-Modified": LOOK.modified})
    look = look_of("http://museum.example/", headers, "digest")
    assert look.conditions == {"If-None-Match": 'W/"a-1"', "If-Modified-Since": LOOK.modified}
    for etag, modified in ((b'"a"\nb"', b"1 May 2026"), (b"a", b"0"), (b'"' + b"a" * 300 + b'"', b"")):
        headers = Headers({"ETag": etag, "Last-Modified": modified})
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
