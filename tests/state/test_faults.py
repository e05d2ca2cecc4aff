"""Redis in trouble, in the middle of a crawl: workers as users run them, and a server that is hurt."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from crawlproject.models import Slot
from crawlproject.sinks.jsonlines import EventFile
from demo.gallery import Gallery
from tests.conftest import Scrapy
from tests.state.calls.calls import begin, lease, overview_of, processing_list, request, settle
from tests.state.servers import Server, opened
from tests.streams.records import write
from tests.test_crawl import KEYS, Crawl, worst_second
from tests.waiting import PATIENCE_S

RATE = 60


@pytest.fixture
def crawl(tmp_path: Path, environment: dict[str, str], server: Server) -> Iterator[Crawl]:
    """A source of 60 rps with 300 pictures."""
    one = Crawl(tmp_path, environment | {"REDIS_URL": server.url}, server.url)
    one.source("photos", RATE, pictures=300)
    with Gallery(one.sites, tmp_path / "arrivals.jsonl") as one.gallery:
        yield one
        one.stop()


def seed(crawl: Crawl, count: int) -> None:
    crawl.seed("photos", *(f"{number}.jpg" for number in range(count)))


def fetched(crawl: Crawl) -> int:
    return len(crawl.arrivals("photos"))


def lines(crawl: Crawl, worker: int = 0) -> list[str]:
    """Return what a worker's log says of trouble; no bug among it."""
    log = crawl.log(worker)
    assert "Traceback" not in log
    assert "Bug in" not in log
    return [line for line in log.splitlines() if " ERROR: " in line or "Redis answers again" in line]


def all_once(crawl: Crawl, count: int) -> None:
    assert crawl.outcomes() == Counter(f"photos-{number}.jpg" for number in range(count))
    assert crawl.redis.hget(KEYS.counters, "outstanding") == b"0"
    assert worst_second(crawl.arrivals("photos")) <= 1.1 * RATE + 1


@pytest.mark.judges
def test_out_of_memory_the_crawl_pauses_says_so_and_goes_on(crawl: Crawl, server: Server) -> None:
    crawl.start()
    seed(crawl, 300)
    crawl.until(lambda: fetched(crawl) > 30)
    server.client.config_set("maxmemory", "100kb")
    with pytest.raises(redis.OutOfMemoryError):
        server.client.set("a", "b")
    crawl.until(lambda: lines(crawl))
    crawl.until(lambda: not crawl.redis.keys(KEYS.leases_of + "*"))  # what is leased still goes out
    before = fetched(crawl)
    time.sleep(5.5)  # longer than the pulse lasts
    assert fetched(crawl) == before < 300
    crawl.until(lambda: len(crawl.events(KEYS.image_events)) == before)  # and is settled, once it is decoded
    server.client.config_set("maxmemory", "0")
    crawl.finish()
    all_once(crawl, 300)
    assert fetched(crawl) == 300  # none twice
    (line,) = lines(crawl)[:1]
    assert "Redis is out of memory (maxmemory), and the crawl pauses: raise maxmemory" in line
    assert sum("out of memory" in line and "ERROR" in line for line in lines(crawl)) == 1


@pytest.mark.judges
def test_a_worker_without_its_redis_stops_on_a_signal(crawl: Crawl, server: Server) -> None:
    seed(crawl, 100)
    crawl.options = ["-s", "CONCURRENT_REQUESTS=16"]  # what it holds then is tried one after the other
    crawl.start(CRAWL_HEARTBEAT_TIMEOUT="2")
    crawl.until(lambda: fetched(crawl) > 30)
    server.kill()
    time.sleep(1)
    crawl.workers[0].send_signal(signal.SIGTERM)
    assert crawl.workers[0].wait(PATIENCE_S) == 0
    server.start()
    crawl.start(CRAWL_HEARTBEAT_TIMEOUT="2")
    crawl.finish()
    all_once(crawl, 100)


# What goes through out of memory


async def test_out_of_memory_no_function_does_half_of_its_work(server: Server) -> None:
    state = await opened(server.url)
    scripts, keys, client = state.scripts, state.keys, server.client
    fence = await begin(state, 100)

    async def enqueue(*numbers: int, seeds: Sequence[bytes] = ()) -> Any:
        items = [request("x", number) for number in numbers]
        return await scripts.enqueue("w", items, seeds=seeds)

    client.lpush(keys.seeds, "a", "b")
    await scripts.take_seeds("w", 2)
    await enqueue(1, 2, 3, 4)
    client.hset(keys.rates, "museum", "0.001")
    await enqueue(*range(10, 14))
    await enqueue(6, 7, seeds=await processing_list(state))  # beyond the window
    client.hset(keys.rates, "museum", "100")
    assert client.hget(keys.counters, "overflow") == b"2"
    done, _ = (await lease(state, 2)).grants
    client.lpush(keys.seeds, "a")
    await scripts.take_seeds("w", 1)
    client.lpush(keys.seeds, "b")
    client.sadd(keys.excluded, "nobody")
    client.config_set("maxmemory", "100kb")
    before = {key: client.dump(key) for key in client.keys("*")}
    for call in (
        enqueue(5),
        enqueue(8, seeds=[b"a"]),
        lease(state, 2),
        scripts.take_seeds("w", 5),
        scripts.set_rates(fence, [("archive", 1.0, 1.0)], {"a": "archive"}),
        scripts.acquire(source="museum"),
        scripts.renew(Slot("museum", 0.0, 1, 1.0, 0.05), within=100.0),
    ):
        with pytest.raises(redis.ResponseError, match=r"OOM|maxmemory"):
            await call
    assert {key: client.dump(key) for key in client.keys("*")} == before
    # What ends or gives back goes through to its end.
    assert await settle(state, done, event=("link_rot", "{}"), status="200", counts={"fetched": 1}) == [True]
    assert await scripts.leave("w") == 1
    assert client.xlen(keys.link_rot_events) == 1
    assert client.hget(keys.counters, "outstanding") == b"9"  # with those from beyond the window, which has grown
    assert client.llen(keys.queue_of + "0:museum") == 9
    assert await scripts.drop_queued("museum", "purged", count=9, by="me") == (9, 0)  # the overflow, too
    assert await scripts.include(["nobody"], by="me") == {"nobody": "included"}
    # So does what watches: somebody leads, workers live, and the monitor tells.
    assert await scripts.lead("leader", ready=True) == fence
    assert (await scripts.heartbeat("w", join=True, timeout=30, max_deliveries=3)).alive
    assert (await overview_of(state)).alive == 1
    assert await scripts.watch(fence)
    await state.close()


async def test_out_of_memory_readers_and_the_leader_free_what_has_been_read(
    server: Server, tmp_path: Path
) -> None:
    state = await opened(server.url)
    client, images = server.client, state.keys.image_events
    fence = await state.scripts.lead("leader", ready=True)
    assert fence is not None

    def emit(count: int) -> None:
        client.config_set("maxmemory", "0")
        for _ in range(count):
            client.xadd(images, {"event": "{}"})
        client.config_set("maxmemory", "100kb")

    emit(500)
    file, other = (EventFile(tmp_path / name, state) for name in ("events.jsonl", "other.jsonl"))
    async with file.opened(), other.opened():
        assert await file.drain() == 500
        assert client.xlen(images) == 500  # the other one has not read them
        assert await other.drain() == 500
        assert client.xlen(images) == 1  # the last of what was read
    # What was read while there was memory is kept, until there is none.
    emit(100)
    client.config_set("maxmemory", "0")
    newest = client.xrevrange(images, count=1)[0][0].decode()
    for reader in (file, other):
        write(client, reader.streams.name, state.keys, last={images: newest})
    assert await state.scripts.trim(fence, maxlen=1000) == ("", 0)
    assert client.xlen(images) == 101
    client.config_set("maxmemory", "100kb")
    assert await state.scripts.trim(fence, maxlen=1000) == ("", 0)
    assert client.xlen(images) == 1
    await state.close()


def test_out_of_memory_is_reported_to_operators(scrapy: Scrapy, server: Server) -> None:
    server.client.sadd(KEYS.halted, "museum")
    server.client.config_set("maxmemory", "100kb")
    for args in (("halt", "--new", "photos"), ("rate", "--new", "photos", "5")):
        done = scrapy(*args, REDIS_URL=server.url)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"scrapy {args[0]}: Redis is out of memory (maxmemory)")
        assert "raise maxmemory, or free some" in done.stderr
    done = scrapy("resume", "museum", REDIS_URL=server.url)
    assert (done.returncode, done.stdout) == (0, "museum has been resumed\n")
    done = scrapy("sources", "--json", REDIS_URL=server.url)
    assert done.returncode == 0
