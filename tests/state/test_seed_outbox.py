"""Seeds on their way from the list of the users to that of the shard, each there once whatever happens."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
import redis
from redis.asyncio import Redis

from crawlproject import config
from crawlproject.state.client import State
from crawlproject.state.clock import MICROS
from crawlproject.state.keys import Keys
from crawlproject.state.scripts import Chunk, OutboxScripts, Scripts
from crawlproject.state.seed_outbox import SeedOutbox
from tests.state.servers import Cluster, Server
from tests.waiting import until_async

KEYS = Keys("{crawl}", "images")
USERS_KEYS = Keys(f"{{{KEYS.users_seeds}}}", KEYS.spider, KEYS.crawl)

Call = Callable[[], Awaitable[Any]]
Mover = Generator[Call, Any, None]


class NeverArrives:
    """What a mover is told of a call that failed."""


LOST = NeverArrives()


class Movers:
    """Movers that are killed between any two steps, and whose calls are lost, before or after, or come late."""

    def __init__(self, state: State, chance: random.Random, *, numbered: bool) -> None:
        self.db: Any = state.redis
        self.outbox = OutboxScripts(state.redis, USERS_KEYS, state.clock)
        self.shard = Scripts(state.redis, KEYS, state.clock)
        self.chance = chance
        self.numbered = numbered
        self.late: list[Call] = []
        self.offers = 0

    def mover(self) -> Mover:
        """Do what SeedOutbox.forward does, a call at a time."""
        while True:
            chunk = yield lambda: self.outbox.send_seeds(5)
            if not isinstance(chunk, Chunk):
                continue
            self.offers += 1
            offered = chunk if self.numbered else Chunk(b"%d" % self.offers, chunk.seeds)
            last = yield lambda offered=offered: self.shard.receive_seeds(KEYS.seeds_out, offered)  # type: ignore[misc]
            if last is not LOST and last == offered.number:
                yield lambda chunk=chunk: self.outbox.ack_seeds(chunk.number)  # type: ignore[misc]

    async def run(self, seeds: list[bytes]) -> list[bytes]:
        """Push seeds, and return what arrives."""
        left, chance = list(seeds), self.chance
        movers: list[Any] = []  # pairs: a mover, and the call that it is to make
        for step in range(20_000):
            rough = step < 600
            if left and chance.random() < 0.3:
                count = chance.randrange(1, 6)
                await self.db.lpush(KEYS.users_seeds, *left[:count])
                del left[:count]
            while len(movers) < 3:
                one = self.mover()
                movers.append([one, next(one)])
            if self.late and chance.random() < 0.2:
                await self.late.pop(chance.randrange(len(self.late)))()
            mover = chance.choice(movers)
            fate = chance.random() if rough else 1.0
            if fate < 0.1:  # killed, before or after its call
                if chance.random() < 0.5:
                    await mover[1]()
                movers.remove(mover)
                continue
            if fate < 0.25:
                answer: Any = LOST
                self.late.append(mover[1])
            else:
                answer = await mover[1]()
                answer = LOST if fate < 0.4 else answer
            mover[1] = mover[0].send(answer)
            if not (rough or left or self.late) and not await self.db.exists(KEYS.users_seeds, KEYS.seeds_out):
                break
        arrived: list[bytes] = await self.db.lrange(KEYS.seeds, 0, -1)
        return arrived[::-1]


@pytest.mark.parametrize("seed", range(20))
async def test_each_seed_arrives_once(state: State, seed: int) -> None:
    seeds = [b"https://museum.example/%d" % number for number in range(60)]
    arrived = await Movers(state, random.Random(seed), numbered=True).run(seeds)
    assert arrived == seeds  # in their order, too


async def test_without_the_numbers_seeds_are_doubled(state: State) -> None:
    """So what the test above does is rough enough."""
    seeds = [b"https://museum.example/%d" % number for number in range(60)]
    doubled = 0
    for seed in range(3):
        await state.redis.flushdb()
        arrived = await Movers(state, random.Random(seed), numbered=False).run(seeds)
        doubled += sum(count - 1 for count in Counter(arrived).values())
    assert doubled > 0


async def test_a_chunk_is_bounded_in_seeds_and_bytes(state: State) -> None:
    db: Any = state.redis
    outbox = OutboxScripts(state.redis, USERS_KEYS, state.clock)
    await db.lpush(KEYS.users_seeds, *(b"%03d" % number for number in range(10)))
    assert await outbox.send_seeds(4) == await outbox.send_seeds(9)  # the same until it is acknowledged
    chunk = await outbox.send_seeds(4)
    assert chunk is not None
    assert chunk.seeds == [b"000", b"001", b"002", b"003"]
    await outbox.ack_seeds(b"1")  # of another chunk
    assert await outbox.send_seeds(4) == chunk
    await outbox.ack_seeds(chunk.number)
    assert (await outbox.send_seeds(100, size=7)).seeds == [b"004", b"005", b"006"]  # type: ignore[union-attr]


async def test_a_sequence_that_is_forgotten_goes_on_above_the_former_one(state: State) -> None:
    db: Any = state.redis
    outbox = OutboxScripts(state.redis, USERS_KEYS, state.clock)
    numbers = []
    for seed in ("a", "b"):
        await db.lpush(KEYS.users_seeds, seed)
        chunk = await outbox.send_seeds(9)
        assert chunk is not None
        numbers.append(int(chunk.number.partition(b":")[0]))
        await outbox.ack_seeds(chunk.number)
        await db.delete(KEYS.seeds_sequence)
    assert numbers[0] < numbers[1]


async def test_after_a_power_cut_seeds_arrive_though_the_clock_is_behind(state: State, tmp_path: Path) -> None:
    """The number of their chunk is below one that the shard has, and that this place has forgotten."""
    server = Server(tmp_path)
    one: Any = Redis(port=server.port)
    outbox = OutboxScripts(one, USERS_KEYS, state.clock)

    async def forward() -> bool:
        await one.lpush(KEYS.users_seeds, "a")
        chunk = await outbox.send_seeds(9)
        assert chunk is not None
        taken = await state.scripts_of("images").receive_seeds(KEYS.seeds_out, chunk) == chunk.number
        if taken:
            await outbox.ack_seeds(chunk.number)
        return taken

    server.client.config_set("appendfsync", "always")
    kept = server.append_only_file.stat().st_size
    seconds, _ = await one.time()
    await one.set(KEYS.seeds_sequence, (seconds + 10) * MICROS)
    assert await forward()
    server.kill()
    os.truncate(server.append_only_file, kept)
    server.start()
    try:
        assert await forward()
        assert not await one.exists(KEYS.seeds_out, KEYS.users_seeds)
        found: Any = await cast("Any", state.redis).llen(state.keys.seeds)
        assert found == 2
    finally:
        await one.aclose()
        server.close()


# On a cluster


@pytest_asyncio.fixture
async def shard(cluster_url: str) -> AsyncIterator[State]:
    one = State(config.load({"REDIS_URL": cluster_url}), "images")
    await one.open()
    yield one
    await one.close()


async def test_seeds_that_users_push_arrive_at_the_shard(cluster: Cluster, shard: State) -> None:
    assert cluster.owner_of(KEYS.users_seeds) is not cluster.owner_of(KEYS.seeds)
    outbox = SeedOutbox(shard)
    users = cluster.owner_of(KEYS.users_seeds).client
    users.lpush("images:start_urls", *range(2500))
    assert not await outbox.is_empty()
    for _ in range(3):
        await outbox.forward()
    assert await outbox.is_empty()
    found: Any = await shard.redis.lrange(KEYS.seeds, 0, -1)
    assert found == [b"%d" % number for number in reversed(range(2500))]
    await outbox.close()


async def test_no_chunk_leaves_a_node_before_a_replica_has_it(cluster: Cluster, shard: State) -> None:
    """Else a fail-over might bring it back, and its seeds twice."""
    outbox = SeedOutbox(shard)
    source = cluster.owner_of(KEYS.users_seeds)
    replica = cluster.replica_of(source)
    source.client.lpush(KEYS.users_seeds, "a")
    replica.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(redis.RedisError, match="no replica has confirmed send_seeds"):
            await outbox.forward()
        assert await shard.redis.llen(KEYS.seeds) == 0
    finally:
        replica.process.send_signal(signal.SIGCONT)

    async def arrives() -> bool:
        await outbox.forward()
        return bool(await shard.redis.llen(KEYS.seeds) == 1)

    assert await until_async(arrives, despite=redis.RedisError)
    await outbox.close()


async def test_a_number_that_others_have_written_loses_no_seed(cluster: Cluster, shard: State) -> None:
    outbox = SeedOutbox(shard)
    db: Any = shard.redis
    cluster.owner_of(KEYS.users_seeds).client.lpush(KEYS.users_seeds, "a")
    await outbox.forward()
    [field] = await db.hkeys(KEYS.seeds_received)
    await db.hset(KEYS.seeds_received, field, "9007199254740991")
    cluster.owner_of(KEYS.users_seeds).client.lpush(KEYS.users_seeds, "b")
    await outbox.forward()
    with pytest.raises(redis.ResponseError, match="seeds_received has a chunk that was not sent yet: remove it"):
        await outbox.forward()
    assert not await outbox.is_empty()
    await db.delete(KEYS.seeds_received)
    await outbox.forward()
    assert await db.lrange(KEYS.seeds, 0, -1) == [b"b", b"a"]
    await outbox.close()
