"""Web sites that record their requests, in a process of their own.

    python -m benchmarks.arrivals '[["127.0.0.1", "fast", null], ["127.0.0.1", null, null]]' [CERTIFICATE]

One port for each pair of address and source; without a source, the path's first part names it. `/robots.txt` leads
to the source and path that a listener names third (`fast/robots.txt`); where it names none, it is not there, like
what is below `/gone`. `/redirect/HOST:PORT/PATH` leads to that URL, `/page` has no pictures, what is below `/once`
fails once with status 500; everything else is a small picture, which one by the number that the path ends in.
Prints the ports, and at SIGTERM a report. A judge that comes late itself sees bursts that were none:
so nothing is written while requests come, and the report says how late this process was at most.

CERTIFICATE is a file with key and certificate for listeners that speak TLS. `Listener` says what else one can be
told.

SIGUSR1 makes the sites silent (no answer before the next SIGUSR1), SIGUSR2 takes them away (every connection
ends at once, until the next SIGUSR2).
"""

from __future__ import annotations

import asyncio
import gc
import io
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple, Self, TypedDict

from PIL import Image

ROBOTS = "robots.txt"
PICTURES = 64  # different ones
_LEAVES = {0: "gone/", 1: "once/", 2: "moved/"}
_PATIENCE = 10.0  # seconds to start, and to end
_LOOK = 0.005  # seconds between two looks at how late we are
LAPSE_S = 0.02


class Report(TypedDict):
    """What was seen: moments of arrival by source (`time.monotonic`, one clock on this machine), lateness.

    What arrived during a lapse was noted at its end. `statuses` and `bytes` are those of the answers and their
    bodies, by source.
    """

    arrivals: dict[str, list[float]]
    late: float  # seconds; the most that this process was
    lapses: list[tuple[float, float]]  # begin and end of each time that it was late by more than 20 ms
    pictures: dict[str, list[float]]  # the arrivals that were not for a robots.txt
    statuses: dict[str, dict[str, int]]
    bytes: dict[str, int]


def _nothing_seen() -> Report:
    return Report(arrivals={}, late=0.0, lapses=[], pictures={}, statuses={}, bytes={})


class Listener(NamedTuple):
    """One port: its address, its source (None if the path tells it), where its robots.txt leads to, if it does.

    `handshake` is how late it answers TLS handshakes (s), None where there is no TLS. `hangs` says how its site
    hangs: "robots" (no answer to a request for robots.txt), "connect" (no connection is accepted), "" if it does
    not; its pictures come after `delay` seconds. With `pages` each host is a site of its own, and a source, of so
    many HTML pages, `/0` and so on, each of which leads to those of `links_of`.
    """

    host: str
    source: str | None
    robots: str | None = None
    handshake: float | None = None
    hangs: str = ""
    delay: float = 0.0
    pages: int = 0


def links_of(host: str, number: int, pages: int) -> list[str]:
    """Return the paths that a page of a host leads to: its children in a tree, and one page before it.

    A page without children may be one that is gone, fails once, or is moved to another address.
    """
    children = [child for child in (2 * number + 1, 2 * number + 2) if child < pages]
    links = [_path_of(host, child, pages) for child in children]
    return [*links, _path_of(host, number // 2, pages)]


def _path_of(host: str, number: int, pages: int) -> str:
    is_leaf = 2 * number + 1 >= pages
    kind = _LEAVES.get(zlib.crc32(f"{host}/{number}".encode()) % 25, "") if is_leaf else ""
    return f"/{kind}{number}"


def size_of(number: int) -> tuple[int, int]:
    """Return width and height of the picture of a path that ends in `number`; no two pictures have the same."""
    return 10 + number % PICTURES, 10


def _picture(number: int) -> bytes:
    width, height = size_of(number)
    buffer = io.BytesIO()
    Image.frombytes("RGB", (width, height), Random(number).randbytes(3 * width * height)).save(buffer, "PNG")
    return buffer.getvalue()


def _answer(status: str, headers: str = "", body: bytes = b"") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


_IMAGES = [_answer("200 OK", "Content-Type: image/png\r\n", _picture(number)) for number in range(PICTURES)]
_PAGE = _answer("200 OK", "Content-Type: image/png\r\n", b"<!DOCTYPE html><title>Not here</title>")
_NOT_FOUND = _answer("404 Not Found")
_FAILED = _answer("500 Internal Server Error")


def _image(path: str) -> bytes:
    digits = path[len(path.rstrip("0123456789")) :]
    return _IMAGES[int(digits or 0) % PICTURES]


class _Sites:
    """What the connections of all ports share."""

    def __init__(self) -> None:
        self.report = _nothing_seen()
        self.authorities: dict[str | None, str] = {}
        self.open: set[asyncio.Transport] = set()
        self.silent = self.away = False
        self._failed: set[tuple[str | None, str]] = set()
        self._unsaid: list[tuple[asyncio.Transport, bytes]] = []

    def note(self, source: str, path: str, now: float) -> None:
        """Note an arrival."""
        self.report["arrivals"].setdefault(source, []).append(now)
        if not path.endswith(ROBOTS):
            self.report["pictures"].setdefault(source, []).append(now)

    def note_answer(self, source: str, answer: bytes) -> None:
        """Note what a request was answered with."""
        statuses = self.report["statuses"].setdefault(source, {})
        status = answer[9:12].decode()
        statuses[status] = statuses.get(status, 0) + 1
        body = len(answer) - answer.index(b"\r\n\r\n") - 4
        self.report["bytes"][source] = self.report["bytes"].get(source, 0) + body

    def answer(self, listener: Listener, path: str) -> bytes:
        """Return the answer to a request."""
        source = listener.source
        first, _, rest = path[1:].partition("/")
        if path == f"/{ROBOTS}" and listener.robots is not None:
            target, _, at = listener.robots.partition("/")
            return _answer("302 Found", f"Location: http://{self.authorities[target]}/{at}\r\n")
        if path.endswith(ROBOTS) or first == "gone":
            return _NOT_FOUND
        if first == "redirect":
            return _answer("302 Found", f"Location: http://{rest}\r\n")
        if first == "once" and (source, path) not in self._failed:
            self._failed.add((source, path))
            return _FAILED
        return _PAGE if first == "page" else _image(path)

    def page(self, authority: str, path: str, pages: int) -> bytes:
        """Return the answer to a request for a page of a host."""
        host, (kind, _, name) = authority.partition(":")[0], path[1:].rpartition("/")
        number = int(name) if name.isdecimal() and int(name) < pages else None
        if path.endswith(ROBOTS) or kind == "gone" or number is None:
            return _NOT_FOUND
        if kind == "moved":
            return _answer("301 Moved Permanently", f"Location: http://{authority}/{number}\r\n")
        if kind == "once" and (host, path) not in self._failed:
            self._failed.add((host, path))
            return _FAILED
        links = "".join(f'<a href="{link}">{link}</a> ' for link in links_of(host, number, pages))
        elsewhere = '<a href="http://elsewhere.example/">out of scope</a>'
        text = f"<!DOCTYPE html><title>{host} {number}</title><p>Page {number} of {host}</p>{links}{elsewhere}"
        return _answer("200 OK", "Content-Type: text/html\r\n", text.encode())

    def say(self, transport: asyncio.Transport, answer: bytes) -> None:
        """Send an answer, or keep it until the sites speak again."""
        if self.silent:
            self._unsaid.append((transport, answer))
        elif not transport.is_closing():
            transport.write(answer)

    def toggle_silent(self) -> None:
        """Fall silent, or say all that was not said."""
        self.silent = not self.silent
        if not self.silent:
            for transport, answer in self._unsaid:
                self.say(transport, answer)
            self._unsaid.clear()

    def toggle_away(self) -> None:
        """Go away with all connections, or come back."""
        self.away = not self.away
        for transport in list(self.open):
            transport.abort()


_HOST = re.compile(rb"\r\nhost: *([^\r\n]+)", re.IGNORECASE)


class _Connection(asyncio.Protocol):
    """Answers the requests of one connection; none of them has a body."""

    def __init__(self, listener: Listener, sites: _Sites) -> None:
        self._listener = listener
        self._sites = sites
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._sites.open.add(transport)
        if self._sites.away:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._sites.open.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        *heads, self._read = (self._read + data).split(b"\r\n\r\n")
        for head in heads:
            path = head.split(b" ", 2)[1].decode("latin-1")
            if self._listener.pages:
                host = _HOST.search(head)
                authority = host[1].decode("latin-1") if host else ""
                source = authority.partition(":")[0]
                answer = self._sites.page(authority, path, self._listener.pages)
            else:
                source = self._listener.source or path[1:].partition("/")[0]
                answer = self._sites.answer(self._listener, path)
            self._sites.note(source, path, now)
            self._sites.note_answer(source, answer)
            if self._listener.delay and not path.endswith(ROBOTS):
                asyncio.get_running_loop().call_later(
                    self._listener.delay, self._sites.say, self._transport, answer
                )
            elif self._listener.hangs != "robots" or not path.endswith(ROBOTS):
                self._sites.say(self._transport, answer)


def _hang(listener: Listener, stack: ExitStack) -> int:
    """Open a port that accepts no connections, until `stack` is closed; return it."""
    unanswered = stack.enter_context(socket.create_server((listener.host, 0), backlog=0))
    for _ in range(3):  # until its queue is full
        caller = stack.enter_context(socket.socket())
        caller.setblocking(False)
        caller.connect_ex(unanswered.getsockname())
    return int(unanswered.getsockname()[1])


async def _serve_stalled(
    server: socket.socket, protocol: Callable[[], asyncio.Protocol], context: ssl.SSLContext, seconds: float
) -> None:
    """Accept connections, and have each wait so long for its handshake."""
    loop = asyncio.get_running_loop()

    async def secure(connection: socket.socket) -> None:
        await asyncio.sleep(seconds)
        with suppress(OSError):  # the client has gone
            await loop.connect_accepted_socket(protocol, connection, ssl=context)

    async with asyncio.TaskGroup() as tasks:
        while True:
            connection, _ = await loop.sock_accept(server)
            tasks.create_task(secure(connection))


async def _serve(listeners: Sequence[Listener], certificate: str | None) -> Report:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    sites = _Sites()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    loop.add_signal_handler(signal.SIGUSR1, sites.toggle_silent)
    loop.add_signal_handler(signal.SIGUSR2, sites.toggle_away)
    report = sites.report
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if certificate is not None:
        context.load_cert_chain(certificate)

    stack = ExitStack()
    stalled: list[asyncio.Task[None]] = []
    ports = []
    for listener in listeners:
        if listener.hangs == "connect":
            ports.append(_hang(listener, stack))
            continue
        server = socket.create_server((listener.host, 0), backlog=1024)
        server.setblocking(False)
        ports.append(server.getsockname()[1])
        sites.authorities[listener.source] = f"{listener.host}:{ports[-1]}"
        protocol = partial(_Connection, listener, sites)
        if listener.handshake is None:
            await loop.create_server(protocol, sock=server, backlog=1024)
        else:
            serving = _serve_stalled(server, protocol, context, listener.handshake)
            stalled.append(asyncio.create_task(serving))
    print(json.dumps(ports), flush=True)
    gc.disable()
    while not stopped.is_set():
        before = time.monotonic()
        await asyncio.sleep(_LOOK)
        after = time.monotonic()
        report["late"] = max(report["late"], after - before - _LOOK)
        if after - before - _LOOK > LAPSE_S:
            report["lapses"].append((before, after))
    stack.close()
    return report


class Sites:
    """The process: `ports` of the listeners in their order while the context lasts, then `report`.

    `certificate` is a file with a private key and the certificate chain, for listeners with TLS.
    """

    def __init__(self, listeners: Sequence[Listener], certificate: Path | None = None) -> None:
        self._listeners = listeners
        self._certificate = [] if certificate is None else [str(certificate)]
        self.ports: list[int] = []
        self.report = _nothing_seen()

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "benchmarks.arrivals", json.dumps(self._listeners), *self._certificate]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.ports = json.loads(self._process.stdout.readline() or "[]")
        if not self.ports:
            self._process.wait(_PATIENCE)
            raise RuntimeError("the sites do not start: see above")
        return self

    def toggle_silent(self) -> None:
        """Have the sites answer nothing, or answer again, including the requests of the meantime."""
        self._process.send_signal(signal.SIGUSR1)

    def toggle_away(self) -> None:
        """Have the sites end every connection at once, or come back."""
        self._process.send_signal(signal.SIGUSR2)

    def __exit__(self, kind: type[BaseException] | None, *reason: object) -> None:
        self._process.terminate()
        try:
            output, _ = self._process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            output, _ = self._process.communicate()
        if kind is None:
            self.report = json.loads(output)


# How arrivals are counted


def allowed(rate: float) -> float:
    """Return the requests that a source may see in a sliding second."""
    return 1.1 * rate + 1


def seconds_from(times: Sequence[float], lapses: Sequence[tuple[float, float]] = ()) -> list[int]:
    """Return, for each arrival, the arrivals within the second that begins with it; `times` are in order.

    What was noted in one of `lapses` of the sites may have arrived when it began, or in the one right before it
    (nothing was read then): its second begins there.
    """
    counts, end, lapse = [], 0, 0
    for first, noted in enumerate(times):
        while lapse < len(lapses) and lapses[lapse][1] + LAPSE_S < noted:
            lapse += 1
        moment = noted
        if lapse < len(lapses):
            follows = lapse > 0 and lapses[lapse][0] <= lapses[lapse - 1][1] + LAPSE_S
            moment = min(noted, lapses[lapse - follows][0])
        while end < len(times) and times[end] < moment + 1:
            end += 1
        counts.append(max(end - first, 1))
    return counts


def time_over(times: Sequence[float], rate: float, lapses: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the worst sliding second, as a multiple of what is allowed, and for how many seconds one was over.

    Seconds in which the sites were late themselves are left out.
    """
    worst = over = end = 0.0
    for moment, count in zip(times, seconds_from(times), strict=True):
        if any(begin < moment + 1 and late > moment for begin, late in lapses):
            continue
        worst = max(worst, count / allowed(rate))
        if count > allowed(rate):
            over += moment + 1 - max(moment, end)
            end = moment + 1
    return worst, over


if __name__ == "__main__":
    with suppress(PermissionError):
        os.nice(-10)  # where we may, before the crawler that keeps all cores busy
    wanted = [Listener(*one) for one in json.loads(sys.argv[1])]
    print(json.dumps(asyncio.run(_serve(wanted, next(iter(sys.argv[2:]), None)))))
