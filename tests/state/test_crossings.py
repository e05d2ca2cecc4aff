"""Seeds and requests on their way between shards: each arrives once, whatever becomes of those who carry them."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from crawlproject.state.client import State
from crawlproject.state.clock import RedisClock
from crawlproject.state.keys import Keys
from crawlproject.state.scripts import (
    CarrierScripts,
    DeadRetry,
    LinkGroup,
    NewRequest,
    OutboxScripts,
    Scripts,
    Settlement,
)
from crawlproject.state.shards import SourceElsewhere, shard_of
from tests.state.servers import Server
from tests.waiting import until_async

SHARDS = 4
DOMAINS = [f"s{number}.example" for number in range(12)]
ROOM: Any = {"high_water": 10**6, "refuse_unknown": False}
USERS = Keys("users", "images", "crawl")

Call = Callable[[], Awaitable[Any]]
Actor = Generator[Call, Any, None]


Apart = tuple["Crossing", int, str]


class NeverArrives:
    """What an actor is told of a call that failed."""


LOST = NeverArrives()


class Crossing:
    """Shards in one Redis, and workers that are killed between any two steps; calls are lost, or come late."""

    def __init__(
        self, state: State, chance: random.Random, *, numbered: bool = True, falling: Sequence[Keys] = ()
    ) -> None:
        self.db: Any = state.redis
        self.chance = chance
        self.numbered = numbered
        self.falling = falling  # places that lose their last writes, as by a power cut
        self.keys = [Keys(f"crawl:{number}", "images", "crawl") for number in range(SHARDS)]
        self.shards = [
            Scripts(state.redis, keys, RedisClock(), shard=(number, SHARDS))
            for number, keys in enumerate(self.keys)
        ]
        self.users = OutboxScripts(state.redis, USERS, RedisClock(), shard=(0, SHARDS))
        self.late: list[Call] = []
        self.offers = 0

    async def begin(self) -> None:
        for keys, scripts in zip(self.keys, self.shards, strict=True):
            fence = await scripts.lead("leader", ready=True)
            assert fence is not None
            await self.db.persist(keys.pulse)
            await scripts.set_rates(fence, [(domain, 90_000.0, None) for domain in DOMAINS], {})
            await scripts.heartbeat("w", join=True, timeout=3600, max_deliveries=3)

    def router(self) -> Actor:
        """Divide what users push, at times to a shard that it is not for, as when it is another source's."""
        while True:
            seeds = yield lambda: self.users.peek_seeds("w", 5)
            if isinstance(seeds, list) and seeds:
                to = [self.chance.choice((shard_of(domain_of(seed), SHARDS), 0)) for seed in seeds]
                yield lambda seeds=seeds, to=to: self.users.split_seeds(seeds, to)  # type: ignore[misc]

    def carrier(self, name: str, scripts: CarrierScripts) -> Actor:
        """Do what Carrier does, a call at a time."""
        while True:
            waiting = yield lambda: scripts.waiting("w")
            for to in waiting if isinstance(waiting, list) else ():
                offer = yield lambda to=to: scripts.offer(to, count=3)  # type: ignore[misc]
                if not isinstance(offer, list) or not offer:
                    continue
                self.offers += 1
                box = name if self.numbered else f"{name}:{self.offers}"
                taken = yield lambda to=to, offer=offer, box=box: self.shards[to].receive(box, offer, **ROOM)  # type: ignore[misc]
                if isinstance(taken, dict):
                    yield lambda to=to, taken=taken: scripts.forget_sent(to, taken)  # type: ignore[misc]

    def reader(self, number: int) -> Actor:
        """Enqueue the seeds of a shard; what is another one's goes on there."""
        scripts, keys = self.shards[number], self.keys[number]
        while True:
            seeds = yield lambda: scripts.take_seeds("w", 4)
            if isinstance(seeds, list) and seeds:
                new = [request_of(seed, self.chance) for seed in seeds]
                yield lambda seeds=seeds, new=new: scripts.enqueue_some(
                    "w", new, seeds=seeds, dead_maxlen=10**6, **ROOM
                )  # type: ignore[misc]
            yield lambda: self.db.exists(keys.seeds)

    def crawler(self, number: int) -> Actor:
        """Lease, and settle all that is held: as redirected to another domain, or as done after three of these."""
        scripts, keys = self.shards[number], self.keys[number]
        while True:
            yield lambda: scripts.lease("w", 5, rooms={}, room=5, horizon=0.25, dead_maxlen=10**6)
            leases = yield lambda: self.db.hgetall(keys.leases_of + "w")
            if isinstance(leases, dict) and leases:
                ends = [self.end(lease.decode(), entry) for lease, entry in leases.items()]
                yield lambda ends=ends: scripts.settle("w", ends)  # type: ignore[misc]

    def end(self, lease: str, entry: bytes) -> Settlement:
        source = lease.partition(":")[2]
        name, hops = entry[3:].split(b" ")
        if hops == b"3":
            return Settlement(lease, source, event=("link_rot", name.decode()))
        after = entry[:3] + b"%s %d" % (name, int(hops) + 1)
        return Settlement(lease, source, after, domain=self.chance.choice(DOMAINS))

    def actors(self) -> list[Callable[[], Actor]]:
        made: list[Callable[[], Actor]] = [self.router, lambda: self.carrier("users", self.users)]
        for number, scripts in enumerate(self.shards):
            made.append(lambda number=number: self.reader(number))  # type: ignore[misc]
            made.append(lambda number=number: self.crawler(number))  # type: ignore[misc]
            made.append(lambda number=number, scripts=scripts: self.carrier(f"shard:{number}", scripts))  # type: ignore[misc]
        return made

    async def run(self, seeds: list[bytes], rough: int) -> Counter[str]:
        """Push seeds; return how often each has ended, when no work is left."""
        await self.begin()
        left, chance = list(seeds), self.chance
        makers = self.actors()
        acting: list[Any] = [[one := make(), next(one)] for make in makers]
        before: dict[str, dict[bytes, bytes]] = {}
        pushed: list[bytes] = []  # by users, since the place that they push to was last saved
        for step in range(40_000):
            is_rough = step < rough
            for keys in self.falling if is_rough else ():
                if chance.random() < 0.02:
                    before[keys.namespace] = await self.saved(keys)
                    if keys is USERS:
                        pushed.clear()
                elif keys.namespace in before and chance.random() < 0.01:
                    await self.fall(keys, before[keys.namespace])
                    if keys is USERS:
                        left += pushed
                        pushed.clear()
            if left and chance.random() < 0.3:
                count = chance.randrange(1, 6)
                await self.db.lpush(USERS.users_seeds, *left[:count])
                pushed += left[:count]
                del left[:count]
            if self.late and chance.random() < 0.2:
                await self.late.pop(chance.randrange(len(self.late)))()
            at = chance.randrange(len(acting))
            actor = acting[at]
            fate = chance.random() if is_rough else 1.0
            if fate < 0.08:  # killed, before or after its call
                if chance.random() < 0.5:
                    await actor[1]()
                acting[at] = [one := makers[at](), next(one)]
                continue
            if fate < 0.2:
                answer: Any = LOST
                self.late.append(actor[1])
            else:
                answer = await actor[1]()
                answer = LOST if fate < 0.32 else answer
            actor[1] = actor[0].send(answer)
            if not (is_rough or left or self.late) and step % 100 == 0 and await self.is_over():
                break
        found: Counter[str] = Counter()
        for keys in self.keys:
            found.update(fields[b"event"].decode() for _, fields in await self.db.xrange(keys.link_rot_events))
        return found

    async def saved(self, keys: Keys) -> dict[bytes, bytes]:
        found = await self.db.keys("*" if keys is USERS else keys.namespace + ":*")
        here = {key for key in found if keys is not USERS or key.startswith((b"users", b"images:"))}
        return {key: await self.db.dump(key) for key in here}

    async def fall(self, keys: Keys, before: dict[bytes, bytes]) -> None:
        for key in await self.saved(keys):
            await self.db.delete(key)
        for key, value in before.items():
            await self.db.restore(key, 0, value)

    async def is_over(self) -> bool:
        outboxes = [USERS.outbox_of + str(number) for number in range(SHARDS)]
        if await self.db.exists(USERS.users_seeds, *outboxes):
            return False
        return all([await scripts.idle() for scripts in self.shards])


def domain_of(seed: bytes) -> str:
    return seed.decode().split("/")[2]


def request_of(seed: bytes, chance: random.Random) -> NewRequest:
    entry = bytes((1, 0, 0)) + seed.rpartition(b"/")[2] + b" 0"
    return NewRequest(entry, chance.randbytes(32), domain=domain_of(seed), again=True)


def seeds_of(count: int) -> list[bytes]:
    return [f"https://{DOMAINS[number % len(DOMAINS)]}/{number}".encode() for number in range(count)]


@pytest.mark.parametrize("seed", range(6))
async def test_each_seed_ends_once_though_it_crosses_from_shard_to_shard(state: State, seed: int) -> None:
    crossing = Crossing(state, random.Random(seed))
    assert await crossing.run(seeds_of(60), rough=1500) == Counter(str(number) for number in range(60))
    sums = [Counter[bytes](), Counter[bytes]()]
    for keys in crossing.keys:
        assert await crossing.db.get(keys.outstanding) == b"0"
        assert await crossing.db.xlen(keys.dead) == 0
        crossed = await crossing.db.hgetall(keys.crossings)
        sums[0].update({name: int(value) for name, value in crossed.items() if name in {b"sent", b"received"}})
    assert sums[0][b"sent"] + 60 == sums[0][b"received"]
    assert sums[0][b"sent"] > 60


@pytest.mark.parametrize("seed", range(4))
async def test_a_list_of_users_that_loses_its_last_writes_loses_no_seed(state: State, seed: int) -> None:
    """What it has forgotten to have sent comes again; what users have pushed meanwhile they push again."""
    crossing = Crossing(state, random.Random(seed), falling=[USERS])
    found = await crossing.run(seeds_of(60), rough=1500)
    assert await crossing.is_over()
    assert set(found) == {str(number) for number in range(60)}


@pytest.mark.parametrize("seed", range(4))
async def test_shards_that_lose_their_last_writes_hold_up_nothing(state: State, seed: int) -> None:
    """What they had received by then is lost, or what they had sent is there twice: no outbox is stuck."""
    crossing = Crossing(state, random.Random(seed))
    crossing.falling = crossing.keys
    await crossing.run(seeds_of(60), rough=1500)
    assert await crossing.is_over()
    for keys in crossing.keys:
        assert await crossing.db.get(keys.outstanding) == b"0"


async def test_after_a_power_cut_what_is_sent_arrives_though_the_clock_is_behind(
    state: State, tmp_path: Path
) -> None:
    """Its numbers are those of requests that the other shard has, and this one has forgotten."""
    server = Server(tmp_path)
    one: Any = Redis(port=server.port)
    keys, domain = Keys("crawl:0", "images", "crawl"), next(name for name in DOMAINS if shard_of(name, SHARDS))
    to = shard_of(domain, SHARDS)
    sender = Scripts(one, keys, RedisClock(), shard=(0, SHARDS))
    receiver = Scripts(state.redis, Keys(f"crawl:{to}", "images", "crawl"), RedisClock(), shard=(to, SHARDS))
    await receiver.lead("leader", ready=True)

    async def send() -> None:
        letter = await one.xadd(keys.dead, {"entry": b"\1\0\0x"})
        assert await sender.retry_dead([DeadRetry(letter.decode(), "gone", b"\1\0\0x", None, domain)]) == 1
        taken = await receiver.receive("shard:0", await sender.offer(to, count=9), **ROOM)
        await sender.forget_sent(to, taken)

    await sender.lead("leader", ready=True)
    await one.hset(keys.clock, "ahead", 0)
    server.client.config_set("appendfsync", "always")
    kept = server.append_only_file.stat().st_size
    await one.hset(keys.clock, "ahead", 10_000_000)
    await send()
    server.kill()
    os.truncate(server.append_only_file, kept)
    server.start()
    try:
        await send()
        assert await state.redis.get(f"crawl:{to}:images:outstanding") == b"2"
        assert await one.get(keys.outstanding) == b"0"
    finally:
        await one.aclose()
        server.close()


async def test_a_shard_without_a_leader_judges_nothing(apart: Apart) -> None:
    """It may not know the catalogue yet, and would take sources for unknown."""
    crossing, number, domain = apart
    to = shard_of(domain, SHARDS)
    await crossing.db.lpush(USERS.users_seeds, b"a")
    assert await crossing.users.split_seeds([b"a"], [to])
    letter = await crossing.db.xadd(crossing.keys[number].dead, {"entry": b"\1\0\0x"})
    await crossing.shards[number].retry_dead([DeadRetry(letter.decode(), "gone", b"\1\0\0x", None, domain)])
    keys, strict = crossing.keys[to], {**ROOM, "refuse_unknown": True}
    await crossing.db.delete(keys.pulse)
    for name, place in (("users", crossing.users), (f"shard:{number}", crossing.shards[number])):
        assert await crossing.shards[to].receive(name, await place.offer(to, count=9), **strict) == {}
    assert not await crossing.db.exists(keys.seeds, keys.dead, keys.outstanding, keys.crossings)


async def test_shards_that_know_different_catalogues_do_not_send_a_request_to_and_fro(apart: Apart) -> None:
    crossing, here, _ = apart
    there = (here + 1) % SHARDS
    names = map("source{}".format, range(99))
    of: dict[int, str] = {}
    for name in names:
        of.setdefault(shard_of(name, SHARDS), name)
    for one, source in ((here, of[there]), (there, of[here])):  # each says that the domain is the other one's
        fence = await crossing.shards[one].lead("leader", ready=True)
        assert fence is not None
        await crossing.shards[one].set_rates(fence, [(source, 5.0, 5.0)], {"b.example": source})
        await crossing.db.persist(crossing.keys[one].pulse)
    letter = await crossing.db.xadd(crossing.keys[here].dead, {"entry": b"\1\0\0x"})
    await crossing.shards[here].retry_dead(
        [DeadRetry(letter.decode(), "gone", b"\1\0\0x", None, domain="b.example")]
    )
    ways = 0
    for one, other in ((here, there), (there, here)) * 3:
        while items := await crossing.shards[one].offer(other, count=9):
            ways += len(items)
            taken = await crossing.shards[other].receive(f"shard:{one}", items, **ROOM)
            await crossing.shards[one].forget_sent(other, taken)
    assert ways == 3
    outstanding = [await crossing.db.get(crossing.keys[number].outstanding) for number in (here, there)]
    assert outstanding == [b"0", b"1"]
    waits: Any = {"rooms": {}, "room": 5, "horizon": 0.25, "dead_maxlen": 9}
    assert (await crossing.shards[there].lease("w", 5, **waits)).strays == []
    for key in (crossing.keys[there].delayed_of + of[here], *crossing.keys[there].due):
        for member, due in await crossing.db.zrange(key, 0, -1, withscores=True):
            await crossing.db.zadd(key, {member: due - 61_000_000})  # a minute later
    [stray] = (await crossing.shards[there].lease("w", 5, **waits)).strays
    assert stray.entry == b"\1\0\0x"


async def test_shards_that_know_different_catalogues_keep_a_seed_for_a_while(apart: Apart) -> None:
    crossing, here, _ = apart
    there = (here + 1) % SHARDS
    of: dict[int, str] = {}
    for name in map("source{}".format, range(99)):
        of.setdefault(shard_of(name, SHARDS), name)

    async def say(one: int, source: str) -> None:
        fence = await crossing.shards[one].lead("leader", ready=True)
        assert fence is not None
        await crossing.shards[one].set_rates(fence, [(source, 5.0, 5.0)], {"b.example": source})
        await crossing.db.persist(crossing.keys[one].pulse)

    async def enqueue(one: int) -> Any:
        seeds = await crossing.shards[one].take_seeds("w", 4)
        new = [request_of(seed, crossing.chance) for seed in seeds]
        return await crossing.shards[one].enqueue_some("w", new, seeds=seeds, dead_maxlen=9, **ROOM)

    async def carry() -> list[tuple[int, int]]:
        """Bring all that there is to where it goes, and on; return the ways."""
        ways = []
        for one, other in [(one, other) for one in (here, there) for other in (here, there)] * 4:
            if items := await crossing.shards[one].offer(other, count=9):
                ways.append((one, other))
                taken = await crossing.shards[other].receive(f"shard:{one}", items, **ROOM)
                await crossing.shards[one].forget_sent(other, taken)
        return ways

    async def waits() -> bool:
        assert await crossing.db.llen(own) == 1
        assert not await crossing.db.exists(crossing.keys[here].seeds, crossing.keys[there].seeds)
        assert not all([await crossing.shards[one].idle() for one in (here, there)])
        return bool(await crossing.shards[there].offer(there, count=9))

    await say(here, of[there])
    await say(there, of[here])  # each says that the domain is the other one's
    await crossing.db.lpush(crossing.keys[here].seeds, "https://b.example/1")
    assert (await enqueue(here)).forwarded == 1
    assert await carry() == [(here, there), (there, here), (here, there)]
    own = crossing.keys[there].outbox_of + str(there)
    assert not await waits()
    assert await crossing.db.hget(crossing.keys[there].crossings, "kept") == b"1"
    assert await until_async(waits, 15)
    assert await carry() == [(there, there), (there, here)]  # once more, and it stays there
    own = crossing.keys[here].outbox_of + str(here)
    await say(here, of[here])
    assert await until_async(carry, 15) == [(here, here)]
    assert (await enqueue(here)).reply.admitted == 1
    sums = Counter[bytes]()
    for one in (here, there):
        sums.update(
            {
                field: int(await crossing.db.hget(crossing.keys[one].crossings, field))
                for field in (b"sent", b"received")
            }
        )
    assert sums[b"sent"] == sums[b"received"] == 6


async def test_without_the_numbers_seeds_are_doubled(state: State) -> None:
    """So what the test above does is rough enough."""
    crossing = Crossing(state, random.Random(0), numbered=False)
    found = await crossing.run(seeds_of(60), rough=1500)
    assert max(found.values()) > 1


async def test_no_slot_is_given_to_a_source_of_another_shard(state: State) -> None:
    """However its requests have come there: they go to where they belong."""
    crossing = Crossing(state, random.Random(0))
    await crossing.begin()
    domain = DOMAINS[0]
    home = shard_of(domain, SHARDS)
    wrong = (home + 1) % SHARDS
    alone = Scripts(state.redis, crossing.keys[wrong], RedisClock())  # knows of no shards, and so enqueues it
    await alone.enqueue(
        "w", [request_of(f"https://{domain}/1".encode(), random.Random(0))], high_water=9, refuse_unknown=False
    )
    lease: Any = {"rooms": {}, "room": 5, "horizon": 0.25, "dead_maxlen": 9}
    reply = await crossing.shards[wrong].lease("w", 5, **lease)
    assert reply.grants == []
    (stray,) = reply.strays
    await crossing.shards[wrong].settle(
        "w", [Settlement(stray.id, domain, stray.entry, domain=domain, stray=True)]
    )
    offer = await crossing.shards[wrong].offer(home, count=9)
    assert await crossing.db.get(crossing.keys[wrong].outstanding) == b"1"  # until the other one has it
    bounds: Any = {"high_water": 9, "refuse_unknown": False}
    taken = await crossing.shards[home].receive(f"shard:{wrong}", offer, **bounds)
    await crossing.shards[wrong].forget_sent(home, taken)
    assert await crossing.db.get(crossing.keys[wrong].outstanding) == b"0"
    assert [grant.entry for grant in (await crossing.shards[home].lease("w", 5, **lease)).grants] == [stray.entry]


@pytest_asyncio.fixture
async def apart(state: State) -> Apart:
    """Shards, one of them, and a domain of another one."""
    crossing = Crossing(state, random.Random(0))
    await crossing.begin()
    return crossing, (shard_of(DOMAINS[0], SHARDS) + 1) % SHARDS, DOMAINS[0]


async def test_a_new_request_of_another_shard_is_left_to_the_caller(apart: Apart) -> None:
    crossing, number, domain = apart
    own = next(one for one in DOMAINS if shard_of(one, SHARDS) == number)
    new = [request_of(f"https://{one}/1".encode(), random.Random(one)) for one in (own, domain, own)]
    found = await crossing.shards[number].enqueue_some("w", new, high_water=99, refuse_unknown=False)
    assert found is not None
    assert found.elsewhere == {1: shard_of(domain, SHARDS)}
    assert found.reply.admitted == 2


async def test_links_to_another_shard_are_left_to_the_caller(apart: Apart) -> None:
    crossing, number, domain = apart
    own = next(one for one in DOMAINS if shard_of(one, SHARDS) == number)
    groups = [LinkGroup(one, None, [b"\1\0\1x"], [random.randbytes(32)], [None]) for one in (domain, own)]
    reply = await crossing.shards[number].discover(
        groups, high_water=99, overflow_maxlen=99, refuse_unknown=False, budget=None
    )
    assert reply is not None
    assert reply.letters == "ea"
    assert reply.closed == [3 + shard_of(domain, SHARDS), 0]


async def test_a_slot_of_another_shard_is_had_there(apart: Apart) -> None:
    crossing, number, domain = apart
    with pytest.raises(SourceElsewhere) as caught:
        await crossing.shards[number].acquire(domain=domain)
    assert caught.value.source == domain
    assert (await crossing.shards[shard_of(domain, SHARDS)].acquire(domain=domain)).slot is not None


async def test_a_dead_letter_of_another_shard_goes_there(apart: Apart) -> None:
    crossing, number, domain = apart
    letter = await crossing.db.xadd(crossing.keys[number].dead, {"entry": b"\1\0\0x"})
    retried = DeadRetry(letter.decode(), "gone", b"\1\0\0x", None, domain)
    assert await crossing.shards[number].retry_dead([retried]) == 1
    assert len(await crossing.shards[number].offer(shard_of(domain, SHARDS), count=9)) == 1
    assert await crossing.db.get(crossing.keys[number].outstanding) == b"1"


async def test_of_sources_of_other_shards_only_what_is_theirs_is_known(apart: Apart) -> None:
    crossing, number, domain = apart
    fence = await crossing.shards[number].lead("leader", ready=True)
    assert fence is not None
    row = [(domain, 5.0, 5.0)]
    await crossing.shards[number].set_rates(
        fence, row, {"b.example": domain}, {domain: "{}"}, {domain: " b.example "}
    )
    keys = crossing.keys[number]
    assert await crossing.db.hget(keys.claims, domain) == b" b.example "
    assert await crossing.db.hget(keys.hosts, "b.example") == domain.encode()
    for key in (keys.rates, keys.options):
        assert not await crossing.db.hexists(key, domain)
    assert not await crossing.db.sismember(keys.sources, domain)
    with pytest.raises(SourceElsewhere) as caught:  # so it knows where requests for these domains belong
        await crossing.shards[number].acquire(domain="b.example")
    assert caught.value.source == domain
