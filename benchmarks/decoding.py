"""What it costs to decode pictures in processes of their own rather than in threads of the worker.

    python -m benchmarks.decoding [--images N] [--rounds N] [--ways threads processes pebble]

Each way takes the same pictures through an asyncio loop as the pipeline does, two at a time, in a process of
its own (under uvloop). Prints CPU time, the children's included, pictures a second, how late a timer of 5 ms
came meanwhile, and peak memory. `pebble` is that library's process pool, which we do not use.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import uvloop

from benchmarks.corpus import FOLDER, pictures
from crawlproject.imaging.decoders import Decoders
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.imaging.messages import Job

if TYPE_CHECKING:
    from crawlproject.models import Analysis

AT_A_TIME = 2
WAYS = ("threads", "processes", "pebble")
TICK = 0.005
LIMITS: dict[str, Any] = {"max_pixels": 100_000_000, "quality": 85}
TIMEOUT = 60.0

Submit = Callable[[bytes], Awaitable["Analysis"]]
Close = Callable[[], Awaitable[None]]


def threads() -> tuple[Submit, Close]:
    """Decode in threads of this process."""
    from crawlproject.imaging.analyse import analyse

    pool = ThreadPoolExecutor(AT_A_TIME)

    async def close() -> None:
        pool.shutdown()

    return lambda body: asyncio.wrap_future(pool.submit(analyse, body, **LIMITS)), close


def processes() -> tuple[Submit, Close]:
    """Decode as the pipeline does."""
    decoders = Decoders(AT_A_TIME, Job(**LIMITS, max_size=50_000_000, timeout=TIMEOUT))
    places = asyncio.Semaphore(AT_A_TIME)

    async def submit(body: bytes) -> Analysis:
        async with places:
            return await decoders.analyse(body)

    return submit, decoders.close


def pebbles() -> tuple[Submit, Close]:
    """Decode in pebble's pool of spawned processes."""
    import multiprocessing

    from pebble import ProcessPool

    from crawlproject.imaging.analyse import analyse

    pool = ProcessPool(AT_A_TIME, max_tasks=2000, context=multiprocessing.get_context("spawn"))

    async def close() -> None:
        pool.close()  # type: ignore[no-untyped-call]
        pool.join()

    return lambda body: asyncio.wrap_future(pool.schedule(analyse, (body,), LIMITS, timeout=TIMEOUT)), close


async def run(way: str, paths: list[Path]) -> dict[str, float]:
    """Decode all pictures; return what it took."""
    submit, close = {"threads": threads, "processes": processes, "pebble": pebbles}[way]()
    late: list[float] = []
    done = asyncio.Event()

    async def watch() -> None:
        while not done.is_set():
            began = time.monotonic()
            await asyncio.sleep(TICK)
            late.append(time.monotonic() - began - TICK)

    async def take(queue: list[Path]) -> int:
        made = 0
        while queue:
            body = queue.pop().read_bytes()
            try:
                await submit(body)
                made += 1
            except UnreadableImage:
                pass
        return made

    await submit(paths[0].read_bytes())
    watcher = asyncio.create_task(watch())
    queue, began, cpu = list(reversed(paths)), time.monotonic(), time.process_time()
    made = sum(await asyncio.gather(*(take(queue) for _ in range(AT_A_TIME * 2))))
    seconds, own = time.monotonic() - began, time.process_time() - cpu
    done.set()
    await watcher
    await close()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = own + (children.ru_utime + children.ru_stime if way != "threads" else 0)
    late.sort()
    return {
        "pictures": made,
        "cpu": cpu / made * 1000,
        "speed": made / seconds,
        "late50": late[len(late) // 2] * 1000,
        "late99": late[len(late) * 99 // 100] * 1000,
        "latest": late[-1] * 1000,
        "memory": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + AT_A_TIME * children.ru_maxrss) / 1024,
    }


def main() -> None:
    """Measure each way in turn, several rounds of it, and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoding", description=__doc__)
    parser.add_argument("--images", type=int, default=600, help="how many pictures of the corpus (default: 600)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS[:2])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    paths = pictures(arguments.folder)[: arguments.images]
    if arguments.one:
        print(json.dumps(uvloop.run(run(arguments.one, paths))))
        return
    results: dict[str, list[dict[str, float]]] = {way: [] for way in arguments.ways}
    for _ in range(arguments.rounds):
        for way in arguments.ways:
            command = [sys.executable, "-m", "benchmarks.decoding", *sys.argv[1:], "--one", way]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ)
            results[way].append(json.loads(done.stdout))
    print("| way | CPU s per 1,000 | pictures/s | timer late, ms: median, 99 %, worst | memory, MiB |")
    print("|---|---|---|---|---|")
    for way, runs in results.items():
        m = {name: median(one[name] for one in runs) for name in runs[0]}
        late = f"{m['late50']:.2f}, {m['late99']:.1f}, {m['latest']:.0f}"
        print(f"| {way} | {m['cpu']:.2f} | {m['speed']:.1f} | {late} | {m['memory']:.0f} |")


if __name__ == "__main__":
    main()
