"""The health check of a worker, as a container runs it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time

import redis

from crawlproject import config
from crawlproject.healthcheck import check
from crawlproject.state.keys import Keys
from tests.waiting import PATIENCE_S, until

KEYS = Keys("crawl", "pages")


def alive(environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "crawlproject.healthcheck"]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_a_worker_is_alive_from_its_first_beat_until_it_hangs(environment: dict[str, str]) -> None:
    assert alive(environment).stderr.endswith(" has sent a heartbeat within 30 s\n")
    environ = environment | {"CRAWL_HEARTBEAT_TIMEOUT": "2"}

    def fault() -> str | None:
        return asyncio.run(check(config.load(config.environment(environ)), socket.gethostname()))

    worker = subprocess.Popen([sys.executable, "-m", "scrapy", "crawl", "images", "--nolog"], env=environ)
    try:
        until(lambda: fault() is None)
        time.sleep(2.5)
        until(lambda: fault() is None)  # by a later beat
        worker.send_signal(19)  # SIGSTOP
        until(fault)
        done = alive(environ)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.endswith(" has sent a heartbeat within 2 s\n")
    finally:
        worker.kill()
        worker.wait()


async def test_a_beat_of_any_spider_counts_for_its_time_and_not_for_what_is_left_of_a_second(
    redis_url: str,
) -> None:
    settings = config.load({"REDIS_URL": redis_url, "CRAWL_HEARTBEAT_TIMEOUT": 3})
    with redis.Redis.from_url(redis_url) as client:
        for ago, trouble in ((2.0, None), (3.01, "no worker of here has sent a heartbeat within 3 s")):
            seconds, micros = client.time()
            client.zadd(KEYS.spiders, {"pages": 1})
            client.zadd(KEYS.workers, {"here:1:a": seconds * 1e6 + micros - ago * 1e6})
            assert await check(settings, "here") == trouble
        assert await check(settings, "elsewhere") is not None


def test_without_redis_it_says_so_and_gives_no_password_away(environment: dict[str, str]) -> None:
    done = alive(environment | {"REDIS_URL": "redis://:S3CRET@127.0.0.1:1/0"})
    assert done.returncode == 1
    assert done.stderr.startswith("Redis at 127.0.0.1:1/0 does not answer (")
    assert "S3CRET" not in done.stderr
