"""robots.txt as a whole worker enforces it, paragraph by paragraph of RFC 9309: one crawl, with a port for each.

What a file means, in all its detail, is in tests/politeness/test_robots_txt.py.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any, NamedTuple

from crawlproject.politeness.robots_txt import MAX_BYTES
from demo.gallery import Fault, Gallery, set_faults
from tests.test_crawl import KEYS, Crawl, picture

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
    led: tuple[str, ...] = ()  # what else is requested, by redirects
    opt_outs: dict[str, list[str]] = {}  # noqa: RUF012 - path to what its event says


BOTH = ("/a.jpg", "/b.jpg")
REFUSED = {"/b.jpg": LINE_2}


def status(code: int, of: str = "/robots.txt", **more: Any) -> dict[str, Fault]:
    fault: Fault = {"status": code, "body": "User-agent: *\nDisallow: /\n", **more}  # type: ignore[typeddict-item]
    return {of: fault}


def moved(place: str, of: str = "/robots.txt") -> dict[str, Fault]:
    return status(302, of, headers={"Location": place})


def unreachable(why: str) -> dict[str, str]:
    return {"/a.jpg": f"robots unreachable: {why}"}


TWICE = ("/robots.txt", "/robots.txt")  # one retry
GZIP: dict[str, Fault] = {"/robots.txt": {"headers": {"Content-Encoding": "gzip"}}}
LARGE = NOT_B.encode() + LONG * 100_000 + b"Disallow: /a\n"

USAGE = "Content-Usage: /lost train-ai=n, search=y, ai=n"
LOST = f"opt-out: robots.txt: content-usage:ai (line 4, {USAGE})"

CASES = {
    # How it is had
    # Twice: at its own address, and by the name localhost, to which the case "host" is sent
    "ok": Case("2.3.1.1 successful: the rules count", NOT_B, ("/a.jpg",), REFUSED, {}, ("/robots.txt",) * 2),
    "c404": Case("2.3.1.3 unavailable: all is allowed", NOT_B, BOTH, {}, status(404)),
    "c500": Case("2.3.1.4 unreachable: nothing is", None, (), unreachable("status 500"), status(500), TWICE),
    "hiccup": Case("2.3.1.4 until it is reached", NOT_B, ("/a.jpg",), REFUSED, status(500, times=1), TWICE),
    "dropped": Case("2.3.1.4 a network error", NOT_B, (), unreachable(""), {"/robots.txt": {"drop": True}}, TWICE),
    "host": Case("2.3.1.2 to another host", None, ("/a.jpg",), REFUSED, moved("{ok@localhost}/robots.txt")),
    "nowhere": Case(
        "2.3.1.4 an invalid redirect", None, (), unreachable("ValueError"), moved("http://[x/robots.txt"), TWICE
    ),
    "ftp": Case(
        "2.3.1.4 a redirect to another scheme",
        None,
        (),
        dict.fromkeys(BOTH, "robots.txt at a refused address: URL must begin with http"),
        moved("ftp://127.0.0.1/robots.txt"),
    ),
    "gzip": Case(
        "2.3 compressed, though not asked for", gzip.compress(NOT_B.encode()), ("/a.jpg",), REFUSED, GZIP
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
        "2.5 500 KiB are read of what is compressed, too", gzip.compress(LARGE), ("/a.jpg",), REFUSED, GZIP
    ),
    "before": Case(
        "2.5 500 KiB are read",
        FULL + NOT_B.encode() + LONG * 1000,
        ("/a.jpg",),
        {"/b.jpg": f"robots.txt: line {FULL.count(10) + 2}, Disallow: /b"},
    ),
    "usage": Case(
        "an opt-out counts like one in a header",
        f"{ALL}Content-Signal: search=no, ai-train=yes\nContent-Usage: /kept train-ai=n\n{USAGE}",
        ("/a.jpg", "/kept.jpg", "/kept-moved.jpg"),
        dict.fromkeys(("/lost.jpg", "/old.jpg"), LOST),
        {
            "/a.jpg": {"headers": {"X-Robots-Tag": "noindex"}},
            **moved("/lost.jpg", of="/old.jpg"),
            **moved("/a.jpg", of="/kept-moved.jpg"),
        },
        led=("/old.jpg", "/a.jpg"),
        opt_outs={
            "/a.jpg": ["content-signal:search", "noindex"],
            "/kept.jpg": ["content-signal:search", "content-usage:train-ai"],
            "/kept-moved.jpg": ["content-signal:search", "noindex"],
        },
    ),
}


def put_up(crawl: Crawl) -> dict[str, Path]:
    folders = {}
    for name, case in CASES.items():
        folder = folders[name] = crawl.source(name, 100)
        for path in (*case.fetched, *case.refused):
            (folder / path[1:]).write_bytes(picture(1, "PNG"))
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


def test_what_is_fetched_why_the_rest_is_refused_and_how_often_robots_txt_is_fetched(crawl: Crawl) -> None:
    folders = put_up(crawl)
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        for name, case in CASES.items():
            set_faults(folders[name], placed(case.faults, crawl.gallery.urls))
            crawl.seed(name, *(path.lstrip("/") for path in (*case.fetched, *case.refused)))
        crawl.run(DOWNLOAD_MAXSIZE="200000", CRAWL_RETRY_DELAY="1.2", CRAWL_OPT_OUTS="content-usage:ai")
        arrivals = crawl.gallery.arrivals()
    opt_outs = {event["identifier"]: event["opt_out"] for event in crawl.events(KEYS.image_events)}
    ends = crawl.dead() | dict.fromkeys(opt_outs, "fetched")
    for name, case in CASES.items():
        paths = [arrival["path"] for arrival in arrivals if arrival["source"] == name]
        requested = [path for path in paths if path == "/robots.txt"]
        assert sorted(path for path in paths if path not in requested) == sorted(case.fetched + case.led), (
            case.title
        )
        for path in case.fetched:
            assert opt_outs[f"{name}-{path[1:]}"] == case.opt_outs.get(path, []), case.title
        for path, reason in (dict.fromkeys(case.fetched, "fetched") | case.refused).items():
            end = ends.pop(f"{name}-{path[1:]}")
            assert reason in end, case.title
            assert "(after 2 attempts)" in end or not reason.startswith("robots unreachable"), case.title
        if any(reason.startswith("robots unreachable") for reason in case.refused.values()):
            # Once for each attempt; on a busy machine the attempts of a host's images do not come together.
            assert requested[:2] == [*TWICE], case.title
            assert {*requested} == {*TWICE}
            assert len(requested) <= 4, case.title
        else:
            assert requested == [*case.requested], case.title
        # A refusal by robots.txt is not a status of the source.
        assert crawl.redis.llen(KEYS.statuses_of + name) == len(case.fetched), case.title
    assert ends == {}
    assert crawl.redis.hget(KEYS.counters, "outstanding") == b"0"
    assert "Traceback" not in crawl.log()
    assert "frontier/faults" not in crawl.log()
