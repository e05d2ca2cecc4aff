"""Those who lead the shards of a crawl: the same catalogue in all of them, and none that waits for another."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from crawlproject import config
from crawlproject import leader as leaders
from crawlproject.state.client import State
from tests.waiting import until_async

SHARDS = 2


@pytest_asyncio.fixture
async def state(cluster_url: str, tmp_path: Path) -> AsyncIterator[State]:
    """A crawl of two shards, with a catalogue."""
    loaded = config.load({"REDIS_URL": cluster_url, "CRAWL_SHARDS": str(SHARDS)})
    one = State(replace(loaded, sources=str(catalogue(tmp_path / "c", "a.example", "museum"))), "images")
    await one.open()
    yield one
    await one.close()


def catalogue(path: Path, domain: str, source: str) -> Path:
    """Write a catalogue in which a domain is a source's."""
    path.write_text(json.dumps([{"source_name": source, "image_count": 1, "hosts": [domain]}]))
    return path


def leader_of(shard: State) -> leaders.ShardLeader:
    """Return who stands for the lead of a shard, in a process of its own as it were."""
    return leaders.ShardLeader(shard.config, shard, leaders._Reading(shard.config.sources))


async def test_all_shards_read_the_catalogue_when_the_first_one_does(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in its own half hour they would send requests to and fro."""
    monkeypatch.setattr(leaders, "_NEWER_EVERY_S", 0.1)
    first, second = state.shards
    leading = [leader_of(first), leader_of(second)]
    for one in leading:
        one.start()

    async def knows(shard: State, source: bytes) -> bool:
        return bool(await shard.redis.hget(shard.keys.hosts, "a.example") == source)  # type: ignore[misc]

    for shard in state.shards:
        assert await until_async(lambda shard=shard: knows(shard, b"museum"))
    catalogue(tmp_path / "c", "a.example", "gallery")
    await leading[0].stop()
    leading[0] = leader_of(first)  # reads it when elected
    leading[0].start()
    for shard in state.shards:
        assert await until_async(lambda shard=shard: knows(shard, b"gallery"), 15)
    for one in leading:
        await one.stop()


async def test_no_shard_waits_until_the_catalogue_is_published_for_another_one(tmp_path: Path) -> None:
    reading = leaders._Reading(str(catalogue(tmp_path / "c", "a.example", "museum")))
    async with reading.read(60.0) as (slow, was_read):
        assert was_read
        async with asyncio.timeout(5), reading.read(60.0) as (found, was_read_again):
            assert found is slow
            assert not was_read_again
        async with asyncio.timeout(5), reading.read(0.0) as (newer, was_read_anew):
            assert newer is not slow
            assert was_read_anew
        assert len(slow) == 1  # it is still in use
        reading.close()
    for closed in (slow, newer):
        with pytest.raises(sqlite3.ProgrammingError):
            len(closed)
