"""The gallery's server, seen by a plain HTTP client."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from demo.gallery import Gallery, set_faults
from tests.waiting import until

pytestmark = pytest.mark.slow

PICTURE = bytes(range(256)) * 40


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two sources, the first with two files."""
    root = tmp_path / "gallery"
    (root / "big").mkdir(parents=True)
    (root / "small").mkdir()
    (root / "big" / "a.jpg").write_bytes(PICTURE)
    (root / "big" / "två b.png").write_bytes(b"b")
    (root / "secret.txt").write_text("outside every source")
    return root


@pytest.fixture
def gallery(root: Path, tmp_path: Path) -> Iterator[Gallery]:
    with Gallery(root, tmp_path / "log.jsonl") as gallery:
        yield gallery


def connect(base_url: str) -> http.client.HTTPConnection:
    address = urlsplit(base_url)
    assert address.hostname is not None
    return http.client.HTTPConnection(address.hostname, address.port, timeout=5)


def get(base_url: str, path: str, method: str = "GET") -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = connect(base_url)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def statuses(gallery: Gallery) -> list[int | None]:
    return [arrival["status"] for arrival in gallery.arrivals()]


@pytest.mark.parametrize(
    ("path", "status"),
    [("/none.jpg", 404), ("/", 404), ("/../secret.txt", 404), ("/%2e%2e/secret.txt", 404), ("/x.gone", 410)],
)
def test_paths_outside_the_source_are_404(gallery: Gallery, path: str, status: int) -> None:
    assert get(gallery.urls["big"], path)[0] == status
    assert statuses(gallery) == [status]


def test_the_log_has_every_request_with_its_time(gallery: Gallery) -> None:
    before = time.time()
    get(gallery.urls["big"], "/a.jpg?size=1")
    between = time.time()
    get(gallery.urls["small"], "/x.gone")
    after = time.time()
    first, second = gallery.arrivals()
    assert (first["source"], first["path"], first["status"]) == ("big", "/a.jpg?size=1", 200)
    assert (second["source"], second["path"], second["status"]) == ("small", "/x.gone", 410)
    assert before <= first["t"] <= between <= second["t"] <= after


def test_a_fault_ends_after_as_many_times_as_it_says(gallery: Gallery, root: Path) -> None:
    set_faults(root / "big", {"/a.jpg": {"status": 503, "headers": {"Retry-After": "1"}, "times": 2}})
    answers = [get(gallery.urls["big"], "/a.jpg?again") for _ in range(3)]
    assert [status for status, _, _ in answers] == statuses(gallery) == [503, 503, 200]
    assert [headers["Retry-After"] for _, headers, _ in answers] == ["1", "1", None]
    assert answers[2][2] == PICTURE


def test_sigterm_ends_it_with_status_0(root: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    command = [
        sys.executable,
        "-m",
        "demo.gallery",
        "--root",
        str(root),
        "--log",
        str(tmp_path / "log.jsonl"),
    ]
    with subprocess.Popen([*command, "--ready", str(ready)], cwd=Path(__file__).parents[2]) as process:
        until(ready.exists)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 0
