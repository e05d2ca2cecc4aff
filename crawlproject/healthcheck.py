"""Health check of a worker: `python -m crawlproject.healthcheck`, on its machine, its settings in the environment.

Exit code 0: a worker of this machine has beaten within CRAWL_HEARTBEAT_TIMEOUT. 1: none has, or Redis does not
answer; a sentence on stderr says which. While Redis is away workers wait and lose nothing: no reason to kill one.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

from redis import RedisError

from crawlproject import config
from crawlproject.errors import CrawlprojectError
from crawlproject.state.client import connect_blocking
from crawlproject.state.keys import Keys


def check(settings: config.Config, machine: str, spider: str = "images") -> str | None:
    """Return what is wrong with the workers of `machine`, None if one is alive.

    Raises:
        RedisUnavailable, RedisError: nobody can know.

    """
    keys = Keys(settings.namespace, spider)
    with connect_blocking(settings) as client:
        redis: Any = client
        seconds, micros = redis.time()
        ahead = int(redis.hget(keys.clock, "ahead") or 0)  # µs, see clock.lua
        oldest = seconds * 1_000_000 + micros + ahead - int(settings.heartbeat_timeout * 1_000_000)
        workers = redis.zrangebyscore(keys.workers, oldest, "+inf")
    if any(worker.startswith(f"{machine}:".encode()) for worker in workers):
        return None
    return f"no worker of {machine} has beaten within {settings.heartbeat_timeout:g} s"


def main() -> int:
    """Check; return the exit code."""
    try:
        trouble = check(config.load(config.environment()), socket.gethostname())
    except (CrawlprojectError, RedisError, OSError) as error:
        trouble = str(error)
    if trouble is not None:
        print(trouble, file=sys.stderr)
    return int(trouble is not None)


if __name__ == "__main__":
    sys.exit(main())
