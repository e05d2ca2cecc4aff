"""One worker's calls to Redis, without the worker; redis_cpu.py runs it with the `crawlproject` of a checkout.

    PYTHONPATH=CHECKOUT python redis_calls.py REDIS_URL REQUESTS RATE [SHARDS SOURCES WORKERS]

Takes seeds, enqueues, leases, settles, beats, leads, watches, trims and collects as often as a worker does, over
eight sources of very different rates that make RATE requests a second together. A request is answered 0.1 s after
its slot; 93 of 100 are images, the others end in the other ways. All runs `_PACE` times as fast as in a crawl.

With SHARDS it makes the calls of WORKERS, in slow motion: each shard has at least one of them as its home, and
only these lease there. With more than one, on a Redis Cluster, the seeds are brought from where users push them to
the shards. There are SOURCES sources. What workers ask the other shards is not in it.

Prints how long a lease call takes, in ms (median).
"""

from __future__ import annotations

import asyncio
import heapq
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from inspect import signature
from random import Random
from statistics import median
from typing import Any

from scrapy import Request

from crawlproject import config
from crawlproject.config import CircuitRules
from crawlproject.frontier.scheduler import FrontierScheduler

try:
    from crawlproject.state.client import State
    from crawlproject.state.scripts import NewRequest, Settlement
except ImportError:  # up to 0.1
    from crawlproject.store.client import Store as State  # type: ignore[import-not-found,no-redef]
    from crawlproject.store.scripts import NewRequest, Settlement  # type: ignore[import-not-found,no-redef]

_PACE = 4.0  # times as fast as a crawl;
_PACE_OF_MANY = 0.3  # the same with several workers, so that one process can make their calls
_SHARES = (0.38, 0.26, 0.16, 0.1, 0.05, 0.03, 0.015, 0.005)  # of the requests, by source
_AHEAD = 2_000  # seeds that wait
_BATCH = 500  # of seeds
_CAPACITY = 128  # leases of a worker
_LATENCY_S = 0.1
_EVENT = json.dumps(
    {"identifier": "x" * 36, "exif": {f"0x{n:x}": "y" * 12 for n in range(20)}, "sha256": "z" * 64}
)
_ENTRY = b"\x01\x00\x00" + b"u" * 180


def sources_of(count: int) -> dict[str, float]:
    """Return the shares of so many sources of all requests; more than eight have equal ones."""
    shares = _SHARES if count == len(_SHARES) else [1 / count] * count
    return {f"source{number}.example": share for number, share in enumerate(shares)}


def _of_version(call: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `arguments` that the version which is measured takes."""
    return {name: value for name, value in arguments.items() if name in signature(call).parameters}


class Progress:
    """How many of all requests were pushed as seeds, and how many are done.

    `rates` are those of the sources, of any unit: each gets its part of every stretch of the seeds.
    """

    def __init__(self, requests: int, rates: Mapping[str, float]) -> None:
        self.requests = requests
        self.fed = self.done = 0
        random = Random(0)
        self._next = [(random.random() / rate, source, 1 / rate) for source, rate in rates.items()]
        heapq.heapify(self._next)

    def next_seeds(self) -> list[str]:
        """Return the seeds to push next; none while enough wait."""
        count = 0 if self.fed - self.done > _AHEAD else min(_BATCH, self.requests - self.fed)
        seeds = []
        for number in range(self.fed, self.fed + count):
            moment, source, gap = self._next[0]
            heapq.heapreplace(self._next, (moment + gap, source, gap))
            seeds.append(f"{number} {source}")
        self.fed += count
        return seeds


class Worker:
    """What a worker holds in a shard, and what it does when.

    `rates` are those of the sources that are there, in requests a second; all runs `pace` times as fast. The first
    worker of a shard leads it, and enqueues its seeds; with `pushes` it pushes them, too.
    """

    def __init__(
        self,
        state: Any,
        progress: Progress,
        rates: Mapping[str, float],
        *,
        pace: float = _PACE,
        number: int = 0,
        pushes: bool = True,
    ) -> None:
        self.state = state
        self.scripts = state.scripts
        self.worker_id = f"benchmark-{number}"
        self.progress = progress
        self.pace = pace
        self.rates = {source: rate * pace for source, rate in rates.items()}
        self.is_first = number == 0
        self.pushes = pushes
        self.random = Random(number)
        self.lease_times: list[float] = []  # seconds that each call took
        self.held: Counter[str] = Counter()
        self.under_way: list[tuple[float, str, bytes]] = []
        self.fence = 0

    async def run(self) -> None:
        """Make all requests."""
        scripts = self.scripts
        if self.is_first:
            self.fence = await scripts.lead(self.worker_id, ready=True)
            await scripts.set_rates(self.fence, [(*row, row[1]) for row in self.rates.items()], {}, {})
        await scripts.heartbeat(self.worker_id, join=True, timeout=30, max_deliveries=3)
        apart = not hasattr(FrontierScheduler, "_end_leases")  # up to 0.1, settlements had a rhythm of their own
        loops = [
            *([(0.1, self.lease), (0.15, self.settle)] if apart else [(0.15, self.settle_and_lease)]),
            (5.0, self.beat),
        ]
        if self.is_first:
            loops += [(0.2, self.feed), (1.0, self.rule), (5.0, self.collect)]
        if self.is_first and not self.pushes:
            loops.append((1.0, self.look_for_foreign))
        ends = [asyncio.create_task(self._every(seconds / self.pace, work)) for seconds, work in loops]
        await asyncio.gather(*ends)

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while self.progress.done < self.progress.requests:
            await work()
            await asyncio.sleep(seconds)

    async def feed(self) -> None:
        """Take seeds and enqueue them, while there is room for them."""
        if self.pushes:
            if not (seeds := self.progress.next_seeds()):
                return
            await self.state.redis.lpush(self.state.keys.seeds, *seeds)
        taken = await self.scripts.take_seeds(self.worker_id, _BATCH)
        names = [seed.decode().partition(" ")[2] for seed in taken]
        items = [NewRequest(_ENTRY, **self._place(), again=False, domain=name) for name in names]
        if items:
            bounds = {"high_water": 10**6, "dead_maxlen": 10**6, "refuse_unknown": False}
            await self.scripts.enqueue(
                self.worker_id, items, seeds=taken, **_of_version(self.scripts.enqueue, bounds)
            )

    async def look_for_foreign(self) -> None:
        """Look what waits here for other shards; nothing does."""
        assert not await self.scripts.waiting(self.worker_id)

    def _place(self) -> dict[str, Any]:
        """Return where the seen filter keeps a new request, as the version that is measured takes it."""
        if "digest" in NewRequest.__annotations__:
            return {"digest": self.random.randbytes(32)}
        return {"bucket": f"{self.random.randrange(100):05x}", "member": self.random.randrange(1 << 44)}

    async def settle_and_lease(self) -> None:
        """Do both, one after the other."""
        await self.settle()
        await self.lease()

    async def lease(self) -> None:
        """Lease what there is room for."""
        room = _CAPACITY - self.held.total()
        if room <= 0:
            return
        began = time.monotonic()
        reply = await self.scripts.lease(
            self.worker_id,
            min(room, 64),
            **self.shares(),
            **_of_version(self.scripts.lease, {"idle": False, "max_deliveries": 3, "dead_maxlen": 10**6}),
            horizon=0.25 / self.pace,
        )
        self.lease_times.append(time.monotonic() - began)
        assert reply.state == "ok"
        for grant in reply.grants:
            source = grant.id.partition(":")[2]
            self.held[source] += 1
            heapq.heappush(self.under_way, (grant.slot + _LATENCY_S / self.pace, grant.id, grant.entry))

    def shares(self) -> dict[str, Any]:
        """Return how many leases each source may get: far more than it needs."""
        if "rooms" in signature(self.scripts.lease).parameters:
            rooms = {source: _CAPACITY - held for source, held in (+self.held).items()}
            return {"rooms": rooms, "room": _CAPACITY}
        return {"cap": _CAPACITY // 4, "cap_alone": _CAPACITY * 3 // 4, "holding": +self.held}  # up to 0.1

    async def settle(self) -> None:
        """Settle what has been answered."""
        ends = []
        now = asyncio.get_running_loop().time()
        while self.under_way and self.under_way[0][0] <= now:
            _, name, entry = heapq.heappop(self.under_way)
            source = name.partition(":")[2]
            self.held[source] -= 1
            ends.append(self._end(name, source, entry))
        if ends:
            reply = await self.scripts.settle(self.worker_id, ends)
            assert all(reply.settled)

    def _end(self, name: str, source: str, entry: bytes) -> Any:
        evidence: dict[str, Any] = {"fine": True, "latency": self.random.uniform(0.05, 0.15)}
        if "fetch_s" in signature(Settlement).parameters:
            evidence["fetch_s"] = evidence["latency"] * self.random.uniform(1.0, 5.0)
        chance = self.random.random()
        if chance >= 0.03 and "requested" in signature(Settlement).parameters:
            evidence["requested"] = self._requested(source, "404" if 0.96 <= chance < 0.99 else "200")
        if chance < 0.03:
            return Settlement(
                name, source, entry, delay=0.2
            )  # a robots.txt to be looked up, a slot that was missed
        self.progress.done += 1
        if chance < 0.96:
            counts = {"fetched": 1, "thumbnails": 1, "bytes": 250_000}
            return Settlement(
                name, source, event=("image_metadata_updates", _EVENT), counts=counts, status="200", **evidence
            )
        if chance < 0.99:
            counts = {"fetched": 1, "link_rot": 1}
            return Settlement(name, source, event=("link_rot", "{}"), counts=counts, status="404", **evidence)
        counts = {"fetched": 1, "failed": 1, "error_decode": 1}
        return Settlement(name, source, entry, dead="unreadable", counts=counts, status="200", **evidence)

    def _requested(self, source: str, status: str) -> Any:
        """Return what was sent when its slot had come."""
        from crawlproject.models import Requested

        late = int(1e6 * self.random.uniform(_LATENCY_S, 2 * _LATENCY_S) / self.pace)
        return Requested(source, int(time.time() * 1e6) - late, self.rates[source], status, 250_000)

    async def rule(self) -> None:
        """Do what the leader does each second."""
        await self.scripts.lead(self.worker_id, ready=True)
        await self.scripts.watch(self.fence)
        await self.scripts.trim(self.fence, maxlen=100_000)

    async def beat(self) -> None:
        """Say that the worker lives."""
        await self.scripts.heartbeat(self.worker_id, join=False, timeout=30, max_deliveries=3)

    async def collect(self) -> None:
        """Read what the monitor reads of all sources and of each."""
        old = not hasattr(self.scripts, "collect")
        collect: Any = self.scripts.survey if old else self.scripts.collect
        more = _of_version(collect, {"every": 0.0, "dead_maxlen": 10**6})
        sample = await collect(self.worker_id, must_lead=True, timeout=30.0, most=1_000, **more)
        await self.scripts.inspect(sample.sources)


class Users:
    """The users of a crawl of several shards, who push its seeds, and what brings them to the shards."""

    def __init__(self, state: Any, progress: Progress) -> None:
        from crawlproject.frontier.forwarding import UsersSeeds

        self.state = state
        self.progress = progress
        self.seeds = UsersSeeds(state, lambda seed: Request(f"http://{seed.decode().partition(' ')[2]}/"))

    async def run(self) -> None:
        """Push all seeds, and bring them."""
        redis: Any = self.state.client_for(self.state.keys.users_seeds)
        tasks = [asyncio.create_task(self._repeat(step)) for step in (self.seeds.split, self.seeds.forward)]
        while self.progress.done < self.progress.requests:
            if seeds := self.progress.next_seeds():
                await redis.lpush(self.state.keys.users_seeds, *seeds)
            await asyncio.sleep(0.2 / _PACE_OF_MANY)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await self.seeds.close()
        await redis.aclose()

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await step()


async def main(
    url: str, requests: int, rate: float, shards: int = 1, sources: int = len(_SHARES), workers: int = 1
) -> None:
    """Make so many requests at that rate, on an empty Redis."""
    pace = _PACE if workers == 1 else _PACE_OF_MANY
    settings = {"REDIS_URL": url}
    rules = CircuitRules(window=60 / pace)
    setattr(config.Config, "circuit", property(lambda _: rules))  # noqa: B010 - a window is no setting
    state: Any = State(config.load(settings | ({"CRAWL_SHARDS": shards} if shards > 1 else {})), "images")
    await state.open()
    rates = {source: rate * share for source, share in sources_of(sources).items()}
    progress = Progress(requests, rates)
    found = []
    for place, shard in enumerate(getattr(state, "shards", (state,))):
        part = rates if shards == 1 else {one: of for one, of in rates.items() if state.shard_for(one) is shard}
        for number in range(max(len(range(place, workers, shards)), 1)):
            found.append(Worker(shard, progress, part, pace=pace, number=number, pushes=shards == 1))
    others = [Users(state, progress).run()] if shards > 1 else []
    began = time.monotonic()
    await asyncio.gather(*(worker.run() for worker in found), *others)
    if (reached := requests / (time.monotonic() - began) / pace) < 0.8 * rate:
        print(f"{reached:.0f} requests a second were made, not {rate:g}", file=sys.stderr)
    await state.close()
    print(1000 * median(seconds for worker in found for seconds in worker.lease_times))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), *map(int, sys.argv[4:])))
