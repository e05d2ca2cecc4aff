"""`scrapy events`: a file that grows by each event once, also when its writer is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import redis

from crawlproject.state.keys import Keys
from tests.waiting import until

if TYPE_CHECKING:
    from tests.conftest import Scrapy

KEYS = Keys("crawl", "images")


def emit(client: redis.Redis, first: int, last: int) -> None:
    for number in range(first, last):
        stream = KEYS.streams[number % 2]
        client.xadd(stream, {"event": json.dumps({"identifier": str(number)})})


def numbers(path: Path) -> list[int]:
    return sorted(int(json.loads(line)["identifier"]) for line in path.read_text().splitlines())


def until_it_holds(path: Path, count: int) -> None:
    until(lambda: path.exists() and path.read_bytes().count(b"\n") >= count)


def test_what_there_is_is_appended_each_time(scrapy: Scrapy, redis_url: str, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with redis.Redis.from_url(redis_url) as client:
        emit(client, 0, 3)
        done = scrapy("events", str(path))
        assert (done.returncode, done.stdout, done.stderr) == (0, f"3 events written to {path}\n", "")
        emit(client, 3, 5)
        assert scrapy("events", str(path)).stdout == f"2 events written to {path}\n"
        assert client.hlen(KEYS.readers) == len(KEYS.streams)
        assert scrapy("events", str(path), "--forget").returncode == 2  # which reader?
    assert numbers(path) == list(range(5))

    other = tmp_path / "other.txt"
    other.write_text("mine")
    done = scrapy("events", str(other))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("scrapy events: ")
    assert len(done.stderr.splitlines()) == 1
    assert scrapy("events").returncode == 2


def test_a_follower_that_is_killed_and_started_again_misses_nothing(
    environment: dict[str, str], redis_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "events.jsonl"
    command = [sys.executable, "-m", "scrapy", "events", "--follow", str(path)]

    def follow() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    with redis.Redis.from_url(redis_url) as client:
        emit(client, 0, 10)
        with follow() as first:
            until_it_holds(path, 10)
            emit(client, 10, 300)
            until_it_holds(path, 50)
            first.kill()
        emit(client, 300, 400)
        with follow() as second:
            until_it_holds(path, 400)
            emit(client, 400, 410)
            until_it_holds(path, 410)
            second.send_signal(signal.SIGINT)
            out, err = second.communicate(timeout=30)
    assert second.returncode == 0
    assert out.endswith(f" events written to {path}\n")
    assert err == ""
    assert numbers(path) == list(range(410))
