"""Whole crawls, as a user runs them: processes, a real Redis, a real server."""

from __future__ import annotations

import io
import json
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import redis
from PIL import Image

from crawlproject.state.keys import Keys
from crawlproject.state.source_counts import counts_in
from demo.gallery import Arrival, Fault, Gallery, set_faults
from tests.forks import forks
from tests.waiting import PATIENCE_S, until

KEYS = Keys("crawl", "images")


def picture(seed: int, form: str = "JPEG") -> bytes:
    buffer = io.BytesIO()
    colour = Random(seed).randbytes(3)
    Image.new("RGB", (60 + seed % 40, 50), tuple(colour)).save(buffer, form)
    return buffer.getvalue()


class Crawl:
    """A gallery of sources, a Redis, and workers."""

    def __init__(self, folder: Path, environ: dict[str, str], url: str) -> None:
        self.folder = folder
        self.sites = folder / "sites"
        self.redis: Any = redis.Redis.from_url(url)
        self.keys = KEYS
        self.environ = environ | {
            "CRAWL_SOURCES": str(folder / "catalogue.json"),
            "IMAGES_STORE": str(folder / "thumbnails"),
            "MAX_IDLE_TIME_BEFORE_CLOSE": "0.5",
            "CRAWL_RETRY_DELAY": "0.5",
            "CRAWL_CIRCUIT_ERRORS": "1",  # some sources here do little but fail
        }
        self.workers: list[subprocess.Popen[bytes]] = []
        self.rates: dict[str, float] = {}
        self.options: list[str] = []  # of every worker
        self.spider = "images"
        self.gallery: Gallery

    def source(self, name: str, rate: float, pictures: int = 0) -> Path:
        """Add a source before the gallery starts; return its folder."""
        folder = self.sites / name
        folder.mkdir(parents=True)
        for number in range(pictures):
            (folder / f"{number}.jpg").write_bytes(picture(number))
        self.rates[name] = rate
        rows = [{"source_name": source, "image_count": size_for(r)} for source, r in self.rates.items()]
        (self.folder / "catalogue.json").write_text(json.dumps(rows))
        return folder

    def seed(self, source: str, *paths: str, **more: Any) -> None:
        """Push seeds of a source."""
        for path in paths:
            seed = {"url": f"{self.gallery.urls[source]}/{path}", "uuid": f"{source}-{path}", "source": source}
            self.redis.lpush(self.keys.seeds, json.dumps(seed | more))

    def start(self, count: int = 1, **settings: str) -> None:
        """Start workers."""
        for _ in range(count):
            log = (self.folder / f"worker-{len(self.workers)}.log").open("wb")
            command = [sys.executable, "-m", "scrapy", "crawl", self.spider, *self.options]
            self.workers.append(subprocess.Popen(command, env=self.environ | settings, stdout=log, stderr=log))

    def finish(self) -> None:
        """Wait until all workers have closed by themselves."""
        for worker in self.workers:
            assert worker.wait(PATIENCE_S) in {0, -9}

    def run(self, count: int = 1, **settings: str) -> None:
        """Start workers and wait until they have closed."""
        self.start(count, **settings)
        self.finish()

    def until(self, condition: Callable[[], object]) -> None:
        until(condition, hint=f"see the workers' logs in {self.folder}")

    def events(self, stream: str) -> list[dict[str, Any]]:
        return [json.loads(fields[b"event"]) for _, fields in self.redis.xrange(stream)]

    def dead_letters(self) -> dict[str, dict[str, Any]]:
        """Return the dead letters by identifier, or by seed where there is none."""
        done = forks().run(["dead", "list", "--json"], self.environ)
        done.check_returncode()
        return {letter["identifier"] or letter["seed"]: letter for letter in json.loads(done.stdout)}

    def dead(self) -> dict[str, str]:
        """Return the reason of each dead letter."""
        return {name: letter["reason"] for name, letter in self.dead_letters().items()}

    def counts(self, source: str) -> dict[str, int]:
        """Return what was counted of a source."""
        return counts_in(self.redis.hget(self.keys.counts, source))

    def command(self, words: str) -> None:
        """Run a command of scrapy."""
        done = forks().run(words.split(), self.environ)
        assert done.returncode == 0, done.stderr

    def outcomes(self) -> Counter[str]:
        """Count how often each identifier has ended, in whatever way."""
        ends = [
            event["identifier"]
            for name in self.keys.streams
            if name != self.keys.failed_events
            for event in self.events(name)
        ]
        return Counter(ends + list(self.dead()))

    def arrivals(self, source: str) -> list[Arrival]:
        """Return the requests at a source but those for its robots.txt."""
        return [
            arrival
            for arrival in self.gallery.arrivals()
            if arrival["source"] == source and arrival["path"] != "/robots.txt"
        ]

    def log(self, worker: int = 0) -> str:
        return (self.folder / f"worker-{worker}.log").read_text()

    def stop(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
        self.redis.close()


def size_for(rate: float) -> int:
    """Return a number of images that gives (very nearly) this rate."""
    return 0 if rate <= 0.2 else round((rate - 0.2) / 199.8 * 499_995_000)


def worst_second(arrivals: list[Arrival]) -> int:
    """Return the largest number of requests that arrived within any sliding second, for certain."""
    spans = [(arrival.get("since", arrival["t"]), arrival["t"]) for arrival in arrivals]
    return max((sum(begin <= since and t < begin + 1 for since, t in spans) for begin, _ in spans), default=0)


def test_every_seed_ends_in_exactly_one_way(crawl: Crawl) -> None:
    photos = crawl.source("photos", 150, pictures=40)
    crawl.source("museum", 20, pictures=5)
    (photos / "notes.jpg").write_bytes(b"<html>no picture</html>")
    (photos / "half.jpg").write_bytes(picture(3)[:-20])
    (photos / "huge.jpg").write_bytes(picture(4) + bytes(300_000))
    (photos / "cmyk.png").write_bytes(picture(5, "PNG"))
    faults: dict[str, Fault] = {
        "/moved.jpg": {"status": 301, "headers": {"Location": "/0.jpg"}},
        "/loop.jpg": {"status": 302, "headers": {"Location": "/loop.jpg"}},
        "/forbidden.jpg": {"status": 403},
        "/busy.jpg": {"status": 429, "headers": {"Retry-After": "1"}, "times": 3},
        "/hiccup.jpg": {"status": 500, "times": 1},
        "/broken.jpg": {"status": 502},
        "/slow.jpg": {"delay": 20},
        "/cut.jpg": {"drop": True},
        "/ftp.jpg": {"status": 301, "headers": {"Location": "ftp://127.0.0.1/x.jpg"}},
    }
    for name in faults:
        (photos / name[1:]).write_bytes(picture(6))
    set_faults(photos, faults)
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        said: dict[str, Any] = {"extra": {"TEXT": "Žluťoučký\u2028kůň", "size": [3, 4.5], "by": {"n": None}}}
        pictures = [f"{n}.jpg" for n in range(40)]
        crawl.seed("photos", *pictures, "notes.jpg", "half.jpg", "huge.jpg", "cmyk.png", **said)
        crawl.seed("photos", *(name[1:] for name in faults), "missing.jpg", "removed.gone", **said)
        crawl.seed("photos", "0.jpg", "1.jpg")  # duplicates
        crawl.seed("museum", *(f"{n}.jpg" for n in range(5)))
        crawl.redis.lpush(KEYS.seeds, "123", "notaurl", '{"uuid": "x"}', "\xff", "http://127.0.0.1:99999/")
        crawl.redis.lpush(KEYS.seeds, "http://127.0.0.1:9/closed.jpg")
        crawl.redis.set(KEYS.override_rate_of + "127.0.0.1", 20)
        crawl.run(DOWNLOAD_TIMEOUT="6", DOWNLOAD_MAXSIZE="200000")

    good = {f"photos-{n}.jpg" for n in range(40)} | {f"museum-{n}.jpg" for n in range(5)}
    good |= {f"photos-{name}" for name in ("cmyk.png", "moved.jpg", "busy.jpg", "hiccup.jpg")}
    images = {event["identifier"]: event for event in crawl.events(KEYS.image_events)}
    assert images.keys() == good
    gone = {event["identifier"]: event["status"] for event in crawl.events(KEYS.link_rot_events)}
    assert gone == {"photos-missing.jpg": 404, "photos-removed.gone": 410}
    dead = crawl.dead()
    expected = {
        "photos-notes.jpg": "not a picture in a supported format",
        "photos-half.jpg": "truncated",
        "photos-huge.jpg": "DOWNLOAD_MAXSIZE",
        "photos-loop.jpg": "max redirections reached",
        "photos-forbidden.jpg": "status 403",
        "photos-broken.jpg": "status 502 (after 2 attempts)",
        "photos-slow.jpg": "timeout",
        "photos-cut.jpg": "network",
        "photos-ftp.jpg": "status 301",
        "123": "must begin with http",
        "notaurl": "must begin with http",
        '{"uuid": "x"}': "no URL",
        "ÿ": "must begin with http",
        "http://127.0.0.1:99999/": "invalid URL",
    }
    letters = crawl.dead_letters()
    known = letters["photos-half.jpg"]["image"]
    assert (known["width"], known["height"], known["format"]) == (63, 50, "JPEG")
    closed = dead.pop(next(name for name in dead if "-" in name and not name.startswith("photos-")))
    assert re.match("robots unreachable.*refused", closed)
    assert dead.keys() == expected.keys()
    for name, reason in expected.items():
        assert reason in dead[name]
    assert set(crawl.outcomes().values()) == {1}

    at, [rot, _] = crawl.gallery.urls["photos"], crawl.events(KEYS.link_rot_events)
    event, moved = images["photos-3.jpg"], images["photos-moved.jpg"]
    plain = {"source": "photos", "width": 63, "height": 50, "format": "JPEG", "url": f"{at}/3.jpg"}
    plain |= {"status": 200, "final_url": f"{at}/3.jpg", "redirects": 0, "attempts": 1, "opt_out": []}
    assert {name: event[name] for name in plain} == plain
    assert (moved["url"], moved["final_url"], moved["redirects"]) == (f"{at}/moved.jpg", f"{at}/0.jpg", 1)
    assert [images[f"photos-{name}.jpg"]["attempts"] for name in ("busy", "hiccup", "moved")] == [4, 2, 1]
    assert (rot["final_url"], rot["redirects"], rot["attempts"]) == (rot["url"], 0, 1)
    for name, event in (*images.items(), *letters.items(), (rot["identifier"], rot)):
        assert event.get("extra") == (said["extra"] if name.startswith("photos-") else None), name
    assert min(one["fetch_s"] for one in (*images.values(), rot)) >= 0  # less than half a millisecond is 0
    for event in images.values():
        with Image.open(crawl.folder / "thumbnails" / event["thumbnail"]) as thumbnail:
            assert (thumbnail.format, thumbnail.size) == ("JPEG", (event["width"], event["height"]))
    photos_counts = crawl.counts("photos")  # retried: busy 3, hiccup, broken, slow, cut
    assert (crawl.counts("museum")["thumbnails"], photos_counts["link_rot"], photos_counts["retried"]) == (5, 2, 7)
    assert "'frontier/seeds_duplicates': 2" in crawl.log()
    assert "Traceback" not in crawl.log()


@pytest.mark.judges
def test_an_operator_halts_a_source_within_two_seconds_and_resumes_it(crawl: Crawl) -> None:
    crawl.source("museum", 20, pictures=1)
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        crawl.seed("museum", *(f"0.jpg?{n}" for n in range(400)))
        crawl.start()
        crawl.until(lambda: crawl.arrivals("museum"))
        crawl.command("halt museum")
        halted = time.time()
        crawl.until(lambda: not crawl.redis.keys(KEYS.leases_of + "*"))  # what has its slot still goes out
        before = crawl.arrivals("museum")
        assert sum(arrival["t"] > halted for arrival in before) <= 2 * 20
        time.sleep(0.4)
        assert crawl.arrivals("museum") == before
        assert len(before) < 400
        crawl.command("resume museum")
        crawl.until(lambda: len(crawl.arrivals("museum")) > len(before))


def test_a_catalogue_that_never_answers_delays_neither_start_nor_stop(crawl: Crawl) -> None:
    crawl.source("museum", 50, pictures=1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        crawl.start(CRAWL_SOURCES=place, MAX_IDLE_TIME_BEFORE_CLOSE="0")
        crawl.until(lambda: crawl.redis.exists(KEYS.leader))
        time.sleep(1)
        assert not crawl.redis.exists(KEYS.pulse)  # no rates to rule by: nothing goes out
        crawl.workers[0].terminate()
        assert crawl.workers[0].wait(PATIENCE_S) == 0


def test_an_exclusion_in_mid_crawl_lets_nothing_more_out_and_loses_no_count(crawl: Crawl) -> None:
    gone = crawl.source("gone", 1, pictures=300)  # of the source photos, whose other host is kept
    crawl.source("kept", 1, pictures=40)
    crawl.source("photos", 60)
    museum = crawl.source("museum", 8, pictures=40)
    set_faults(gone, {f"/{n}.jpg": {"status": 500} for n in range(0, 300, 10)})  # these wait to be tried again
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:

        def url(source: str, host: str) -> str:
            return f"http://{host}:{crawl.gallery.urls[source].rpartition(':')[2]}"

        elsewhere = url("gone", "cdn.gone.example")
        moved: dict[str, Fault] = {
            f"/{n}.jpg": {"status": 302, "headers": {"Location": f"{elsewhere}/{n}.jpg"}} for n in range(1, 40, 2)
        }
        set_faults(museum, moved)
        crawl.redis.set(KEYS.override_rate_of + "gone.example", 60)
        seeds = [
            *({"url": f"{url('gone', 'img.gone.example')}/{n}.jpg", "source": "photos"} for n in range(300)),
            *({"url": f"{url('kept', 'kept.example')}/{n}.jpg", "source": "photos"} for n in range(40)),
            *({"url": f"{url('museum', 'museum.example')}/{n}.jpg", "source": "museum"} for n in range(40)),
        ]
        lines = [json.dumps(seed | {"uuid": str(n)}) for n, seed in enumerate(seeds)]

        def asked() -> list[Arrival]:
            """Return all that has arrived at the excluded hosts, robots.txt included."""
            return [arrival for arrival in crawl.gallery.arrivals() if arrival["source"] == "gone"]

        def counted() -> int:
            return int(crawl.redis.hget(KEYS.totals, "excluded") or 0)

        crawl.redis.lpush(KEYS.seeds, *lines)
        crawl.start(2, MAX_IDLE_TIME_BEFORE_CLOSE="3")
        crawl.until(lambda: len(asked()) > 60)
        crawl.command("exclude gone.example --reason mail")
        ordered = time.time()
        more = {"url": f"{url('gone', 'gone.example')}/late.jpg", "source": "photos", "uuid": "late"}
        crawl.redis.lpush(KEYS.seeds, json.dumps(more))
        crawl.finish()
        before = asked()
        assert len(crawl.arrivals("kept")) == 40
        assert sum(arrival["t"] > ordered for arrival in before) <= 60  # what a second has
        ends = crawl.outcomes()
        assert set(ends.values()) == {1}
        assert len(ends) + counted() == len(lines) + 1
        assert counted() > 100
        assert not [reason for reason in crawl.dead().values() if "500" not in reason]
        assert crawl.redis.hget(KEYS.counters, "outstanding") == b"0"
