"""/metrics, and what all our servers have in common, over HTTP."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from crawlproject.webserver import MOST_CONNECTIONS
from tests.conftest import Scrapy
from tests.monitors import Monitor, ports
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def monitor(redis_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitor]:
    folder = tmp_path_factory.mktemp("webserver")
    environ = {"PATH": "/usr/bin:/bin", "REDIS_URL": redis_server, "IMAGES_STORE": str(folder)}
    one = Monitor(environ, folder / "monitor.log")
    one.start()
    yield one
    assert one.stop() == 0


def port_of(monitor: Monitor) -> int:
    return int(monitor.environ["CRAWL_METRICS_PORT"])


def scrape(port: int, head: bytes) -> bytes:
    """Return the whole answer to a request for /metrics over HTTP/1.0."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as one:
        one.sendall(b"GET /metrics HTTP/1.0\r\n" + head + b"\r\n")
        return b"".join(iter(lambda: one.recv(65_536), b""))


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:9410", "[fd00::5]", "LOCALHOST:9410", "monitor:9410", "monitor.crawl.svc:9410", "crawl.home.arpa"],
)
def test_metrics_are_scraped_by_address_or_by_a_name_that_only_a_private_network_has(
    monitor: Monitor, host: str
) -> None:
    answer = scrape(port_of(monitor), f"Host: {host}\r\n".encode())
    assert b" 200 " in answer.partition(b"\r\n")[0]
    assert b"process_cpu_seconds_total" in answer


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9410", "10.0.0.1.evil.example", "svc.evil.example", "127.1.evil", "a.b."],
)
def test_metrics_are_not_shown_to_a_web_page_whose_name_leads_here(monitor: Monitor, host: str) -> None:
    answer = scrape(port_of(monitor), f"Host: {host}\r\n".encode())
    assert b" 421 " in answer.partition(b"\r\n")[0]
    assert b"process_" not in answer
    assert b"scrape by address" in answer


def test_a_connection_is_kept_for_further_requests(monitor: Monitor) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(monitor), timeout=PATIENCE_S)
    connection.connect()
    first = connection.sock
    for _ in range(3):
        connection.request("GET", "/metrics")
        assert connection.getresponse().read()
        assert connection.sock is first
    connection.close()


def test_one_connection_too_many_closes_the_oldest(monitor: Monitor) -> None:
    address = ("127.0.0.1", port_of(monitor))
    with ExitStack() as stack:

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(address, timeout=PATIENCE_S))

        def answers(one: socket.socket) -> bool:
            one.sendall(b"HEAD /none HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return b" 404 " in one.recv(65_536)

        oldest = connect()
        assert answers(oldest)  # whatever was there before has been closed by now
        others = [connect() for _ in range(MOST_CONNECTIONS - 1)]
        assert answers(oldest)
        assert answers(others[-1])
        newest = connect()
        assert answers(newest)
        with suppress(ConnectionResetError):
            assert oldest.recv(1) == b""
        assert answers(others[0])
        assert answers(others[-1])


def test_a_port_that_is_taken_is_named(scrapy: Scrapy) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        port = one.getsockname()[1]
        for command in (("monitor",), ("crawl", "images")):
            said = scrapy(*command, "-s", f"CRAWL_METRICS_PORT={port}", **ports())
            assert said.returncode == 1
            (words,) = [line for line in said.stderr.splitlines() if "INFO" not in line and "CRAWL_" in line]
            assert words.startswith(
                f"scrapy {command[0]}: CRAWL_METRICS_PORT={port} is not available at 127.0.0.1"
            )
            assert "Traceback" not in said.stderr
