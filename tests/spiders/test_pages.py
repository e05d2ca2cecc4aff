"""The crawl of pages, by links and sitemaps, once and again: a real site, a real Redis, `scrapy crawl pages`."""

from __future__ import annotations

import gzip
import json
import re
import uuid
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from crawlproject.frontier import codec
from crawlproject.models import OF_FOUND, PageEvent
from crawlproject.pages.sitemaps import MOST_SITEMAPS
from crawlproject.state.keys import Keys
from tests import test_crawl as images
from tests.sites import Handler, served
from tests.test_crawl import picture

ROOT = Path(__file__).parents[2]
KEYS, IMAGES = Keys("crawl", "pages"), Keys("crawl", "images")
MOST_BYTES = 250_000
LICENCE = "https://creativecommons.org/licenses/by/4.0/"
HOSTS = ["127.0.0.1", "museum.example", "plain.example", "other.example"]  # those besides have no addresses


def html(*links: str, head: str = "", text: str = "", html_tag: str = "<html>") -> bytes:
    anchors = "".join(f'<a href="{link}">to {link}</a> ' for link in links)
    return f"<!DOCTYPE html>{html_tag}<head>{head}</head><body>{text}{anchors}</body></html>".encode()


class Answer:
    """What the site answers to a path."""

    def __init__(self, body: bytes = b"", status: int = 200, **headers: str) -> None:
        self.body, self.status = body, status
        self.headers = {"Content-Type": "text/html"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }


class Site(Handler):
    """Answers what `server.answers` says for a path, 304 to whoever names its ETag; notes what is asked for."""

    def get(self) -> None:
        server: Any = self.server
        answer: Answer = server.answers.get(self.path) or Answer(status=404)
        if self.path != "/robots.txt":
            server.seen.append(self.path)
        named, since = self.headers.get("If-None-Match"), self.headers.get("If-Modified-Since")
        if named or since:
            server.conditions.append((self.path, named, since))
        if named and named == answer.headers.get("ETag"):
            self.send_response(304)
            self.send_header("ETag", named)
            self.end_headers()
        else:
            self.answer(answer.status, answer.body, **answer.headers)


class Crawl(images.Crawl):
    """A site, a Redis, and workers."""

    def __init__(self, folder: Path, environ: dict[str, str], url: str, server: Any) -> None:
        super().__init__(folder, environ, url)
        self.server = server
        self.answers: dict[str, Answer] = server.answers
        self.seen: list[str] = server.seen
        self.home = f"http://127.0.0.1:{server.server_port}"
        row = {"source_name": "site", "image_count": 500_000_000, "hosts": HOSTS}
        (folder / "catalogue.json").write_text(json.dumps([row]))
        more = {"CRAWL_RETRY_DELAY": "0.2", "CRAWL_PAGES_DELAY": "0", "MAX_IDLE_TIME_BEFORE_CLOSE": "1"}
        self.environ |= more

    def feed(self, *lines: str, spider: str = "pages") -> None:
        self.redis.lpush(f"{spider}:start_urls", *lines)

    def through(self, spider: str = "pages", **settings: str) -> str:
        """Crawl until nothing is left; return the log."""
        self.spider = spider
        self.run(1, **settings)
        said = self.log(len(self.workers) - 1)
        assert int(self.redis.hget(Keys("crawl", spider).counters, "outstanding") or 0) == 0, said
        return said

    def pages(self) -> dict[str, dict[str, Any]]:
        """Return the events by path, of which each must be there once."""
        found = {event["url"].removeprefix(self.home): event for event in self.events(KEYS.page_events)}
        assert len(found) == self.redis.xlen(KEYS.page_events)
        return found

    def totals(self) -> dict[str, int]:
        return {name.decode(): int(count) for name, count in self.redis.hgetall(KEYS.totals).items()}

    def dead(self) -> dict[str, str]:
        """Return the reasons of the dead letters by path."""
        letters = [fields for _, fields in self.redis.xrange(KEYS.dead)]
        return {
            codec.url_of(fields[b"entry"]).removeprefix(self.home): fields[b"reason"].decode()
            for fields in letters
        }


@pytest.fixture
def crawl(tmp_path: Path, environment: dict[str, str], redis_url: str) -> Iterator[Crawl]:
    with served(Site, answers={}, seen=[], conditions=[]) as server:
        one = Crawl(tmp_path, environment, redis_url, server)
        yield one
        one.stop()


def test_each_page_in_scope_is_an_event_once(crawl: Crawl) -> None:
    crawl.answers |= {
        "/": Answer(
            html(
                "/a", "/b#part", "/a?", "http://elsewhere.example/", "mailto:x@y.org", "/moved", "/gone", "/broken"
            )
        ),
        "/a": Answer(
            html(
                "/",
                "/b",
                head='<title>The  A\n page</title><link rel="canonical" href="/a-canonical">',
                text="first",
                html_tag='<html lang="en-GB">',
            )
        ),
        "/a-canonical": Answer(html("/a", text="canonical")),
        "/b": Answer(
            html("c/", text='<a rel="license" href="https://creativecommons.org/licenses/by/4.0/">x</a>')
        ),
        "/c/": Answer(html("../d", head='<base href="/deeper/below/">', text="c")),
        "/deeper/d": Answer(html(text="d")),
        "/moved": Answer(status=301, Location="/new"),
        "/new": Answer(html("/beyond", text="new")),
        "/beyond": Answer(html(text="beyond")),
        "/gone": Answer(status=410),
        "/broken": Answer(status=500),
    }
    crawl.feed(crawl.home)
    log = crawl.through(CRAWL_MAX_RETRIES="1")
    pages = crawl.pages()
    assert set(pages) == {"/", "/a", "/a-canonical", "/b", "/c/", "/deeper/d", "/moved", "/beyond"}, log
    assert Counter(crawl.seen) == Counter([*pages]) + Counter({"/new": 1, "/gone": 1, "/broken": 2})
    for event in pages.values():
        left_out = {"extra", "outlinks", *(["found_on"] if event["depth"] == 0 else [])}
        assert [*event] == ["event", *(name for name in PageEvent.__slots__ if name not in left_out)]
        assert event["size"] == event["wire_size"] > 0
        assert event["discovered_at"] <= event["fetched_at"]
        assert (event["event"], event["status"], event["source"]) == ("pages", 200, "site")
    assert [pages[path]["depth"] for path in ("/", "/a", "/c/", "/deeper/d", "/beyond")] == [0, 1, 2, 3, 2]
    a, moved = pages["/a"], pages["/moved"]
    assert (a["title"], a["language"], a["licence"], a["links"]) == ("The A page", "en-GB", None, 3)
    assert pages["/b"]["licence"] == "https://creativecommons.org/licenses/by/4.0/"
    assert (moved["final_url"], moved["redirects"], moved["statuses"]) == (f"{crawl.home}/new", 1, [301, 200])
    found_on = {path: event.get("found_on", "").removeprefix(crawl.home) for path, event in pages.items()}
    assert found_on.pop("/beyond") == "/new"  # where its link is
    assert found_on == {"/": "", "/c/": "/b", "/deeper/d": "/c/", "/a-canonical": "/a"} | dict.fromkeys(
        ("/a", "/b", "/moved"), "/"
    )
    assert len({event["digest"] for event in pages.values()}) == len(pages)
    [rot] = crawl.events(KEYS.link_rot_events)
    assert (rot["url"], rot["status"], rot["source"]) == (f"{crawl.home}/gone", 410, "site")
    assert crawl.dead() == {"/broken": "status 500 (after 2 attempts)"}
    totals = crawl.totals()
    assert (totals["pages"], totals["good_pages"], totals["link_rot"], totals["failed"]) == (8, 8, 1, 1)
    assert totals["bytes"] == sum(len(crawl.answers[path].body) for path in {*pages, "/new"} - {"/moved"})
    links = {name: count for name, count in totals.items() if name.startswith("links_")}
    assert sum(links.values()) == sum(event["links"] for event in pages.values())
    assert links["links_admitted"] == len(pages) + 2 - 1  # gone and broken; the seed is no link
    assert sum(count for name, count in totals.items() if name.startswith("parse:")) == len(pages)


def test_what_a_site_forbids_is_not_followed_not_kept_and_not_reported(crawl: Crawl) -> None:
    robots = '<meta name="robots" content="{}">'
    song = f'<audio src="/song.mp3" title="Song"></audio><a rel="license" href="{LICENCE}">BY</a>'
    elsewhere = "http://elsewhere.example/?b=1#c"
    paths = ("/private", "/nofollow", "/noindex", "/header", "/none", "/ours", "/tdm", "/noai")
    crawl.answers |= {
        "/robots.txt": Answer(b"User-agent: *\nDisallow: /private", Content_Type="text/plain"),
        "/": Answer(html(*paths, elsewhere, "javascript:x", text=song)),
        "/nofollow": Answer(html("/hidden-1", head=robots.format("nofollow"), text="1")),
        "/noindex": Answer(html("/shown", head=robots.format("noindex, follow"), text="2")),
        "/header": Answer(html("/hidden-2", text="3"), X_Robots_Tag="otherbot: noindex, crawlproject: nofollow"),
        "/none": Answer(html("/hidden-3", head=robots.format("NONE"), text="4")),
        "/ours": Answer(html("/hidden-4", head='<meta name="crawlproject" content="none">', text="5")),
        "/tdm": Answer(html("/shown", text="6"), TDM_Reservation="1"),
        "/noai": Answer(html(head=robots.format("noai"), text=f"{song}7")),
        "/shown": Answer(html(text="8")),
    }
    crawl.feed(crawl.home + "/")
    log = crawl.through(CRAWL_PAGES_LINKS="event", CRAWL_PAGES_MEDIA="audio,video")
    pages = crawl.pages()
    assert set(pages) == {"/", "/nofollow", "/header", "/noai", "/shown"}, log
    assert not [path for path in crawl.seen if path.startswith(("/hidden", "/private"))]
    dead = crawl.dead()
    assert dead.pop("/private").startswith("robots.txt: ")
    assert dead == dict.fromkeys(("/noindex", "/none", "/ours"), "opt-out: noindex") | {
        "/tdm": "opt-out: tdm-reservation"
    }
    assert int(crawl.redis.hget(KEYS.dead_sources, "")) == len(dead) + 1
    assert pages["/"]["outlinks"] == [
        {"url": LICENCE, "text": "BY", "rel": "license"},
        *({"url": crawl.home + path, "text": f"to {path}", "rel": ""} for path in paths),
        {"url": elsewhere.partition("#")[0], "text": f"to {elsewhere}", "rel": ""},
    ]
    assert not {"/nofollow", "/header"} & {path for path, page in pages.items() if "outlinks" in page}
    [media] = crawl.events(KEYS.media_events)
    told = {"event": "page_media", "url": f"{crawl.home}/song.mp3", "source": "site", "type": "audio"}
    about = {"licence": LICENCE, "found_on": f"{crawl.home}/", "time": pages["/"]["fetched_at"], "title": "Song"}
    assert media == told | about


def test_hostile_responses_and_links_beyond_a_seeds_depth_cost_a_bounded_amount(crawl: Crawl) -> None:
    blanks = b" " * 100_000_000
    bomb = gzip.compress(html("/in-the-bomb", text="bomb") + blanks, 9)
    del blanks
    large = html("/at-the-start", text="large") + b"<p>text</p>" * 500_000 + html("/at-the-end")
    stored = zlib.compress(large, 0)
    crawl.answers |= {
        "/": Answer(
            html(
                *(
                    "/bomb",
                    "/large",
                    "/stored",
                    "/pdf",
                    "/png",
                    "/text",
                    "/unknown",
                    "/latin",
                    "/damaged",
                    "/empty",
                )
            )
        ),
        "/bomb": Answer(bomb, Content_Encoding="gzip"),
        "/large": Answer(large),
        "/stored": Answer(stored, Content_Encoding="deflate"),
        "/pdf": Answer(b"%PDF-1.7 <a href='/from-a-pdf'>"),
        "/seed.png": Answer(b"\x89PNG\r\n\x1a\n", Content_Type="image/png"),
        "/png": Answer(b"\x89PNG\r\n\x1a\n", Content_Type="image/png"),
        "/text": Answer(b"<html><a href='/from-text'>x</a></html>", Content_Type="text/plain"),
        "/unknown": Answer(html("/from-unknown", text="unknown"), Content_Type="unknown/unknown"),
        "/latin": Answer(
            html("/from-latin", head="<title>Caf\xe9</title>", text="latin").decode().encode("latin-1"),
            Content_Type="text/html; charset=iso-8859-1",
        ),
        "/damaged": Answer(b"no gzip at all", Content_Encoding="gzip"),
        "/empty": Answer(b""),
        **{
            path: Answer(html(text=path))
            for path in ("/in-the-bomb", "/at-the-start", "/at-the-end", "/from-unknown", "/from-latin")
        },
    }
    chain = [f"/chain/{number}" for number in range(5)]
    crawl.answers |= {path: Answer(html(following, text=path)) for path, following in pairwise(chain)}
    deep = json.dumps({"url": crawl.home + chain[0], "depth": 2})
    crawl.feed(crawl.home + "/", crawl.home + "/seed.png", deep)
    log = crawl.through()
    pages = crawl.pages()
    assert set(pages) == {
        *("/", "/bomb", "/large", "/stored", "/unknown", "/latin", "/empty"),
        *("/in-the-bomb", "/at-the-start", "/from-unknown", "/from-latin", *chain[:3]),
    }, log
    assert pages["/latin"]["title"] == "Café"
    assert (pages["/empty"]["digest"], pages["/empty"]["links"]) == (None, 0)
    [received] = re.findall(r"'downloader/response_bytes': (\d+)", log)
    assert int(received) < len(bomb) + 4 * MOST_BYTES < len(large)
    dead = crawl.dead()
    assert set(dead) == {"/damaged", "/seed.png"}
    assert dead["/damaged"].startswith("content coding gzip: ")
    assert dead["/seed.png"] == "not HTML (Content-Type: image/png)"
    totals = crawl.totals()
    types = {name: count for name, count in totals.items() if name.startswith("not_html")}
    assert types == {"not_html_image": 1, "not_html_text": 1, "not_html_other": 1}
    assert totals["pages"] == len(pages)
    assert (pages["/bomb"]["size"], pages["/bomb"]["wire_size"]) == (MOST_BYTES, len(bomb))
    assert MOST_BYTES <= pages["/large"]["wire_size"] < len(large)
    assert (pages["/latin"]["content_type"], pages["/empty"]["size"]) == ("text/html", 0)


def test_images_found_are_crawled_by_the_other_spider(crawl: Crawl) -> None:
    jpeg = Answer(picture(1), Content_Type="image/jpeg")
    licensed = (
        f'<figure><img src="/own.jpg" alt="A cow" title="Cow"><a rel="license" href="{LICENCE}">BY</a>'
        '<span itemprop="creator">Ana</span></figure>'
    )
    crawl.answers |= {
        "/": Answer(html("/a", "/other", "/noai", "/noindex", text=f"{licensed}<img src='/unlicensed.jpg'>")),
        "/a": Answer(html(text=f"the same image again {licensed}")),
        "/other": Answer(
            html(
                text=f'<figure><img src="http://other.example/x.jpg"><a rel=license href={LICENCE}>BY</a></figure>'
            )
        ),
        "/noai": Answer(html(head='<meta name="robots" content="noai">', text=licensed.replace("own", "noai"))),
        "/noindex": Answer(
            html(head='<meta name="robots" content="noindex">', text=licensed.replace("own", "noindex"))
        ),
        **{f"/{name}.jpg": jpeg for name in ("own", "unlicensed", "noai", "noindex")},
    }
    crawl.feed(crawl.home + "/")
    log = crawl.through()
    assert {path: page["images"] for path, page in crawl.pages().items()} == {
        "/": 2, "/a": 1, "/other": 1, "/noai": 0,
    }, log  # fmt: skip
    assert crawl.redis.hget(IMAGES.counters, "outstanding") == b"2"
    crawl.through("images", CRAWL_MAX_RETRIES="0")
    [image] = crawl.events(IMAGES.image_events)
    url = f"{crawl.home}/own.jpg"
    assert (image["url"], image["identifier"], image["source"]) == (
        url, str(uuid.uuid5(uuid.NAMESPACE_URL, url)), "site",
    )  # fmt: skip
    assert {name: image.get(name) for name in OF_FOUND} == {
        "found_on": crawl.home + "/",
        "licence": LICENCE,
        "alt": "A cow",
        "title": "Cow",
        "creator": "Ana",
    }
    [dead] = [fields for _, fields in crawl.redis.xrange(IMAGES.dead)]
    assert codec.peek(dead[b"entry"])["meta"]["found"] == {
        "found_on": crawl.home + "/other",
        "licence": LICENCE,
    }


# Sitemaps

SITEMAPS = "http://www.sitemaps.org/schemas/sitemap/0.9"
OF_IMAGES = "http://www.google.com/schemas/sitemap-image/1.1"


def robots(*sitemaps: str) -> Answer:
    lines = "".join(f"Sitemap: {one}\n" for one in sitemaps)
    return Answer(f"User-agent: *\nDisallow:\n{lines}".encode(), Content_Type="text/plain")


def urlset(*urls: str, more: str = "") -> bytes:
    pages = "".join(f"<url><loc>{url}</loc></url>" for url in urls)
    head = f'<?xml version="1.0"?><urlset xmlns="{SITEMAPS}" xmlns:image="{OF_IMAGES}">'
    return f"{head}{pages}{more}</urlset>".encode()


def index(*urls: str) -> bytes:
    sitemaps = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
    return f'<?xml version="1.0"?><sitemapindex xmlns="{SITEMAPS}">{sitemaps}</sitemapindex>'.encode()


def xml(body: bytes, status: int = 200, **headers: str) -> Answer:
    return Answer(body, status, Content_Type="application/xml", **headers)


def test_pages_that_only_sitemaps_name_are_crawled(crawl: Crawl) -> None:
    home = crawl.home
    image = (
        f"<url><loc>{home}/d</loc><image:image><image:loc>{home}/d.jpg</image:loc>"
        f"<image:title>Vase</image:title><image:license>{LICENCE}</image:license></image:image>"
        f"<image:image><image:loc>{home}/unlicensed.jpg</image:loc></image:image></url>"
    )
    named = (f"{home}/index.xml", f"{home}/list.txt", "/gone.xml", f"{home}/nofollow.xml", f"{home}/noai.xml")
    crawl.answers |= {
        "/robots.txt": robots(*named),
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
        "/noai.xml": xml(urlset(more=image.replace("/d.jpg", "/noai.jpg")), X_Robots_Tag="noai"),
        "/nofollow.xml": xml(urlset(f"{home}/hidden"), X_Robots_Tag="noindex, nofollow"),
        **{f"/{name}": Answer(html(f"/{name}/below", text=name)) for name in "abcde"},
        **{f"/{name}/below": Answer(html(text=f"below {name}")) for name in "abcde"},
    }
    crawl.feed(home + "/")
    log = crawl.through()
    pages = crawl.pages()
    assert set(pages) == {"/", *(f"/{name}" for name in "abcde"), *(f"/{name}/below" for name in "abcde")}, log
    assert {page["depth"] for path, page in pages.items() if path != "/"} == {1, 2}
    assert {pages[path]["depth"] for path in ("/b", "/c", "/d", "/e")} == {1}
    asked = Counter(crawl.seen)
    assert asked.pop("/index.xml") == 2  # as a sitemap, and as the page that it is not
    assert {*asked.values()} == {1}
    assert asked.keys() - pages.keys() == {
        *("/one.xml.gz", "/two.xml", "/list.txt", "/gone.xml", "/nofollow.xml", "/noai.xml"),
        *("/chain/1", "/chain/2"),  # as deep as indexes are followed
    }
    assert not crawl.events(KEYS.link_rot_events)
    assert pages["/e"]["found_on"] == f"{home}/list.txt"
    assert not crawl.dead()
    counted = crawl.totals()
    assert (counted["sitemaps"], counted["pages"], counted["not_html_application"]) == (8, 11, 1)
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
    crawl.answers |= {
        "/map.xml": xml(urlset(f"{crawl.home}/in/b", f"{crawl.home}/out")),
        "/in/": Answer(html(text="home")),
        "/in/a": Answer(html("/in/c", "/out", text="a")),
        "/in/b": Answer(html(text="b")),
        "/in/c": Answer(html(text="c")),
        "/out": Answer(html(text="out")),
    }
    crawl.redis.hset(KEYS.ledger, "site", f"0 0 {MOST_SITEMAPS - 2}")
    crawl.feed(json.dumps({"url": crawl.home + "/in/", "scope": "127.0.0.1/in/*"}))
    with served(Site, host="127.0.0.2", answers={}, seen=[]) as server:
        elsewhere = f"http://127.0.0.2:{server.server_port}"
        server.answers["/map.xml"] = xml(urlset(f"{crawl.home}/in/a", f"{crawl.home}/out", f"{elsewhere}/page"))
        server.answers["/page"] = Answer(html(text="elsewhere"))
        sitemaps = (f"{elsewhere}/map.xml", "/map.xml", f"{elsewhere}/one-too-many.xml")
        crawl.answers["/robots.txt"] = robots(*sitemaps)
        log = crawl.through()
    assert set(crawl.pages()) == {"/in/", "/in/a", "/in/b", "/in/c"}, log
    assert server.seen == ["/map.xml"]
    assert crawl.totals()["sitemaps_left_out"] == 1


# Pages that are looked at again

HOUR = {"CRAWL_PAGES_REVISIT": "3600", "MAX_IDLE_TIME_BEFORE_CLOSE": "3"}
ETAG = '"one"'


def make_due(crawl: Crawl) -> None:
    """Have all looks be due, as after a long time."""
    for key in crawl.redis.scan_iter(KEYS.revisits_of + "*"):
        for page, line in crawl.redis.hgetall(key).items():
            crawl.redis.hset(key, page, b"1 " + line.partition(b" ")[2])
        crawl.redis.zadd(KEYS.revisits, {key.decode().removeprefix(KEYS.revisits_of): 1})


def intervals(crawl: Crawl) -> set[float]:
    """Return the seconds between the last look at each page and the next one."""
    lines = (line for key in crawl.redis.scan_iter(KEYS.revisits_of + "*") for line in crawl.redis.hvals(key))
    return {int(line.split(b"\n")[0].split()[1]) / 1e6 for line in lines}


def told(crawl: Crawl) -> list[tuple[str, int, str | None]]:
    """Return path, status and `revisit` of the events of pages."""
    return [
        (one["url"].removeprefix(crawl.home), one["status"], one["revisit"])
        for one in crawl.events(KEYS.page_events)
    ]


def test_a_home_page_comes_back_and_what_is_new_on_it_is_crawled(crawl: Crawl) -> None:
    image = f'<img src="/a.jpg"><a rel="license" href="{LICENCE}">licence</a>'
    crawl.answers |= {
        "/": Answer(html("/a", text="home" + image)),
        "/a": Answer(html("/", text="a")),
        "/b": Answer(html("/", text="b")),
    }
    crawl.feed(crawl.home + "/")
    crawl.through(**HOUR)
    assert crawl.seen == ["/", "/a"]  # not due yet
    make_due(crawl)
    crawl.answers["/"] = Answer(html("/a", "/b", text="home, with news" + image), ETag=ETAG)
    log = crawl.through(**HOUR)
    assert crawl.seen == ["/", "/a", "/", "/b"], log
    assert told(crawl) == [("/", 200, None), ("/a", 200, None), ("/", 200, "changed"), ("/b", 200, None)]
    assert crawl.redis.hget(IMAGES.counters, "outstanding") == b"1"
    assert int(crawl.redis.hget(IMAGES.totals, "links_admitted")) == 1
    assert intervals(crawl) == {3600}
    counted = crawl.totals()
    assert (counted["revisits"], counted.get("revisits_unchanged")) == (1, None)
    make_due(crawl)
    log = crawl.through(**HOUR)
    assert crawl.server.conditions == [("/", ETAG, None)], log
    assert told(crawl)[4:] == [("/", 304, "unchanged")]
    assert intervals(crawl) == {2 * 3600}
