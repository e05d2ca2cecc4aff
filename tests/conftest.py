"""What the tests share: one private server, emptied for each test that uses it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import hypothesis
import pytest
import pytest_asyncio
import redis
from scrapy.crawler import Crawler
from scrapy.settings import Settings
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.defer import maybe_deferred_to_future

from benchmarks.name_server import Zone, served
from crawlproject import config
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.net.resolver import Resolver
from crawlproject.spiders.images import ImagesSpider
from crawlproject.state import embedded
from crawlproject.state.client import State
from crawlproject.state.functions import Caller
from demo.redis_servers import Cluster, Server
from tests.forks import forks
from tests.standing_clock import StandingClock

__all__ = ["Zone"]

if TYPE_CHECKING:
    from tests.storage.s3_gate import Gate
    from tests.test_crawl import Crawl

ROOT = Path(__file__).parents[1]

# A shell that starts the tests in the background has SIGINT ignored, which the processes they start would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile(
    "crawlproject", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("crawlproject")


# `pytest -n`: one process runs the tests that judge rates or times, one after the other; meanwhile the others run
# the rest at a lower priority, so that the judges see the crawl and not the load of the other tests.
_IN_PARALLEL = "PYTEST_XDIST_WORKER" in os.environ
_JUDGES = "judges"  # the marker
_TOGETHER = (  # files whose tests share a fixture that takes long
    "tests/contrib/dashboard/test_browser.py",
    "tests/contrib/dashboard/test_site.py",
    "tests/test_package.py",
)
_CLUSTER = "cluster"  # the fixture, of which one for all tests is enough
_NICE = 5


# `make quick` leaves out tests that start processes, or crawl (by their fixtures), and the files that together
# take more than half of the time of all others: they wait for clocks, or try each key, picture or file.
_SLOW = "slow"
_SLOW_FILES = (
    "deploy/test_files.py",
    "frontier/test_codec.py",
    "frontier/test_shares.py",
    "ingest/test_parquet.py",
    "tests/test_linear.py",
    "commands/test_imports.py",
    "dashboard/test_site.py",
    "extensions/test_lease_keeper.py",
    "frontier/test_audit.py",
    "frontier/test_lease_queue.py",
    "overflow/test_spilling.py",
    "frontier/test_scheduler.py",
    "probes/test_beginning.py",
    "imaging/test_codings.py",
    "imaging/test_formats.py",
    "formats/test_raster.py",
    "imaging/test_thumbnail.py",
    "ingest/test_files.py",
    "net/test_resolver.py",
    "politeness/test_robots_txt.py",
    "robots/test_cache.py",
    "calls/test_exclusions.py",
    "calls/test_seen_filter.py",
    "calls/test_two_spiders.py",
    "datasets/test_webdataset.py",
    "sources/test_parquet.py",
    "state/test_circuit_script.py",
    "state/test_shared_clock.py",
    "status/test_reporter.py",
    "storage/test_writer.py",
    "tests/test_leader.py",
    "metrics/test_page.py",
)
_OF_SLOW_TESTS = {
    "broker",
    _CLUSTER,
    "environment",
    "locked",
    "make",
    "monitor",
    "moto",
    "pair",
    "server",
    "shared",
}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the slow tests, beside those that say it themselves, and those that one process is to get together."""
    fixtures = getattr(item, "fixturenames", ())
    if not _OF_SLOW_TESTS.isdisjoint(fixtures) or str(item.path).endswith(_SLOW_FILES):
        item.add_marker(_SLOW)
    if item.get_closest_marker(_JUDGES):
        item.add_marker(pytest.mark.xdist_group(_JUDGES))
    elif _CLUSTER in fixtures:
        item.add_marker(pytest.mark.xdist_group(_CLUSTER))
    elif str(item.path).endswith(_TOGETHER):
        item.add_marker(pytest.mark.xdist_group(item.path.name))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that judge first."""
    if _IN_PARALLEL:
        items.sort(key=lambda item: item.get_closest_marker(_JUDGES) is None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Lower the priority unless this test judges, before any fixture starts a process."""
    if _IN_PARALLEL and not item.get_closest_marker(_JUDGES):
        os.nice(max(_NICE - os.nice(0), 0))


def local_network() -> dict[str, str]:
    """Return the settings under which the sites of the tests can be crawled."""
    return {"CRAWL_ALLOW_NETWORKS": "127.0.0.0/8,::1/128", "CRAWL_DNS_SERVERS": os.environ["CRAWL_DNS_SERVERS"]}


@pytest.fixture(scope="session", autouse=True)
def zone() -> Iterator[Zone]:
    """A private name server, so that no query leaves this machine."""
    names = Zone()
    with served(names) as address:
        os.environ["CRAWL_DNS_SERVERS"] = address
        yield names


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """URL of the embedded server for the whole session; tests fail where none can be started."""
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
def client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of the empty Redis."""
    with redis.Redis.from_url(redis_url) as one:
        yield one


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Redis Cluster of three masters and three replicas."""
    one = Cluster(tmp_path_factory.mktemp("cluster"))
    yield one
    one.close()


@pytest.fixture
def cluster_url(cluster: Cluster) -> str:
    """REDIS_URL of the cluster, which is whole and empty."""
    cluster.flush()
    return cluster.url


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A Redis of this test alone, to be hurt."""
    one = Server(tmp_path)
    yield one
    one.close()


@pytest.fixture
def crawl(tmp_path: Path, environment: dict[str, str], redis_url: str) -> Iterator[Crawl]:
    """A gallery of sources, a Redis, and workers."""
    from tests.test_crawl import Crawl as Crawling  # which takes a while to load

    one = Crawling(tmp_path, environment, redis_url)
    yield one
    one.stop()


@pytest.fixture
def environment(redis_url: str) -> dict[str, str]:
    """Environment of a command: our Redis and a contact, without settings of ours that the caller has."""
    environ = {name: value for name, value in os.environ.items() if name not in config.environment()}
    return environ | {
        "REDIS_URL": redis_url,
        "CRAWL_CONTACT": "mailto:tests@example.org",
        **local_network(),
    }


@pytest.fixture(scope="session", autouse=True)
def _forks() -> Iterator[None]:
    yield
    if forks.cache_info().currsize:
        forks().stop()


@pytest.fixture(autouse=True)
def _no_resolver_left() -> Iterator[None]:
    """Leave no test the resolver of the process that a failed one has not closed: it waits in that one's loop."""
    yield
    reactor: Any = sys.modules.get("twisted.internet.reactor")
    if isinstance(getattr(reactor, "nameResolver", None), Resolver):
        reactor.installResolver(reactor.resolver)


class Scrapy(Protocol):
    """Runs a command of scrapy and returns how it ended."""

    def __call__(
        self, *args: str, stdin: str = "", cwd: Path = ROOT, **environ: str
    ) -> subprocess.CompletedProcess[str]: ...


def ran(
    words: Sequence[str], cwd: Path, environ: dict[str, str], stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        words, input=stdin, cwd=cwd, env=environ, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def scrapy(environment: dict[str, str]) -> Scrapy:
    """Run `scrapy ARGS`, with `environ` added to the environment."""

    def run(*args: str, stdin: str = "", cwd: Path = ROOT, **environ: str) -> subprocess.CompletedProcess[str]:
        if "PYTHONPATH" not in environ:
            return forks().run(args, environment | environ, stdin, cwd)
        return ran([sys.executable, "-m", "scrapy", *args], cwd, environment | environ, stdin)

    return run


@pytest_asyncio.fixture
async def state(redis_url: str) -> AsyncIterator[State]:
    """An open connection with the default settings."""
    one = State(config.load({"REDIS_URL": redis_url, **local_network()}), "images")
    await one.open()
    yield one
    await one.close()


@pytest_asyncio.fixture
async def clock(state: State, monkeypatch: pytest.MonkeyPatch) -> StandingClock:
    """The time of all functions that the test calls, however long it takes."""
    one = await StandingClock.of(state)
    run = Caller._run

    async def run_now(caller: Caller, *args: Any, **named: Any) -> Any:
        await one.set()
        return await run(caller, *args, **named)

    monkeypatch.setattr(Caller, "_run", run_now)
    return one


class Engine:
    """The part of Scrapy's engine that the scheduler touches, not running yet."""

    def __init__(self) -> None:
        self.running = False
        self._slot = SimpleNamespace(closing=None, inprogress=set())
        self.scraper = type("Scraper", (), {"slot": None})()
        self.scheduler: FrontierScheduler | None = None


def scheduler_for(redis_url: str, **settings: Any) -> FrontierScheduler:
    """Return the scheduler of a crawl with the project's settings, not yet opened."""
    project = Settings()
    project.setmodule("crawlproject.settings")
    # Put together by hand: get_crawler() wants a reactor, and here pytest-asyncio runs the loop.
    crawler = Crawler(ImagesSpider, {**dict(project), "REDIS_URL": redis_url, **local_network(), **settings})
    crawler.stats = MemoryStatsCollector(crawler)
    crawler.engine = Engine()  # type: ignore[assignment]
    crawler.spider = ImagesSpider.from_crawler(crawler)
    crawler.engine.scheduler = FrontierScheduler.from_crawler(crawler)  # type: ignore[misc]
    return crawler.engine.scheduler


async def stop_tasks(scheduler: FrontierScheduler) -> None:
    """End the tasks of an open scheduler, so that it does nothing by itself."""
    scheduler.leasing.wanted.set()
    scheduler.queue.settled.set()
    await scheduler._loops.stop(grace=5)


@asynccontextmanager
async def open_scheduler(redis_url: str, **settings: Any) -> AsyncIterator[FrontierScheduler]:
    one = scheduler_for(redis_url, **settings)
    assert one.crawler.spider is not None
    await maybe_deferred_to_future(one.open(one.crawler.spider))
    yield one
    await maybe_deferred_to_future(one.close("finished"))
    await one.state.close()


@pytest_asyncio.fixture
async def scheduler(redis_url: str) -> AsyncIterator[FrontierScheduler]:
    """An open scheduler."""
    async with open_scheduler(redis_url) as one:
        yield one


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files and folders that are synced to disk, in their order."""
    names: list[str] = []
    sync = os.fsync

    def note(file: int) -> None:
        sync(file)
        names.append(Path(f"/proc/self/fd/{file}").readlink().name)

    monkeypatch.setattr(os, "fsync", note)
    return names


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """The address of an S3 API, without a bucket."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def gate(moto: str) -> Iterator[Gate]:
    """A gate before that API, which a test can shut."""
    from tests.storage.s3_gate import Gate as Opened  # which takes a while to load

    one = Opened(moto)
    yield one
    one.stop()
