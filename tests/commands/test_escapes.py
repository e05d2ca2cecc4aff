"""What commands print has nothing in it that a terminal obeys, whatever stands in Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.commands.test_dead import reject

if TYPE_CHECKING:
    from tests.commands.conftest import Frontier
    from tests.conftest import Scrapy

NASTY = "museum\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"  # sets the title, clears the screen, reverses what follows


@pytest.mark.parametrize(
    "command",
    [
        ["sources"],
        ["sources", "museum"],
        ["dead", "list"],
        ["explain", "https://museum.org/1.jpg"],
        ["events", "--readers"],
        ["top", "--once"],
    ],
    ids=" ".join,
)
async def test_foreign_data_moves_no_cursor(scrapy: Scrapy, frontier: Frontier, command: list[str]) -> None:
    keys, redis = frontier.state.keys, frontier.redis
    await frontier.start()
    await frontier.catalogue({"museum": 1.0})
    await reject(frontier.state, (NASTY.encode(), NASTY))
    await redis.xadd(keys.dead, {"source": NASTY, "reason": NASTY, "time": NASTY, "seed": NASTY})
    await redis.sadd(keys.sources, NASTY)
    await redis.hset(keys.hosts, "museum.org", NASTY)
    for source in ("museum", NASTY):
        await redis.set(keys.override_rate_of + source, NASTY)
        await redis.rpush(keys.statuses_of + source, NASTY)
        await redis.hset(keys.circuit_of + source, mapping={"state": NASTY, "reason": NASTY})
    await redis.set(keys.paused, NASTY)
    await redis.hset(keys.readers, NASTY + "\nimage_metadata_updates", NASTY)
    done = scrapy(*command)
    shown = (done.stdout + done.stderr).replace("\n", "")
    assert "museum" in shown
    assert shown.isprintable()
