"""Several shards of a crawl in one Redis, for tests of what goes from one to another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from crawlproject import config
from crawlproject.state.client import State
from crawlproject.state.shards import shard_of
from tests.conftest import local_network
from tests.state.calls.calls import lead


@asynccontextmanager
async def several_shards(redis_url: str, count: int, **settings: Any) -> AsyncIterator[tuple[State, ...]]:
    """Open so many shards, each with a leader, and with a worker `w` that has joined."""
    found = {"REDIS_URL": redis_url, "CRAWL_SHARDS": str(count), **local_network(), **settings}
    state = State(config.load(found), "images", 0)
    await state.open()
    for shard in state.shards:
        await lead(shard)
        await shard.scripts.heartbeat("w", join=True, timeout=3600, max_deliveries=3)
    yield state.shards
    await state.close()


def domain_in(number: int, count: int, kind: str = "s") -> str:
    """Return a domain that is in a shard."""
    return next(name for n in range(999) if shard_of(name := f"{kind}{n}.example", count) == number)
