"""Sites of the tests' own on loopback, each what its handler answers."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Answers as `get` says, on connections that stay open."""

    protocol_version = "HTTP/1.1"

    def get(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.get()

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Answer with a body whose length is said."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # the crawler was told enough

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def served(
    handler: Callable[..., BaseHTTPRequestHandler],
    *,
    host: str = "127.0.0.1",
    context: ssl.SSLContext | None = None,
    **more: Any,
) -> Iterator[Any]:
    """Serve, over TLS with a context; yield the server, which has `more` as attributes."""
    server = ThreadingHTTPServer((host, 0), handler)
    vars(server).update(more)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
