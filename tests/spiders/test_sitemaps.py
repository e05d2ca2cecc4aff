"""Sitemaps in the crawl of pages: a real site, a real Redis, `scrapy crawl pages`."""

from __future__ import annotations

import gzip
import json
import threading
from collections import Counter
from http.server import ThreadingHTTPServer
from typing import Any

from crawlproject.frontier import codec
from crawlproject.pages.sitemaps import MOST_SITEMAPS
from tests.spiders.test_pages import IMAGES, KEYS, LICENCE, Answer, Crawl, Site, html

SITEMAPS = "http://www.sitemaps.org/schemas/sitemap/0.9"
OF_IMAGES = "http://www.google.com/schemas/sitemap-image/1.1"


def robots(*sitemaps: str, rules: str = "User-agent: *\nDisallow:\n") -> Answer:
    lines = "".join(f"Sitemap: {one}\n" for one in sitemaps)
    return Answer(f"{rules}{lines}".encode(), Content_Type="text/plain")


def urlset(*urls: str, more: str = "") -> bytes:
    pages = "".join(f"<url><loc>{url}</loc></url>" for url in urls)
    head = f'<?xml version="1.0"?><urlset xmlns="{SITEMAPS}" xmlns:image="{OF_IMAGES}">'
    return f"{head}{pages}{more}</urlset>".encode()


def index(*urls: str) -> bytes:
    sitemaps = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
    return f'<?xml version="1.0"?><sitemapindex xmlns="{SITEMAPS}">{sitemaps}</sitemapindex>'.encode()


def xml(body: bytes, status: int = 200, **headers: str) -> Answer:
    return Answer(body, status, Content_Type="application/xml", **headers)


def totals(crawl: Crawl) -> dict[str, int]:
    return {name.decode(): int(count) for name, count in crawl.redis.hgetall(KEYS.totals).items()}


def test_pages_that_only_sitemaps_name_are_crawled(crawl: Crawl) -> None:
    home = crawl.home
    image = (
        f"<url><loc>{home}/d</loc><image:image><image:loc>{home}/d.jpg</image:loc>"
        f"<image:title>Vase</image:title><image:license>{LICENCE}</image:license></image:image>"
        f"<image:image><image:loc>{home}/unlicensed.jpg</image:loc></image:image></url>"
    )
    crawl.answers |= {
        "/robots.txt": robots(f"{home}/index.xml", f"{home}/list.txt", "/gone.xml", f"{home}/nofollow.xml"),
        "/": Answer(html("/index.xml", "/a", text="home")),
        "/index.xml": xml(
            index(f"{home}/one.xml.gz", f"{home}/two.xml", f"{home}/chain/1", "http://elsewhere.example/three.xml")
        ),
        **{f"/chain/{number}": xml(index(f"{home}/chain/{number + 1}")) for number in range(1, 9)},
        "/one.xml.gz": Answer(
            gzip.compress(urlset(f"{home}/a", f"{home}/b", "http://elsewhere.example/x")),
            Content_Type="application/gzip",
        ),
        "/two.xml": xml(gzip.compress(urlset(f"{home}/c", more=image)), Content_Encoding="gzip"),
        "/list.txt": Answer(f"{home}/e\n{home}/b\n{home}{'/x' * 30}\n".encode(), Content_Type="text/plain"),
        "/nofollow.xml": xml(urlset(f"{home}/hidden"), X_Robots_Tag="noindex, nofollow"),
        **{f"/{name}": Answer(html(f"/{name}/below", text=name)) for name in "abcde"},
        **{f"/{name}/below": Answer(html(text=f"below {name}")) for name in "abcde"},
    }
    crawl.feed(home + "/")
    log = crawl.run()
    pages = crawl.pages()
    assert set(pages) == {"/", *(f"/{name}" for name in "abcde"), *(f"/{name}/below" for name in "abcde")}, log
    assert {page["depth"] for path, page in pages.items() if path != "/"} == {1, 2}
    assert {pages[path]["depth"] for path in ("/b", "/c", "/d", "/e")} == {1}
    asked = Counter(crawl.seen)
    assert asked.pop("/index.xml") == 2  # as a sitemap, and as the page that it is not
    assert {*asked.values()} == {1}
    assert asked.keys() - pages.keys() == {
        *("/one.xml.gz", "/two.xml", "/list.txt", "/gone.xml", "/nofollow.xml"),
        *("/chain/1", "/chain/2"),  # as deep as indexes are followed
    }
    assert not crawl.events(KEYS.link_rot_events)
    assert pages["/e"]["found_on"] == f"{home}/list.txt"
    assert not crawl.dead()
    counted = totals(crawl)
    assert (counted["sitemaps"], counted["pages"], counted["not_html_application"]) == (7, 11, 1)
    assert counted["links_refused"] == 1  # a trap in a sitemap
    assert crawl.redis.hget(IMAGES.counters, "outstanding") == b"1"
    [found] = [
        codec.peek(entry)
        for key in crawl.redis.scan_iter(IMAGES.queue_of + "*")
        for entry in crawl.redis.lrange(key, 0, -1)
    ]
    assert found["url"] == f"{home}/d.jpg"
    assert found["meta"]["found"] == {"found_on": f"{home}/d", "licence": LICENCE, "title": "Vase"}


def test_sitemaps_elsewhere_lead_to_what_is_in_scope_alone_and_are_bounded(crawl: Crawl) -> None:
    server: Any = ThreadingHTTPServer(("127.0.0.2", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    elsewhere = f"http://127.0.0.2:{server.server_port}"
    server.seen, server.answers = (
        [],
        {
            "/map.xml": xml(urlset(f"{crawl.home}/in/a", f"{crawl.home}/out", f"{elsewhere}/page")),
            "/page": Answer(html(text="elsewhere")),
        },
    )
    crawl.answers |= {
        "/robots.txt": robots(f"{elsewhere}/map.xml", "/map.xml", f"{elsewhere}/one-too-many.xml"),
        "/map.xml": xml(urlset(f"{crawl.home}/in/b", f"{crawl.home}/out")),
        "/in/": Answer(html(text="home")),
        "/in/a": Answer(html("/in/c", "/out", text="a")),
        "/in/b": Answer(html(text="b")),
        "/in/c": Answer(html(text="c")),
        "/out": Answer(html(text="out")),
    }
    crawl.redis.hset(KEYS.ledger, "site", f"0 0 {MOST_SITEMAPS - 2}")
    crawl.feed(json.dumps({"url": crawl.home + "/in/", "scope": "127.0.0.1/in/*"}))
    try:
        log = crawl.run()
    finally:
        server.shutdown()
        server.server_close()
    assert set(crawl.pages()) == {"/in/", "/in/a", "/in/b", "/in/c"}, log
    assert server.seen == ["/map.xml"]
    assert totals(crawl)["sitemaps_left_out"] == 1
