"""What goes between the shards of a crawl and where users write to, on a Redis Cluster whose slots move."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import pytest_asyncio
import redis
from redis.crc import key_slot

from crawlproject import config
from crawlproject.state.client import State
from crawlproject.state.crossings import Carrier, SeedOutboxes
from crawlproject.state.keys import Keys
from crawlproject.state.scripts import LinkGroup, NewRequest, OutboxScripts
from crawlproject.state.shards import shard_of
from tests.conftest import local_network
from tests.leading import lead
from tests.state.servers import Cluster, Server
from tests.waiting import until_async

SHARDS = 4
USERS = Keys("{images:start_urls}", "images", "crawl")
ROOM: Any = {"high_water": 10**6, "refuse_unknown": False}

Call = Callable[[], Awaitable[object]]


class Crawl:
    """A crawl of several shards on a Redis Cluster; something is in each list that the scripts work with."""

    def __init__(self, state: State, cluster: Cluster) -> None:
        self.state, self.cluster = state, cluster
        self.seeds = SeedOutboxes(state)
        self.users: OutboxScripts = self.seeds._scripts
        self.domains = [self._domain_in(number) for number in range(SHARDS)]
        self.fences: list[int] = []

    @staticmethod
    def _domain_in(shard: int) -> str:
        return next(name for n in range(99) if shard_of(name := f"s{n}.example", SHARDS) == shard)

    def seed(self, shard: int, number: int) -> str:
        return f"http://{self.domains[shard]}/{number}"

    async def begin(self) -> None:
        for shard in self.state.shards:
            self.fences.append(await lead(shard))
            await shard.scripts.heartbeat("w", join=True, timeout=3600, max_deliveries=3)

    async def push(self, *seeds: str) -> None:
        redis: Any = self.seeds._redis
        await redis.lpush(USERS.users_seeds, *seeds)

    async def split(self, to: int) -> bool:
        """Send all seeds that users have pushed to one shard."""
        seeds = await self.users.peek_seeds("w", 99)
        return await self.users.split_seeds(seeds, [to] * len(seeds))

    async def bring(self, to: int) -> dict[str, int]:
        """Bring what users have pushed for a shard there; it stays in the outbox, too."""
        items = await self.users.offer(to, count=99)
        return await self.state.shards[to].scripts.receive("users", items, **ROOM)

    async def discover(self, at: int, *links: str) -> str:
        """Admit links of a source of one shard; return what became of each."""
        entries = [bytes((1, 0, 0)) + link.encode() for link in links]
        digests = [link.encode().ljust(32, b".") for link in links]
        group = LinkGroup(self.domains[at], None, entries, digests, [None] * len(links))
        reply = await self.state.shards[at].scripts.discover(
            [group], high_water=99, overflow_maxlen=99, refuse_unknown=False, budget=None
        )
        assert reply is not None
        return reply.letters

    async def mirror(self, at: int, name: str) -> tuple[list[str], list[str]] | None:
        return await self.state.shards[at].scripts.mirror_set(self.fences[at], "halted", {name: True}, [])

    async def take_over(self, at: int, rate: bytes) -> bool:
        return await self.state.shards[at].scripts.mirror_rates(self.fences[at], {self.domains[at]: rate})


@pytest_asyncio.fixture
async def crawl(cluster: Cluster, cluster_url: str) -> AsyncIterator[Crawl]:
    state = State(
        config.load({"REDIS_URL": cluster_url, "CRAWL_SHARDS": str(SHARDS), **local_network()}), "images"
    )
    await state.open()
    one = Crawl(state, cluster)
    await one.begin()
    yield one
    await one.seeds.close()
    await state.close()


async def test_seeds_links_and_orders_come_to_a_shard(crawl: Crawl) -> None:
    for at, shard in enumerate(crawl.state.shards):
        db: Any = shard.redis
        await crawl.push(crawl.seed(at, 1), crawl.seed(at, 2))
        assert await crawl.split(at)
        assert await crawl.users.waiting("w") == [at]
        taken = await crawl.bring(at)
        assert taken == await crawl.bring(at)  # nothing is taken twice
        assert await db.lrange(shard.keys.seeds, 0, -1) == [
            seed.encode() for seed in (crawl.seed(at, 2), crawl.seed(at, 1))
        ]
        await crawl.users.forget_sent(at, taken)
        assert await crawl.users.waiting("w") == []
        assert await crawl.discover(at, "a", "b") == "aa"
        assert await crawl.discover(at, "b", "c") == "ka"
        assert await db.lrange(shard.keys.queue_of + f"0:{crawl.domains[at]}", 0, -1) == [
            b"\1\0\0" + link for link in (b"a", b"b", b"c")
        ]
        assert await crawl.mirror(at, "museum") == ([], [])
        assert await db.sismember(shard.keys.halted, "museum")
        assert await crawl.take_over(at, b"7")
        assert await db.get(shard.keys.override_rate_of + crawl.domains[at]) == b"7"


class Moving:
    """A slot on its way from one master to another."""

    def __init__(self, cluster: Cluster, key: str) -> None:
        self.slot = key_slot(key.encode())
        self.source = cluster.owner_of(key)
        self.target = next(node for node in cluster.masters() if node is not self.source)
        self._ids = cluster.id_of(self.source), cluster.id_of(self.target)

    @contextmanager
    def begun(self) -> Iterator[None]:
        source, target = self.source.client.execute_command, self.target.client.execute_command
        target("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self._ids[0])
        source("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self._ids[1])
        yield
        for ask in (target, source):
            ask("CLUSTER", "SETSLOT", self.slot, "NODE", self._ids[1])

    def keys(self, node: Server) -> list[bytes]:
        found: list[bytes] = node.client.execute_command("CLUSTER", "GETKEYSINSLOT", self.slot, 1000)
        return sorted(found)

    def move(self, count: int) -> None:
        for key in self.keys(self.source)[:count]:
            self.source.client.execute_command("MIGRATE", "127.0.0.1", self.target.port, key, 0, 5000)

    def contents(self) -> dict[bytes, bytes]:
        """Return what both have of the slot, packed; none has a key of the other."""
        kept = [
            {key: node.client.dump(key) for key in self.keys(node)} if node is self.source else self._there(node)
            for node in (self.source, self.target)
        ]
        assert kept[0].keys().isdisjoint(kept[1])
        return kept[0] | kept[1]

    def _there(self, node: Server) -> dict[bytes, bytes]:
        found = {}
        for key in self.keys(node):
            with node.client.pipeline(transaction=False) as pipe:  # ASKING holds for the next command
                pipe.execute_command("ASKING")
                pipe.dump(key)
                found[key] = pipe.execute()[1]
        return found

    def keep_all(self) -> None:
        """Let nothing of the slot lapse: the comparison is of what scripts do."""
        for key in self.keys(self.source):
            self.source.client.persist(key)


async def refused_while_it_moves(
    moving: Moving, calls: dict[str, Call], once_moved: dict[str, Call] | None = None
) -> None:
    """Check that each call is refused as a whole, before, in the middle of and after the move of the keys.

    `once_moved`: those of which all keys are there before, and which are answered then.
    """
    moving.keep_all()
    before, count = moving.contents(), len(moving.keys(moving.source))
    assert count > 3
    with moving.begun():
        for moved in (0, count // 2, count):
            moving.move(moved - len(moving.keys(moving.target)))
            assert len(moving.keys(moving.target)) == moved
            for name, call in (calls | (once_moved or {} if moved else {})).items():
                with pytest.raises(redis.ConnectionError, match=r"ASK|TRYAGAIN"):
                    await call()
                assert moving.contents() == before, (name, moved)
    after = {key: moving.target.client.dump(key) for key in moving.keys(moving.target)}
    assert after == before


async def test_nothing_is_done_by_halves_in_a_shard_that_moves(crawl: Crawl) -> None:
    at, scripts = 1, crawl.state.shards[1].scripts
    await crawl.push(crawl.seed(0, 1))  # another shard's: it goes on from here
    await crawl.split(at)
    await crawl.bring(at)
    [seed] = await scripts.take_seeds("w", 9)
    db: Any = crawl.state.shards[at].redis
    await crawl.discover(at, "a", "b")
    await crawl.mirror(at, "museum")
    await crawl.take_over(at, b"7")
    item = await crawl.users.offer(at, count=9)
    await db.rpush(crawl.state.shards[at].keys.outbox_of + "0", *item)
    calls: dict[str, Call] = {
        "discover": lambda: crawl.discover(at, "b", "c"),
        "receive": lambda: scripts.receive("others", item, **ROOM),
        "waiting": lambda: scripts.waiting("w"),
        "offer": lambda: scripts.offer(0, count=9),
        "forget_sent": lambda: scripts.forget_sent(0, {"": 2**52}),
        "send_found": lambda: scripts.send_found(0, "links", b"x", count=1, most=None),
        "mirror_set": lambda: crawl.mirror(at, "library"),
        "mirror_rates": lambda: crawl.take_over(at, b"8"),
        "take_seeds": lambda: scripts.take_seeds("w", 9),
    }
    assert seed.decode() == crawl.seed(0, 1)
    moving = Moving(crawl.cluster, crawl.state.shards[at].keys.seeds)
    await refused_while_it_moves(moving, calls)
    assert await crawl.discover(at, "b", "c") == "ka"  # where it is now
    assert await scripts.offer(0, count=9) == item


async def test_nothing_is_done_by_halves_where_users_push_seeds(crawl: Crawl) -> None:
    await crawl.push(crawl.seed(2, 1))
    await crawl.split(2)
    await crawl.push(crawl.seed(2, 2), crawl.seed(2, 3))
    seeds = [crawl.seed(2, number).encode() for number in (2, 3)]
    moving = Moving(crawl.cluster, USERS.users_seeds)
    calls: dict[str, Call] = {
        "split_seeds": lambda: crawl.users.split_seeds(seeds, [2, 2]),
        "waiting": lambda: crawl.users.waiting("w"),
        "offer": lambda: crawl.users.offer(2, count=9),
        "forget_sent": lambda: crawl.users.forget_sent(2, {"": 2**52}),
    }
    await refused_while_it_moves(moving, calls, {"peek_seeds": lambda: crawl.users.peek_seeds("w", 9)})
    assert await crawl.users.split_seeds(seeds, [2, 2])
    await crawl.bring(2)
    shard = crawl.state.shards[2]
    db: Any = shard.redis
    assert await db.llen(shard.keys.seeds) == 3


async def test_a_seed_that_goes_to_and_fro_is_kept_and_named_once(
    crawl: Crawl, caplog: pytest.LogCaptureFixture
) -> None:
    """While the shards know different catalogues; real carriers."""
    first, second = crawl.state.shards[:2]
    for shard, number, fence in ((first, 1, crawl.fences[0]), (second, 0, crawl.fences[1])):
        source = crawl.domains[number]  # each says that the domain is the other one's
        assert await shard.scripts.set_rates(fence, [(source, 5.0, 5.0)], {"b.example": source})
    await crawl.push("http://b.example/1")
    assert await crawl.split(0)
    await crawl.seeds.carrier.carry(0)
    [seed] = await first.scripts.take_seeds("w", 9)
    new = NewRequest(bytes((1, 0, 0)) + b"x", b"." * 32, again=False, domain="b.example")
    found = await first.scripts.enqueue_some("w", [new], seeds=[seed], dead_maxlen=9, **ROOM)
    assert found is not None
    assert found.forwarded == 1
    carriers = {shard.number: Carrier.of_shard(shard) for shard in (first, second)}

    async def carry() -> None:
        for number, carrier in carriers.items():
            for to in await crawl.state.shards[number].scripts.waiting("w"):
                await carrier.carry(to)

    db: Any = second.redis
    for _ in range(20):
        await carry()
    assert await db.hget(second.keys.crossings, "kept") == b"1"
    assert await db.llen(second.keys.outbox_of + "1") == 1
    assert not caplog.records
    caplog.set_level("WARNING")
    pulse = await db.get(second.keys.pulse)
    await db.delete(second.keys.pulse)  # without a leader it goes nowhere

    async def is_offered() -> bool:
        return bool(await second.scripts.offer(1, count=9))

    assert await until_async(is_offered, 15)
    for _ in range(2):
        await carriers[1].carry(1)
    await db.set(second.keys.pulse, pulse)
    own = crawl.domains[1]
    assert await second.scripts.set_rates(crawl.fences[1], [(own, 5.0, 5.0)], {"b.example": own})

    async def arrives() -> bool:
        await carry()
        return bool(await db.lrange(second.keys.seeds, 0, -1) == [b"http://b.example/1"])

    assert await until_async(arrives, 15)
    [record] = caplog.records
    assert (
        "the shards disagree whose they are: 1, the first http://b.example/1, of b.example." in record.getMessage()
    )
    assert record.source == "b.example"  # type: ignore[attr-defined]
