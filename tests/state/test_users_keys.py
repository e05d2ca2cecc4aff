"""Operators' keys on a Redis Cluster, each in a slot of its own: as on one Redis, whoever is killed on the way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from typing import Any

import pytest
import pytest_asyncio
import redis

from crawlproject import config, controls
from crawlproject.leader import Leader
from crawlproject.state.client import State
from crawlproject.state.source_table import stored
from crawlproject.state.users_keys import ScatteredValues, UsersRates, UsersSets
from tests.leading import lead
from tests.state.servers import Cluster
from tests.waiting import until, until_async

BY = "scrapy halt, alice@vm1"

Call = Callable[[], Awaitable[Any]]


# The merge, on one Redis, where both sets have keys of their own


class Mirrors:
    """Operators, circuits and leaders, which are killed between any two steps."""

    def __init__(self, state: State, fence: int, chance: random.Random, *, told: bool) -> None:
        self.db: Any = state.redis
        self.state, self.fence, self.chance, self.told = state, fence, chance, told
        self.users, self.own = "users_halted", state.keys.halted
        self.wanted: dict[str, bool] = {}

    def leader(self) -> Generator[Call, Any, None]:
        """Do what UsersSets.look does, a call at a time, again and again."""
        while True:
            there = yield lambda: self.db.smembers(self.users)
            here = yield lambda: self.db.sunion(self.own, "names_told")
            if not self.told:
                yield lambda: self.db.delete(self.state.keys.told_of + "halted")
            names = {name.decode(): name in there for name in {*there, *here}}
            if not names:
                continue
            kept: list[str] = []
            while names:
                kept, take = yield lambda names=names, kept=kept: self.state.scripts.mirror_set(  # type: ignore[misc]
                    self.fence, "halted", names, kept
                )
                for name in kept:
                    yield lambda name=name: self.db.sadd(self.users, name)  # type: ignore[misc]
                for name in take:
                    yield lambda name=name: self.db.srem(self.users, name)  # type: ignore[misc]
                names = {**dict.fromkeys(kept, True), **dict.fromkeys(take, False)}

    async def run(self) -> bool:
        """Return whether both sets have in the end what was said last of each name."""
        names, last = ["a", "b", "c"], 0
        await self.db.sadd("names_told", *names)
        leader = self.leader()
        call = next(leader)
        for step in range(320):
            if step < 230 and step - last > 40 and self.chance.random() < 0.2:
                name, last = self.chance.choice(names), step
                key = self.chance.choice([self.users, self.own])
                self.wanted[name] = self.chance.random() < 0.6
                await (self.db.sadd(key, name) if self.wanted[name] else self.db.srem(key, name))
            if step < 230 and self.chance.random() < 0.08:  # killed, before or after its call
                if self.chance.random() < 0.5:
                    await call()
                leader = self.leader()
                call = next(leader)
                continue
            call = leader.send(await call())
        wanted = {name.encode() for name, is_wanted in self.wanted.items() if is_wanted}
        return bool(await self.db.smembers(self.users) == wanted == await self.db.smembers(self.own))


@pytest.mark.parametrize("seed", range(20))
async def test_both_sets_become_what_was_said_last(state: State, seed: int) -> None:
    assert await Mirrors(state, await lead(state), random.Random(seed), told=True).run()


async def test_without_what_was_told_they_do_not(state: State) -> None:
    """So what the test above does is rough enough."""
    wrong = 0
    for seed in range(5):
        await state.redis.flushdb()
        wrong += not await Mirrors(state, await lead(state), random.Random(seed), told=False).run()
    assert wrong > 0


async def test_another_leader_changes_nothing(state: State) -> None:
    fence = await lead(state)
    assert await state.scripts.mirror_set(fence - 1, "halted", {"museum": True}, ()) is None
    assert not await state.scripts.mirror_rates(fence - 1, {"museum": b"5"})
    assert await state.redis.exists(state.keys.halted, state.keys.override_rate_of + "museum") == 0


async def test_a_name_that_no_replica_may_have_is_no_operators_to_take_out(state: State) -> None:
    """A fail-over may have forgotten it: then it is added once more, and the source stays halted."""
    fence, db = await lead(state), state.redis
    await db.sadd(state.keys.halted, "museum")
    for is_there in (False, True, False):
        assert await state.scripts.mirror_set(fence, "halted", {"museum": is_there}, ()) == (["museum"], [])
    assert await state.scripts.mirror_set(fence, "halted", {"museum": True}, ["museum"]) == ([], [])
    assert await state.scripts.mirror_set(fence, "halted", {"museum": False}, ()) == ([], [])
    assert not await db.exists(state.keys.halted)


async def test_what_both_sets_have_counts_once_a_replica_has_it(state: State) -> None:
    """As a command has just written it: a fail-over may forget that in the operators' set alone."""
    fence, db = await lead(state), state.redis
    await db.sadd(state.keys.halted, "museum")
    for is_there in (True, False):
        assert await state.scripts.mirror_set(fence, "halted", {"museum": is_there}, ()) == (["museum"], [])
    assert await db.smembers(state.keys.halted) == {b"museum"}


# On a cluster


@pytest_asyncio.fixture
async def shard(cluster_url: str) -> AsyncIterator[State]:
    one = State(config.load({"REDIS_URL": cluster_url}), "images")
    await one.open()
    yield one
    await one.close()


@pytest_asyncio.fixture
async def led(shard: State) -> AsyncIterator[State]:
    """A shard with a leader."""
    leader = Leader(shard.config)
    leader.start(shard)
    assert await until_async(lambda: shard.redis.exists(shard.keys.pulse))
    yield shard
    await leader.stop()


def users(cluster: Cluster, key: str) -> Any:
    """Return what redis-cli -c would use for a key."""
    return cluster.owner_of(key).client


@pytest.mark.judges
async def test_operators_write_to_the_keys_of_one_redis(cluster: Cluster, led: State) -> None:
    db: Any = led.redis
    await db.sadd(led.keys.sources, "museum")
    users(cluster, "crawl:halted").sadd("crawl:halted", "museum")
    users(cluster, "crawl:excluded").sadd("crawl:excluded", "example.org")
    users(cluster, "crawl:override_rate:museum").set("crawl:override_rate:museum", "0.5")

    async def is_done() -> bool:
        [status] = await led.scripts.inspect(["museum"])
        excluded = await db.smembers(led.keys.excluded)
        return (status.state, status.limit, excluded) == ("halted", 0.5, {b"example.org"})

    assert await until_async(is_done, 2.0)
    users(cluster, "crawl:halted").srem("crawl:halted", "museum")
    users(cluster, "crawl:excluded").srem("crawl:excluded", "example.org")
    users(cluster, "crawl:override_rate:museum").delete("crawl:override_rate:museum")

    async def is_undone() -> bool:
        [status] = await led.scripts.inspect(["museum"])
        excluded = await db.smembers(led.keys.excluded)
        return (status.state, status.override, excluded) == ("closed", None, set())

    assert await until_async(is_undone, 2.0)


@pytest.mark.judges
async def test_sixteen_shards_heed_the_keys_of_one_redis(cluster: Cluster, cluster_url: str) -> None:
    """Within two seconds, and half of one for a busy machine."""
    state = State(config.load({"REDIS_URL": cluster_url, "CRAWL_SHARDS": "16"}), "images")
    await state.open()
    leader = Leader(state.config)
    leader.start(state)
    sources = {f"museum{number}": state.shard_for(f"museum{number}") for number in range(120)}
    assert {shard.number for shard in sources.values()} == set(range(16))
    for name, shard in sources.items():
        assert await until_async(lambda shard=shard: shard.redis.exists(shard.keys.pulse))  # type: ignore[misc]
        await shard.redis.sadd(shard.keys.sources, name)

    async def are(state: str, limit: float, excluded: set[bytes]) -> bool:
        for name, shard in sources.items():
            db: Any = shard.redis
            [status] = await shard.scripts.inspect([name])
            if (status.state, status.limit) != (state, limit) or await db.smembers(
                shard.keys.excluded
            ) != excluded:
                return False
            circuit = await db.hget(shard.keys.circuit_of + name, "state")
            if (circuit == b"halted") != (state == "halted"):
                return False
        return True

    assert await until_async(lambda: are("closed", 0.2, set()))
    await asyncio.sleep(random.random())
    users(cluster, "crawl:halted").sadd("crawl:halted", *sources)
    users(cluster, "crawl:excluded").sadd("crawl:excluded", "example.org")
    for name in sources:
        users(cluster, f"crawl:override_rate:{name}").set(f"crawl:override_rate:{name}", "0.5")
    assert await until_async(lambda: are("halted", 0.5, {b"example.org"}), 2.5)
    await asyncio.sleep(random.random())
    users(cluster, "crawl:halted").srem("crawl:halted", *sources)
    users(cluster, "crawl:excluded").srem("crawl:excluded", "example.org")
    for name in sources:
        users(cluster, f"crawl:override_rate:{name}").delete(f"crawl:override_rate:{name}")
    assert await until_async(lambda: are("closed", 0.2, set()), 2.5)
    await leader.stop()
    await state.close()


async def test_with_braces_they_are_heeded_too(cluster: Cluster, led: State) -> None:
    db: Any = led.redis
    await db.sadd(led.keys.sources, "museum")
    await db.sadd("{crawl}:halted", "museum")
    await db.set("{crawl}:override_rate:museum", "0.5")
    halted = users(cluster, "crawl:halted")

    async def is_shown() -> bool:
        return bool(halted.smembers("crawl:halted") == {b"museum"})

    assert await until_async(is_shown)
    await db.srem("{crawl}:halted", "museum")

    async def is_gone() -> bool:
        return not halted.exists("crawl:halted")

    assert await until_async(is_gone)
    assert await db.get("{crawl}:override_rate:museum") == b"0.5"


async def test_what_the_shard_halts_operators_see_and_resume(cluster: Cluster, led: State) -> None:
    db: Any = led.redis
    await db.sadd(led.keys.sources, "museum")
    await db.sadd(led.keys.temp_halted, "museum")
    seen = users(cluster, "crawl:temp_halted")

    async def is_seen() -> bool:
        return bool(seen.smembers("crawl:temp_halted") == {b"museum"})

    async def is_resumed() -> bool:
        [status] = await led.scripts.inspect(["museum"])
        return status.state == "closed" and not await db.exists(led.keys.temp_halted)

    assert await until_async(is_seen)
    assert seen.srem("crawl:temp_halted", "museum") == 1
    assert await until_async(is_resumed)


async def test_commands_change_both_at_once(cluster: Cluster, shard: State) -> None:
    db: Any = shard.redis
    rate = "crawl:override_rate:museum"
    await controls.halt(shard, ["museum"], BY)
    await controls.exclude(shard, ["example.org"], "", BY)
    await controls.set_rate(shard, "museum", "3", BY)
    assert users(cluster, "crawl:halted").smembers("crawl:halted") == await db.smembers(shard.keys.halted)
    assert users(cluster, "crawl:excluded").smembers("crawl:excluded") == await db.smembers(shard.keys.excluded)
    assert users(cluster, rate).get(rate) == b"3" == await db.get(shard.keys.override_rate_of + "museum")
    await controls.resume(shard, ["museum"], BY)
    await controls.include(shard, ["example.org"], BY)
    await controls.set_rate(shard, "museum", "auto", BY)
    for key in ("crawl:halted", "crawl:excluded", rate):
        assert not users(cluster, key).exists(key), key
    assert not await db.exists(shard.keys.halted, shard.keys.excluded, shard.keys.override_rate_of + "museum")


async def test_what_is_said_by_key_after_a_command_is_in_force(cluster: Cluster, shard: State) -> None:
    """Before a leader has looked at what the command did."""
    fence, db = await lead(shard), shard.redis
    orders: dict[str, Call] = {
        "halted": lambda: controls.resume(shard, ["museum"], BY),
        "excluded": lambda: controls.include(shard, ["museum"], BY),
    }
    sets = UsersSets(shard)
    for which, undo in orders.items():
        key = f"crawl:{which}"
        users(cluster, key).sadd(key, "museum")
        await sets.look(fence)
        await undo()
        users(cluster, key).sadd(key, "museum")
        await sets.look(fence)
        assert users(cluster, key).smembers(key) == {b"museum"}
        assert await db.smembers(getattr(shard.keys, which)) == {b"museum"}
    await sets.close()


async def test_a_leader_that_has_read_before_a_command_puts_nothing_back(
    cluster: Cluster, shard: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has read in the operators' set is no longer there when it comes to the shard's."""
    fence, db = await lead(shard), shard.redis
    orders: dict[str, Call] = {
        "halted": lambda: controls.resume(shard, ["museum"], BY),
        "excluded": lambda: controls.include(shard, ["museum"], BY),
    }
    mirror_set = shard.scripts.mirror_set
    for which, undo in orders.items():
        key = f"crawl:{which}"
        sets = UsersSets(shard)
        [one] = [one for one in sets._sets if one._which == which]
        users(cluster, key).sadd(key, "museum")
        await one.look(fence)
        await db.hdel(shard.keys.told_of + which, "museum")  # so that the next look has something to do

        async def late(*args: Any, undo: Call = undo) -> Any:
            monkeypatch.setattr(shard.scripts, "mirror_set", mirror_set)
            await undo()
            return await mirror_set(*args)

        monkeypatch.setattr(shard.scripts, "mirror_set", late)
        await one.look(fence)
        assert not await db.exists(getattr(shard.keys, which))
        assert not users(cluster, key).exists(key)
        users(cluster, key).sadd(key, "museum")
        await one.look(fence)
        assert await db.smembers(getattr(shard.keys, which)) == {b"museum"}
        await sets.close()


async def test_what_a_command_ends_stays_ended_while_the_operators_set_is_away(
    cluster: Cluster, shard: State
) -> None:
    fence, db = await lead(shard), shard.redis
    away = cluster.owner_of("crawl:excluded")
    assert away is not cluster.owner_of(shard.keys.excluded)
    await controls.exclude(shard, ["museum"], "", BY)
    assert away.client.sismember("crawl:excluded", "museum")
    away.client.wait(1, 1000)
    away.kill()
    try:
        assert await controls.include(shard, ["museum"], BY) == {"museum": "included"}
    finally:
        away.start()
    until(cluster.is_whole)
    sets = UsersSets(shard)

    async def is_gone() -> bool:
        await sets.look(fence)
        return not users(cluster, "crawl:excluded").exists("crawl:excluded")

    assert await until_async(is_gone, 30.0, despite=redis.RedisError)
    assert not await db.exists(shard.keys.excluded)
    await sets.close()


async def test_a_rate_is_no_rate_of_nobody_while_its_node_is_away(cluster: Cluster, shard: State) -> None:
    """Then the last one stays in force."""
    fence, db = await lead(shard), shard.redis
    own = cluster.owner_of(shard.keys.rates)
    prefix = shard.keys.users_override_rate_of
    source = next(name for name in map("museum{}".format, range(99)) if cluster.owner_of(prefix + name) is not own)
    away = cluster.owner_of(prefix + source)
    await db.sadd(shard.keys.sources, source)
    away.client.set(prefix + source, "0.5")
    rates = UsersRates(shard)
    await rates.look(fence)
    away.client.wait(1, 1000)
    away.kill()
    try:
        await rates.look(fence)
        [found] = await stored(shard, [source])
        assert found.override == b"0.5"
        for value, said in (("0.7", "in force"), ("auto", "by its size again"), ("0.5", "in force")):
            why = rf"the rate of {source} is {said}, but .* {prefix}{source} does not answer: run this again"
            with pytest.raises(redis.ConnectionError, match=why):
                await controls.set_rate(shard, source, value, BY)
            [found] = await stored(shard, [source])
            assert found.override == (None if value == "auto" else value.encode())
    finally:
        away.start()

    async def is_back() -> bool:
        cluster.owner_of(prefix + source).client.delete(prefix + source)
        await rates.look(fence)
        [found] = await stored(shard, [source])
        return found.override is None

    assert await until_async(is_back, 30.0, despite=(redis.RedisError, LookupError))
    await rates.close()


async def test_a_term_may_begin_in_the_middle_of_a_look(shard: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a shard was away, and the same worker leads it again."""
    fence, rates = await lead(shard), UsersRates(shard)
    prefix = shard.keys.users_override_rate_of
    await shard.redis.sadd(shard.keys.sources, "museum")
    await rates._values.write(prefix + "museum", "0.5")
    read = rates._values.read

    async def begun(keys: Iterable[str]) -> dict[str, bytes]:
        rates.begin()
        return await read(keys)

    with monkeypatch.context() as patched:
        patched.setattr(rates._values, "read", begun)
        await rates.look(fence)
    await rates.look(fence)
    [found] = await stored(shard, ["museum"])
    assert found.override == b"0.5"
    await rates.close()


async def test_of_many_names_each_comes_in_its_turn(cluster: Cluster, shard: State) -> None:
    fence, db = await lead(shard), shard.redis
    names = [f"museum{number}.example" for number in range(5_000)]
    users(cluster, "crawl:excluded").sadd("crawl:excluded", *names)
    sets = UsersSets(shard)
    for _ in range(4):
        await sets.look(fence)
    assert await db.scard(shard.keys.excluded) == 5_000
    await sets.close()


async def test_values_are_read_from_all_nodes(cluster: Cluster, shard: State) -> None:
    values = ScatteredValues(shard)
    keys = [f"some:{number}" for number in range(30)]
    for key in keys:
        await values.write(key, key)
    users(cluster, "some:list").lpush("some:list", "a")
    assert len({cluster.owner_of(key).port for key in keys}) == 3
    found = await values.read([*keys, "some:list", "none"])
    assert found == {**{key: key.encode() for key in keys}, "some:list": b"", "none": b""}
    await values.aclose()


async def test_each_shard_has_the_halts_of_its_sources_and_all_exclusions(
    cluster: Cluster, cluster_url: str
) -> None:
    state = State(config.load({"REDIS_URL": cluster_url, "CRAWL_SHARDS": "4"}), "images")
    await state.open()
    names = [f"museum{number}" for number in range(12)]
    users(cluster, "crawl:halted").sadd("crawl:halted", *names)
    users(cluster, "crawl:excluded").sadd("crawl:excluded", *names)
    for shard in state.shards:
        sets = UsersSets(shard)
        await sets.look(await lead(shard))
        await sets.close()
        db: Any = shard.redis
        here = {name.encode() for name in names if state.shard_for(name) is shard}
        assert await db.smembers(shard.keys.halted) == here
        assert len(await db.smembers(shard.keys.excluded)) == 12
    await state.close()
