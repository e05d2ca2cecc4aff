"""robots.txt as a whole worker enforces it, paragraph by paragraph of RFC 9309: one crawl of a port each.

What a file means, in all its detail, is in tests/politeness/test_robots_txt.py.
"""

from __future__ import annotations

import gzip
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from crawlproject import config
from crawlproject.politeness.robots_txt import MAX_BYTES
from crawlproject.state.keys import Keys
from demo.gallery import Fault, Gallery, set_faults
from tests.conftest import local_network
from tests.test_crawl import Crawl, picture

KEYS = Keys("crawl", "images")

ALL = "User-agent: *\n"
NOT_B = ALL + "Disallow: /b\n"
LINE_2 = "robots.txt: line 2, Disallow: /b"
LONG = b"# " + b"x" * 97 + b"\n"  # 100 bytes
FULL = LONG * (MAX_BYTES // 100 - 1)  # nearly as much as is read


class Case(NamedTuple):
    """A site: its robots.txt (None: there is no such file), and what becomes of seeds, by their paths."""

    title: str  # the paragraph of RFC 9309, and what it says
    robots: str | bytes | None
    fetched: tuple[str, ...] = ("/a.jpg",)
    refused: dict[str, str] = {}  # noqa: RUF012 - path to reason
    faults: dict[str, Fault] = {}  # noqa: RUF012 - {base of ANOTHER} in a header: of that case's site
    requested: tuple[str, ...] = ("/robots.txt",)  # for rules


BOTH = ("/a.jpg", "/b.jpg")
REFUSED = {"/b.jpg": LINE_2}


def status(code: int, **more: Any) -> dict[str, Fault]:
    fault: Fault = {"status": code, "body": "User-agent: *\nDisallow: /\n", **more}  # type: ignore[typeddict-item]
    return {"/robots.txt": fault}


def moved(*places: str, code: int = 302) -> dict[str, Fault]:
    """Return the faults that redirect from /robots.txt over all of `places`."""
    steps = ("/robots.txt", *places)
    return {a: {"status": code, "headers": {"Location": b}} for a, b in pairwise(steps)}


def unreachable(why: str) -> dict[str, str]:
    return {"/a.jpg": f"robots unreachable: {why}"}


TWICE = ("/robots.txt", "/robots.txt")  # one retry

CASES = {
    # How it is had
    "ok": Case("2.3.1.1 successful: the rules count", NOT_B, ("/a.jpg",), REFUSED),
    "c404": Case("2.3.1.3 unavailable: all is allowed", NOT_B, BOTH, {}, status(404)),
    "c500": Case("2.3.1.4 unreachable: nothing is", None, (), unreachable("status 500"), status(500), TWICE),
    "hiccup": Case("2.3.1.4 until it is reached", NOT_B, ("/a.jpg",), REFUSED, status(500, times=1), TWICE),
    "dropped": Case("2.3.1.4 a network error", NOT_B, (), unreachable(""), {"/robots.txt": {"drop": True}}, TWICE),
    "moved5": Case(
        "2.3.1.2 five in a row",
        None,
        ("/a.jpg",),
        REFUSED,
        moved("/r/5", "/r/4", "/r/3", "/r/2", "/r/1"),
        ("/robots.txt", "/r/5", "/r/4", "/r/3", "/r/2", "/r/1"),
    ),
    "moved6": Case(
        "2.3.1.2 six: unavailable",
        None,
        BOTH,
        {},
        moved("/r/6", "/r/5", "/r/4", "/r/3", "/r/2", "/r/1"),
        ("/robots.txt", "/r/6", "/r/5", "/r/4", "/r/3", "/r/2"),
    ),
    "host": Case(
        "2.3.1.2 to another host",
        None,
        ("/a.jpg",),
        REFUSED,
        moved("{ok@localhost}/robots.txt"),
    ),
    "nowhere": Case(
        "2.3.1.4 an invalid redirect",
        None,
        (),
        unreachable("ValueError"),
        moved("http://[x/robots.txt"),
        TWICE,
    ),
    "ftp": Case(
        "2.3.1.4 a redirect to another scheme",
        None,
        (),
        dict.fromkeys(BOTH, "robots.txt at a refused address: URL must begin with http"),
        moved("ftp://127.0.0.1/robots.txt"),
    ),
    "gzip": Case(
        "2.3 compressed, though not requested",
        gzip.compress(NOT_B.encode()),
        ("/a.jpg",),
        REFUSED,
        {"/robots.txt": {"headers": {"Content-Encoding": "gzip"}}},
    ),
    "thrice": Case(
        "2.3.1.4 compressed three times, which nobody does in good faith",
        gzip.compress(gzip.compress(gzip.compress(b""))),
        (),
        unreachable("3 nested content codings; 2 are undone"),
        {"/robots.txt": {"headers": {"Content-Encoding": "gzip, gzip, gzip"}}},
        TWICE,
    ),
    "large": Case(
        "2.5 500 KiB are read of what is compressed, too",
        gzip.compress(NOT_B.encode() + LONG * 100_000 + b"Disallow: /a\n"),
        ("/a.jpg",),
        REFUSED,
        {"/robots.txt": {"headers": {"Content-Encoding": "gzip"}}},
    ),
    "before": Case(
        "2.5 500 KiB are read",
        FULL + NOT_B.encode() + LONG * 1000,
        ("/a.jpg",),
        {"/b.jpg": f"robots.txt: line {FULL.count(10) + 2}, Disallow: /b"},
    ),
}


def put_up(crawl: Crawl) -> dict[str, Path]:
    folders = {}
    for name, case in CASES.items():
        folder = folders[name] = crawl.source(name, 100)
        for path in (*case.fetched, *case.refused):
            (folder / path[1:]).write_bytes(picture(1, "PNG"))
        if name.startswith("moved"):
            (folder / "r").mkdir()
            (folder / "r" / "1").write_text(NOT_B)
        if case.robots is not None:
            body = case.robots if isinstance(case.robots, bytes) else case.robots.encode()
            (folder / "robots.txt").write_bytes(body)
    crawl.source("localhost", 100)
    return folders


def placed(faults: dict[str, Fault], urls: dict[str, str]) -> dict[str, Fault]:
    """Return `faults` with the sites' addresses in their Locations."""
    done: dict[str, Fault] = {}
    for path, fault in faults.items():
        place = fault.get("headers", {}).get("Location", "")
        if found := re.match(r"\{(\w+)(@localhost)?\}", place):
            base = urls[found[1]].replace("127.0.0.1", "localhost") if found[2] else urls[found[1]]
            fault = {**fault, "headers": {"Location": base + place[found.end() :]}}  # noqa: PLW2901
        done[path] = fault
    return done


class Outcome(NamedTuple):
    """The results of one crawl of all cases, by case."""

    fetched: dict[str, list[str]]
    requested: dict[str, list[str]]  # for rules
    pictures: dict[str, set[str]]
    dead: dict[str, dict[str, str]]
    log: str
    statuses: dict[str, list[bytes]]
    outstanding: bytes | None


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory, redis_server: str) -> Iterator[Outcome]:
    """Crawl all cases with one worker, in a database of their own."""
    url = redis_server + ("&" if "?" in redis_server else "?") + "db=7"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    yield crawl_all(tmp_path_factory.mktemp("robots"), url)


def environment_for(url: str) -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if name not in config.environment()}
    return environ | {
        "REDIS_URL": url,
        "CRAWL_CONTACT": "mailto:tests@example.org",
        **local_network(),
    }


def crawl_all(folder: Path, url: str) -> Outcome:
    crawl = Crawl(folder, environment_for(url), url)
    try:
        folders = put_up(crawl)
        with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
            for name, case in CASES.items():
                set_faults(folders[name], placed(case.faults, crawl.gallery.urls))
                crawl.seed(name, *(path.lstrip("/") for path in (*case.fetched, *case.refused)))
            crawl.run(DOWNLOAD_MAXSIZE="200000", CRAWL_RETRY_DELAY="1.2")
            arrivals = crawl.gallery.arrivals()
        seen: dict[str, list[str]] = defaultdict(list)
        requested: dict[str, list[str]] = defaultdict(list)
        for arrival in arrivals:
            about_rules = re.match(r"/(robots\.txt|r/)", arrival["path"])
            (requested if about_rules else seen)[arrival["source"]].append(arrival["path"])
        pictures: dict[str, set[str]] = defaultdict(set)
        for event in crawl.events(KEYS.image_events):
            name, _, path = event["identifier"].partition("-")
            pictures[name].add("/" + path)
        dead: dict[str, dict[str, str]] = defaultdict(dict)
        for identifier, reason in crawl.dead().items():
            name, _, path = identifier.partition("-")
            dead[name]["/" + path] = reason
        statuses = {name: crawl.redis.lrange(KEYS.statuses_of + name, 0, -1) for name in CASES}
        return Outcome(
            seen, requested, pictures, dead, crawl.log(), statuses, crawl.redis.hget(KEYS.counters, "outstanding")
        )
    finally:
        crawl.stop()


@pytest.mark.parametrize("name", CASES, ids=[f"{case.title} ({name})" for name, case in CASES.items()])
def test_what_is_fetched_and_why_the_rest_is_refused(outcome: Outcome, name: str) -> None:
    case = CASES[name]
    assert sorted(outcome.fetched[name]) == sorted(case.fetched)
    assert outcome.pictures[name] == set(case.fetched)
    assert outcome.dead[name].keys() == case.refused.keys()
    for path, reason in case.refused.items():
        assert reason in outcome.dead[name][path]
        if reason.startswith("robots unreachable"):
            assert outcome.dead[name][path].endswith("(after 2 attempts)")


@pytest.mark.parametrize("name", [name for name in CASES if name != "ok"])  # others are sent there
def test_robots_txt_is_fetched_as_often_as_needed(outcome: Outcome, name: str) -> None:
    wanted, requested = list(CASES[name].requested), outcome.requested[name]
    if any(reason.startswith("robots unreachable") for reason in CASES[name].refused.values()):
        # Once for each attempt; on a busy machine the attempts of a host's images do not come together.
        assert requested[: len(wanted)] == wanted
        assert set(requested) == set(wanted)
        assert len(requested) <= 2 * len(wanted)
    else:
        assert requested == wanted


def test_who_redirects_to_a_robots_txt_shares_it(outcome: Outcome) -> None:
    assert outcome.requested["ok"] == ["/robots.txt"] * 2  # at its own address, and by the name localhost


def test_a_refusal_by_robots_txt_is_not_a_status_of_the_source(outcome: Outcome) -> None:
    for name, case in CASES.items():
        assert len(outcome.statuses[name]) == len(case.fetched), name


def test_no_seed_is_left_and_no_internal_fault_occurred(outcome: Outcome) -> None:
    assert outcome.outstanding == b"0"
    assert "Traceback" not in outcome.log
    assert "frontier/faults" not in outcome.log
