"""What the dashboard shows of the newest dead letters, and what it reads for that."""

from __future__ import annotations

import json
from typing import Any

from crawlproject.contrib.dashboard.recent import read_recent
from crawlproject.state.calls import DeadLetter
from crawlproject.state.client import State


async def add(state: State, *names: str, size: int = 0) -> list[str]:
    """Add dead letters of invalid seeds; return their ids."""
    redis: Any = state.redis
    seeds = [json.dumps({"url": name, "title": "x" * size}) for name in names]
    return [(await redis.xadd(state.keys.dead, {"seed": seed, "reason": "no URL"})).decode() for seed in seeds]


async def shown(state: State) -> list[str]:
    return [json.loads(letter["seed"])["url"] for letter in (await read_recent(state))["dead"]]


async def test_dead_letters_come_and_go(state: State) -> None:
    assert await shown(state) == []
    one, *_ = await add(state, "a", "b")
    assert await shown(state) == ["b", "a"]
    await add(state, "c")
    assert await shown(state) == ["c", "b", "a"]
    await state.scripts.take_dead([DeadLetter(one, "")])
    assert await shown(state) == ["c", "b"]
    await add(state, *map(str, range(45)))
    assert await shown(state) == [str(number) for number in range(44, 4, -1)]
    redis: Any = state.redis
    await redis.delete(state.keys.dead)
    await add(state, "after")
    assert await shown(state) == ["after"]


async def test_of_large_dead_letters_only_some_are_read(state: State) -> None:
    redis: Any = state.redis
    await add(state, *map(str, range(20)), size=1_000_000)
    before = (await redis.info("stats"))["total_net_output_bytes"]
    letters = (await read_recent(state))["dead"]
    assert 1 <= len(letters) < 20
    assert all(len(letter["seed"]) <= 2000 for letter in letters)
    assert (await redis.info("stats"))["total_net_output_bytes"] - before < 10_000_000


async def test_link_rot_is_that_of_the_spider_that_is_shown(state: State) -> None:
    redis: Any = state.redis
    for spider in ("images", "own", "images"):
        event = {"url": f"http://a/{spider}", "spider": spider, "status": 404, "time": "2026"}
        await redis.xadd(state.keys.link_rot_events, {"event": json.dumps(event)})
    for spider, count in (("images", 2), ("own", 1)):
        gone = (await read_recent(state.beside(spider)))["link_rot"]
        assert [one["url"] for one in gone] == [f"http://a/{spider}"] * count
