"""How requests are downloaded: certificates, idle connections, shutdown, open files."""

# mypy: disable-error-code="no-untyped-call"
# Twisted's client has no types.

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trustme
from twisted.internet import reactor as installed_reactor
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.web import _newclient
from twisted.web.http_headers import Headers

from benchmarks.arrivals import seconds_from
from crawlproject.errors import SlotMissedHere, StaleConnection
from crawlproject.models import Lease
from crawlproject.net import pool
from crawlproject.net.pool import BoundedPool
from crawlproject.net.protocol import BoundedProtocol
from crawlproject.net.send_slot import Passage
from crawlproject.state.calls import LATENCY_BOUNDS
from crawlproject.state.client import State
from crawlproject.state.source_counts import counts_in
from demo.gallery import Gallery, set_faults
from tests.test_crawl import KEYS, Crawl, picture, size_for
from tests.waiting import PATIENCE_S


@pytest.fixture
def crawl(tmp_path: Path, environment: dict[str, str], redis_url: str) -> Iterator[Crawl]:
    one = Crawl(tmp_path, environment, redis_url)
    one.source("museum", 50)
    yield one
    for worker in one.workers:
        worker.kill()
        worker.wait()


# Certificates


_PICTURE = picture(1)
_STAMPED = 35  # SO_TIMESTAMPNS, SCM_TIMESTAMPNS: socket(7)


class Picture(BaseHTTPRequestHandler):
    """One picture for every path but robots.txt's."""

    protocol_version = "HTTP/1.1"
    arrived = 0.0  # when the kernel received the request: this process may read it much later

    def handle_one_request(self) -> None:
        with socket.socket(fileno=os.dup(self.connection.fileno())) as arriving, suppress(OSError):
            arriving.settimeout(self.connection.gettimeout())
            _, stamps, *_ = arriving.recvmsg(1, 64, socket.MSG_PEEK)
            self.arrived = time.time()  # of the first packets the kernel may not have noted it
            for _, kind, stamp in stamps:
                assert kind == _STAMPED
                seconds, nanoseconds = struct.unpack("ll", stamp)
                self.arrived = seconds + nanoseconds / 1e9
        super().handle_one_request()

    def do_GET(self) -> None:
        body = b"" if self.path == "/robots.txt" else _PICTURE
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def https(certificate: trustme.LeafCert) -> Iterator[int]:
    """Serve a picture behind a certificate; the value is the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Picture)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path) -> str:
    """File of the authorities that OpenSSL trusts."""
    path = tmp_path / "authorities.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def crawl_https(crawl: Crawl, port: int, settings: dict[str, str]) -> None:
    seed = {"url": f"https://museum.org:{port}/a.jpg", "uuid": "a", "source": "museum"}
    crawl.redis.lpush(KEYS.seeds, json.dumps(seed))
    crawl.environ |= settings
    crawl.run(CRAWL_MAX_RETRIES="0")


@pytest.mark.parametrize(
    ("name", "known", "refused", "recorded"),
    [
        ("museum.org", False, "tls: certificate verify failed", "unable to get local issuer certificate"),
        ("gallery.org", True, "tls: certificate is for another name", "certificate is for another name"),
    ],
)
def test_an_invalid_certificate_is_refused_or_recorded(
    crawl: Crawl, authority: trustme.CA, trusted: str, name: str, known: bool, refused: str, recorded: str
) -> None:
    authorities = {"SSL_CERT_FILE": trusted} if known else {"SSL_CERT_FILE": str(crawl.folder / "none.pem")}
    (crawl.folder / "none.pem").write_text("")
    with https(authority.issue_cert(name)) as port:
        crawl_https(crawl, port, authorities)
        assert crawl.events(KEYS.image_events) == []
        # robots.txt is requested first, and cannot be fetched
        assert refused.removeprefix("tls: ") in crawl.dead()["a"]
        crawl.redis.flushall()
        crawl_https(crawl, port, {"CRAWL_TLS_FAILURES": "record"})
    (event,) = crawl.events(KEYS.image_events)
    assert event["tls_failure"] == recorded


# Idle connections


class Connection:
    """The part of an idle connection that the pool uses."""

    state = "QUIESCENT"

    def __init__(self) -> None:
        self.transport = self
        self.closed = False

    def loseConnection(self) -> None:  # noqa: N802
        self.closed = True


def test_idle_connections_are_bounded_in_total_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_MAX_IDLE", 3)
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
        pool.passage.set(Passage.of_lease(state, lease, "museum.example"))
        bounded.getConnection(("host", 1), None).addErrback(lambda failure: failure.trap(SlotMissedHere))
    assert (late.sent, timely.sent) == (False, True)


class Punctual(Picture):
    """Notes when a picture is requested."""

    arrivals: ClassVar[list[float]] = []

    def do_GET(self) -> None:
        if self.path != "/robots.txt":
            self.arrivals.append(self.arrived)
        super().do_GET()


@pytest.mark.judges
def test_a_request_delayed_between_gate_and_wire_takes_another_slot(crawl: Crawl) -> None:
    crawl.environ["PYTHONPATH"] = str(Path(__file__).parents[1] / "traps")
    crawl.options = ["-s", f"DOWNLOAD_HANDLERS={json.dumps({'http': 'sleepy.SleepyHandler'})}"]
    with served(Punctual) as port:
        for number in range(60):
            seed = {"url": f"http://127.0.0.1:{port}/{number}", "uuid": f"{number}", "source": "museum"}
            crawl.redis.lpush(KEYS.seeds, json.dumps(seed))
        crawl.run(CRAWL_MAX_RETRIES="0")
    assert len(crawl.events(KEYS.image_events)) == len(Punctual.arrivals) == 60
    assert crawl.dead() == {}
    times = sorted(Punctual.arrivals)
    # 50 a second: each may come 60 ms late or not at all.
    assert min(later - first for first, later in zip(times, times[4:], strict=False)) > 0.015
    assert int(re.findall(r"'tokens/late': (\d+)", (crawl.folder / "worker-0.log").read_text())[0]) >= 3


# Connections that are made slowly


class Stalled(ThreadingHTTPServer):
    """A site that waits before each TLS handshake, and notes when pictures are requested."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, certificate: trustme.LeafCert, seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), PictureOfStalled)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(self.context)
        self.seconds = seconds
        self.patience: float | None = None  # for a connection's first request; then the connection is closed
        self.connections = 0
        self.arrivals: list[float] = []

    def finish_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        time.sleep(self.seconds)
        with suppress(OSError), self.context.wrap_socket(request, server_side=True) as secured:
            secured.settimeout(self.patience)
            super().finish_request(secured, client_address)


class PictureOfStalled(Picture):
    server: Stalled

    def do_GET(self) -> None:
        self.server.arrivals.append(self.arrived)
        self.connection.settimeout(None)
        super().do_GET()


@contextmanager
def stalled(certificate: trustme.LeafCert, seconds: float) -> Iterator[Stalled]:
    server = Stalled(certificate, seconds)
    server.socket.setsockopt(socket.SOL_SOCKET, _STAMPED, 1)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def museum_over_tls(crawl: Crawl, server: Stalled, trusted: str, seeds: int, rate: float, **more: object) -> None:
    """Have `server` be the museum."""
    row = {"source_name": "museum", "image_count": size_for(rate), "hosts": ["museum.org"], **more}
    (crawl.folder / "catalogue.json").write_text(json.dumps([row]))
    crawl.environ |= {"SSL_CERT_FILE": trusted, "CRAWL_MAX_RETRIES": "0"}
    for number in range(seeds):
        url = f"https://museum.org:{server.server_port}/{number}"
        crawl.redis.lpush(KEYS.seeds, json.dumps({"url": url, "uuid": f"{number}", "source": "museum"}))


@pytest.mark.judges
def test_a_slow_handshake_costs_no_request_and_sends_none_too_early(
    crawl: Crawl, authority: trustme.CA, trusted: str
) -> None:
    with stalled(authority.issue_cert("museum.org"), 0.7) as server:
        museum_over_tls(crawl, server, trusted, 120, rate=50, robots="ignore")
        crawl.run()
    assert len(crawl.events(KEYS.image_events)) == len(server.arrivals) == 120
    assert crawl.dead() == {}
    assert "retried" not in counts_in(crawl.redis.hget(KEYS.counts, "museum"))
    assert server.connections < 120
    assert max(seconds_from(sorted(server.arrivals))) <= 56


@pytest.mark.judges
def test_a_slow_source_whose_connections_do_not_last_until_the_next_slot_is_crawled(
    crawl: Crawl, authority: trustme.CA, trusted: str
) -> None:
    with stalled(authority.issue_cert("museum.org"), 0.5) as server:
        server.patience = 0.3
        museum_over_tls(crawl, server, trusted, 3, rate=1, robots="ignore")
        crawl.run()
    assert len(crawl.events(KEYS.image_events)) == len(server.arrivals) == 3
    assert crawl.dead() == {}
    times = sorted(server.arrivals)
    assert min(later - first for first, later in pairwise(times)) > 0.75  # a slot may be used 250 ms late


def test_what_connects_while_its_source_is_halted_is_not_sent(
    crawl: Crawl, authority: trustme.CA, trusted: str
) -> None:
    with stalled(authority.issue_cert("museum.org"), 1.0) as server:
        museum_over_tls(crawl, server, trusted, 8, rate=5, robots="ignore")
        crawl.start()
        crawl.until(lambda: server.connections)
        crawl.redis.sadd(KEYS.halted, "museum")
        crawl.until(
            lambda: crawl.redis.hlen(KEYS.leases_of + crawl.redis.zrange(KEYS.workers, 0, 0)[0].decode()) == 0
        )
        assert server.arrivals == []
        crawl.redis.srem(KEYS.halted, "museum")
        crawl.finish()
    assert len(crawl.events(KEYS.image_events)) == len(server.arrivals) == 8
    assert crawl.dead() == {}


def test_a_handshake_that_never_ends_is_a_timeout(crawl: Crawl, authority: trustme.CA, trusted: str) -> None:
    with stalled(authority.issue_cert("museum.org"), 5.0) as server:
        museum_over_tls(crawl, server, trusted, 2, rate=5, robots="ignore")
        crawl.run(DOWNLOAD_TIMEOUT="1")
    assert set(crawl.dead()) == {"0", "1"}
    assert all(reason.startswith("timeout") for reason in crawl.dead().values()), crawl.dead()
    taken = {
        int(field.removeprefix(b"fetch:")): int(count)
        for field, count in crawl.redis.hgetall(KEYS.totals).items()
        if field.startswith(b"fetch:")
    }
    assert sum(taken.values()) == 2
    assert min(taken) >= LATENCY_BOUNDS.index(1.0)  # as long as was waited


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


class Fickle(Picture):
    """Keeps a connection open, and closes it at the second request, unanswered."""

    arrivals: ClassVar[list[float]] = []

    def do_GET(self) -> None:
        if self.path != "/robots.txt":
            self.arrivals.append(self.arrived)
            if getattr(self, "answered", False):
                self.close_connection = True
                return
            self.answered = True
        super().do_GET()


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.socket.setsockopt(socket.SOL_SOCKET, _STAMPED, 1)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.judges
def test_a_request_on_a_connection_closed_by_the_site_takes_another_slot(crawl: Crawl) -> None:
    with served(Fickle) as port:
        for number in range(12):
            seed = {"url": f"http://127.0.0.1:{port}/{number}", "uuid": f"{number}", "source": "museum"}
            crawl.redis.lpush(KEYS.seeds, json.dumps(seed))
        crawl.run(CRAWL_MAX_RETRIES="0")
    assert len(crawl.events(KEYS.image_events)) == 12
    assert crawl.dead() == {}
    times = sorted(Fickle.arrivals)
    assert len(times) > 12  # some were requested twice
    assert min(later - first for first, later in zip(times, times[4:], strict=False)) > 0.015  # 50 a second


# Bodies under way


class Huge(BaseHTTPRequestHandler):
    """Thirty megabytes for every path, in no hurry at its end."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(404 if self.path == "/robots.txt" else 200)
        size = 0 if self.path == "/robots.txt" else 30_000_000
        self.send_header("Content-Length", str(size))
        self.end_headers()
        with suppress(OSError):
            for _ in range(size // 1_000_000):
                self.wfile.write(bytes(1_000_000))
                time.sleep(0.05)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def test_many_large_bodies_at_once_stay_within_the_memory_limit(crawl: Crawl) -> None:
    with served(Huge) as port:
        for number in range(12):
            seed = {"url": f"http://127.0.0.1:{port}/{number}", "uuid": f"{number}", "source": "museum"}
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
    assert peak < 500_000, peak  # KiB; 12 bodies of 30 MB, besides 110 MiB


# Shutdown


def fill(crawl: Crawl, pictures: int) -> Path:
    folder = crawl.sites / "museum"
    for number in range(pictures):
        (folder / f"{number}.jpg").write_bytes(picture(number))
    return folder


def hang(folder: Path, *paths: str) -> None:
    set_faults(folder, {f"/{path}": {"delay": 2 * PATIENCE_S} for path in paths})


@pytest.mark.judges
def test_shutdown_aborts_what_takes_longer_than_the_grace_and_gives_it_back(crawl: Crawl) -> None:
    folder = fill(crawl, 12)
    hang(folder, *(f"{n}.jpg" for n in range(4)))
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


def test_a_second_signal_ends_a_worker_at_once_and_loses_nothing(crawl: Crawl) -> None:
    folder = fill(crawl, 6)
    hang(folder, *(f"{n}.jpg" for n in range(3)))
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        crawl.seed("museum", *(f"{n}.jpg" for n in range(6)))
        crawl.start(DOWNLOAD_TIMEOUT=str(2 * PATIENCE_S), CRAWL_HEARTBEAT_TIMEOUT="2")
        crawl.until(lambda: len(crawl.events(KEYS.image_events)) == 3)
        crawl.workers[0].send_signal(signal.SIGINT)
        time.sleep(0.5)
        crawl.workers[0].send_signal(signal.SIGINT)
        crawl.workers[0].wait(PATIENCE_S)
        set_faults(folder, {})
        crawl.start(CRAWL_HEARTBEAT_TIMEOUT="2")
        assert crawl.workers[1].wait(PATIENCE_S) == 0
    assert len(crawl.events(KEYS.image_events)) == 6
    assert crawl.dead() == {}


# Open files


def test_a_worker_raises_its_own_limit_of_open_files_or_has_fewer_requests_in_flight(
    environment: dict[str, str],
) -> None:
    def limited(soft: int, hard: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "scrapy", "crawl", "images", "-s", "CLOSESPIDER_TIMEOUT=1"],
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
    lowered = limited(300, 1024)
    assert lowered.returncode == 0
    assert "allows 256 requests in flight, CONCURRENT_REQUESTS is 2000: raise that limit" in lowered.stderr
    assert "'CONCURRENT_REQUESTS': 256" in lowered.stderr
    enough = limited(300, 5000)
    assert enough.returncode == 0
    assert "requests in flight" not in enough.stderr
