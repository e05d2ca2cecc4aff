"""Web sites that note who was asked when, in a process of their own.

    python -m benchmarks.arrivals '[["127.0.0.1", "fast"], ["127.0.0.1", null]]'

One port for each pair of address and source; without a source, the path's first part names it. `/robots.txt` is
not there, `/redirect/HOST:PORT/PATH` leads to that URL, everything else is one small picture. Prints the ports,
and at SIGTERM a report. A judge that comes late itself sees bursts that were none: so nothing is written while
requests come, and the report says how late this process was at most.
"""

from __future__ import annotations

import asyncio
import gc
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import NamedTuple, Self, TypedDict

from PIL import Image

ROBOTS = "robots.txt"
_PATIENCE = 10.0  # seconds to start, and to end
_LOOK = 0.005  # seconds between two looks at how late we are


class Report(TypedDict):
    """What was seen: moments of arrival by source (`time.monotonic`, one clock on this machine), lateness."""

    arrivals: dict[str, list[float]]
    late: float  # seconds; the most that this process was


class Listener(NamedTuple):
    """One port: its address and its source, None if the path tells it."""

    host: str
    source: str | None


def _picture() -> bytes:
    buffer = io.BytesIO()
    Image.frombytes("RGB", (10, 10), Random(1).randbytes(300)).save(buffer, "PNG")
    return buffer.getvalue()


def _answer(status: str, headers: str = "", body: bytes = b"") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


_IMAGE = _answer("200 OK", "Content-Type: image/png\r\n", _picture())
_NOT_FOUND = _answer("404 Not Found")


class _Connection(asyncio.Protocol):
    """Answers the requests of one connection; none of them has a body."""

    def __init__(self, source: str | None, arrivals: dict[str, list[float]]) -> None:
        self._source = source
        self._arrivals = arrivals
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        *heads, self._read = (self._read + data).split(b"\r\n\r\n")
        for head in heads:
            path = head.split(b" ", 2)[1].decode("latin-1")
            first, _, rest = path[1:].partition("/")
            self._arrivals.setdefault(self._source or first, []).append(now)
            if first == "redirect":
                self._transport.write(_answer("302 Found", f"Location: http://{rest}\r\n"))
            else:
                self._transport.write(_NOT_FOUND if path.endswith(ROBOTS) else _IMAGE)


async def _serve(listeners: Sequence[Listener]) -> Report:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    report = Report(arrivals={}, late=0.0)
    servers = [
        await loop.create_server(
            lambda source=listener.source: _Connection(source, report["arrivals"]),  # type: ignore[misc]
            listener.host,
            0,
            backlog=1024,
        )
        for listener in listeners
    ]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    gc.disable()
    while not stopped.is_set():
        before = time.monotonic()
        await asyncio.sleep(_LOOK)
        report["late"] = max(report["late"], time.monotonic() - before - _LOOK)
    return report


class Sites:
    """The process: `ports` of the listeners in their order while the context lasts, then `report`."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners
        self.ports: list[int] = []
        self.report = Report(arrivals={}, late=0.0)

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "benchmarks.arrivals", json.dumps(self._listeners)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.ports = json.loads(self._process.stdout.readline() or "[]")
        if not self.ports:
            self._process.wait(_PATIENCE)
            raise RuntimeError("the sites do not start: see above")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            output, _ = self._process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            output, _ = self._process.communicate()
        if kind is None:
            self.report = json.loads(output)


if __name__ == "__main__":
    with suppress(PermissionError):
        os.nice(-10)  # where we may, before the crawler that keeps all cores busy
    print(json.dumps(asyncio.run(_serve([Listener(*pair) for pair in json.loads(sys.argv[1])]))))
