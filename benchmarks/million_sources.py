"""What a million sources cost: the leader, Redis, and a lease call.

    python -m benchmarks.million_sources [--sources N]

Publishes a catalogue of N rows by a real leader on a Redis of its own, publishes it anew with one row in a hundred
changed, lets the leader rest, halts 100,000 sources that have work and looks whether the crawl is idle, leases,
and starts a worker. For each it prints the time, the longest standstill of the leader's event loop, the memory of
its process beyond what it had before, how often the pulse was gone, the share of a core that Redis took, and the
command that held it up the longest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from benchmarks.ours import Crawl
from crawlproject import config
from crawlproject import leader as leaders
from crawlproject.frontier.codec import digest_of
from crawlproject.leader import Leader
from crawlproject.state.calls import NewRequest
from crawlproject.state.client import State

_ENTRY = b"\x01\x00\x00" + b"u" * 180
_REST_S = 10.0
_MOST_LEASES = 64
_HALTED = 100_000  # sources
_START_S = 60.0  # for a worker; more is a fault


def write_catalogue(path: Path, count: int, changed: float = 0.0) -> None:
    """Write a catalogue of `count` rows; that share of them has other sizes than without."""
    chosen = random.Random(0)
    with path.with_suffix(".part").open("w") as file:
        for number in range(count):
            size = number % 400_000_000 + (7_000_000 if chosen.random() < changed else 0)
            row = {
                "source_name": f"source{number}",
                "image_count": size,
                "source_url": f"https://www.source{number}.example/",
            }
            file.write(("[" if number == 0 else ",\n") + json.dumps(row))
        file.write("]")
    path.with_suffix(".part").replace(path)


class Watch:
    """Watches a leader and its Redis while something is done."""

    def __init__(self, redis: Any, pulse: str) -> None:
        self.redis = redis
        self.pulse = pulse

    async def during(self, name: str, work: Callable[[], Awaitable[Any]]) -> None:
        """Do `work`; print what it cost."""
        await self.redis.config_set("slowlog-log-slower-than", 1000)
        await self.redis.config_set("slowlog-max-len", 10_000)
        await self.redis.slowlog_reset()
        frozen, gone, done = 0.0, 0, False

        async def tick() -> None:
            nonlocal frozen
            last = time.monotonic()
            while not done:
                await asyncio.sleep(0.005)
                now = time.monotonic()
                frozen, last = max(frozen, now - last - 0.005), now

        async def beat() -> None:
            nonlocal gone
            had = False
            while not done:
                has = bool(await self.redis.exists(self.pulse))
                gone, had = gone + (had and not has), had or has
                await asyncio.sleep(0.1)

        before: Any = await self.redis.info("everything")
        memory, began = _megabytes(), time.monotonic()
        ticking = asyncio.gather(tick(), beat())
        await work()
        lasted = time.monotonic() - began
        done = True
        await ticking
        after: Any = await self.redis.info("everything")
        cpu = sum(after[part] - before[part] for part in ("used_cpu_user", "used_cpu_sys"))
        slowest = max(await self.redis.slowlog_get(10_000), key=lambda entry: entry["duration"], default=None)
        command = "none over 1 ms"
        if slowest is not None:
            command = f"{slowest['duration'] / 1000:.1f} ms {slowest['command'][:60].decode(errors='replace')}"
        print(
            f"{name:28} {lasted:7.1f} s  frozen {frozen * 1000:5.0f} ms  +{_megabytes() - memory:5.0f} MB  "
            f"pulse lost {gone}  Redis {100 * cpu / lasted:5.2f} %  slowest {command}",
            flush=True,
        )


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def start_worker(state: State, crawl: Crawl) -> None:
    """Start a worker beside the leader, and print when it is known and has its first leases; then kill it."""
    redis: Any = state.redis
    known = set(await redis.zrange(state.keys.workers, 0, -1))
    began = time.monotonic()
    worker = crawl.worker(0)
    try:
        joined = 0.0
        async with asyncio.timeout(_START_S):
            while True:
                new = set(await redis.zrange(state.keys.workers, 0, -1)) - known
                if new and not joined:
                    joined = time.monotonic() - began
                if new and await redis.exists(state.keys.leases_of.encode() + new.pop()):
                    break
                await asyncio.sleep(0.005)
        print(f"a worker was known after {joined:.2f} s, and had leases after {time.monotonic() - began:.2f} s")
    finally:
        worker.kill()
        worker.wait()


async def feed(state: State, begin: int, end: int) -> None:
    """Enqueue a request of each of these sources, so many at once as a worker does."""
    for first in range(begin, end, 200):
        if first % 5_000 == 0:
            await state.scripts.lead(state.worker_id, ready=True)
        items = [
            NewRequest(_ENTRY, digest_of("", str(number)), again=True, source=f"source{number}")
            for number in range(first, min(first + 200, end))
        ]
        await state.scripts.enqueue(state.worker_id, items, seeds=[])


async def measure_halted(state: State, watch: Watch, settings: config.Config, count: int) -> None:
    """Measure while so many sources are halted and have all the work that there is; resume them."""
    redis: Any = state.redis
    await feed(state, 0, count)
    names = [f"source{number}" for number in range(count)]
    for first in range(0, count, 1_000):
        await redis.sadd(state.keys.halted, *names[first : first + 1_000])
    await state.scripts.lead(state.worker_id, ready=True)

    async def look_whether_idle() -> None:
        assert not (await state.scripts.idleness()).is_idle

    await watch.during(f"idle, {count:,} halted", look_whether_idle)
    one = Leader(settings, state)
    one.start()
    await watch.during(f"leader, {count:,} halted", lambda: asyncio.sleep(_REST_S))
    await one.stop()
    for first in range(0, count, 1_000):
        await redis.srem(state.keys.halted, *names[first : first + 1_000])


async def measure(crawl: Crawl, count: int) -> None:
    """Measure and print."""
    path = crawl.home / "catalogue.json"
    write_catalogue(path, count)
    settings = config.load(
        {
            "REDIS_URL": crawl.redis_url,
            "CRAWL_SOURCES": str(path),
            "CRAWL_FRONTIER_HIGH_WATER": 10**9,
        }
    )
    state = State(settings, "images")
    await state.open()
    redis: Any = Redis.from_url(crawl.redis_url)
    watch = Watch(redis, state.keys.pulse)
    memory = int((await redis.info("memory"))["used_memory"])
    read = asyncio.Event()

    def notice(record: logging.LogRecord) -> bool:
        if "Catalogue read" in record.msg:
            read.set()
        return True

    logging.getLogger(leaders.__name__).addFilter(notice)
    logging.getLogger(leaders.__name__).setLevel(logging.INFO)
    errors = logging.StreamHandler()
    errors.setLevel(logging.ERROR)  # it also reminds of halted sources
    logging.getLogger(leaders.__name__).addHandler(errors)

    one = Leader(settings, state)
    one.start()
    await watch.during("first publication", read.wait)
    used = int((await redis.info("memory"))["used_memory"]) - memory
    print(f"Redis: {used / count:.0f} B a source of the catalogue")
    await watch.during("leader at rest", lambda: asyncio.sleep(_REST_S))
    write_catalogue(path, count, changed=0.01)
    read.clear()
    await one.stop()
    one = Leader(settings, state)
    one.start()
    await watch.during("1 % changed, new leader", read.wait)
    await one.stop()

    await state.scripts.lead(state.worker_id, ready=True)
    await state.scripts.heartbeat(state.worker_id, join=True, timeout=300, max_deliveries=3)
    halted = min(_HALTED, count)
    await measure_halted(state, watch, settings, halted)
    # Every source has one request: all are due.
    await watch.during("a request of the others", lambda: feed(state, halted, count))

    async def lease() -> None:
        for _ in range(200):
            await state.scripts.lead(state.worker_id, ready=True)
            reply = await state.scripts.lease(
                state.worker_id, _MOST_LEASES, rooms={}, room=_MOST_LEASES, horizon=0.25
            )
            assert len(reply.grants) == _MOST_LEASES, reply.state

    await state.scripts.lead(state.worker_id, ready=True)
    await asyncio.sleep(1.0)  # if the leader was silent for long, nothing goes out for a moment
    await watch.during("200 leases of 64", lease)
    one = Leader(settings, state)
    one.start()
    await watch.during("leader, all have work", lambda: asyncio.sleep(_REST_S))
    await watch.during("a worker's start", lambda: start_worker(state, crawl))
    await one.stop()
    await redis.aclose()
    await state.close()


def main() -> None:
    """Measure."""
    prog = "python -m benchmarks.million_sources"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=int, default=1_000_000)
    count = parser.parse_args().sources
    with tempfile.TemporaryDirectory(prefix="million-") as name, Crawl(Path(name) / "crawl", {}, {}) as crawl:
        asyncio.run(measure(crawl, count))


if __name__ == "__main__":
    main()
