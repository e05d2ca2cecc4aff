"""Those who lead the shards of a crawl: the same catalogue in all of them, and none that waits for another."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from redis.exceptions import RedisError

from crawlproject import config
from crawlproject import leader as leaders
from crawlproject.sources.rates import Limit
from crawlproject.state.client import State
from crawlproject.state.users_keys import UsersRates, UsersSets
from tests.leading import lead
from tests.state.servers import Cluster
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
    return leaders.ShardLeader(shard.config, shard, leaders._Reading(shard.config.sources), lambda _: True)


async def test_a_shard_that_pauses_for_its_readers_names_its_part_of_the_bound(
    state: State, caplog: pytest.LogCaptureFixture
) -> None:
    shard: Any = state.shards[1]
    for _ in range(9):
        await shard.redis.xadd(shard.keys.image_events, {"event": "{}"})
    await shard.redis.hset(shard.keys.readers, f"slow\n{shard.keys.image_events}", "0-0")
    shard.bounds = replace(shard.bounds, stream_maxlen=3)
    leader = leader_of(shard)
    leader._fence = await lead(shard)
    await leader._rule()
    assert "Unread events of shard 1 of 2 have reached its part of CRAWL_STREAM_MAXLEN: " in caplog.text
    part = "holds more than 3 events, the part of CRAWL_STREAM_MAXLEN that each of 2 shards has, that reader slow "
    assert part in caplog.text


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
        return bool(await shard.redis.hget(shard.keys.hosts, "a.example") == source)

    for shard in state.shards:
        assert await until_async(partial(knows, shard, b"museum"))
    catalogue(tmp_path / "c", "a.example", "gallery")
    await leading[0].stop()
    leading[0] = leader_of(first)  # reads it when elected
    leading[0].start()
    for shard in state.shards:
        assert await until_async(partial(knows, shard, b"gallery"), 15)
    for one in leading:
        await one.stop()


async def test_the_home_of_a_shard_leads_it_if_it_can(state: State) -> None:
    other = State(state.config, "images")
    await other.open()
    elsewhere, home = leaders.Leader(other.config), leaders.Leader(state.config)
    elsewhere.start(other, lambda _: False)
    await asyncio.sleep(1)
    home.start(state, lambda shard: shard == 0)

    async def is_led(shard: State) -> bool:
        return bool(await shard.redis.exists(shard.keys.pulse))

    for shard in state.shards:
        assert await until_async(partial(is_led, shard))
    worker, first, second = state.worker_id.encode(), *state.shards
    assert await first.redis.get(first.keys.leader) == worker
    assert await second.redis.get(second.keys.leader) is not None  # nobody's home: whoever comes first
    await home.stop()
    assert await until_async(lambda: first.redis.get(first.keys.leader), 6)
    await elsewhere.stop()
    await other.close()


async def test_leaders_of_several_shards_look_at_few_rates_at_once(state: State) -> None:
    """All shards together at as many as one that is alone."""
    shard = state.shards[1]
    rates, db, asked = UsersRates(shard), shard.redis, []
    names = [f"museum{number}" for number in range(2_000)]
    await db.sadd(shard.keys.sources, *names)
    await db.zadd(shard.keys.active, {name: number for number, name in enumerate(names)})
    read = rates._values.read

    async def noted(keys: Iterable[str]) -> dict[str, bytes]:
        asked.append(len(found := list(keys)))
        return await read(found)

    rates._values.read = noted  # type: ignore[method-assign]
    fence = await lead(shard)
    await rates._values.write(shard.keys.users_override_rate_of + names[-1], "0.5")
    await rates.look(fence)
    assert 500 <= asked[0] <= 900  # SSCAN returns a few more
    assert await db.get(shard.keys.override_rate_of + names[-1]) == b"0.5"
    await rates.close()


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


@pytest.mark.parametrize("kind", [UsersSets, UsersRates])
async def test_nothing_goes_out_before_it_is_known_what_operators_have_ordered(
    state: State, monkeypatch: pytest.MonkeyPatch, kind: type[UsersSets | UsersRates]
) -> None:
    asked, may_go_on, look = asyncio.Event(), asyncio.Event(), kind.look

    async def slowly(self: UsersSets | UsersRates, fence: int) -> None:
        asked.set()
        await may_go_on.wait()
        await look(self, fence)  # type: ignore[arg-type]

    monkeypatch.setattr(kind, "look", slowly)
    leader = leader_of(state.shards[0])
    leader.start()
    await asked.wait()
    await asyncio.sleep(3)  # three chances to give a pulse
    assert not await state.redis.exists(state.keys.pulse)
    may_go_on.set()

    async def has_pulse() -> bool:
        return bool(await state.redis.exists(state.keys.pulse))

    assert await until_async(has_pulse)
    await leader.stop()


async def test_what_operators_have_ordered_is_not_waited_for_where_nobody_knows(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: UsersSets, fence: int) -> None:
        raise RedisError("its node is away")

    monkeypatch.setattr(UsersSets, "look", fail)
    leader = leader_of(state.shards[0])
    leader.start()

    async def has_pulse() -> bool:
        return bool(await state.redis.exists(state.keys.pulse))

    assert await until_async(has_pulse)
    await leader.stop()


async def test_what_operators_order_by_key_is_in_force_with_the_look_that_finds_it(
    state: State, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not a second later: with several shards looks are 1.5 s apart, and two seconds are promised."""
    monkeypatch.setattr(leaders, "_OF_SHARDS_S", 0.0)
    shard, source = state.shards[1], "museum"
    db: Any = shard.redis
    assert state.shard_for(source) is shard
    leader = leader_of(shard)
    fence = leader._fence = await lead(shard)
    leader._users = UsersSets(shard), UsersRates(shard)
    await shard.scripts.set_rates(fence, [(source, Limit(3.0), 3.0)], {})

    async def limit() -> bytes:
        found: bytes = await db.hget(shard.keys.rates, source)
        return found

    async def circuit() -> bytes | None:
        found: bytes | None = await db.hget(shard.keys.circuit_of + source, "state")
        return found

    rate, halted = "crawl:override_rate:" + source, "crawl:halted"
    cluster.owner_of(rate).client.set(rate, "0.5")
    await leader._mirror_rates()
    assert await limit() == b"0.5"
    cluster.owner_of(rate).client.delete(rate)
    await leader._mirror_rates()
    assert await limit() == b"3.0"
    cluster.owner_of(halted).client.sadd(halted, source)
    await leader._mirror_sets()
    assert await circuit() == b"halted"
    cluster.owner_of(halted).client.srem(halted, source)
    await leader._mirror_sets()
    assert await circuit() in {None, b"closed"}
    for keys in leader._users:
        await keys.close()
