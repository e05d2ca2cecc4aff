"""A web server that says anything, byte by byte."""

from __future__ import annotations

import io
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from PIL import Image

Answer = Callable[[socket.socket], None]
ANY = "*"


def plain(body: bytes, *headers: str, length: int | None = -1, status: str = "200 OK") -> Answer:
    """Answer with a body; `length` is what Content-Length says, -1 for the truth and None for nothing."""
    lines = [f"HTTP/1.1 {status}", "Connection: close", *headers]
    if length is not None:
        lines.append(f"Content-Length: {len(body) if length < 0 else length}")
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    return lambda sock: sock.sendall(head + body)


def raw(data: bytes) -> Answer:
    """Answer with bytes that need not be HTTP."""
    return lambda sock: sock.sendall(data)


def coded(name: str, body: bytes) -> Answer:
    return plain(body, f"Content-Encoding: {name}", "Content-Type: image/jpeg")


def good_picture() -> bytes:
    """Return a small JPEG."""
    out = io.BytesIO()
    Image.linear_gradient("L").resize((90, 60)).save(out, "JPEG")
    return out.getvalue()


def to(location: str, status: str = "302 Found", *more: str) -> Answer:
    """Redirect."""
    return plain(b"", f"Location: {location}", *more, status=status)


def drip(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    for _ in range(200):
        sock.sendall(b"\xff")
        time.sleep(0.1)


def _endless(head: bytes, part: bytes) -> Answer:
    def answer(sock: socket.socket) -> None:
        sock.sendall(head)
        while True:
            sock.sendall(part)

    return answer


_OK = b"HTTP/1.1 200 OK\r\n"
ENDLESS = {
    "endless-headers": _endless(_OK, b"X-A: %s\r\n" % (b"x" * 1000) * 50),
    "endless-line": _endless(_OK + b"X-A: ", b"x" * 50_000),
    "endless-body": _endless(_OK + b"\r\n", b"x" * 50_000),
    "endless-chunks": _endless(_OK + b"Transfer-Encoding: chunked\r\n\r\n", b"c350\r\n" + b"x" * 50_000 + b"\r\n"),
}


class Server(socketserver.ThreadingTCPServer):
    """Answers each path in its own way, one request a connection."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, answers: Mapping[str, Answer], host: str = "127.0.0.1") -> None:
        self.answers = answers
        super().__init__((host, 0), Handler)
        self.url = f"http://{host}:{self.server_address[1]}"

    def __enter__(self) -> Server:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class Handler(socketserver.BaseRequestHandler):
    """Answers a request by its path without the slash; other paths get the answer of `ANY`, or are not there."""

    def handle(self) -> None:
        request = self.request.recv(65536)
        path = request.split(b" ")[1].decode().lstrip("/") if request else ""
        answers = self.server.answers  # type: ignore[attr-defined]
        answer = answers.get(path) or answers.get(ANY) or plain(b"", status="404 Not Found")
        with suppress(OSError):
            answer(self.request)
