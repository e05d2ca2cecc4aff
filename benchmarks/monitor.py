"""What the monitor costs: commands, CPU of Redis and of itself for each line, by the number of sources.

    python -m benchmarks.monitor [--sources N] [--lines N]

Every source has work, results, errors of two kinds and 50 statuses; leases are held by four workers. Also what a
scrape and a `scrapy top` cost, and what settling costs (the counters that the monitor reads are added up there).
"""

from __future__ import annotations

import argparse
import asyncio
import io
import resource
import statistics
import tempfile
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest
from rich.console import Console

from crawlproject import config
from crawlproject.commands.top import view
from crawlproject.frontier.dupefilter import digest_of
from crawlproject.metrics.collectors import CrawlCollector, registry
from crawlproject.state import embedded
from crawlproject.state.client import State
from crawlproject.state.scripts import NewRequest, Settlement
from crawlproject.status import reporter as monitors
from crawlproject.status.reporter import Reporter
from crawlproject.status.snapshot_reader import SnapshotReader

_CHUNK = 200


async def prepare(state: State, names: list[str]) -> None:
    """Fill a Redis as a crawl of these sources would."""
    scripts = state.scripts
    fence = await scripts.lead(state.worker_id, ready=True)
    assert fence is not None
    for first in range(0, len(names), _CHUNK):
        rows = [(name, 200.0, 200.0) for name in names[first : first + _CHUNK]]
        assert await scripts.set_rates(fence, rows, {})
    number = count()
    await settle(state, names, number)
    redis: Any = state.redis
    async with redis.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.rpush(state.keys.statuses_of + name, *["200"] * 40, *["404"] * 7, *["timeout"] * 3)
            pipe.ltrim(state.keys.statuses_of + name, 0, 49)
        await pipe.execute()
    for worker in range(4):
        await scripts.heartbeat(f"w{worker}", join=True, timeout=3600, max_deliveries=3)
        await _enqueue(state, names[:256], number)
        await scripts.lease(f"w{worker}", 256, rooms={}, room=9, horizon=60.0, dead_maxlen=10**6)
    await _enqueue(state, names, number)


async def _enqueue(state: State, names: list[str], number: count[int]) -> None:
    for first in range(0, len(names), _CHUNK):
        items = [
            NewRequest(b"\x01\x00\x00x", digest_of("", str(n)), again=True, source=name)
            for name, n in zip(names[first : first + _CHUNK], number, strict=False)
        ]
        await state.scripts.enqueue("w0", items, high_water=10**8, refuse_unknown=False)


async def settle(state: State, names: list[str], number: count[int]) -> float:
    """Settle one request of each source, fifty a call; return the microseconds of Redis' CPU for each."""
    await state.scripts.heartbeat("s", join=True, timeout=3600, max_deliveries=3)
    used = 0.0
    for first in range(0, len(names), 50):
        some = names[first : first + 50]
        await _enqueue(state, some, number)
        reply = await state.scripts.lease("s", 50, rooms={}, room=9, horizon=60.0, dead_maxlen=10**6)
        counts = {"fetched": 1, "thumbnails": 1, "bytes": 250_000, "error_dns": 1, "error_timeout": 1}
        ends = [
            Settlement(
                grant.id,
                grant.id.partition(":")[2],
                event=("image_metadata_updates", "{}"),
                counts=counts,
                status="200",
                fine=True,
                latency=0.1,
            )
            for grant in reply.grants
        ]
        before = await _cpu(state)
        await state.scripts.settle("s", ends)
        used += await _cpu(state) - before
    return used / len(names) * 1e6


async def _cpu(state: State) -> float:
    info: dict[str, Any] = await state.redis.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def _own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(folder: Path, sources: int, lines: int) -> None:
    url = embedded.ensure(folder)
    state = State(config.load({"REDIS_URL": url, "CRAWL_NAMESPACE": "benchmark"}), "images")
    await state.open()
    names = [f"source-{number}" for number in range(sources)]
    await prepare(state, names)
    path = folder / "monitor.jsonl"
    monitors.INTERVAL_S = 0.0  # a line at every request
    reporter = Reporter(replace(state.config, monitor_file=str(path)), state)
    one = reporter.reports["images"]
    commands = _counted(state)
    await one.step()  # the first sample has nothing to be compared with
    number = count(10**6)
    own, theirs, sent, took = [], [], [], []
    for _ in range(lines):
        await settle(state, names[:100], number)
        await state.scripts.lead(state.worker_id, ready=True)
        before = _own_cpu(), await _cpu(state), commands[0], time.perf_counter()
        await one.step()
        took.append(time.perf_counter() - before[3])
        sent.append(commands[0] - before[2])
        theirs.append(await _cpu(state) - before[1])
        own.append(_own_cpu() - before[0])
    written = path.read_text().splitlines()
    assert len(written) == lines
    print(f"{sources} sources, {lines} lines, each of {statistics.mean(map(len, written)) / 1000:.0f} kB")
    print(f"commands sent a line     {statistics.mean(sent):8.0f}")
    for who, used in (("Redis a line", theirs), ("the monitor", own)):
        print(f"CPU of {who:<18}{statistics.mean(used) * 1e3:8.1f} ms, {statistics.mean(used) / 5:.2%} of 5 s")
    print(f"time from first to last  {statistics.median(took) * 1e3:8.1f} ms")
    scraped = registry(CrawlCollector("images", lambda: one.latest_sample))
    generate_latest(scraped)
    before_scrape = time.process_time()
    text = [generate_latest(scraped) for _ in range(10)].pop()
    scrape = (time.process_time() - before_scrape) / 10
    print(f"CPU of a scrape          {scrape * 1e3:8.1f} ms, {len(text) / 1000:.0f} kB")
    await look_on(state)
    print(f"CPU of Redis a settle    {await settle(state, names, number):8.1f} us, INFO included")
    await state.close()
    embedded.stop(folder)


async def look_on(state: State) -> None:
    """Print what `scrapy top` costs, on a terminal of 120 columns and 50 lines."""
    snapshot_reader = SnapshotReader(state)
    console = Console(file=io.StringIO(), width=120, height=50, force_terminal=True)
    await snapshot_reader.look()
    reading, drawing, theirs = [], [], []
    for _ in range(10):
        before, theirs_before = _own_cpu(), await _cpu(state)
        made = await snapshot_reader.look()
        assert made is not None
        reading.append(_own_cpu() - before)
        theirs.append(await _cpu(state) - theirs_before)
        before = _own_cpu()
        console.print(view("images of benchmark", made, most=50))
        drawing.append(_own_cpu() - before)
    print(f"CPU of a scrapy top      {statistics.mean(reading) * 1e3:8.1f} ms a look, ", end="")
    print(f"{statistics.mean(drawing) * 1e3:.1f} ms a screen; of Redis {statistics.mean(theirs) * 1e3:.1f} ms")


def _counted(state: State) -> list[int]:
    """Count the commands that this process sends: each of a pipeline, and a script as one."""
    sent = [0]
    redis: Any = state.redis
    execute = redis.execute_command

    async def counted(*args: Any, **options: Any) -> Any:
        sent[0] += 1
        return await execute(*args, **options)

    pipeline = redis.pipeline

    def counted_pipeline(*args: Any, **options: Any) -> Any:
        pipe = pipeline(*args, **options)
        run = pipe.execute

        async def counted_run(*args: Any, **options: Any) -> Any:
            sent[0] += len(pipe.command_stack)
            return await run(*args, **options)

        pipe.execute = counted_run
        return pipe

    redis.execute_command, redis.pipeline = counted, counted_pipeline
    return sent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=1000)
    parser.add_argument("--lines", type=int, default=20)
    opts = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crawl-monitor-") as folder:
        asyncio.run(measure(Path(folder), opts.sources, opts.lines))


if __name__ == "__main__":
    main()
