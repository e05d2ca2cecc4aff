"""How requests are downloaded: certificates, what is written, bounds, shutdown, open files."""

# mypy: disable-error-code="no-untyped-call"
# Twisted has no types.

from __future__ import annotations

import asyncio
import json
import re
import resource
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import (
    DownloadCancelledError,
    DownloadTimeoutError,
    ResponseDataLossError,
    StopDownload,
)
from scrapy.http import Response
from twisted.internet.address import IPv4Address
from twisted.internet.defer import succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from crawlproject.errors import AddressRefused, SlotMissedHere
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.models import Lease
from crawlproject.net.connections import Connection, Heads, Sending
from crawlproject.net.handler import CrawlDownloadHandler, DownloadBudget
from crawlproject.net.send_slot import Passage
from demo.gallery import Gallery, set_faults
from tests.sites import Handler, served
from tests.test_crawl import KEYS, Crawl, picture
from tests.waiting import PATIENCE_S


@pytest.fixture
def crawl(crawl: Crawl) -> Crawl:
    crawl.source("museum", 50)
    return crawl


# Certificates


_PICTURE = picture(1)


class Picture(Handler):
    """One picture for every path but robots.txt's, on a connection each."""

    protocol_version = "HTTP/1.0"

    def get(self) -> None:
        is_there = self.path != "/robots.txt"
        self.answer(200 if is_there else 404, _PICTURE if is_there else b"")


def of(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def test_invalid_certificates_are_refused_or_recorded_and_valid_sessions_resumed(crawl: Crawl) -> None:
    known, authorities = trustme.CA(), crawl.folder / "authorities.pem"
    known.cert_pem.write_to_path(str(authorities))
    unknown, another = of(trustme.CA().issue_cert("museum.org")), of(known.issue_cert("gallery.org"))
    valid = of(known.issue_cert("museum.org"))
    found = []
    with (
        served(Picture, context=unknown) as of_unknown,
        served(Picture, context=another) as of_another,
        served(Picture, context=valid) as of_valid,
    ):
        for setting in ("refuse", "record"):
            for name, site in (("unknown", of_unknown), ("another", of_another), ("valid", of_valid)):
                for number in (1, 2):
                    url = f"https://museum.org:{site.server_port}/{number}.jpg"
                    seed = {"url": url, "uuid": f"{name} {number}", "source": "museum"}
                    crawl.redis.lpush(KEYS.seeds, json.dumps(seed))
            crawl.run(CRAWL_MAX_RETRIES="0", CRAWL_TLS_FAILURES=setting, SSL_CERT_FILE=str(authorities))
            events = crawl.events(KEYS.image_events)
            found.append(({event["identifier"]: event.get("tls_failure") for event in events}, crawl.dead()))
            found_resumed = [context.session_stats()["hits"] > 0 for context in (unknown, another, valid)]
            assert found_resumed == [False, False, True]
            crawl.redis.flushall()
    (refusing, dead), (recording, _) = found
    assert refusing == {"valid 1": None, "valid 2": None}
    for number in (1, 2):
        assert "certificate verify failed" in dead[f"unknown {number}"]
        assert "certificate is for another name" in dead[f"another {number}"]
    assert recording == refusing | {
        f"{name} {number}": fault
        for number in (1, 2)
        for name, fault in (
            ("unknown", "unable to get local issuer certificate"),
            ("another", "certificate is for another name"),
        )
    }


# What is written, and what comes of it


class Memory(StringTransport):
    """A connection in memory; the handler connects to it as an endpoint."""

    connection: Connection

    def connect(self, factory: Any) -> Any:
        self.connection = factory.buildProtocol(None)
        self.connection.makeConnection(self)
        return succeed(self.connection)

    def getHandle(self) -> object:  # noqa: N802 - Twisted's name
        return self


class Fetching:
    """The handler of a crawl, and a site in memory."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.handler = CrawlDownloadHandler(crawler)
        self.site = Memory(peerAddress=IPv4Address("TCP", "192.0.2.1", 80))

    async def __call__(
        self, request: Request, *answers: bytes, seconds: float = PATIENCE_S, leave: Passage | None = None
    ) -> Response:
        """Fetch a request that is answered so; without an answer the site is silent."""
        request.meta["download_timeout"] = seconds
        which = self.handler._site_of(request, seconds)[0]
        for key, site in list(self.handler._sites.items()):
            if site is which:
                self.handler._sites[key] = which._replace(endpoint=self.site)
        body = self.handler._budget.begin("museum", list)
        task = asyncio.create_task(self.handler._fetch(request, Sending(leave), body))
        await asyncio.sleep(0.01)
        for answer in answers:
            self.site.connection.dataReceived(answer)
        try:
            return await task
        finally:
            self.handler._budget.end(body)


@pytest.fixture
def fetched(scheduler: FrontierScheduler) -> Iterator[Fetching]:
    one = Fetching(scheduler.crawler)
    yield one
    one.handler._connections.close()


URL = "http://museum.example/a.jpg"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n"


@pytest.mark.parametrize(
    ("url", "line", "host"),
    [
        (f"{URL}?b=%20#c?d", b"GET /a.jpg?b=%20", b"museum.example"),
        ("http://museum.example", b"GET /", b"museum.example"),
        ("http://museum.example:80?q=1", b"GET /?q=1", b"museum.example"),
        ("http://museum.example:8080/", b"GET /", b"museum.example:8080"),
        ("http://[2001:db8::1]/", b"GET /", b"[2001:db8::1]"),
        ("http://[2001:db8::1]:8080/", b"GET /", b"[2001:db8::1]:8080"),
    ],
)
async def test_a_url_is_split_into_host_and_target(fetched: Fetching, url: str, line: bytes, host: bytes) -> None:
    response = await fetched(Request(url), ANSWER + b"<html>")
    assert fetched.site.value() == line + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
    assert (response.status, response.body, response.protocol) == (200, b"<html>", "HTTP/1.1")
    assert str(response.ip_address) == "192.0.2.1"
    assert url.startswith(response.url.replace(":80/?", ":80?"))


async def test_a_requests_own_host_and_body_are_sent(fetched: Fetching) -> None:
    request = Request(URL, method="POST", headers={"Host": "other.example", "A": "b"}, body="c=d")
    await fetched(request, ANSWER + b"<html>")
    assert fetched.site.value() == (
        b"POST /a.jpg HTTP/1.1\r\nHost: other.example\r\nContent-Length: 3\r\nA: b\r\n\r\nc=d"
    )
    fetched.site.clear()
    await fetched(Request(URL, method="POST"), ANSWER + b"<html>")
    assert b"Content-Length: 0\r\n" in fetched.site.value()


async def test_a_lease_knows_whether_its_request_was_written(
    fetched: Fetching, scheduler: FrontierScheduler
) -> None:
    now = asyncio.get_running_loop().time()
    late, timely = (Lease("1.0:museum", now, now + more, 0, b"") for more in (-1.0, 60.0))
    with pytest.raises(SlotMissedHere):
        await fetched(Request(URL), leave=Passage.of_lease(scheduler.state, late, "museum.example"))
    leave = Passage.of_lease(scheduler.state, timely, "museum.example")
    await fetched(Request(URL), ANSWER + b"<html>", leave=leave)
    assert (late.sent, timely.sent, leave.sent is not None) == (False, True, True)


@pytest.mark.parametrize("url", ["ftp://museum.example/", "http://user@museum.example/", "http:///a"])
async def test_a_url_without_a_plain_host_is_refused(fetched: Fetching, url: str) -> None:
    with pytest.raises(AddressRefused, match="cannot be requested"):
        await fetched(Request(url))


async def test_a_silent_site_is_given_up_and_its_connection_closed(fetched: Fetching) -> None:
    for answer in ((), (ANSWER, b"<html")):
        with pytest.raises(DownloadTimeoutError, match="took longer than"):
            await fetched(Request(URL), *answer, seconds=0.1)
        assert not fetched.site.connection.is_open


@pytest.mark.parametrize("answer", [(ANSWER,), (b"HTTP/1.1 200\r\n\r\n", b"123", b"456")])
async def test_a_body_that_is_too_large_is_not_read(fetched: Fetching, answer: tuple[bytes, ...]) -> None:
    with pytest.raises(DownloadCancelledError, match="larger than download max size"):
        await fetched(Request(URL, meta={"download_maxsize": 5}), *answer)
    assert not fetched.site.connection.is_open


async def test_a_body_that_is_cut_short_fails_unless_told_otherwise(fetched: Fetching) -> None:
    async def cut(**meta: bool) -> Response:
        fetching = asyncio.create_task(fetched(Request(URL, meta=meta), ANSWER + b"<ht"))
        await asyncio.sleep(0.02)
        fetched.site.connection.connectionLost(Failure(ConnectionDone()))
        return await fetching

    with pytest.raises(ResponseDataLossError):
        await cut()
    response = await cut(download_fail_on_dataloss=False)
    assert (response.body, response.flags) == (b"<ht", ["dataloss"])


async def test_only_the_beginning_of_a_body_may_be_wanted(fetched: Fetching) -> None:
    request = Request(URL, meta={"wanted_bytes": 4, "download_maxsize": 1})
    response = await fetched(request, ANSWER + b"<h", b"tm", b"l>")
    assert (response.body, response.flags) == (b"<htm", ["download_stopped"])
    assert not fetched.site.connection.is_open


@pytest.mark.parametrize("signal", [signals.headers_received, signals.bytes_received])
@pytest.mark.parametrize("fail", [False, True])
async def test_a_receiver_of_scrapys_signals_may_stop_a_download(
    fetched: Fetching, signal: object, fail: bool
) -> None:
    def stop(request: Request, **told: Any) -> None:
        assert told.get("body_length", 6) == 6
        raise StopDownload(fail=fail)

    fetched.crawler.spider.download_maxsize = 1  # type: ignore[union-attr]  # more than that is kept
    answer = ANSWER if signal is signals.headers_received else ANSWER.replace(b"Content-Length: 6\r\n", b"")
    fetched.crawler.signals.connect(stop, signal)
    if fail:
        with pytest.raises(StopDownload) as caught:
            await fetched(Request(URL), answer + b"<html>")
        response: Any = caught.value.response
    else:
        response = await fetched(Request(URL), answer + b"<html>")
    assert response.flags == ["download_stopped"]
    assert response.body == (b"<html>" if signal is signals.bytes_received else b"")


async def test_heads_are_kept_for_a_spider_that_wants_them(fetched: Fetching) -> None:
    fetched.crawler.spider.keeps_exchanges = True  # type: ignore[union-attr]
    await fetched(request := Request(URL), b"HTTP/1.1 100 Go\r\n\r\n" + ANSWER + b"<html>")
    assert request.meta["heads"] == Heads(fetched.site.value(), ANSWER, "192.0.2.1")


# Bodies under way


MIB = 1024 * 1024


class Crowd:
    """A DownloadBudget, and the names of the bodies it aborted."""

    def __init__(self) -> None:
        self.time = 0.0
        self.bodies = DownloadBudget(lambda: self.time)
        self.broken: list[str] = []
        self.under_way = {
            name: self.bodies.begin(name[0], lambda name=name: self.broken.append(name))  # type: ignore[misc]
            for name in ("a1", "a2", "a3", "b1", "c1")
        }

    def receive(self, **megabytes: int) -> None:
        for name, count in megabytes.items():
            self.bodies.receive(self.under_way[name], count * MIB)


def test_below_the_limits_nothing_is_aborted() -> None:
    crowd = Crowd()
    crowd.receive(a1=20, a2=20, b1=20)
    assert not crowd.bodies.over_soft_limit
    crowd.receive(b1=5)
    assert crowd.bodies.over_soft_limit
    assert crowd.broken == []
    crowd.bodies.end(crowd.under_way["b1"])
    crowd.bodies.end(crowd.under_way["b1"])
    assert not crowd.bodies.over_soft_limit


def test_above_the_hard_limit_the_largest_body_of_the_largest_source_is_aborted() -> None:
    crowd = Crowd()
    crowd.receive(a1=20, a2=25, a3=20, b1=45)
    assert crowd.broken == []
    crowd.receive(c1=20)
    assert crowd.broken == ["a2"]
    crowd.receive(a2=100)  # what is still received of it no longer counts
    assert crowd.broken == ["a2"]


def test_a_slow_body_does_not_keep_leasing_paused() -> None:
    crowd = Crowd()
    crowd.receive(a1=33, a2=34)
    crowd.time = 1.9
    crowd.receive(a1=0, b1=0)
    assert crowd.broken == []
    crowd.time = 2.1
    crowd.receive(b1=1)
    assert crowd.broken == ["a2"]
    assert not crowd.bodies.over_soft_limit
    crowd.receive(a1=40)  # the patience starts again
    assert crowd.broken == ["a2"]


class Huge(Handler):
    """Thirty megabytes for every path, in no hurry at its end."""

    def get(self) -> None:
        self.send_response(404 if self.path == "/robots.txt" else 200)
        size = 0 if self.path == "/robots.txt" else 30_000_000
        self.send_header("Content-Length", str(size))
        self.end_headers()
        with suppress(OSError):
            for _ in range(size // 1_000_000):
                self.wfile.write(bytes(1_000_000))
                time.sleep(0.05)


def test_many_large_bodies_at_once_stay_within_the_memory_limit(crawl: Crawl) -> None:
    with served(Huge) as site:
        for number in range(12):
            url = f"http://127.0.0.1:{site.server_port}/{number}"
            seed = {"url": url, "uuid": f"{number}", "source": "museum"}
            crawl.redis.lpush(KEYS.seeds, json.dumps(seed))
        crawl.start(CRAWL_RETRY_DELAY="1")
        peak = 0
        while crawl.workers[0].poll() is None:
            with suppress(OSError):
                status = Path(f"/proc/{crawl.workers[0].pid}/status").read_text()
                peak = max(peak, *(int(n) for n in re.findall(r"VmRSS:\s+(\d+)", status)))
            time.sleep(0.05)
            if crawl.redis.xlen(KEYS.dead) >= 12:
                break
    reasons = crawl.dead()
    assert len(reasons) == 12
    assert all("not a picture in a supported format" in reason for reason in reasons.values()), reasons
    assert int(crawl.redis.hget(KEYS.totals, "error_ours") or 0) > 0  # some were broken off, and tried again
    assert peak < 500_000, peak  # KiB; 12 bodies of 30 MB, besides 110 MiB


# Shutdown


@pytest.mark.judges
def test_shutdown_aborts_what_takes_longer_than_the_grace_and_gives_it_back(crawl: Crawl) -> None:
    folder = crawl.sites / "museum"
    for number in range(12):
        (folder / f"{number}.jpg").write_bytes(picture(number))
    set_faults(folder, {f"/{n}.jpg": {"delay": 2 * PATIENCE_S} for n in range(4)})
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        crawl.seed("museum", *(f"{n}.jpg" for n in range(12)))
        crawl.start(CRAWL_SHUTDOWN_GRACE="1", DOWNLOAD_TIMEOUT=str(2 * PATIENCE_S))
        crawl.until(lambda: len(crawl.events(KEYS.image_events)) == 8)
        began = time.monotonic()
        crawl.workers[0].send_signal(signal.SIGTERM)
        assert crawl.workers[0].wait(PATIENCE_S) == 0
        assert time.monotonic() - began >= 1
        assert crawl.redis.hget(KEYS.counters, "outstanding") == b"4"
        assert not crawl.redis.keys(KEYS.leases_of + "*")
        queued = crawl.redis.lrange(KEYS.queue_of + "0:museum", 0, -1)
        assert {entry[1] for entry in queued} == {0}  # no delivery, no retry was counted
        assert crawl.redis.lrange(KEYS.statuses_of + "museum", 0, -1) == [b"200"] * 8
        set_faults(folder, {})
        crawl.run()
    assert len(crawl.events(KEYS.image_events)) == 12
    assert crawl.dead() == {}


# Open files


def test_a_worker_raises_its_own_limit_of_open_files_or_has_fewer_requests_in_flight(
    environment: dict[str, str],
) -> None:
    def limited(soft: int, hard: int, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "scrapy", "crawl", "images", "-s", "CLOSESPIDER_TIMEOUT=1", *options],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
        )

    done = limited(300, 540)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "scrapy crawl: ulimit -n is 540: a worker needs 544 open files at least; raise the limit (ulimit -Hn, "
        "LimitNOFILE of systemd)"
    )
    few = limited(300, 1024, "-s", "CONCURRENT_REQUESTS=8")
    assert few.stderr.splitlines()[-1] == "scrapy crawl: CONCURRENT_REQUESTS=8 must be 16 or more"
    lowered = limited(300, 1024)
    assert lowered.returncode == 0
    assert "allows 256 requests in flight, CONCURRENT_REQUESTS is 2000: raise that limit" in lowered.stderr
    assert "'CONCURRENT_REQUESTS': 256" in lowered.stderr
