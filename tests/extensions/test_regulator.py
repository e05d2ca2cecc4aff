"""Where the catalogue comes from, and what is said when it does not."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crawlproject.errors import CatalogueError
from crawlproject.extensions import regulator
from crawlproject.extensions.regulator import read_catalogue

ROWS = json.dumps([{"source_name": "museum", "image_count": 5_000}]).encode()


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Serve `answer`, byte for byte, to whoever asks."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/catalogue"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_from_a_file(tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "catalogue.json"
    path.write_bytes(ROWS)
    assert read_catalogue(f"{scheme}{path}").limits == {"museum": 0.2}


def test_over_http() -> None:
    with answering(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + ROWS) as url:
        assert read_catalogue(url).limits == {"museum": 0.2}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.0 404 Not Found\r\n\r\n" + ROWS,
        b"HTTP/1.0 500 Oops\r\n\r\n",
        b"HTTP/1.0 302 Found\r\nLocation: /catalogue\r\n\r\n",
        b"HTTP/1.0 302 Found\r\nLocation: http://[::1/\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n" + ROWS,
        b"HTTP/1.0 200 OK\r\nContent-Length: 5000\r\n\r\n" + ROWS[:-1],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + ROWS,
        b"HTTP/1.0 200 OK\r\n\r\n<html>",
        b"HTTP/1.0 200 OK\r\n\r\n[{}]",
    ],
)
def test_whatever_a_server_answers_the_trouble_is_told_with_the_place(answer: bytes) -> None:
    with answering(answer) as url, pytest.raises(CatalogueError) as caught:
        read_catalogue(url)
    assert str(caught.value).startswith(f"CRAWL_SOURCES={url}")


@pytest.mark.parametrize(
    "place",
    ["/nowhere/catalogue.json", "/", "ftp://127.0.0.1/c", "http://[::1/", "http://127.0.0.1:1/c", "a\x00b"],
)
def test_a_place_that_cannot_be_read_is_told(place: str) -> None:
    with pytest.raises(CatalogueError) as caught:
        read_catalogue(place)
    assert str(caught.value).startswith(f"CRAWL_SOURCES={place} cannot be read: ")


def test_a_catalogue_is_not_read_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "catalogue.json"
    path.write_bytes(ROWS)
    monkeypatch.setattr(regulator, "_MAX_CATALOGUE", len(ROWS))
    assert read_catalogue(str(path)).limits
    monkeypatch.setattr(regulator, "_MAX_CATALOGUE", len(ROWS) - 1)
    with pytest.raises(CatalogueError, match="larger than"):
        read_catalogue(str(path))
