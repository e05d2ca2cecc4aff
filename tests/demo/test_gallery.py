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

from demo.gallery import FAULTS, Gallery, set_faults
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


def test_each_folder_is_a_source_with_a_port_of_its_own(gallery: Gallery) -> None:
    assert set(gallery.urls) == {"big", "small"}
    assert {urlsplit(url).hostname for url in gallery.urls.values()} == {"127.0.0.1"}
    assert get(gallery.urls["big"], "/a.jpg")[0] == 200
    assert get(gallery.urls["small"], "/a.jpg")[0] == 404


def test_a_file_is_served_whole_with_its_type(gallery: Gallery) -> None:
    status, headers, body = get(gallery.urls["big"], "/a.jpg")
    assert (status, headers["Content-Type"], body) == (200, "image/jpeg", PICTURE)
    assert headers["Content-Length"] == str(len(PICTURE))
    status, headers, body = get(gallery.urls["big"], "/tv%C3%A5%20b.png")
    assert (status, headers["Content-Type"], body) == (200, "image/png", b"b")


def test_head_gives_the_length_without_the_body(gallery: Gallery) -> None:
    status, headers, body = get(gallery.urls["big"], "/a.jpg", "HEAD")
    assert (status, headers["Content-Length"], body) == (200, str(len(PICTURE)), b"")


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


def test_a_fault_of_one_path_precedes_that_of_any_path(gallery: Gallery, root: Path) -> None:
    set_faults(root / "big", {"/*": {"status": 500}, "/a.jpg": {"status": 403, "times": 1}})
    assert [get(gallery.urls["big"], path)[0] for path in ("/a.jpg", "/a.jpg", "/b", "/c")] == [
        403,
        200,
        500,
        500,
    ]
    assert get(gallery.urls["small"], "/b")[0] == 404


def test_faults_may_be_changed_and_removed_while_it_runs(gallery: Gallery, root: Path) -> None:
    for _ in range(2):  # the same faults, written again, count from the start
        set_faults(root / "big", {"a.jpg": {"status": 503, "times": 1}})
        assert [get(gallery.urls["big"], "/a.jpg")[0] for _ in range(2)] == [503, 200]
    set_faults(root / "big", {"/a.jpg": {"status": 500}})
    assert get(gallery.urls["big"], "/a.jpg")[0] == 500
    (root / "big" / FAULTS).unlink()
    assert get(gallery.urls["big"], "/a.jpg")[0] == 200


def test_a_redirect(gallery: Gallery, root: Path) -> None:
    location = f"{gallery.urls['small']}/b.jpg"
    set_faults(root / "big", {"/a.jpg": {"status": 302, "headers": {"Location": location}}})
    status, headers, _ = get(gallery.urls["big"], "/a.jpg")
    assert (status, headers["Location"]) == (302, location)


def test_headers_without_a_status_go_with_the_file(gallery: Gallery, root: Path) -> None:
    set_faults(root / "big", {"/a.jpg": {"headers": {"X-Robots-Tag": "noimageai", "Content-Type": "text/x"}}})
    status, headers, body = get(gallery.urls["big"], "/a.jpg")
    assert (status, headers["X-Robots-Tag"], headers["Content-Type"]) == (200, "noimageai", "text/x")
    assert body == PICTURE


def test_a_fault_may_replace_the_body(gallery: Gallery, root: Path) -> None:
    set_faults(root / "big", {"/a.jpg": {"body": "é"}, "/none.jpg": {"status": 403, "body": "no"}})
    status, headers, body = get(gallery.urls["big"], "/a.jpg")
    assert (status, headers["Content-Type"], headers["Content-Length"]) == (200, "image/jpeg", "2")
    assert body == "é".encode()
    assert get(gallery.urls["big"], "/none.jpg")[::2] == (403, b"no")


def test_a_delay_holds_up_only_its_own_response(gallery: Gallery, root: Path) -> None:
    set_faults(root / "big", {"/a.jpg": {"delay": 1.0}})
    slow = connect(gallery.urls["big"])
    asked = time.time()
    slow.request("GET", "/a.jpg")
    assert get(gallery.urls["big"], "/b")[0] == 404
    assert time.time() - asked < 1.0
    response = slow.getresponse()
    assert time.time() - asked >= 1.0
    assert (response.status, response.read()) == (200, PICTURE)
    assert gallery.arrivals()[0]["t"] - asked < 0.9  # logged when it came, not when it was answered
    slow.close()


def test_a_client_that_hangs_up_during_the_delay_does_no_harm(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    set_faults(root / "big", {"/a.jpg": {"delay": 0.2}})
    with Gallery(root, tmp_path / "log.jsonl") as gallery:
        hasty = connect(gallery.urls["big"])
        hasty.request("GET", "/a.jpg")
        until(gallery.arrivals)
        hasty.close()
        assert get(gallery.urls["big"], "/a.jpg")[2] == PICTURE  # answered after the hasty one's turn
    assert capfd.readouterr().err == ""


def test_a_drop_closes_the_connection_without_a_response(gallery: Gallery, root: Path) -> None:
    set_faults(root / "big", {"/a.jpg": {"drop": True, "times": 1}})
    with pytest.raises(http.client.RemoteDisconnected):
        get(gallery.urls["big"], "/a.jpg")
    assert get(gallery.urls["big"], "/a.jpg")[2] == PICTURE
    assert statuses(gallery) == [None, 200]


def test_after_it_ends_its_ports_are_closed_and_its_log_is_complete(root: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    for galleries in (1, 2):  # the second goes on with the first one's log
        with Gallery(root, log) as gallery:
            connection = connect(gallery.urls["big"])
            for number in range(50):
                connection.request("GET", f"/a.jpg?{number}")
                connection.getresponse().read()
        with pytest.raises(ConnectionError):
            get(gallery.urls["big"], "/a.jpg")
        assert [arrival["path"] for arrival in gallery.arrivals()] == [
            f"/a.jpg?{number}" for _ in range(galleries) for number in range(50)
        ]


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


def test_a_folder_without_sources_is_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RuntimeError, match="status 2"), Gallery(tmp_path / "empty", tmp_path / "log.jsonl"):
        pass
    assert "no folders in" in capfd.readouterr().err
