"""Health check of a worker: `python -P -m crawlproject.healthcheck`, its settings in the environment.

To be run on the worker's machine. Exit code 0: a worker of this machine has sent a heartbeat within
CRAWL_HEARTBEAT_TIMEOUT. 1: none has, or Redis does not answer; a sentence on stderr says which. While Redis is
away workers wait and lose nothing: no reason to kill one. Of several shards one that answers is enough.
"""

from __future__ import annotations

import asyncio
import socket
import sys

from crawlproject import config
from crawlproject.errors import CrawlprojectError
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.state.over_shards import ask_shards, not_answering
from crawlproject.texts import visible

_TIMEOUT_S = 2.0  # for an answer: a check has ten seconds


async def check(settings: config.Config, machine: str) -> str | None:
    """Return what is wrong with the workers of `machine`, None if a worker of any spider is alive.

    Raises:
        RedisUnavailable, RedisError: Redis cannot say.

    """
    state = State(settings.of_any_shard, "images", timeout=_TIMEOUT_S)
    await state.open()
    try:
        found, away = await ask_shards(state.shards, _workers)
    finally:
        await state.close()
    if any(worker.startswith(f"{machine}:") for workers in found.values() for worker in workers):
        return None  # a shard that is away is no fault of the worker
    for shard, fault in away.items():
        raise not_answering(shard, fault)
    return f"no worker of {machine} has sent a heartbeat within {settings.heartbeat_timeout:g} s"


async def _workers(shard: State) -> list[str]:
    """Return the living workers of all spiders."""
    spiders = await shard.redis.zrange(shard.keys.spiders, 0, -1)
    return [worker for spider in spiders for worker in await shard.beside(spider.decode()).workers()]


def main() -> int:
    """Check; return the exit code."""
    try:
        fault = asyncio.run(check(config.load(config.environment()), socket.gethostname()))
    except (CrawlprojectError, *REDIS_TROUBLE) as error:
        fault = str(error)
    if fault is not None:
        print(visible(fault), file=sys.stderr)
    return int(fault is not None)


if __name__ == "__main__":
    sys.exit(main())
