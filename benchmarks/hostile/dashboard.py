"""Requests that the dashboard of a real `scrapy monitor` must refuse, with and without a password."""

from __future__ import annotations

import http.client
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import NamedTuple

from benchmarks.hostile.crawling import KEYS
from benchmarks.hostile.room import Room, Tally
from benchmarks.ours import ROOT, SCRAPY, Crawl, stop, until
from demo.redis_servers import free_port

_SECRET = b"S3CRET"
_PASSWORD = "correct horse"
_START_S = 60.0
_PATIENCE_S = 30.0
_ANSWER_S = 5.0  # a request that waits for the rest of its body gets no answer
_CONNECTIONS = 300


class Attempt(NamedTuple):
    """A request that must be refused: no answer at all is one, too."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""

    def __str__(self) -> str:
        return f"{self.method} {self.path[:60]} {str(self.headers)[:100]} {self.body[:40]!r}"


_UP = ("..", "%2e%2e", "%252e%252e", "..%00", ".%2e", "....", "..%5c..", "%c0%ae%c0%ae", "..;")
_METHODS = ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "HALT", "X" * 1_000)
_HOSTS = (
    *("evil.example", "evil.example:9411", "127.0.0.1.evil.example", "localhost.evil.example"),
    *("evil.example#localhost", "localhost@evil.example", "127.0.0.1,evil.example"),
    *("[::1", "10.0.0.1.x", "2130706433", "\xff", "a" * 5_000),
)
_ORIGINS = ("https://evil.example", "null", "http://127.0.0.1:1", "file://", "http://localhost.evil.example")
_ORDERS = ("/halt", "/resume", "/rate", "/include", "/logout")
_OUTSIDE = ("/thumbnails//etc/passwd", "/thumbnails/%2fetc%2fpasswd", "/static/\\..\\secret.jpg", "/secret.jpg")
_TOKENS = ("", "0" * 64, "\xff", "x" * 5_000)
_COOKIES = ("", "a=b", "crawl_dashboard_9411=x.9999999999.y", "a" * 5_000)
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_BODIES = (
    b"",
    b"{",
    b"[" * 60_000,
    b'{"source": {}}',
    b'{"source": "a b"}',
    b'{"source": "museum"}',
    b"\xff" * 1_000,
)


def _attempts() -> Iterator[Attempt]:
    places = ("static", "thumbnails", "thumbnails/ab")
    for up, place, slash, depth in product(_UP, places, ("/", "%2f", "%5c"), (1, 2, 6)):
        yield Attempt("GET", f"/{place}/{slash.join([up] * depth)}{slash}secret.jpg", {})
    for path in _OUTSIDE:
        yield Attempt("GET", path, {})
    for method, path in product(_METHODS, ("/", "/halt", "/events", "/static/app.js", "*")):
        yield Attempt(method, path, {})
    for host in _HOSTS:
        yield from (Attempt("GET", path, {"Host": host}) for path in ("/", "/events", "/login"))
        yield from (Attempt("POST", path, {"Host": host}, b'{"source": "museum"}') for path in ("/halt", "/login"))
    for path in _ORDERS:
        for body in _BODIES:
            yield Attempt("POST", path, {}, body)
        for token, cookie in product(_TOKENS, _COOKIES):
            headers = {"X-CSRF-Token": token, "Cookie": cookie}
            yield Attempt("POST", path, headers, b'{"source": "museum", "rate": "5"}')
        for origin in _ORIGINS:
            yield Attempt("POST", path, {"Origin": origin}, b'{"source": "museum", "rate": "5"}')
        yield Attempt("GET", f"{path}?source=museum", {})
    for origin in _ORIGINS:
        yield Attempt("POST", "/login", {"Origin": origin, **_FORM}, b"password=correct+horse")
    yield Attempt("GET", "/" + "x" * 1_000_000, {})
    yield Attempt("GET", "/none", {"X-Large": "x" * 1_000_000})
    yield Attempt("GET", "/none", {f"X-{number}": "a" for number in range(5_000)})
    yield Attempt("POST", "/halt", {}, bytes(5_000_000))
    yield Attempt("POST", "/halt", {"Content-Length": str(10**12)})
    yield Attempt("POST", "/halt", {"Content-Length": "-1"})
    yield Attempt("POST", "/halt", {"Transfer-Encoding": "chunked"}, b"FFFFFFFFFFFFFFFFF\r\n")


_RAW = (
    *(
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01" + bytes(200),
    ),
    *(b"\0" * 100_000, b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"A" * 2_000_000),
    b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    b"POST /halt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)


@contextmanager
def _monitor(crawl: Crawl, **settings: str) -> Iterator[tuple[int, int, Path, subprocess.Popen[bytes]]]:
    """Run `scrapy monitor`; yield its dashboard's and its metrics' port, its log, and the process."""
    dashboard, metrics, log = free_port(), free_port(), crawl.home / f"monitor-{len(settings)}.log"
    environ = crawl.environment | {
        "CRAWL_DASHBOARD_PORT": str(dashboard),
        "CRAWL_METRICS_PORT": str(metrics),
        **settings,
    }
    with log.open("wb") as out:
        process = subprocess.Popen([*SCRAPY, "monitor"], cwd=ROOT, env=environ, stdout=out, stderr=out)
    try:
        until("the dashboard answers", _START_S, lambda: _answers(dashboard) and _answers(metrics))
        yield dashboard, metrics, log, process
    finally:
        stop(process, _PATIENCE_S)


def _answers(port: int) -> bool:
    with suppress(OSError, http.client.HTTPException):
        return _ask(port, Attempt("GET", "/login", {}))[0] > 0
    return False


def _ask(port: int, attempt: Attempt) -> tuple[int, bytes]:
    """Return status and body of the answer; 0 for none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_S)
    try:
        connection.connect()
        connection.putrequest(attempt.method, attempt.path, skip_host="Host" in attempt.headers)
        headers = {"Connection": "close", **attempt.headers}
        if not {"Content-Length", "Transfer-Encoding"} & headers.keys():
            headers["Content-Length"] = str(len(attempt.body))
        for name, value in headers.items():
            connection.putheader(name, value.encode("latin-1"))
        with suppress(OSError):  # it may answer, and close, before it has read all
            connection.endheaders(attempt.body)
        answer = connection.getresponse()
        return answer.status, b"" if answer.headers.get_content_type() == "text/event-stream" else answer.read()
    except (OSError, http.client.HTTPException, ValueError):
        return 0, b""
    finally:
        connection.close()


def _harmless(attempt: Attempt, status: int, body: bytes, password: bool) -> str:
    """Return what is wrong about an answer."""
    if _SECRET in body:
        return "it gives away a file"
    if attempt.path == "*" and not body:
        return ""  # what the server can, in general: Twisted answers that
    if status >= 500:
        return f"status {status}"
    public = attempt.path.startswith("/static/") or attempt.path == "/login" or password
    may_pass = attempt.method in {"GET", "HEAD"} and public and status in {200, 303} and not attempt.headers
    wrong_password = attempt.path == "/login" and status == 303 and not password
    return "" if status == 0 or status >= 400 or may_pass or wrong_password else f"status {status}"


def _besieged(room: Room, crawl: Crawl, tally: Tally, password: str) -> None:
    settings = {"CRAWL_DASHBOARD_PASSWORD": password} if password else {}
    kind = "with a password" if password else "without a password"
    attempts = [one for one in _attempts() if one.path != "/login" or password]
    with _monitor(crawl, **settings) as (port, metrics, log, process):
        for attempt in room.some(attempts):
            status, body = _ask(port, attempt)
            tally.judge(f"{attempt}, {kind}", _harmless(attempt, status, body, bool(password)))
        for host in room.some([host for host in _HOSTS if "." in host]):  # without a dot it is a private network's
            status, _ = _ask(metrics, Attempt("GET", "/metrics", {"Host": host}))
            tally.judge(
                f"metrics for {host[:60]!r}, {kind}", "" if status in {0, 400, 421} else f"status {status}"
            )
        for data in room.some(_RAW):
            with socket.create_connection(("127.0.0.1", port), timeout=2) as one, suppress(OSError):
                one.sendall(data)
                one.recv(65_536)
        with ExitStack() as stack:  # who opens connections, and says nothing or little
            for number in range(room.count(_CONNECTIONS)):
                one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S))
                with suppress(OSError):
                    one.sendall((b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")[number % 2])
            began = time.monotonic()
            fault = "" if _answers(port) else "no answer"
            tally.judge(f"an ordinary request among silent connections, {kind}", fault)
            tally.notes.append(f"answered among silent connections in {1000 * (time.monotonic() - began):.0f} ms")
        dead = f"the monitor has ended with {process.poll()}" if process.poll() is not None else ""
        text = log.read_text(errors="replace")
        bug = text[-400:] if "Traceback" in text or "Bug in" in text else ""
        tally.judge(f"{len(_RAW)} requests that are none, {kind}", dead or bug)
        tally.judge(f"the password in the log, {kind}", "it is" if _PASSWORD in text else "")


def dashboard_requests(room: Room) -> Tally:
    """Besiege two monitors; afterwards nothing has changed."""
    tally = Tally("dashboard requests")
    with Crawl(room.folder / "crawl", {}, {}) as crawl:
        (crawl.thumbnails / "ab").mkdir(parents=True)
        for folder in (crawl.home, crawl.thumbnails, crawl.thumbnails / "ab"):
            (folder / "secret.jpg").write_bytes(_SECRET)  # not a thumbnail's name
        for password in ("", _PASSWORD):
            _besieged(room, crawl, tally, password)
        orders = (KEYS.halted, KEYS.excluded, KEYS.override_rate_of + "museum")
        changed = [key for key in orders if crawl.redis.exists(key)]
        tally.judge("orders", f"there are {changed}" if changed else "")
    return tally
