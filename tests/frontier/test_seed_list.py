"""The seed list: waiting for a seed moves none, what has room is told, and long lines hold nobody up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgpack
import pytest

from crawlproject.frontier import contents, seeds
from crawlproject.state.calls import UsersSeedsScripts
from crawlproject.state.client import State
from crawlproject.state.keys import Keys
from tests.state.calls.calls import db, join


async def test_waiting_moves_no_seed(state: State) -> None:
    redis = db(state)
    await redis.lpush(state.keys.seeds, "a", "b", "c")
    assert await seeds.await_seed(state.redis, state.keys.seeds)
    assert await redis.lrange(state.keys.seeds, 0, -1) == [b"c", b"b", b"a"]
    assert await redis.keys("*") == [state.keys.seeds.encode()]


async def test_room_is_what_the_settings_leave(state: State) -> None:
    assert await contents.room(state) == (1_000_000, 1_000_000)
    await db(state).hset(state.keys.counters, mapping={"outstanding": 1_000_001, "overflow": 999_999})
    assert await contents.room(state) == (0, 1)


Taker = Callable[[State], Awaitable[list[bytes]]]
USERS = Keys("{images:start_urls}", "images", "crawl")


async def by_the_worker(state: State) -> list[bytes]:
    await join(state)
    seeds = await state.scripts.take_seeds("w", 200)
    await db(state).delete(state.keys.processing_of + "w")
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


@pytest.mark.parametrize("take", [by_the_worker, to_a_shard])
async def test_a_call_takes_one_long_line_at_most_and_keeps_its_length_alone(state: State, take: Taker) -> None:
    seeds = state.keys.seeds if take is by_the_worker else USERS.users_seeds
    long, large, short = b"x" * 10_000_000, b"y" * 1_048_576, b"http://a/"
    pushed = [short] * 250 + [long] * 9 + [large] * 9 + [short, long]
    for seed in pushed:
        await db(state).lpush(seeds, seed)
    taken: list[bytes] = []
    while some := await take(state):
        sizes = [int(seed[1:]) if seed[:1] == b"\0" else len(seed) for seed in some]
        assert sum(sizes[:-1]) < 1_048_576  # so no call holds Redis for longer than it took to push such a line
        taken += some
    assert taken == [seed if seed is not long else b"\0%d" % len(long) for seed in pushed]
