"""Probes: a real site that answers in every way, a real Redis, `scrapy feed --probe` and `scrapy crawl images`."""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyarrow import parquet as pq

from crawlproject.plugins import offered
from tests.conftest import Scrapy
from tests.contrib.probes.test_beginning import exif, noise, saved
from tests.sites import Handler, served
from tests.test_crawl import KEYS, Crawl, size_for

BYTES = 32_768
ETAG, DATE = '"v1"', "Sun, 22 Nov 2026 10:30:00 GMT"
LARGE = saved("JPEG", noise((800, 600)), quality=83, exif=exif())
SMALL = saved("PNG", noise((40, 30)), exif=exif())
HUGE = 50_000_000  # bytes
RATE = 20.0


class Asked(NamedTuple):
    """A request: its headers, when it came, and how many bytes of its answer could be sent."""

    path: str
    headers: dict[str, str | None]
    at: float
    sent: list[int]
    port: int  # of the crawler's end of the connection


NAMED = ("Range", "If-None-Match", "If-Modified-Since", "Accept-Encoding")


def part(body: bytes = LARGE, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """Return the answer of a server that gives parts."""
    first = body[:BYTES]
    place = f"bytes 0-{len(first) - 1}/{len(body)}"
    return 206, first, {"Content_Range": place, "Content_Type": "image/jpeg", **headers}


ANSWERS: dict[str, tuple[int, bytes, dict[str, str]]] = {
    "robots": (404, b"", {}),
    "missing": (404, b"", {}),
    "parts": part(ETag=ETAG, Last_Modified=DATE),
    "small": part(SMALL),
    "small-ok": (200, SMALL, {"Content_Type": "Image/PNG; x=y"}),
    "coded": (200, gzip.compress(SMALL), {"Content_Encoding": "gzip"}),
    "never-in-parts": (416, b"", {}),
    "short": (206, LARGE[:100], {"Content_Range": f"bytes 0-99/{len(LARGE)}"}),
    "page": part(b"<html>not found</html>" * 2_000),
    "opt-out": part(X_Robots_Tag="noai"),
    "moved": (302, b"", {"Location": "/parts.jpg"}),
    "forbidden": (403, b"", {}),
    "another": part(ETag='"v2"'),
    "full": (200, LARGE, {"ETag": ETAG, "Last_Modified": DATE}),
}


class Site(Handler):
    """Answers each path in its own way: as in ANSWERS, or by a method (`answer_...`)."""

    def get(self) -> None:
        server: Any = self.server
        self.sent = [0]
        name = self.path.strip("/").partition(".")[0]
        if self.path != "/robots.txt":
            asked = {one: self.headers.get(one) for one in NAMED}
            server.asked.append(Asked(self.path, asked, time.time(), self.sent, self.client_address[1]))
        with suppress(BrokenPipeError, ConnectionResetError):
            if name in ANSWERS:
                status, body, headers = ANSWERS[name]
                self.tell(status, body, None, **headers)
            else:
                getattr(self, f"answer_{name.replace('-', '_')}")()

    def tell(self, status: int, body: bytes = b"", length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        if length != -1 and status != 304:
            self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.send(body)

    def send(self, body: bytes) -> None:
        for at in range(0, len(body), 65_536):
            self.wfile.write(body[at : at + 65_536])
            self.sent[0] += len(body[at : at + 65_536])

    def answer_huge(self) -> None:
        self.tell(200, LARGE.ljust(HUGE, b"\0"))

    def answer_endless(self) -> None:
        self.close_connection = True
        self.tell(200, LARGE.ljust(HUGE, b"\0"), -1, Connection="close")

    def answer_no_parts(self) -> None:
        if self.headers["Range"]:
            self.tell(416, b"no", Content_Range=f"bytes */{len(LARGE)}")
        else:
            self.tell(200, LARGE)

    def answer_more(self) -> None:
        self.tell(206, LARGE.ljust(HUGE, b"\0"), Content_Range=f"bytes 0-{BYTES - 1}/{HUGE}")

    def answer_same(self) -> None:
        if self.headers["If-None-Match"] == ETAG or self.headers["If-Modified-Since"] == DATE:
            self.tell(304, ETag=ETAG)
        else:
            self.tell(500)


class Probing(Crawl):
    """A crawl of one site."""

    def __init__(self, folder: Path, environ: dict[str, str], url: str, server: Any) -> None:
        super().__init__(folder, environ, url)
        self.server = server
        self.home = f"http://127.0.0.1:{self.server.server_port}"
        row = {"source_name": "museum", "image_count": size_for(RATE), "hosts": ["127.0.0.1"], "gone": [403]}
        (folder / "catalogue.json").write_text(json.dumps([row]))
        self.environ |= {"CRAWL_MAX_RETRIES": "0", "CRAWL_RETRY_DELAY": "0.1"}

    def url(self, name: str) -> str:
        return f"{self.home}/{name}"

    def asked(self, name: str) -> list[Asked]:
        """Return the requests for a path."""
        return [one for one in self.server.asked if one.path == f"/{name}"]

    def probes(self) -> dict[str, dict[str, Any]]:
        """Return the events of probes by the paths of their URLs."""
        events = self.events(KEYS.probe_events)
        assert len({event["url"] for event in events}) == len(events)
        return {event["url"].rpartition("/")[2]: event for event in events}

    def failures(self) -> dict[str, str]:
        """Return why requests became dead letters, by the paths of their URLs."""
        letters = self.dead_letters().values()
        return {letter["url"].rpartition("/")[2]: letter["reason"] for letter in letters}


@pytest.fixture
def crawl(tmp_path: Path, environment: dict[str, str], redis_url: str) -> Iterator[Probing]:
    with served(Site, asked=[]) as server:
        one = Probing(tmp_path, environment, redis_url, server)
        yield one
        one.stop()


def says(event: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Check that an event says that, among other things."""
    assert {name: event[name] for name in wanted} == wanted, event["url"]


THERE = [
    *("parts.jpg", "small.png", "small-ok.png", "coded.png", "huge.jpg", "endless.jpg"),
    *("no-parts.jpg", "more.jpg", "short.jpg", "moved.jpg"),
]
FAIL = {
    "never-in-parts.jpg": "status 416",
    "page.html": "not a picture in a supported format",
    "opt-out.jpg": "opt-out: noai (X-Robots-Tag)",
}
GONE = {"missing.jpg": 404, "forbidden.jpg": 403}


def test_a_probe_ends_in_one_way_whatever_the_site_does(crawl: Probing, scrapy: Scrapy) -> None:
    names = [*THERE, *FAIL, *GONE]
    done = scrapy("feed", "--probe", "-", stdin="\n".join(map(crawl.url, names)))
    assert done.stdout == f"{len(names)} seeds fed, 0 rejected\n"
    crawl.run(CRAWL_OPT_OUTS="noai")

    found, failures = crawl.probes(), crawl.failures()
    assert found.keys() == set(THERE)
    assert failures.keys() == FAIL.keys()
    for name, reason in FAIL.items():
        assert failures[name].startswith(reason)
    assert {
        event["url"].rpartition("/")[2]: event["status"] for event in crawl.events(KEYS.link_rot_events)
    } == GONE
    assert all(event["probe"] for event in crawl.events(KEYS.link_rot_events))
    assert not crawl.events(KEYS.image_events)
    assert not list(crawl.folder.glob("thumbnails/*/*.jpg"))

    size, known = {"width": 800, "height": 600}, {"format": "JPEG", "compression_quality": 83}
    tags = {"0x10f": "Maker", "0x112": 6}
    whole = size | known | {"exif": tags, "sha256": None, "revisit": None}
    parts = found["parts.jpg"]
    assert parts["identifier"] and parts["source"] == "museum"
    says(parts, whole | {"status": 206, "filesize": len(LARGE), "received": BYTES})
    assert (parts["etag"], parts["last_modified"], parts["content_type"]) == (ETAG, DATE, "image/jpeg")
    for name in ("huge.jpg", "endless.jpg", "no-parts.jpg", "more.jpg", "moved.jpg"):
        says(found[name], whole)
    for name in ("small.png", "small-ok.png"):
        says(found[name], {
            "width": 40, "height": 30, "format": "PNG", "filesize": len(SMALL), "exif": tags,
            "sha256": hashlib.sha256(SMALL).hexdigest(),
        })  # fmt: skip
    assert (found["small-ok.png"]["status"], found["small-ok.png"]["content_type"]) == (200, "image/png")
    says(found["coded.png"], {"width": 40, "filesize": None})
    unknown = {"format": "JPEG", "width": None, "height": None, "compression_quality": None, "exif": None}
    says(found["short.jpg"], unknown | {"filesize": len(LARGE), "received": 100})
    says(found["moved.jpg"], {"final_url": crawl.url("parts.jpg"), "redirects": 1})

    # No more is read than was asked for, and a server that goes on finds the connection closed.
    for name, length in (("huge.jpg", HUGE), ("endless.jpg", None), ("more.jpg", HUGE)):
        assert found[name]["filesize"] == length
        assert BYTES < found[name]["received"] < 4 * BYTES + 65_536
        (asked,) = crawl.asked(name)
        assert asked.sent[0] < HUGE / 4
    for asked in crawl.server.asked:
        assert asked.headers["Accept-Encoding"] == "identity"
    # Once more without a range, by a slot of its own.
    for name in ("no-parts.jpg", "never-in-parts.jpg"):
        first, second = crawl.asked(name)
        assert (first.headers["Range"], second.headers["Range"]) == (f"bytes=0-{BYTES - 1}", None)
    times = sorted(one.at for one in crawl.server.asked)
    assert len(times) == len(names) + 2 + 1  # and the one that was redirected
    # One more than allowed: a thread of this process notes when they arrive, on a busy machine a little late.
    assert max(sum(begin <= one < begin + 1 for one in times) for begin in times) <= 1.1 * RATE + 2
    counts = crawl.redis.hgetall(KEYS.totals)
    assert int(counts[b"probes"]) == len(THERE)
    assert crawl.redis.hget(KEYS.counters, "outstanding") == b"0"


def test_a_probe_on_a_condition(crawl: Probing) -> None:
    known = {"etag": ETAG, "last_modified": DATE, "filesize": len(LARGE)}
    seeds = {
        "same.jpg": known,
        "same.jpg?by-date": {"last_modified": DATE},
        "another.jpg": known,
        "small.png": {"filesize": len(SMALL)},
        "missing.jpg": known,
        "moved.jpg": known | {"final_url": crawl.url("parts.jpg")},
    }
    for name, probe in seeds.items():
        crawl.redis.lpush(KEYS.seeds, json.dumps({"url": crawl.url(name), "probe": probe}))
    crawl.run()
    found = crawl.probes()
    assert {name: (event["status"], event["revisit"]) for name, event in found.items()} == {
        "same.jpg": (304, "unchanged"),
        "same.jpg?by-date": (304, "unchanged"),
        "another.jpg": (206, "changed"),
        "small.png": (206, "unchanged"),
        "moved.jpg": (206, "unchanged"),
    }
    same = found["same.jpg"]
    says(same, known | {"width": None, "format": None, "exif": None, "received": 0})
    (first,) = crawl.asked("same.jpg")
    assert (first.headers["If-None-Match"], first.headers["If-Modified-Since"]) == (ETAG, DATE)
    # Only the address that has named a version is asked by it.
    for name, wanted in (("moved.jpg", None), ("parts.jpg", ETAG)):
        assert [one.headers["If-None-Match"] for one in crawl.asked(name)] == [wanted]


@pytest.mark.skipif("parquet" not in offered("readers"), reason="that plug-in was deleted")
def test_a_catalogue_is_checked_again_from_its_own_dataset(
    crawl: Probing,
    scrapy: Scrapy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    urls = [crawl.url(name) for name in ("full.jpg", "small-ok.png", "missing.jpg", "forbidden.jpg")]
    scrapy("feed", "-", stdin="\n".join(urls))
    crawl.run()
    dataset = f"{crawl.folder / 'out'}/"
    scrapy("events", f"{dataset}:parquet")
    table = pq.read_table(crawl.folder / "out" / "00000000.parquet").to_pylist()
    told = {row["url"]: (row["status"], row["etag"], row["last_modified"]) for row in table}
    assert told == {
        urls[0]: ("ok", ETAG, DATE),
        urls[1]: ("ok", None, None),
        urls[2]: ("gone", None, None),
        urls[3]: ("gone", None, None),
    }
    monkeypatch.delitem(ANSWERS, "full")
    monkeypatch.setattr(Site, "answer_full", Site.answer_same, raising=False)
    for number in (1, 2):
        before = len(crawl.server.asked)
        done = scrapy("feed", "--probe", "--again", dataset)
        assert done.stdout == "2 seeds fed, 0 rejected\n", done.stderr
        crawl.run()
        scrapy("events", f"{dataset}:parquet")
        rows = pq.read_table(crawl.folder / "out" / f"{number:08d}.parquet").to_pylist()
        assert {row["url"]: (row["status"], row["http_status"], row["etag"]) for row in rows} == {
            urls[0]: ("unchanged", 304, ETAG),
            urls[1]: ("unchanged", 200, None),
        }
        assert {row["identifier"] for row in rows} <= {row["identifier"] for row in table}
        assert len(crawl.server.asked) == before + 2
