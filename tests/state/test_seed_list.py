"""The seed list: waiting for a seed moves none, and what has room is told."""

from __future__ import annotations

import asyncio
from typing import Any

from crawlproject.state import seed_list
from crawlproject.state.client import State
from tests.waiting import until_async


async def test_waiting_moves_no_seed(state: State) -> None:
    """A wait that a hanging Redis carries out late, for a worker declared dead since, must strand none."""
    redis: Any = state.redis
    await redis.lpush(state.keys.seeds, "a", "b", "c")
    assert await seed_list.await_seed(state)
    assert await redis.lrange(state.keys.seeds, 0, -1) == [b"c", b"b", b"a"]
    assert await redis.keys("*") == [state.keys.seeds.encode()]


async def test_all_who_wait_hear_of_a_seed_and_it_stays(state: State) -> None:
    redis: Any = state.redis
    waiting = [asyncio.create_task(seed_list.await_seed(state)) for _ in range(3)]

    async def blocked() -> bool:
        info = await redis.info("clients")
        return bool(info["blocked_clients"] == 3)

    await until_async(blocked)
    await redis.lpush(state.keys.seeds, "a")
    assert await asyncio.gather(*waiting) == [True] * 3
    assert await redis.lrange(state.keys.seeds, 0, -1) == [b"a"]


async def test_room_is_what_the_settings_leave(state: State) -> None:
    redis: Any = state.redis
    assert await seed_list.room(state) == (1_000_000, 1_000_000)
    await redis.mset({state.keys.outstanding: 1_000_001, state.keys.overflow: 999_999})
    assert await seed_list.room(state) == (0, 1)
