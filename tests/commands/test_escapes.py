"""What commands print has nothing in it that a terminal obeys, whatever stands in Redis."""

from __future__ import annotations

import json
from pathlib import Path

import msgpack
import pytest
import redis

from crawlproject.state.keys import Keys
from tests.commands.conftest import Frontier
from tests.commands.test_dead import reject
from tests.conftest import Scrapy

KEYS = Keys("crawl", "images")
NASTY = "museum\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"  # sets the title, clears the screen, reverses what follows
URL = "https://museum.org/1.jpg"
COMMANDS = (
    ["sources"],
    ["dead", "list"],
    ["explain", URL],
    ["events", "--readers"],
    ["top", "--once"],
    ["stats"],
    ["excluded"],
    ["explain", NASTY],
    ["halt", NASTY],
    ["rate", "museum", NASTY],
    ["rate", NASTY, "1"],
    ["exclude", NASTY],
    ["dead", "retry", "--source", NASTY],
    ["feed", NASTY],
)


def plant(url: str) -> None:
    """Write it wherever a command reads from."""
    nasty = NASTY.encode()
    with redis.Redis.from_url(url) as client:
        client.xadd(KEYS.dead, {"source": NASTY, "reason": NASTY, "time": NASTY, "seed": NASTY})
        client.hset(KEYS.rates, mapping=dict.fromkeys(["museum", NASTY], "0.2"))
        client.hset(KEYS.hosts, "museum.org", NASTY)
        for source in ("museum", NASTY):
            client.set(KEYS.override_rate_of + source, NASTY)
            client.rpush(KEYS.statuses_of + source, NASTY)
            client.set(KEYS.circuit_of + source, msgpack.packb({"state": NASTY, "why": NASTY}, use_bin_type=False))
        client.set(KEYS.paused, NASTY)
        record = {"last": {KEYS.image_events: NASTY}, "numbers": {}, "lengths": {}, "host": NASTY, "output": NASTY}
        client.hset(KEYS.readers, nasty, msgpack.packb(record, use_bin_type=False))
        client.sadd(KEYS.halted, NASTY)
        client.sadd(KEYS.excluded, NASTY)
        note = json.dumps({"by": NASTY, "time": NASTY, "reason": NASTY, "file": NASTY})
        client.hset(KEYS.excluded_by, NASTY, note)
        client.hset(KEYS.catalogue, NASTY, NASTY)
        client.xadd(KEYS.audit, {"source": NASTY, "what": NASTY, "by": NASTY})


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
async def test_foreign_data_moves_no_cursor(
    scrapy: Scrapy, frontier: Frontier, redis_url: str, command: list[str]
) -> None:
    await frontier.start()
    await frontier.catalogue({"museum": 1.0})
    await reject(frontier.state, (NASTY.encode(), NASTY))
    plant(redis_url)
    done = scrapy(*command)
    shown = (done.stdout + done.stderr).replace("\n", "")
    assert shown.isprintable()
    assert "Traceback" not in shown


def test_the_name_of_a_file_moves_no_cursor(scrapy: Scrapy, tmp_path: Path) -> None:
    done = scrapy("events", str(tmp_path / NASTY))
    assert done.stdout.startswith("0 events written to ")
    assert (done.stdout + done.stderr).replace("\n", "").isprintable()
