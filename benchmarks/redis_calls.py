"""One worker's calls to Redis, without the worker; redis_cpu.py runs those of each checkout.

    python -m benchmarks.redis_calls REDIS_URL REQUESTS RATE

Takes seeds, enqueues, leases, settles, beats, leads, watches, trims and collects as often as a worker does, over
eight sources of very different rates that make RATE requests a second together. A request is answered 0.1 s after
its slot; 93 of 100 are images, the others end in the other ways. All runs `_PACE` times as fast as in a crawl.

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
from random import Random
from statistics import median
from typing import Any

from crawlproject import config
from crawlproject.config import CircuitRules
from crawlproject.frontier import lease_queue
from crawlproject.frontier.shares import MOST_A_CALL
from crawlproject.models import Requested
from crawlproject.politeness import slots
from crawlproject.state.calls import NewRequest, Settlement
from crawlproject.state.client import State

_PACE = 4.0  # times as fast as a crawl
_SHARES = (0.38, 0.26, 0.16, 0.1, 0.05, 0.03, 0.015, 0.005)  # of the requests, by source
_WORKER = "benchmark"
_AHEAD = 2_000  # seeds that wait
_BATCH = 500  # of seeds
_LATENCY_S = 0.1
_CAPACITY = 128  # leases of a worker, at least;
_CAPACITY_S = (  # what is sent in so many seconds, and waits with the successes until they are settled
    slots.HORIZON_S + _LATENCY_S + lease_queue.PATIENCE_S + 2 * slots.LEASE_EVERY_S
)
_EVENT = json.dumps(
    {"identifier": "x" * 36, "exif": {f"0x{n:x}": "y" * 12 for n in range(20)}, "sha256": "z" * 64}
)
_ENTRY = b"\x01\x00\x00" + b"u" * 180


class Worker:
    """What a worker holds, and what it does when; `rates` are those of the sources, in requests a second."""

    def __init__(self, state: Any, requests: int, rates: Mapping[str, float]) -> None:
        self.state = state
        self.scripts = state.scripts
        self.requests = requests
        self.fed = self.done = 0
        self.rates = {source: rate * _PACE for source, rate in rates.items()}
        self.random = Random(0)
        self._next = [(self.random.random() / rate, source) for source, rate in self.rates.items()]
        heapq.heapify(self._next)  # so that each source has its part of every stretch of the seeds
        self.lease_times: list[float] = []  # seconds that each call took
        self.capacity = max(_CAPACITY, round(_CAPACITY_S * sum(rates.values())))
        self.nearly_done = 0.0  # when nine tenths were: the slowest sources take longer than the others in the end
        self.held: Counter[str] = Counter()
        self.under_way: list[tuple[float, str, bytes]] = []
        self.fence = 0
        self.settled = 0.0  # when that was last done

    async def run(self) -> None:
        """Make all requests."""
        self.fence = await self.scripts.lead(_WORKER, ready=True)
        await self.scripts.set_rates(self.fence, [(*row, row[1]) for row in self.rates.items()], {}, {})
        await self.scripts.heartbeat(_WORKER, join=True, timeout=30, max_deliveries=3)
        loops: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            *((slots.LEASE_EVERY_S, self.settle_and_lease), (0.2, self.feed)),
            *((1.0, self.rule), (5.0, self.beat), (5.0, self.collect)),
        ]
        await asyncio.gather(*(self._every(seconds / _PACE, work) for seconds, work in loops))

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while self.done < self.requests:
            await work()
            await asyncio.sleep(seconds)

    async def feed(self) -> None:
        """Push seeds, take them and enqueue them, while there is room for them."""
        count = 0 if self.fed - self.done > _AHEAD else min(_BATCH, self.requests - self.fed)
        if not count:
            return
        seeds = []
        for number in range(self.fed, self.fed + count):
            moment, source = self._next[0]
            heapq.heapreplace(self._next, (moment + 1 / self.rates[source], source))
            seeds.append(f"{number} {source}")
        self.fed += count
        await self.state.redis.lpush(self.state.keys.seeds, *seeds)
        taken = await self.scripts.take_seeds(_WORKER, _BATCH)
        names = [seed.decode().partition(" ")[2] for seed in taken]
        items = [NewRequest(_ENTRY, self.random.randbytes(32), again=False, domain=name) for name in names]
        await self.scripts.enqueue(_WORKER, items, seeds=taken)

    async def settle_and_lease(self) -> None:
        """Settle what has been answered, and lease what there is room for."""
        ends = []
        now = asyncio.get_running_loop().time()
        is_settling = now >= self.settled + lease_queue.PATIENCE_S / _PACE
        while is_settling and self.under_way and self.under_way[0][0] <= now:
            _, name, entry = heapq.heappop(self.under_way)
            source = name.partition(":")[2]
            self.held[source] -= 1
            ends.append(self._end(name, source, entry))
        if ends:
            self.settled = now
            reply = await self.scripts.settle(_WORKER, ends)
            assert all(reply.settled)
        if (room := self.capacity - self.held.total()) > 0:
            await self._lease(min(room, MOST_A_CALL))

    async def _lease(self, want: int) -> None:
        began = time.monotonic()
        reply = await self.scripts.lease(
            _WORKER,
            want,
            rooms={
                source: self.capacity - held for source, held in (+self.held).items()
            },  # far more than it needs
            room=self.capacity,
            horizon=slots.HORIZON_S / _PACE,
        )
        self.lease_times.append(time.monotonic() - began)
        assert reply.state == "ok"
        for grant in reply.grants:
            self.held[grant.id.partition(":")[2]] += 1
            heapq.heappush(self.under_way, (grant.slot + _LATENCY_S / _PACE, grant.id, grant.entry))

    def _end(self, name: str, source: str, entry: bytes) -> Any:
        latency, chance = self.random.uniform(0.05, 0.15), self.random.random()
        if chance < 0.03:  # a robots.txt to be looked up, a slot that was missed
            return Settlement(name, source, entry, delay=0.2 / _PACE)
        self.done += 1
        if self.done == self.requests * 9 // 10:
            self.nearly_done = time.monotonic()
        status = "404" if 0.96 <= chance < 0.99 else "200"
        late = int(1e6 * self.random.uniform(_LATENCY_S, 2 * _LATENCY_S) / _PACE)
        told: dict[str, Any] = {
            "fetch_s": latency * self.random.uniform(1.0, 5.0),
            "fine": True,
            "latency": latency,
            "status": status,
            "requested": Requested(source, int(time.time() * 1e6) - late, self.rates[source], status, 250_000),
        }
        if chance < 0.96:
            counts = {"fetched": 1, "thumbnails": 1, "bytes": 250_000}
            return Settlement(name, source, event=("image_metadata_updates", _EVENT), counts=counts, **told)
        if chance < 0.99:
            return Settlement(name, source, event=("link_rot", "{}"), counts={"fetched": 1, "link_rot": 1}, **told)
        counts = {"fetched": 1, "failed": 1, "error_decode": 1}
        return Settlement(name, source, entry, dead="unreadable", counts=counts, **told)

    async def rule(self) -> None:
        """Do what the leader does each second."""
        await self.scripts.lead(_WORKER, ready=True)
        await self.scripts.watch(self.fence)
        await self.scripts.trim(self.fence, maxlen=100_000)

    async def beat(self) -> None:
        """Say that the worker lives."""
        await self.scripts.heartbeat(_WORKER, join=False, timeout=30, max_deliveries=3)

    async def collect(self) -> None:
        """Read what the monitor reads of all sources and of each."""
        sample = await self.scripts.collect(timeout=30.0, most=1_000)
        await self.scripts.inspect(sample.sources)


async def main(url: str, requests: int, rate: float) -> None:
    """Make so many requests at that rate, on an empty Redis."""
    rules = CircuitRules(window=60 / _PACE)
    setattr(config.Config, "circuit", property(lambda _: rules))  # noqa: B010 - a window is no setting
    state: Any = State(config.load({"REDIS_URL": url}), "images")
    await state.open()
    worker = Worker(state, requests, {f"source{n}.example": rate * share for n, share in enumerate(_SHARES)})
    began = time.monotonic()
    await worker.run()
    if (reached := 0.9 * requests / (worker.nearly_done - began) / _PACE) < 0.8 * rate:
        print(f"{reached:.0f} requests a second were made, not {rate:g}", file=sys.stderr)
    await state.close()
    print(1000 * median(worker.lease_times))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
