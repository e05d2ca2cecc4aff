"""A worker that reaches no site: it pauses, and nothing of that is charged to the sites."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest
from scrapy import Request
from scrapy.http import Response
from twisted.internet.error import ConnectError

from crawlproject.errors import NoRoute
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.net import route as module
from crawlproject.net.route import Route
from crawlproject.state.source_counts import counts_in
from tests.sites import Handler
from tests.state.calls.calls import db
from tests.test_crawl import KEYS, Crawl

_HOSTS = [f"127.0.0.{number}" for number in (11, 12, 13)]
_SEEDS = 15  # of each host
_RATE = 5


class Closing(Handler):
    """Has nothing, which needs no storage, and takes a connection for each request."""

    protocol_version = "HTTP/1.0"

    def get(self) -> None:
        self.answer(404)


class Site:
    """A site that can be away: closed, or behind a route that drops every packet."""

    def __init__(self, host: str) -> None:
        self.address = (host, 0)
        self.open()

    def open(self) -> None:
        self.server = ThreadingHTTPServer(self.address, Closing)
        self.address = (self.address[0], self.server.server_port)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop_listening(self) -> None:
        self.server.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def sites() -> Iterator[list[Site]]:
    found = [Site(host) for host in _HOSTS]
    yield found
    for site in found:
        site.close()


@pytest.fixture
def crawl(crawl: Crawl) -> Crawl:
    crawl.environ["DOWNLOAD_TIMEOUT"] = "5"
    crawl.source("museum", 1)
    return crawl


def feed(crawl: Crawl, *addresses: tuple[str, int]) -> None:
    for host, port in addresses:
        crawl.redis.set(KEYS.override_rate_of + host, _RATE)
        for number in range(_SEEDS):
            url = f"http://{host}:{port}/{number}.jpg"
            crawl.redis.lpush(KEYS.seeds, json.dumps({"url": url, "uuid": f"{host}-{number}"}))


def errors(crawl: Crawl) -> dict[str, dict[bytes, bytes]]:
    """Return all errors that were counted, by kind and source."""
    found: dict[str, dict[bytes, bytes]] = {}
    for source, packed in crawl.redis.hgetall(KEYS.counts).items():
        for kind in ("connect", "timeout", "robots"):
            if number := counts_in(packed).get(f"error_{kind}"):
                found.setdefault(kind, {})[source] = b"%d" % number
    return found


def done(crawl: Crawl) -> int:
    return int(crawl.redis.xlen(KEYS.link_rot_events))


def dropping(address: tuple[str, int]) -> list[socket.socket]:
    """Have the kernel drop every packet to an address: its backlog is full."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(address)
    server.listen(0)
    waiting = [socket.socket() for _ in range(3)]
    for one in waiting:
        one.setblocking(False)
        one.connect_ex(address)
    return [server, *waiting]


def test_a_worker_that_no_longer_reaches_any_site_pauses_and_charges_none(crawl: Crawl, sites: list[Site]) -> None:
    feed(crawl, *(site.address for site in sites))
    crawl.start()
    crawl.until(lambda: done(crawl) > 2 * len(sites))
    for site in sites:
        site.stop_listening()  # all at the same moment
    blocking: list[socket.socket] = []
    for site in sites:
        site.close()
        blocking += dropping(site.address)
    crawl.until(lambda: "Leasing paused: this worker reaches no site" in crawl.log())
    assert errors(crawl) == {}
    for one in blocking:
        one.close()
    for site in sites:
        site.open()
    crawl.finish()
    assert done(crawl) == len(sites) * _SEEDS
    assert (errors(crawl), crawl.dead()) == ({}, {})
    assert crawl.log().count("Leasing paused") == 1


@pytest.mark.parametrize(("have_answered", "error"), [(False, ConnectError), (True, NoRoute)])
async def test_sites_are_charged_unless_they_have_answered_before(
    scheduler: FrontierScheduler, monkeypatch: pytest.MonkeyPatch, have_answered: bool, error: type[Exception]
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(module, "HostnameEndpoint", None)  # with which no trial connection is made
    state, route = scheduler.state, Route(scheduler.crawler, scheduler.state)
    for host in _HOSTS if have_answered else ():
        await db(state).lpush(state.keys.statuses_of + host, "200")
    requests = [route.watch(Request(f"http://{host}/"), host, refused()) for host in _HOSTS]
    raised = await asyncio.gather(*requests, return_exceptions=True)
    assert [type(one) for one in raised] == [error] * len(_HOSTS)
    assert bool(route.breaker.outage) is have_answered
    route.breaker.close()


async def refused(number: int = errno.ECONNREFUSED) -> Response:
    await asyncio.sleep(0)  # until others are under way
    raise ConnectError(number)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(("number", "has_route"), [(errno.EMFILE, True), (errno.ENETUNREACH, False)])
async def test_a_fault_of_the_own_stack_needs_no_trial(
    scheduler: FrontierScheduler, number: int, has_route: bool
) -> None:
    route = Route(scheduler.crawler, scheduler.state)
    route._stack_fault = lambda: None if has_route else OSError(number, "")  # type: ignore[method-assign]
    with pytest.raises(NoRoute, match=os.strerror(number)):
        await route.watch(Request("http://museum.example/"), "museum", refused(number))
    route.breaker.close()
