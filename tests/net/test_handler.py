"""How requests are downloaded: certificates, idle connections, shutdown, open files."""

# mypy: disable-error-code="no-untyped-call"
# Twisted's client has no types.

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
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet import reactor as installed_reactor
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.web import _newclient
from twisted.web.http_headers import Headers

from crawlproject.errors import SlotMissed, SlotMissedHere, StaleConnection
from crawlproject.models import Lease
from crawlproject.net import connections
from crawlproject.net.connections import BoundedPool, BoundedProtocol, Sending
from crawlproject.net.handler import DownloadBudget
from crawlproject.net.send_slot import Passage
from crawlproject.state.client import State
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


# Idle connections


class Connection:
    """The part of an idle connection that the pool uses."""

    state = "QUIESCENT"

    def __init__(self) -> None:
        self.transport = self
        self.closed = False

    def loseConnection(self) -> None:  # noqa: N802
        self.closed = True

    def getHandle(self) -> object:  # noqa: N802
        return self


def test_idle_connections_are_bounded_in_total_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_MAX_IDLE", 3)
    bounded = BoundedPool(installed_reactor)
    idle = [Connection() for _ in range(5)]
    for number, connection in enumerate(idle):
        bounded._putConnection(("host", number), connection)
    assert [connection.closed for connection in idle] == [True, True, False, False, False]
    assert bounded.getConnection(("host", 3), None).result is idle[3]
    bounded._putConnection(("host", 3), idle[3])
    bounded._putConnection(("host", 9), Connection())
    assert [connection.closed for connection in idle[2:]] == [True, False, False]
    assert sorted(bounded._connections) == [("host", 3), ("host", 4), ("host", 9)]  # nothing is left of the others
    for timeout in bounded._timeouts.values():
        timeout.cancel()


async def test_a_lease_knows_whether_its_request_was_written(state: State) -> None:
    bounded = BoundedPool(installed_reactor)
    bounded._putConnection(("host", 1), Connection())
    now = asyncio.get_running_loop().time()
    late, timely = (Lease("1.0:museum", now, now + more, 0, b"") for more in (-1.0, 60.0))
    for lease in (late, timely):
        connections.sending.set(Sending(Passage.of_lease(state, lease, "museum.example")))
        bounded.getConnection(("host", 1), None).addErrback(lambda failure: failure.trap(SlotMissedHere))
    assert (late.sent, timely.sent) == (False, True)


async def test_a_connection_that_took_too_long_carries_no_request_without_another_slot() -> None:
    class Leave:
        is_open = True

        async def renew(self) -> bool:
            return False

    class Slow(BoundedPool):
        def _admit(self, *args: Any) -> Any:
            leave.is_open = False  # the slot is over when the connection is there
            return super()._admit(*args)

    leave: Any = Leave()
    slow = Slow(installed_reactor)
    slow._putConnection(("host", 1), idle := Connection())
    connections.sending.set(Sending(leave))
    with pytest.raises(SlotMissed, match="while the connection was made"):
        await maybe_deferred_to_future(slow.getConnection(("host", 1), None))
    for timeout in slow._timeouts.values():
        timeout.cancel()
    assert idle.transport is idle


@pytest.mark.parametrize(
    ("was_idle", "error"), [(True, StaleConnection), (False, _newclient.ResponseNeverReceived)]
)
def test_the_site_may_close_a_connection_that_was_idle_but_must_answer_on_a_new_one(
    was_idle: bool, error: type[Exception]
) -> None:
    connection = BoundedProtocol()
    connection.was_idle = was_idle
    connection.makeConnection(StringTransport())
    failures: list[Failure] = []
    request = _newclient.Request._construct(b"GET", b"/", Headers({b"host": [b"museum.org"]}), None)
    connection.request(request).addErrback(failures.append)
    connection.connectionLost(Failure(ConnectionDone()))
    assert failures[0].check(error)


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
