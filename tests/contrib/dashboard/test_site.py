"""The dashboard over HTTP: who may do what."""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from crawlproject.plugins import offered
from crawlproject.state.keys import Keys
from tests.conftest import Scrapy
from tests.contrib.dashboard.monitors import Monitor
from tests.waiting import PATIENCE_S, until

KEYS = Keys("crawl", "images")
PASSWORD = "päss & word"
FORM = {"Content_Type": "application/x-www-form-urlencoded"}
RIGHT = "password=p%C3%A4ss+%26+word"


class Client:
    """A browser without a page: keeps its cookie, and the token of its session."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.cookie = ""
        self.token = ""

    def ask(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.monitor.port, timeout=PATIENCE_S)
        sent = {"Cookie": self.cookie, "X-CSRF-Token": self.token}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        text = body if isinstance(body, (str, bytes)) or body is None else json.dumps(body)
        try:
            connection.request(method, path, text, sent)
            answer = connection.getresponse()
            is_stream = path.partition("?")[0] == "/events" and answer.status == 200
            read = b"" if is_stream else answer.read()
            if "Cookie" not in headers and (cookie := answer.headers["Set-Cookie"]):
                self.cookie = cookie.partition(";")[0]
            if is_stream:
                while b"\n\n" not in read:
                    read += answer.read1()
                self.token = json.loads(read.split(b"data: ")[1].split(b"\n")[0])["token"]
        finally:
            connection.close()
        return answer.status, answer.headers, read

    def open(self) -> None:
        """Open the page, as a browser does."""
        assert self.ask("GET", "/")[0] == 200
        assert self.ask("GET", "/events")[0] == 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    one = tmp_path_factory.mktemp("dashboard")
    (one / "thumbnails" / "ab").mkdir(parents=True)
    (one / "thumbnails" / "ab" / "a%2Fb.jpg").write_bytes(b"\xff\xd8 a picture")
    (one / "thumbnails" / "ab" / "a.webp").write_bytes(b"RIFF a picture")
    (one / "secret.jpg").write_bytes(b"no thumbnail")
    return one


@contextmanager
def monitored(redis_url: str, folder: Path, **settings: str) -> Iterator[Monitor]:
    environ = {
        "PATH": "/usr/bin:/bin",
        "REDIS_URL": redis_url,
        "IMAGES_STORE": str(folder / "thumbnails"),
        **settings,
    }
    one = Monitor(environ, folder / "monitor.log")
    one.start()
    try:
        yield one
    finally:
        one.stop()


@pytest.fixture
def monitor(redis_url: str, folder: Path) -> Iterator[Monitor]:
    with monitored(redis_url, folder) as one:
        yield one


@pytest.fixture
def locked(redis_url: str, folder: Path) -> Iterator[Monitor]:
    with monitored(redis_url, folder, CRAWL_DASHBOARD_PASSWORD=PASSWORD) as one:
        yield one


def test_what_is_served_and_how(monitor: Monitor) -> None:
    client = Client(monitor)
    for path, kind in {
        "/": "text/html",
        "/static/app.js": "text/javascript",
        "/static/style.css": "text/css",
        "/static/icon.svg": "image/svg+xml",
        "/thumbnails/ab/a%252Fb.jpg": "image/jpeg",
        "/thumbnails/ab/a.webp": "image/webp",
    }.items():
        status, headers, body = client.ask("GET", path)
        assert (status, headers["Content-Type"].partition(";")[0], len(body) > 5) == (200, kind, True)
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
    assert b"scrapy " not in client.ask("GET", "/static/app.js")[2]  # Python quotes what is to be pasted
    assert client.ask("GET", "/login")[0] == 303  # there is nothing to log in to
    for path in (
        "/none",
        "/static/../site.py",
        "/static/none.css",
        "/thumbnails/ab/none.jpg",
        "/thumbnails/ab/a.svg",
        "/thumbnails/../secret.jpg",
        "/thumbnails/ab/../../secret.jpg",
        "/thumbnails/ab%2F..%2F..%2Fsecret.jpg",
        "/thumbnails/%2Fetc%2Fpasswd",
    ):
        status, _, body = client.ask("GET", path)
        assert (status, "error" in json.loads(body)) == (404, True), path
    with socket.create_connection(("127.0.0.1", monitor.port), timeout=PATIENCE_S) as one:
        one.sendall(b"HEAD /events HTTP/1.0\r\nHost: localhost\r\n\r\n")
        while one.recv(65_536):  # until its end: only a GET gets events
            pass
    assert client.ask("GET", "/halt")[0] == 405
    assert client.ask("DELETE", "/")[0] == 405


def test_changes_need_the_token_of_the_session(monitor: Monitor, redis_url: str) -> None:
    client = Client(monitor)
    client.open()
    with redis.Redis.from_url(redis_url) as db:
        order = {"source": "Museum"}
        for headers in (
            {"X_CSRF_Token": ""},
            {"X_CSRF_Token": "0" * 64},
            {"X_CSRF_Token": "\xff"},
            {"Cookie": ""},
            {"Cookie": "a=b"},
        ):
            status, _, body = client.ask("POST", "/halt", order, **headers)
            assert (status, json.loads(body)["error"]) == (403, "the page is older than this monitor: reload it")
        stranger = Client(monitor)
        stranger.open()
        assert client.ask("POST", "/halt", order, X_CSRF_Token=stranger.token)[0] == 403
        assert not db.exists(KEYS.halted)

        status, _, body = client.ask("POST", "/halt", order)
        assert (status, json.loads(body)["source"], json.loads(body)["row"]["state"]) == (200, "museum", "halted")
        assert db.smembers(KEYS.halted) == {b"museum"}
        assert json.loads(client.ask("POST", "/rate", {**order, "rate": "2.5"})[2])["row"]["source"] == "museum"
        assert db.get(KEYS.override_rate_of + "museum") == b"2.5"
        assert client.ask("POST", "/rate", {**order, "rate": "auto"})[0] == 200
        assert not db.exists(KEYS.override_rate_of + "museum")
        assert client.ask("POST", "/resume", order)[0] == 200
        assert not db.exists(KEYS.halted)
        db.sadd(KEYS.excluded, "museum")
        assert json.loads(client.ask("POST", "/include", order)[2])["row"]["state"] != "excluded"
        assert not db.exists(KEYS.excluded)
    for what in ("halted", "rate set to 2.5 requests a second", "rate by size again", "resumed", "included"):
        assert f"Dashboard: museum: {what}, by 127.0.0.1" in monitor.log.read_text()


@pytest.mark.parametrize(
    "body",
    [
        *("", "{", "[]", "[" * 60_000, "1", '"museum"', "{}", '{"source": 1}', '{"source": ""}'),
        *('{"source": "a b"}', json.dumps({"source": "x" * 2000}), json.dumps({"source": "a\nb"})),
    ],
    ids=lambda body: body[:20] or "empty",
)
def test_an_invalid_request_is_refused_with_a_reason(shared: Client, body: str) -> None:
    for path in ("/halt", "/resume", "/include", "/rate"):
        status, _, said = shared.ask("POST", path, body)
        assert status == 400
        assert json.loads(said)["error"].startswith("invalid request: ")


@pytest.fixture(scope="module")
def shared(redis_server: str, folder: Path) -> Iterator[Client]:
    with monitored(redis_server, folder) as one:
        client = Client(one)
        client.open()
        yield client


def test_a_body_without_end_is_not_read(shared: Client) -> None:
    with socket.create_connection(("127.0.0.1", shared.monitor.port), timeout=PATIENCE_S) as one:
        head = f"POST /halt HTTP/1.1\r\nHost: localhost\r\nContent-Length: {10**12}\r\n\r\n"
        one.sendall(head.encode())
        with pytest.raises(OSError):
            for _ in range(10_000):
                one.sendall(bytes(100_000))
    assert shared.ask("GET", "/")[0] == 200


@pytest.mark.skipif("report" not in offered("pages_of_source"), reason="that plug-in was deleted")
def test_the_report_of_a_source_is_a_page_that_may_load_and_run_nothing(shared: Client) -> None:
    with redis.Redis.from_url(shared.monitor.environ["REDIS_URL"]) as client:
        client.hset(KEYS.rates, "museum", "0.2")
    status, headers, body = shared.ask("GET", "/report?source=museum")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script-src" not in policy
    assert "frame-ancestors 'none'" in policy
    assert b"<h1>What crawlproject requested of museum</h1>" in body
    assert shared.ask("GET", "/report?source=museum", Host="evil.example")[0] == 421
    for wrong, why in {
        "": "must be 1 to 128",
        "?source=": "must be 1 to 128",
        "?source=%ff%00<b>": "must be 1 to 128",
        "?source=nobody.example": "nothing is known of nobody.example",
    }.items():
        status, headers, body = shared.ask("GET", f"/report{wrong}")
        assert (status, headers["Content-Type"], why in json.loads(body)["error"]) == (
            404,
            "application/json",
            True,
        )
    assert shared.ask("POST", "/report", {"source": "museum"})[0] == 405


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::1", "\xff"])
def test_without_a_password_no_other_name_leads_here(shared: Client, host: str) -> None:
    assert shared.ask("GET", "/", Host=host)[0] == 421
    assert shared.ask("GET", "/events", Host=host)[0] == 421
    assert shared.ask("POST", "/halt", {"source": "museum"}, Host=host)[0] == 421


@pytest.mark.parametrize("dest", ["image", "iframe", "empty"])
@pytest.mark.parametrize("path", ["/", "/events"])
def test_pages_that_embed_it_get_no_sessions(shared: Client, path: str, dest: str) -> None:
    stranger = {"Cookie": "", "Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": dest}
    status, headers, _ = shared.ask("GET", path, **stranger)
    assert (status, headers["Set-Cookie"]) == (403, None)
    assert shared.ask("GET", "/", **{**stranger, "Sec_Fetch_Dest": "document"})[0] == 200


def test_with_a_password_nothing_is_shown_before(locked: Monitor) -> None:
    client = Client(locked)
    status, headers, body = client.ask("GET", "/")
    assert (status, headers["Location"], body) == (303, "/login", b"")
    for path in ("/events", "/thumbnails/ab/a%252Fb.jpg"):
        assert client.ask("GET", path)[0] == 401
    assert client.ask("POST", "/halt", {"source": "museum"})[0] == 401
    assert client.ask("GET", "/login")[0] == 200

    for wrong in ("", "password=", "password=guess", "password=%ff%00"):
        status, headers, _ = client.ask("POST", "/login", wrong, **FORM)
        assert (status, headers["Location"], headers["Set-Cookie"]) == (303, "/login?wrong", None)
    status, headers, _ = client.ask("POST", "/login", RIGHT, **FORM)
    assert (status, headers["Location"]) == (303, "/")
    for word in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert word.lower() in headers["Set-Cookie"].lower()
    assert "secure" not in headers["Set-Cookie"].lower()  # over plain HTTP a browser would not keep it
    client.open()
    assert client.ask("POST", "/halt", {"source": "museum"})[0] == 200

    # What is forged does not pass; the session ends with the process.
    name, _, value = client.cookie.partition("=")
    for forged in (f"{client.cookie}x", client.cookie[:-1], name, f"{name}=", f"{name}={value[::-1]}", ""):
        assert Client(locked).ask("GET", "/events", Cookie=forged)[0] == 401, forged
    locked.stop()
    locked.start()
    assert client.ask("GET", "/events")[0] == 401


def log_in(monitor: Monitor) -> Client:
    """Return a browser that has logged in and opened the page."""
    client = Client(monitor)
    assert client.ask("POST", "/login", RIGHT, **FORM)[1]["Location"] == "/"
    client.open()
    return client


def page_of(client: Client) -> socket.socket:
    """Open a page's connection for events, and return it once the first ones have come."""
    one = socket.create_connection(("127.0.0.1", client.monitor.port), timeout=PATIENCE_S)
    one.sendall(f"GET /events HTTP/1.0\r\nHost: localhost\r\nCookie: {client.cookie}\r\n\r\n".encode())
    read = b""
    while b"event: hello" not in read:
        got = one.recv(65_536)
        assert got, read
        read += got
    return one


def read_to_end(one: socket.socket) -> None:
    """Wait until the monitor closes a connection; fail when that takes a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while one.recv(65_536):  # an open page is sent something every few seconds
        assert time.monotonic() < deadline, "it is still open"


def assert_open(one: socket.socket) -> None:
    one.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            assert one.recv(65_536)


def test_logging_out_ends_the_session_wherever_its_cookie_is(locked: Monitor) -> None:
    client, other = log_in(locked), log_in(locked)
    copy = Client(locked)
    copy.cookie, copy.token = client.cookie, client.token
    with page_of(copy) as its_page, page_of(other) as others_page:
        status, headers, _ = client.ask("POST", "/logout")
        assert (status, "Max-Age=0" in headers["Set-Cookie"]) == (200, True)
        read_to_end(its_page)
        assert copy.ask("GET", "/")[0] == 303
        for method, path in (("GET", "/events"), ("POST", "/halt"), ("POST", "/logout")):
            assert copy.ask(method, path, {"source": "museum"})[0] == 401, path
        assert copy.ask("GET", "/thumbnails/ab/a.webp")[0] == 401
        assert_open(others_page)
    assert other.ask("GET", "/")[0] == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "\xff"])
def test_wrong_passwords_from_other_sites_count_nothing(shared_locked: Client, origin: str) -> None:
    for word in (*("password=wrong",) * 15, RIGHT):
        status, headers, body = shared_locked.ask("POST", "/login", word, Origin=origin, **FORM)
        assert (status, headers["Set-Cookie"]) == (403, None)
        assert "another site" in json.loads(body)["error"]
    own = f"http://127.0.0.1:{shared_locked.monitor.port}"
    assert Client(shared_locked.monitor).ask("POST", "/login", RIGHT, Origin=own, **FORM)[1]["Location"] == "/"


@pytest.fixture(scope="module")
def shared_locked(redis_server: str, folder: Path) -> Iterator[Client]:
    with monitored(redis_server, folder, CRAWL_DASHBOARD_PASSWORD=PASSWORD) as one:
        yield Client(one)


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_behind_a_proxy_it_is_known_by_its_origin(redis_url: str, folder: Path, scheme: str) -> None:
    origin = f"{scheme}://crawl.example.org:8443"
    settings = {"CRAWL_DASHBOARD_PASSWORD": PASSWORD, "CRAWL_DASHBOARD_ORIGIN": origin}
    with monitored(redis_url, folder, **settings) as monitor:
        for host in ("crawl.example.org:8443", "Crawl.Example.org", f"127.0.0.1:{monitor.port}"):
            client = Client(monitor)
            status, headers, _ = client.ask("POST", "/login", RIGHT, Host=host, Origin=origin, **FORM)
            assert (status, headers["Location"]) == (303, "/")
            assert ("secure" in headers["Set-Cookie"].lower().split("; ")) == (scheme == "https")
            assert client.ask("GET", "/", Host=host)[0] == 200
        assert client.ask("GET", "/", Host="evil.example.org")[0] == 421
        assert client.ask("POST", "/login", RIGHT, Origin="https://evil.example.org", **FORM)[0] == 403


def test_the_65th_page_closes_the_oldest(shared_locked: Client) -> None:
    client = log_in(shared_locked.monitor)
    with ExitStack() as stack:
        pages = [stack.enter_context(page_of(client)) for _ in range(65)]
        read_to_end(pages[0])
        assert_open(pages[1])
        assert client.ask("GET", "/")[0] == 200


def test_passwords_are_not_guessed_by_the_thousand(locked: Monitor) -> None:
    client = Client(locked)
    for number in range(10):
        assert client.ask("POST", "/login", f"password={number}", **FORM)[0] == 303
    for word in ("password=10", RIGHT):
        status, headers, _ = client.ask("POST", "/login", word, **FORM)
        assert (status, headers["Retry-After"]) == (429, "60")
    assert locked.log.read_text().count("too many wrong passwords") == 2
    assert PASSWORD not in locked.log.read_text()


def test_it_is_open_to_a_network_with_a_password_alone(scrapy: Scrapy) -> None:
    for address in ("0.0.0.0", "::", "192.0.2.1"):
        said = scrapy("monitor", CRAWL_DASHBOARD_ADDRESS=address)
        assert said.returncode == 1
        assert f"CRAWL_DASHBOARD_ADDRESS={address} would let everyone" in said.stderr
        assert "CRAWL_DASHBOARD_PASSWORD" in said.stderr
        assert said.stderr.count("\n") == 1


def test_redis_that_is_away_is_said_and_found_again(monitor: Monitor, redis_url: str) -> None:
    client = Client(monitor)
    client.open()
    with redis.Redis.from_url(redis_url) as db:
        db.execute_command("CLIENT", "PAUSE", 9500, "ALL")
    status, _, body = client.ask("POST", "/halt", {"source": "museum"})
    assert (status, json.loads(body)["error"].startswith("Redis does not answer")) == (503, True)
    assert client.ask("GET", "/")[0] == 200
    with socket.create_connection(("127.0.0.1", monitor.port), timeout=PATIENCE_S) as one:
        one.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.2)  # it does not wait for Redis
    until(lambda: client.ask("POST", "/resume", {"source": "museum"})[0] == 200)
    assert "Bug" not in monitor.log.read_text()


def read_events(client: Client, seconds: float) -> list[Any]:
    """Return what comes over an open page's wire."""
    with socket.create_connection(("127.0.0.1", client.monitor.port), timeout=seconds) as one:
        one.sendall(f"GET /events HTTP/1.0\r\nHost: localhost\r\nCookie: {client.cookie}\r\n\r\n".encode())
        read = b""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and len(re.findall(rb"event: snapshot\n.*\n\n", read)) < 2:
            read += one.recv(65_536)
    body = read.partition(b"\r\n\r\n")[2].decode()
    blocks = [dict(line.split(": ", 1) for line in block.splitlines()) for block in body.split("\n\n")[:-1]]
    return [(block["event"], json.loads(block["data"])) for block in blocks if "event" in block]


def test_an_open_page_gets_every_reading_once_and_what_has_happened(monitor: Monitor, redis_url: str) -> None:
    line = "\u2028\r\n\nevent: forged\ndata: {}\n\n"
    client = Client(monitor)
    client.open()
    with redis.Redis.from_url(redis_url) as db:
        names = ["museum", *(f"source{number}" for number in range(500))]  # more than a socket takes
        db.hset(KEYS.rates, mapping=dict.fromkeys(names, "0.2"))
        db.xadd(KEYS.link_rot_events, {"event": json.dumps({"source": "museum", "url": line, "status": 404})})
        db.xadd(KEYS.dead, {"reason": line, "seed": "http://u:secret@museum.example/\x1b[2J"})
        events = read_events(client, PATIENCE_S)
    assert {name for name, _ in events} == {"hello", "spiders", "snapshot", "recent"}
    snapshots = [data for name, data in events if name == "snapshot"]
    assert len(snapshots) == 2
    assert snapshots[0]["time"] < snapshots[1]["time"]
    assert snapshots[1]["specific"]["museum"]["state"] == "closed"
    recent = [data for name, data in events if name == "recent"][-1]
    assert [row["status"] for row in recent["link_rot"]] == [404]
    assert recent["halts"] == []
    (letter,) = recent["dead"]
    assert "secret" not in json.dumps(recent)
    assert letter["seed"].isprintable()
    assert letter["reason"].isprintable()


def test_a_page_gets_the_spiders_that_its_address_names(redis_url: str, folder: Path) -> None:
    pages = Keys("crawl", "pages")
    with redis.Redis.from_url(redis_url) as db:
        db.hset(KEYS.totals, "thumbnails", 3)
        db.hset(pages.totals, "pages", 9)
        db.hset(KEYS.rates, "museum", "0.2")
        db.rpush(f"{pages.overflow_of}1:museum", "x")
        db.hset(pages.counters, "overflow", 1)
        with monitored(redis_url, folder) as monitor:
            client = Client(monitor)
            client.open()
            of_both = "?spider=pages&spider=images&spider=pages"
            for query, shown in {"": ["images"], "?spider=pages": ["pages"], of_both: ["pages", "images"]}.items():
                assert client.ask("GET", f"/{query}")[0] == 200
                status, _, said = client.ask("GET", f"/events{query}")
                hello = json.loads(said.split(b"data: ")[1].split(b"\n")[0])
                assert (status, hello["spiders"], list(hello["histories"])) == (200, shown, shown)
            for path in ("/?spider=shop", "/events?spider=images&spider=shop", "/events?spider=%ff"):
                status, _, said = client.ask("GET", path)
                assert (status, json.loads(said)["error"].endswith(", only on images, pages")) == (404, True)

            # An order goes to the frontier of the spider that it is given for.
            for spider, waiting in {"pages": 1, "images": 0}.items():
                status, _, said = client.ask("POST", "/halt", {"source": "museum", "spider": spider})
                assert (status, json.loads(said)["row"]["waiting"]) == (200, waiting)
            for other in ("shop", ["pages"], None):
                assert client.ask("POST", "/halt", {"source": "other", "spider": other})[0] == 404
            assert db.smembers(KEYS.halted) == {b"museum"}
