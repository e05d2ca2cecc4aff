"""Which spiders a namespace has."""

from __future__ import annotations

from typing import Any

import pytest

from crawlproject.state.client import State
from crawlproject.state.keys import Keys
from crawlproject.status.spiders import present_spiders


async def test_spiders_are_there_once_they_have_seeds_requests_or_results(state: State) -> None:
    redis: Any = state.redis
    assert await present_spiders(state, ["images", "pages"]) == []
    await redis.lpush(Keys("crawl", "pages").seeds, "https://example.org/")
    assert await present_spiders(state, ["images", "pages"]) == ["pages"]
    await redis.hset(Keys("crawl", "images").counters, "outstanding", 1)
    await redis.hset(Keys("crawl", "shop").totals, "fetched", 1)  # of another project
    assert await present_spiders(state, ["images", "pages"]) == ["images", "pages"]
    await redis.zadd(state.keys.spiders, {"shop": 1, "images": 2, "idle": 3})
    assert await present_spiders(state, ["images", "pages"]) == ["images", "pages", "shop"]


@pytest.mark.parametrize("name", [b"a b", b"'$(reboot)'", b"\xff", b"", b"-s", b"x" * 200])
async def test_a_name_that_no_shell_should_see_is_left_out(state: State, name: bytes) -> None:
    redis: Any = state.redis
    await redis.zadd(state.keys.spiders, {name: 1})
    await redis.hset(b"crawl:" + name + b":totals", "fetched", 1)
    assert await present_spiders(state) == []
