"""Several shards of a crawl in one Redis, for tests of what goes from one to another."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from crawlproject import config
from crawlproject.state.client import State
from crawlproject.state.clock import RedisClock
from crawlproject.state.keys import Keys
from crawlproject.state.shards import shard_namespace, shard_of
from tests.conftest import local_network
from tests.leading import lead


@asynccontextmanager
async def several_shards(redis_url: str, count: int, **settings: Any) -> AsyncIterator[tuple[State, ...]]:
    """Open so many shards, each with a leader, and with a worker `w` that has joined."""
    found = config.load({"REDIS_URL": redis_url, "CRAWL_SHARDS": str(count), **local_network(), **settings})
    first = State(found, "images")
    shards = (first, *(copy.copy(first) for _ in range(1, count)))
    for number, shard in enumerate(shards):
        shard.number, shard.shards, shard.clock = number, shards, RedisClock()
        shard.keys = Keys(shard_namespace("crawl", number, count), "images", "crawl")
        shard.redis = Redis.from_url(redis_url)
        shard.scripts = shard.scripts_of("images")
    for shard in shards:
        await lead(shard)
        await shard.scripts.heartbeat("w", join=True, timeout=3600, max_deliveries=3)
    yield shards
    for shard in shards:
        await shard.redis.aclose()


def domain_in(number: int, count: int, kind: str = "s") -> str:
    """Return a domain that is in a shard."""
    return next(name for n in range(999) if shard_of(name := f"{kind}{n}.example", count) == number)
