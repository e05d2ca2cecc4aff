"""Keys that users write to: one of another type is named before anything is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from crawlproject.state.calls import UsersSeedsScripts
from crawlproject.state.client import State
from crawlproject.state.keys import Keys
from tests.state.calls.calls import begin, db, entry, lease, names, outstanding, put, settle

REMEDY = "remove or rename it"
RATE = "crawl:override_rate:museum"
USERS = Keys("{images:start_urls}", "images", "crawl")


async def contents(state: State) -> dict[bytes, bytes]:
    return {key: await db(state).dump(key) for key in await db(state).keys("*")}


async def spoil(state: State, key: str, kind: str) -> None:
    """Make a key of a type that it must not be: by `set` for `sadd`, as a slip goes, or by `sadd`."""
    await (db(state).sadd(key, "museum") if kind == "set" else db(state).set(key, "museum"))


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("crawl:halted", "is a string, not a set"),
        ("crawl:temp_halted", "is a string, not a set"),
        ("crawl:excluded", "is a string, not a set"),
        ("images:start_urls", "is a set, not a list"),
        (RATE, "is a set, not a string"),
    ],
)
async def test_what_is_of_another_type_is_named_and_nothing_written(state: State, key: str, said: str) -> None:
    scripts = state.scripts
    fence = await begin(state, 100)
    await put(state, [entry("a"), entry("b")])
    (grant,) = (await lease(state, 1)).grants
    await spoil(state, key, said.split()[2].strip(","))
    before = await contents(state)
    calls: list[Callable[[], Awaitable[Any]]] = [lambda: scripts.set_rates(fence, [("museum", 50, 50)], {})]
    if key != RATE:
        calls += [
            lambda: lease(state),
            lambda: put(state, [entry("c")]),
            lambda: settle(state, grant, done=True),
            lambda: scripts.take_seeds("w", 9),
            lambda: scripts.watch(fence),
            lambda: scripts.leave("w"),
        ]
    for call in calls:
        with pytest.raises(redis.ResponseError, match=f"WRONGTYPE {key} {said}: {REMEDY}"):
            await call()
    assert await contents(state) == before
    await db(state).delete(key)
    assert await settle(state, grant, done=True) == [True]
    assert names(await lease(state)) == ["b"]
    assert await outstanding(state) == 1


async def test_so_is_the_list_that_users_push_to_on_a_redis_cluster(state: State) -> None:
    await spoil(state, USERS.users_seeds, "set")
    before = await contents(state)
    scripts = UsersSeedsScripts(state.redis, USERS, state.clock)
    with pytest.raises(redis.ResponseError, match=f"images:start_urls is a set, not a list: {REMEDY}"):
        await scripts.peek_seeds("w", 9)
    assert await contents(state) == before
