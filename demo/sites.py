"""Sites of HTML pages on loopback: some hundred real ones that link to each other, traps, opt-outs and pictures.

All listen on one port, and are told apart by the Host header; a name server of their own has their names.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, Self

from demo import traps

LOOPBACK = "127.0.0.1"
LICENCE = "https://creativecommons.org/licenses/by/4.0/"
HTML, TEXT, JPEG = "text/html; charset=utf-8", "text/plain; charset=utf-8", "image/jpeg"

# What sites ask for, in pages that every real page leads to, and what nobody may ever ask for because of it.
NOFOLLOW, NOINDEX, NOAI = "/nofollow.html", "/noindex.html", "/noai.html"
BEHIND_NOFOLLOW, FORBIDDEN = "/behind-nofollow.html", "/private/"
AFTER_NOINDEX = "/after-noindex.html"  # this may: noindex does not say nofollow

_REAL_LINKS = 8  # on each page to other real ones


class Answer(NamedTuple):
    """What a site answers."""

    status: int
    content_type: str
    body: bytes


class Arrival(NamedTuple):
    """One request that a site has seen."""

    t: float  # time.time() when its head had been read
    source: str  # the site's domain
    host: str
    path: str  # with the query
    status: int


@dataclass(frozen=True)
class Site:
    """A site: `domain` and every host below it.

    Its real pages are `/` and `/real/1.html` to `/real/N.html`. Each links to both its children in a tree, so that
    each can be reached, to others at random, and to the site's traps. A page with a picture has it under an open
    licence if its number is even. `opt_outs` adds the pages and the robots.txt that ask crawlers for something.
    """

    domain: str
    pages: int  # real ones, without `/`
    traps: Sequence[str] = ()  # out of `traps.TRAPS`
    pictures: Sequence[bytes] = field(default=(), repr=False)  # JPEGs: one on each of the first real pages
    opt_outs: bool = False
    trap_width: int = 50  # links on a page of the widest trap

    def real(self) -> set[str]:
        """Return the paths of the pages that a crawl should have an event of."""
        asked = {NOFOLLOW, NOAI, AFTER_NOINDEX} if self.opt_outs else set()
        return {"/"} | {_real(number) for number in range(1, self.pages + 1)} | asked

    def licensed(self) -> set[str]:
        """Return the paths of the pictures that a crawl should find and fetch."""
        return {_picture(number) for number in range(1, len(self.pictures) + 1) if number % 2 == 0}

    def answer(self, host: str, path: str) -> Answer:
        """Return the answer to a request for `path` (with its query); `host` is what the Host header says."""
        route, (name, _, port) = path.partition("?")[0], host.lower().partition(":")
        rng = Random(f"{name}{path}")  # the same address has the same links each time
        if route == "/robots.txt":
            rule = f"Disallow: {FORBIDDEN}" if self.opt_outs else "Disallow:"
            return Answer(200, TEXT, f"User-agent: *\n{rule}\n".encode())
        if route.startswith("/pictures/") and (number := _number(route, len(self.pictures))):
            return Answer(200, JPEG, self.pictures[number - 1])
        domain = f"{self.domain}:{port}" if port else self.domain
        if name == self.domain and (route == "/" or route.startswith("/real/")):
            number = 0 if route == "/" else _number(route, self.pages)
            if number is not None:
                return self._page(self._real_page(number), self._links_of(number, domain, rng), rng)
        if self.opt_outs and (page := self._asking(route)):
            return page
        for trap in self.traps:
            if found := traps.inside(trap, domain, path, self.trap_width, rng):
                text, links = found
                home = f"http://{domain}"
                back = [f"{home}/", home + _real(rng.randint(1, self.pages))]
                return self._page(f"<p>{escape(text)}</p>", back + links, rng)
        return Answer(404, TEXT, b"404\n")

    def _links_of(self, number: int, domain: str, rng: Random) -> list[str]:
        children = [one for one in (2 * number + 1, 2 * number + 2) if one <= self.pages]
        others = [rng.randint(1, self.pages) for _ in range(_REAL_LINKS - len(children))]
        links = ["/", *map(_real, children + others)]
        if self.opt_outs and number == 0:
            links += [NOFOLLOW, NOINDEX, NOAI, FORBIDDEN + "a.html"]
        return links + [link for trap in self.traps for link in traps.entries(trap, domain, self.trap_width, rng)]

    def _real_page(self, number: int) -> str:
        text = f"<h1>Page {number} of {escape(self.domain)}</h1>"
        if not 0 < number <= len(self.pictures):
            return text
        credit = f'<a rel="license" href="{LICENCE}">CC BY</a>' if number % 2 == 0 else "All rights reserved"
        return f'{text}<figure><img src="{_picture(number)}" alt="Picture {number}">{credit}</figure>'

    def _asking(self, route: str) -> Answer | None:
        """Return one of the pages that ask for something."""
        licensed = (
            f'<figure><img src="/pictures/of{route[1:]}.jpg"><a rel="license" href="{LICENCE}">BY</a></figure>'
        )
        pages = {
            NOFOLLOW: ("nofollow", "Follow nothing", [BEHIND_NOFOLLOW]),
            NOINDEX: ("noindex", f"Keep nothing {licensed}", [AFTER_NOINDEX]),
            NOAI: ("noai", f"No pictures {licensed}", []),
            AFTER_NOINDEX: ("all", "Found through a page that is not kept", []),
        }
        if route not in pages:
            return None
        asks, text, links = pages[route]
        return _html(f'<meta name="robots" content="{asks}">', text, links)

    def _page(self, body: str, links: list[str], rng: Random) -> Answer:
        if "session" in self.traps:
            links = [traps.with_session(link, rng) for link in links]
        return _html("", body, links)


class Sites:
    """A web server and a name server for some sites, from entering the context to leaving it."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites: Mapping[str, Site] = {site.domain: site for site in sites}
        self.arrivals: list[Arrival] = []  # of all sites, in their order

    def __enter__(self) -> Self:
        self._web = _WebServer((LOOPBACK, 0), _Handler)
        self._web.owner = self
        self.port = self._web.server_port
        self._names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._names.bind((LOOPBACK, 0))
        self.name_server = f"{LOOPBACK}:{self._names.getsockname()[1]}"
        self._threads = [threading.Thread(target=run) for run in (self._web.serve_forever, self._answer_names)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._web.shutdown()
        self._web.server_close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._names.getsockname())
        for thread in self._threads:
            thread.join()
        self._names.close()

    def url(self, domain: str, path: str = "/") -> str:
        """Return the address of a path of a site."""
        return f"http://{domain}:{self.port}{path}"

    def site_of(self, host: str) -> Site | None:
        """Return the site that a Host header names."""
        name = host.partition(":")[0].lower()
        return next((site for one, site in self.sites.items() if name == one or name.endswith(f".{one}")), None)

    def _answer_names(self) -> None:
        """Say that every name has the address of loopback, and no IPv6 address, until an empty query comes."""
        while True:
            query, client = self._names.recvfrom(4096)
            if not query:
                return
            end = query.find(b"\0", 12) + 5  # the name's end, then type and class (RFC 1035, section 4.1.2)
            question = query[12:end]
            if len(query) < end or end < 17:
                continue
            is_address = question[-4:] == b"\0\1\0\1"
            head = query[:2] + struct.pack("!HHHHH", 0x8580, 1, is_address, 0, 0)
            record = b"\xc0\x0c\0\1\0\1" + struct.pack("!IH", 3600, 4) + socket.inet_aton(LOOPBACK)
            self._names.sendto(head + question + (record if is_address else b""), client)


class _WebServer(ThreadingHTTPServer):
    daemon_threads = True  # those of connections that a client keeps open
    request_queue_size = 1024
    owner: Sites


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        server: Any = self.server
        now, host = time.time(), self.headers.get("Host", "")
        site = server.owner.site_of(host)
        answer = site.answer(host, self.path) if site else Answer(404, TEXT, b"404\n")
        domain = site.domain if site else ""
        server.owner.arrivals.append(Arrival(now, domain, host.partition(":")[0], self.path, answer.status))
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def _html(head: str, body: str, links: list[str]) -> Answer:
    # Their texts are alike: the text of a page is to differ only where `body` does.
    anchors = "".join(f'<a href="{escape(link)}">see also</a> ' for link in links)
    return Answer(
        200, HTML, f"<!DOCTYPE html><html><head>{head}</head><body>{body}{anchors}</body></html>".encode()
    )


def _real(number: int) -> str:
    return f"/real/{number}.html"


def _picture(number: int) -> str:
    return f"/pictures/{number}.jpg"


def _number(route: str, most: int) -> int | None:
    """Return the number of a page or picture, None if there is none of it."""
    name = route.rpartition("/")[2].partition(".")[0]
    return int(name) if name.isascii() and name.isdecimal() and 1 <= int(name) <= most else None
