"""What the dashboard shows of the newest dead letters, and what it reads for that."""

from __future__ import annotations

import json
from typing import Any

from crawlproject.dashboard.recent import Recent
from crawlproject.state.client import State


async def add(state: State, *names: str, size: int = 0) -> list[str]:
    """Add dead letters of invalid seeds; return their ids."""
    redis: Any = state.redis
    seeds = [json.dumps({"url": name, "title": "x" * size}) for name in names]
    return [(await redis.xadd(state.keys.dead, {"seed": seed, "reason": "no URL"})).decode() for seed in seeds]


async def shown(recent: Recent) -> list[str]:
    return [json.loads(letter["seed"])["url"] for letter in (await recent.look())["dead"]]


async def test_dead_letters_come_and_go(state: State) -> None:
    recent = Recent(state)
    assert await shown(recent) == []
    one, *_ = await add(state, "a", "b")
    assert await shown(recent) == ["b", "a"]
    await add(state, "c")
    assert await shown(recent) == ["c", "b", "a"]
    await state.scripts.drop_dead([(one, "")])
    assert await shown(recent) == ["c", "b"]
    await add(state, *map(str, range(45)))
    assert await shown(recent) == [str(number) for number in range(44, 4, -1)]
    redis: Any = state.redis
    await redis.delete(state.keys.dead)
    await add(state, "after")
    assert await shown(recent) == ["after"]


async def test_a_large_dead_letter_is_read_once(state: State) -> None:
    redis: Any = state.redis
    recent = Recent(state)
    await add(state, "large", "too", size=1_000_000)
    before = (await redis.info("stats"))["total_net_output_bytes"]
    (letter, _) = (await recent.look())["dead"]
    assert len(letter["seed"]) <= 2000
    once = (await redis.info("stats"))["total_net_output_bytes"]
    assert once - before > 2_000_000
    for _ in range(3):
        assert len((await recent.look())["dead"]) == 2
    await add(state, "small")
    assert len((await recent.look())["dead"]) == 3
    assert (await redis.info("stats"))["total_net_output_bytes"] - once < 100_000
