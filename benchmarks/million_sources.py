"""What a million sources cost: the leader, Redis, and a lease call.

    python -m benchmarks.million_sources [--sources N] [--parquet] [--idle]

Publishes a catalogue of N rows by a real leader on a Redis of its own, publishes it anew with one row in a hundred
changed, lets the leader rest, halts 100,000 sources that have work and looks whether the crawl is idle, leases,
and starts a worker. For each it prints the time, the longest standstill of the leader's event loop, the memory of
its process beyond what it had before, whether the pulse was ever gone, the share of a core that Redis took, and
the command that held it up the longest. With `--parquet` the catalogue is a Parquet file, which a process beside
the leader reads: its memory is printed, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from redis.asyncio import Redis

from crawlproject import config
from crawlproject import leader as leaders
from crawlproject.frontier.codec import digest_of
from crawlproject.leader import Leader
from crawlproject.models import Requested
from crawlproject.politeness.robots_txt import Rules
from crawlproject.robots.cache import what_is_kept
from crawlproject.robots.copies import packed
from crawlproject.state import embedded
from crawlproject.state.client import State
from crawlproject.state.scripts import NewRequest, Settlement
from tests.settings_of_functions import within

_ENTRY = b"\x01\x00\x00" + b"u" * 180
_REST_S = 10.0
_MOST_LEASES = 64
_IDLE = 10_000  # sources
_HALTED = 100_000  # sources
_START_S = 60.0  # for a worker; more is a fault
_ROOT = Path(__file__).parents[1]
_SPELLED = (
    "User-agent: *\nDisallow: /wp-admin/\nAllow: /wp-admin/admin-ajax.php\nDisallow: /?s=\nDisallow: /basket/\n"
    "Disallow: /members/login\nDisallow: /internal-%d/\n\nSitemap: https://www.%s.example/sitemap_index.xml\n"
)
_ALLOWS_ALL = "User-agent: *\nDisallow:\n"
_KINDS = ("none", "allow-all", "ordinary", "long")  # of robots.txt
_PARQUET = "crawlproject.sources.parquet"


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _megabytes_beside() -> float:
    """Return the most memory that the process which reads Parquet has had so far, 0 while there is none."""
    for children in Path("/proc/self/task").glob("*/children"):
        for child in children.read_text().split():
            with suppress(OSError):  # it has ended
                if _PARQUET.encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                    status = Path(f"/proc/{child}/status").read_text()
                    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    return 0.0


def robots_of(kind: str, number: int, source: str) -> str | None:
    """Return the robots.txt of a source, None where it has none."""
    if kind == "none":
        return None
    if kind == "allow-all":
        return _ALLOWS_ALL
    ordinary = _SPELLED % (number, source)
    chosen = random.Random(number)
    paths = [f"Disallow: /{chosen.getrandbits(64):016x}/\n" for _ in range(200)]
    return ordinary if kind == "ordinary" else "".join((ordinary, "User-agent: *\n", *paths))


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


def write(folder: Path, count: int, *, as_parquet: bool, changed: float = 0.0) -> Path:
    """Write a catalogue, in Parquet by a process of its own; return where."""
    path = folder / "catalogue.json"
    write_catalogue(path, count, changed)
    if not as_parquet:
        return path
    target = path.with_suffix(".parquet")
    program = "import sys; from benchmarks.million_sources import _to_parquet; _to_parquet(*sys.argv[1:])"
    subprocess.run([sys.executable, "-c", program, str(path), str(target)], check=True)
    return target


def _to_parquet(source: str, target: str) -> None:
    from pyarrow import Table, parquet  # takes memory that is to be measured

    parquet.write_table(Table.from_pylist(json.loads(Path(source).read_text())), target)


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
        freeze, gone, done, beside = 0.0, 0, False, 0.0

        async def tick() -> None:
            nonlocal freeze
            last = time.monotonic()
            while not done:
                await asyncio.sleep(0.005)
                now = time.monotonic()
                freeze, last = max(freeze, now - last - 0.005), now

        async def beat() -> None:
            nonlocal gone, beside
            had = bool(await self.redis.exists(self.pulse))
            while not done:
                has = bool(await self.redis.exists(self.pulse))
                gone, had = gone + (had and not has), had or has
                beside = max(beside, _megabytes_beside())
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
            f"{name:28} {lasted:7.1f} s  frozen {freeze * 1000:5.0f} ms  +{_megabytes() - memory:5.0f} MB  "
            f"pulse lost {gone}  Redis {100 * cpu / lasted:5.2f} %  slowest {command}"
            + (f"  process beside {beside:.0f} MB" if beside else ""),
            flush=True,
        )


async def crawl_twice(state: State, sources: Sequence[str], kind: str) -> None:
    """Request an image of each of some sources, in vain, then once more, and another one with success."""
    scripts, redis = state.scripts, cast(Any, state.redis)

    def sent(source: str, status: str, received: int) -> Requested:
        return Requested(source, int(time.time() * 1e6), 0.2, status, received)

    for number, source in enumerate(sources):
        robots = f"https://www.{source}.example/robots.txt"
        if (await scripts.look_robots(source, robots, source)).fetch:
            text = robots_of(kind, number, source)
            kept, body = ("none", b"") if text is None else what_is_kept(Rules.parse(text.encode()), text.encode())
            await scripts.keep_robots(
                source,
                robots,
                kind=kept,
                body=packed(body) if kept == "rules" else body,
                ttl=86400,
                retry=60,
                retry_max=3600,
                source=source,
                requested=sent(source, "200", 1_000),
            )
        await scripts.look_robots(source, robots, source)
    fine = {"fetched": 1, "thumbnails": 1, "bytes": 20_000}
    for number, (status, counts) in enumerate(
        [("500", {"fetched": 1, "retried": 1, "error_status": 1}), ("200", fine), ("200", fine)]
    ):
        if number != 1:  # then it is there, from the retry
            items = [
                NewRequest(_ENTRY, digest_of("", str(number)), again=True, source=source)
                for number, source in enumerate(sources)
            ]
            await within(scripts, high_water=10**9).enqueue("w", items)
        await redis.delete(state.keys.slots)  # as if the time had come
        reply = await scripts.lease("w", len(sources), rooms={}, room=1, horizon=10.0)
        assert len(reply.grants) == len(sources), reply
        event = None if status == "500" else (state.keys.image_events.rpartition(":")[2], "{}")
        await scripts.settle(
            "w",
            [
                Settlement(
                    grant.id,
                    grant.id.partition(":")[2],
                    grant.entry,
                    event=event,
                    counts=counts,
                    status=status,
                    fine=status == "200",
                    latency=0.1,
                    requested=sent(grant.id.partition(":")[2], status, counts.get("bytes", 500)),
                )
                for grant in reply.grants
            ],
        )
    await redis.delete(*state.keys.streams)


async def pass_time(state: State, seconds: float) -> None:
    """Have Redis and the leader drop what they would have dropped after so long."""
    redis: Any = state.redis
    async for key in redis.scan_iter(count=1000):
        if 0 < await redis.pttl(key) <= seconds * 1000:
            await redis.delete(key)
    fence = await state.scripts.lead("leader", ready=True)
    assert fence is not None
    for _ in range(2):
        while await redis.scard(state.keys.watchlist):
            await state.scripts.watch(fence)
    async with redis.pipeline(transaction=False) as pipe:
        for url in await redis.zrange(state.keys.robots_stored, 1, -1):
            pipe.zincrby(state.keys.robots_stored, -int(seconds) * 2**20, url)
        await pipe.execute()
    for _ in range(await redis.zcard(state.keys.robots_stored) // 100 + 1):
        await state.scripts.trim(fence, maxlen=10**6)


async def measure_idle(url: str, kind: str) -> None:
    """Print what Redis keeps of a source that has been crawled twice, with one failure, and is idle since."""
    settings = config.load({"REDIS_URL": url, "CRAWL_NAMESPACE": "idle"})
    state = State(settings, "images")
    await state.open()
    redis: Any = state.redis
    await redis.flushall()
    await state.scripts.heartbeat("w", join=True, timeout=3600, max_deliveries=3)

    async def lead() -> None:
        while True:
            await state.scripts.lead("leader", ready=True)
            await asyncio.sleep(0.5)

    async def crawl(first: int, count: int) -> None:
        for begin in range(first, first + count, 100):
            await crawl_twice(state, [f"source{begin + number:07}" for number in range(100)], kind)

    async def used() -> tuple[int, int]:
        return int((await redis.info("memory"))["used_memory"]), await redis.dbsize()

    leading = asyncio.create_task(lead())
    await asyncio.sleep(1.0)  # a new leader holds for a moment
    await crawl(0, 1_000)  # so that tables and scripts are there
    await pass_time(state, 864_000)
    memory, keys = await used()
    await crawl(1_000, _IDLE)
    ages = {"at once": 0, "after an hour": 3_600, "after five days": 432_000, "after 95 days": 95 * 86_400}
    for name, seconds in ages.items():
        await pass_time(state, seconds)
        now_used, now_keys = await used()
        print(
            f"idle, robots.txt: {kind:10} {name:16} {(now_used - memory) / _IDLE:6.0f} B, "
            f"{(now_keys - keys) / _IDLE:.2f} keys a source",
            flush=True,
        )
        if seconds == 432_000:
            await measure_hours(state, "source0001000")
    leading.cancel()
    await state.close()


async def measure_hours(state: State, source: str) -> None:
    """Print what Redis keeps of the requests to a source in so many hours, each like the one that it has."""
    redis: Any = state.redis
    async for key in redis.scan_iter(match=f"{state.keys.requests_of}*:{source}"):
        fields = await redis.hgetall(key)
        [hour] = [packed for name, packed in fields.items() if name.isdigit()]
        robots = {name: packed for name, packed in fields.items() if not name.isdigit()}
    for hours in (1, 24, 96, 2_160):
        sizes = []
        for first in range(0, hours, 96):
            block = f"{state.keys.requests_of}{first}:x.{source}"
            await redis.hset(block, mapping=robots | dict.fromkeys(range(min(hours - first, 96)), hour))
            await redis.expire(block, 1_000_000)
            sizes.append(await redis.memory_usage(block, samples=0))
            await redis.delete(block)
        print(f"requests in {hours:4} hours {sum(sizes):10} B, {len(sizes)} keys a source", flush=True)


async def start_worker(state: State, url: str, catalogue: Path) -> None:
    """Start a worker beside the leader, and print when it is known and has its first leases; then kill it."""
    redis: Any = state.redis
    known = set(await redis.zrange(state.keys.workers, 0, -1))
    environ = os.environ | {
        "REDIS_URL": url,
        "CRAWL_SOURCES": str(catalogue),
        "IMAGES_STORE": str(catalogue.parent / "thumbnails"),
        "CRAWL_CONTACT": "mailto:me@example.org",
    }
    command = (sys.executable, "-m", "scrapy", "crawl", "images", "-s", "LOG_LEVEL=ERROR")
    began = time.monotonic()
    worker = await asyncio.create_subprocess_exec(*command, cwd=_ROOT, env=environ, stderr=subprocess.DEVNULL)
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
        with suppress(ProcessLookupError):  # it could not start
            worker.kill()
        await worker.wait()


async def feed(state: State, begin: int, end: int) -> None:
    """Enqueue a request of each of these sources, so many at once as a worker does."""
    for first in range(begin, end, 200):
        if first % 5_000 == 0:
            await state.scripts.lead(state.worker_id, ready=True)
        items = [
            NewRequest(_ENTRY, digest_of("", str(number)), again=True, source=f"source{number}")
            for number in range(first, min(first + 200, end))
        ]
        await within(state.scripts, high_water=10**9).enqueue(state.worker_id, items, seeds=[])


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


async def measure(url: str, folder: Path, count: int, *, as_parquet: bool) -> None:
    """Measure and print."""
    path = write(folder, count, as_parquet=as_parquet)
    settings = config.load({"REDIS_URL": url, "CRAWL_SOURCES": str(path)})
    state = State(settings, "images")
    await state.open()
    redis: Any = Redis.from_url(url)
    watch = Watch(redis, state.keys.pulse)
    one = Leader(settings, state)
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

    one.start()
    await watch.during("first publication", read.wait)
    used = int((await redis.info("memory"))["used_memory"]) - memory
    print(f"Redis: {used / count:.0f} B a source of the catalogue")
    await watch.during("leader at rest", lambda: asyncio.sleep(_REST_S))
    write(folder, count, as_parquet=as_parquet, changed=0.01)
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
    one = Leader(settings, state)
    await watch.during("a request of the others", lambda: feed(state, halted, count))

    async def lease() -> None:
        for _ in range(200):
            await state.scripts.lead(state.worker_id, ready=True)
            reply = await state.scripts.lease(
                state.worker_id, _MOST_LEASES, rooms={}, room=_MOST_LEASES, horizon=0.25
            )
            assert len(reply.grants) == _MOST_LEASES, reply.state

    await state.scripts.lead(state.worker_id, ready=True)
    await asyncio.sleep(
        1.0
    )  # should the leader have been silent for long meanwhile, nothing goes out for a moment
    await watch.during("200 leases of 64", lease)
    one.start()
    await watch.during("leader, all have work", lambda: asyncio.sleep(_REST_S))
    await watch.during("a worker's start", lambda: start_worker(state, url, path))
    await one.stop()
    await redis.aclose()
    await state.close()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.million_sources", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--sources", type=int, default=1_000_000)
    parser.add_argument("--parquet", action="store_true", help="have the catalogue in Parquet")
    parser.add_argument("--idle", action="store_true", help="measure only what Redis keeps of an idle source")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="million-") as name:
        folder = Path(name)
        url = embedded.ensure(folder)
        try:
            if options.idle:
                for kind in _KINDS:
                    asyncio.run(measure_idle(url, kind))
            else:
                asyncio.run(measure(url, folder, options.sources, as_parquet=options.parquet))
        finally:
            embedded.stop(folder)


if __name__ == "__main__":
    main()
