"""What workers ask Redis while there is nothing to crawl, by the number of workers.

    python -m benchmarks.idle_workers [--shards N] [--workers N] [--members N] [--seconds S] [--sources N]

A Redis Cluster of three masters with a replica each; one worker after the other is started, and the CPU time of
the masters is taken for so many seconds each time. The first one leads all shards; what a further one adds grows
with their number: it asks each for its lead, and tells it that it lives. The calls of a crawl come on top.

`--members` adds so many that do this alone, as a worker does it at shards that it is not the home of: more than
whole workers could run on one machine. It takes sixty of them two minutes to open 64 shards each.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.ours import Crawl
from benchmarks.redis_servers import Cluster
from crawlproject import config
from crawlproject.state.client import State

_SETTLE_S = 15.0  # for a worker to start, lead, and be known to the others
_LEAD_S = 4.0  # between two questions of a worker whether a shard that it is not the home of has a leader,
_BEAT_S = 5.0  # and between two heartbeats: see leader.py and lease_keeper.py
_TIMEOUT_S = 30.0  # CRAWL_HEARTBEAT_TIMEOUT
_NODE_TIMEOUT_S = 15.0  # no master is to be replaced because the machine is busy


def _used(cluster: Cluster) -> tuple[float, int]:
    """Return the CPU seconds of the masters, and how many functions they have run."""
    infos: list[Any] = [master.client.info("everything") for master in cluster.masters()]
    cpu = sum(info["used_cpu_user"] + info["used_cpu_sys"] for info in infos)
    return cpu, sum(info.get("cmdstat_fcall", {"calls": 0})["calls"] for info in infos)


def _report(label: object, cluster: Cluster, before: tuple[float, int], seconds: float) -> None:
    cpu, scripts = _used(cluster)
    core, calls = (cpu - before[0]) / seconds, (scripts - before[1]) / seconds
    print(f"{label:7}{100 * core:23.1f}{calls:19.0f}", flush=True)


async def _members(count: int, url: str, shards: int, seconds: float, cluster: Cluster) -> None:
    """Have so many workers ask each shard, and print what Redis takes meanwhile."""
    settings = config.load({"REDIS_URL": url, "CRAWL_SHARDS": str(shards)})
    random = Random(0)

    async def keep(call: Any, every: float) -> None:
        await asyncio.sleep(random.random() * every)
        while True:
            await call()
            await asyncio.sleep(every)

    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[None]] = []
        members = [State(settings, "images") for _ in range(count)]
        for member in members:
            await member.open()
            for shard in member.shards:
                lead, beat = shard.scripts.lead, shard.scripts.heartbeat

                async def asks(lead: Any = lead, worker: str = member.worker_id) -> None:
                    await lead(worker, ready=False)

                async def lives(beat: Any = beat, worker: str = member.worker_id, *, join: bool = False) -> None:
                    await beat(worker, timeout=_TIMEOUT_S, max_deliveries=3, join=join)

                await lives(join=True)
                tasks += [group.create_task(keep(asks, _LEAD_S)), group.create_task(keep(lives, _BEAT_S))]
        await asyncio.sleep(_BEAT_S)
        before, since = _used(cluster), time.monotonic()
        await asyncio.sleep(seconds)
        _report(f"+ {count}", cluster, before, time.monotonic() - since)
        for task in tasks:
            task.cancel()
    await asyncio.gather(*(member.close() for member in members))


def main() -> None:
    """Measure and print."""
    name = "python -m benchmarks.idle_workers"
    parser = argparse.ArgumentParser(prog=name, description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--members", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--sources", type=int, default=200)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # not without clearing up
    sizes = {f"source{number}": 1000 for number in range(options.sources)}
    settings = {"MAX_IDLE_TIME_BEFORE_CLOSE": 0, "CRAWL_SHARDS": options.shards}
    with tempfile.TemporaryDirectory(prefix="idle-") as name, ExitStack() as stack:
        cluster = stack.enter_context(closing(Cluster(Path(name), node_timeout=_NODE_TIMEOUT_S)))
        crawl = stack.enter_context(Crawl(Path(name) / "crawl", sizes, settings, redis_url=cluster.url))
        print("workers   masters, % of a core   functions a second")
        for number in range(1, options.workers + 1):
            worker = crawl.worker(number)
            stack.callback(worker.wait)
            stack.callback(worker.kill)
            time.sleep(_SETTLE_S)
            before, since = _used(cluster), time.monotonic()
            time.sleep(options.seconds)
            _report(number, cluster, before, time.monotonic() - since)
        if options.members:
            asyncio.run(_members(options.members, cluster.url, options.shards, options.seconds, cluster))


if __name__ == "__main__":
    main()
