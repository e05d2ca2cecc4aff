"""The copies of robots.txt in Redis: how long each is kept, and what bounds them all together."""

from __future__ import annotations

from random import Random
from typing import Any

from crawlproject.state.client import State
from tests.leading import lead
from tests.robots_copies import keep_copy, unpacked

OVERHEAD = 350  # bytes of a copy beside its text


def origin(number: int) -> str:
    return f"https://site{number}.org/robots.txt"


def noise(length: int) -> bytes:
    """Return a text that cannot be compressed."""
    return Random(0).randbytes(length)


async def texts(state: State) -> list[int]:
    """Return the lengths of all texts that are stored, in the order of their sites."""
    redis: Any = state.redis
    keys = sorted([key async for key in redis.scan_iter(match="crawl:robots:*")])
    return [len(unpacked(await redis.get(key)).get("body", b"")) for key in keys]


async def size(state: State) -> int:
    return int(await state.redis.zscore(state.keys.robots_stored, "") or 0)


async def kept(state: State, count: int) -> list[int]:
    """Return of which of the first sites there is a copy."""
    keys = state.keys.robots_of
    return [number for number in range(count) if await state.redis.exists(keys + origin(number))]


async def leave(state: State, room: int) -> None:
    """Have other copies take all of the memory that copies may take, but for `room` bytes."""
    await state.redis.zincrby(state.keys.robots_stored, 2**30 - room - await size(state), "")


async def test_the_oldest_copies_go_when_all_are_too_large(state: State) -> None:
    body = noise(10_000)
    for number in range(6):
        await keep_copy(state, origin(number), "museum", body=body)
        await state.redis.zincrby(state.keys.robots_stored, -3600 * 2**20, origin(number))  # an hour ago
    sizes = await texts(state)
    assert await size(state) == sum(length + OVERHEAD for length in sizes)
    assert len(sizes) == 6
    await leave(state, -2 * (sizes[0] + OVERHEAD))
    await keep_copy(state, origin(9), "museum", body=body)
    assert await texts(state) == [sizes[0]] * 4
    assert (await state.scripts.look_robots("w", origin(9), "museum")).what == "rules"
    gone = set(range(6)) - {*await kept(state, 6)}
    assert len(gone) == 3
    assert (await state.scripts.look_robots("w", origin(gone.pop()), "museum")).fetch


async def test_a_copy_that_is_stored_anew_is_the_youngest_and_counts_once(state: State) -> None:
    for number in range(3):
        await keep_copy(state, origin(number), "museum", body=noise(1000))
        await state.redis.zincrby(state.keys.robots_stored, (number - 9) * 3600 * 2**20, origin(number))
    await keep_copy(state, origin(0), "museum", body=noise(1200))
    sizes = await texts(state)
    assert await size(state) == sum(sizes) + 3 * OVERHEAD
    await leave(state, 0)
    await keep_copy(state, origin(3), "museum", body=noise(1000))
    assert await kept(state, 4) == [0, 2, 3]


async def test_a_delay_outlives_the_copy_that_asked_for_it(state: State) -> None:
    await keep_copy(state, origin(1), "museum", body=noise(1000), delay=7.0)
    await state.redis.zincrby(state.keys.robots_stored, -3600 * 2**20, origin(1))
    await leave(state, 0)
    await keep_copy(state, origin(2), "museum", body=noise(1000))
    assert (await state.scripts.inspect(["museum"]))[0].robots_delay == 7.0
    assert (await state.scripts.look_robots("w", origin(1), "museum")).what == "wait"


async def test_what_has_expired_counts_no_more(state: State) -> None:
    fence = await lead(state)
    for number in range(3):
        await keep_copy(state, origin(number), "museum", body=noise(1000))
    for number in range(2):
        await state.redis.zincrby(state.keys.robots_stored, -5 * 86400 * 2**20, origin(number))
        await state.redis.delete(state.keys.robots_of + origin(number))
    await state.scripts.trim(fence, maxlen=100)
    [length] = await texts(state)
    assert await size(state) == length + OVERHEAD
    assert await state.redis.zrange(state.keys.robots_stored, 0, -1) == [b"", origin(2).encode()]
