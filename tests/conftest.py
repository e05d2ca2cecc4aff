"""What the tests share: one private redis-server, emptied for each test that uses it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio
import redis
from scrapy.crawler import Crawler
from scrapy.settings import Settings
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.defer import maybe_deferred_to_future

from crawlproject import config
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.spiders.images import ImagesSpider
from crawlproject.store import embedded
from crawlproject.store.client import Store

ROOT = Path(__file__).parents[1]

# A shell that starts the tests in the background has SIGINT ignored, which the processes they start would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """URL of a redis-server that lives as long as the tests; without one they fail."""
    with tempfile.TemporaryDirectory(prefix="crawl-tests-") as folder:
        yield embedded.ensure(Path(folder))
        embedded.stop(Path(folder))


@pytest.fixture
def redis_url(redis_server: str) -> str:
    """URL of an empty Redis."""
    with redis.Redis.from_url(redis_server) as client:
        client.flushall()
    return redis_server


@pytest.fixture
def environment(redis_url: str) -> dict[str, str]:
    """Environment of a command: our Redis and a contact, and nothing else of ours from outside."""
    environ = {name: value for name, value in os.environ.items() if name not in config.environment()}
    return environ | {"REDIS_URL": redis_url, "CRAWL_CONTACT": "mailto:tests@example.org"}


class Scrapy(Protocol):
    """Runs a command of scrapy and returns how it ended."""

    def __call__(
        self, *args: str, stdin: str = "", cwd: Path = ROOT, **environ: str
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def scrapy(environment: dict[str, str]) -> Scrapy:
    """Run `scrapy ARGS`, with `environ` added to the environment."""

    def run(*args: str, stdin: str = "", cwd: Path = ROOT, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "scrapy", *args],
            input=stdin,
            cwd=cwd,
            env=environment | environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest_asyncio.fixture
async def store(redis_url: str) -> AsyncIterator[Store]:
    """An open store with the default settings."""
    one = Store(config.load({"REDIS_URL": redis_url}), "images")
    await one.open()
    yield one
    await one.close()


class Engine:
    """The part of Scrapy's engine that the scheduler touches, not running yet."""

    def __init__(self) -> None:
        self.running = False
        self._slot = type("Slot", (), {"closing": None})()
        self.scraper = type("Scraper", (), {"slot": None})()
        self.scheduler: FrontierScheduler | None = None


def scheduler_for(redis_url: str, **settings: Any) -> FrontierScheduler:
    """Return the scheduler of a crawl with the project's settings, not yet opened."""
    project = Settings()
    project.setmodule("crawlproject.settings")
    # pytest-asyncio runs the loop; whether some module has brought a reactor along, get_crawler finds out
    # Put together by hand: get_crawler() wants a reactor, and here pytest-asyncio runs the loop.
    crawler = Crawler(ImagesSpider, {**dict(project), "REDIS_URL": redis_url, **settings})
    crawler.stats = MemoryStatsCollector(crawler)
    crawler.engine = Engine()  # type: ignore[assignment]
    crawler.spider = ImagesSpider.from_crawler(crawler)
    crawler.engine.scheduler = FrontierScheduler.from_crawler(crawler)  # type: ignore[misc]
    return crawler.engine.scheduler


@pytest_asyncio.fixture
async def scheduler(redis_url: str) -> AsyncIterator[FrontierScheduler]:
    """An open scheduler."""
    one = scheduler_for(redis_url)
    assert one.crawler.spider is not None
    await maybe_deferred_to_future(one.open(one.crawler.spider))
    yield one
    await maybe_deferred_to_future(one.close("finished"))
    await one.store.close()
