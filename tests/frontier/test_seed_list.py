"""The seed list: waiting for a seed moves none, what has room is told, and long lines hold nobody up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgpack
import pytest

from crawlproject.frontier import contents, seeds
from crawlproject.state.calls import UsersSeedsScripts
from crawlproject.state.client import State
from crawlproject.state.keys import Keys


async def test_waiting_moves_no_seed(state: State) -> None:
    redis: Any = state.redis
    await redis.lpush(state.keys.seeds, "a", "b", "c")
    assert await seeds.await_seed(state.redis, state.keys.seeds)
    assert await redis.lrange(state.keys.seeds, 0, -1) == [b"c", b"b", b"a"]
    assert await redis.keys("*") == [state.keys.seeds.encode()]


async def test_room_is_what_the_settings_leave(state: State) -> None:
    redis: Any = state.redis
    assert await contents.room(state) == (1_000_000, 1_000_000)
    await redis.hset(state.keys.counters, mapping={"outstanding": 1_000_001, "overflow": 999_999})
    assert await contents.room(state) == (0, 1)


Taker = Callable[[State], Awaitable[list[bytes]]]
USERS = Keys("{images:start_urls}", "images", "crawl")


async def by_the_worker(state: State) -> list[bytes]:
    await state.scripts.heartbeat("w", join=True, timeout=30, max_deliveries=3)
    seeds = await state.scripts.take_seeds("w", 200)
    redis: Any = state.redis
    await redis.delete(state.keys.processing_of + "w")
    return seeds


async def to_a_shard(state: State) -> list[bytes]:
    users = UsersSeedsScripts(state.redis, USERS, state.clock, shard=0, shards=2)
    if seeds := await users.peek_seeds("w", 500):
        assert await users.split_seeds(seeds, [1] * len(seeds))
    batch = await users.batch(1, count=500)
    if batch is None:
        return []
    await users.forget_batch(1, batch)
    return [msgpack.unpackb(entry, raw=True)[b"seed"] for entry in batch.entries]


async def cpu_ms(redis: Any) -> float:
    """Return the processor time of Redis' main thread: what a script took, whatever else this machine does."""
    used = await redis.info("cpu")
    return 1000 * float(used["used_cpu_user_main_thread"] + used["used_cpu_sys_main_thread"])


@pytest.mark.judges
@pytest.mark.parametrize("take", [by_the_worker, to_a_shard])
async def test_long_lines_hold_redis_no_longer_than_they_took_to_push(state: State, take: Taker) -> None:
    redis: Any = state.redis
    seeds = state.keys.seeds if take is by_the_worker else USERS.users_seeds
    long, large, short = b"x" * 10_000_000, b"y" * 1_048_576, b"http://a/"
    pushed = [short] * 250 + [long] * 9 + [large] * 9 + [short, long]
    pushing, holding, taken = [], [], []
    before = await cpu_ms(redis)
    for seed in pushed:
        await redis.lpush(seeds, seed)
        pushing.append(-before + (before := await cpu_ms(redis)))
    while some := await take(state):
        holding.append(-before + (before := await cpu_ms(redis)))
        taken += some
    assert [seed if seed[:1] != b"\0" else long for seed in taken] == pushed
    assert all(10_000_000 <= int(seed[1:]) < 12_600_000 for seed in taken if seed[:1] == b"\0")
    assert max(holding) < 3 * sorted(pushing)[-5]  # a call takes little longer than it took to push one such line
