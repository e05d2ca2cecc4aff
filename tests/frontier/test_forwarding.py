"""What belongs to another shard comes there, once: killed, called again, away, full, and with two catalogues."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgpack
import pytest
import pytest_asyncio
import redis
from scrapy import Request

from crawlproject.frontier.codec import digest_of, url_of
from crawlproject.frontier.forwarding import Forwarder, UsersSeeds
from crawlproject.models import Lease
from crawlproject.state.calls import Budget, Finds, LinkGroup, NewRequest, Sitemaps
from crawlproject.state.client import State
from crawlproject.state.source_counts import counts_in
from tests.shards import domain_in, several_shards
from tests.state.calls.calls import db, lease, outstanding, settle
from tests.state.servers import Cluster
from tests.waiting import until_async

SHARDS = 3
OWN = [domain_in(number, SHARDS) for number in range(SHARDS)]


@pytest_asyncio.fixture
async def shards(redis_url: str) -> AsyncIterator[tuple[State, ...]]:
    async with several_shards(redis_url, SHARDS) as found:
        yield found


def entry(url: str, priority: int = 0) -> bytes:
    return bytes((1, 0, priority)) + bytes(msgpack.packb({"url": url}))


def request(url: str, domain: str, *, again: bool = False) -> NewRequest:
    return NewRequest(entry(url), digest_of("", url), again, domain=domain, once=b"its-once" if again else None)


def group(domain: str, *urls: str, priority: int = 0) -> LinkGroup:
    digests = [digest_of("", url) for url in urls]
    return LinkGroup(domain, None, [entry(url, priority) for url in urls], digests, [""] * len(urls))


async def leased(state: State) -> list[Lease]:
    """Lease all that may go out, and strays."""
    reply = await lease(state, horizon=3600)
    return [*reply.grants, *reply.strays]


async def redirect(state: State, grant: Lease, url: str, domain: str, **more: Any) -> None:
    assert await settle(state, grant, entry=entry(url), domain=domain, **more) == [True]


async def waits(state: State) -> list[str]:
    """Return what is in the queues of a shard, the first one first, or waits for its time."""
    found = []
    for key in await db(state).keys(f"{state.keys.queue_of}*"):
        found += await db(state).lrange(key, 0, -1)
    for key in await db(state).keys(f"{state.keys.delayed_of}*"):
        found += [one.partition(b"\n")[2] for one in await db(state).zrange(key, 0, -1)]
    return [url_of(one) for one in found]


async def pass_a_minute(state: State, source: str) -> None:
    """Have the delayed requests of a source be due a minute sooner."""
    key = state.keys.delayed_of + source
    for member, at in await db(state).zrange(key, 0, -1, withscores=True):
        await db(state).zadd(key, {member: at - 61_000_000})
    await state.scripts.mend({"delayed": [source.encode()]})


async def foreign(state: State, to: int) -> int:
    return int(await db(state).llen(f"{state.keys.foreign_of}{to}"))


# Each has something of its own kind wait in the first shard for the second, and tells what comes of it there.


async def found(state: State) -> list[str]:
    """Requests of callbacks; one of them is to be stored seen or not."""
    items = [request("http://f/1", OWN[1]), request("http://f/2", OWN[1], again=True)]
    reply = await state.scripts.enqueue("w", items)
    assert reply is not None
    assert (reply.forwarded, reply.unstored, reply.admitted) == (2, [], 0)
    return ["http://f/1", "http://f/2"]


async def links(state: State) -> list[str]:
    urls = [f"http://l/{number}" for number in range(3)]
    assert await state.scripts.discover([Finds([group(OWN[1], *urls)])], budget=None) == ["ooo"]
    return urls


async def redirected(state: State) -> list[str]:
    await state.scripts.enqueue("w", [request("http://r/0", OWN[0])])
    [grant] = await leased(state)
    await redirect(state, grant, "http://r/1", OWN[1])
    assert await outstanding(state) == 0
    return ["http://r/1"]


async def seeds(state: State) -> list[str]:
    """A seed on the list of a shard whose domain another source has, by the catalogue."""
    await db(state).lpush(state.keys.seeds, "http://s/1")
    [line] = await state.scripts.take_seeds("w", 9)
    reply = await state.scripts.enqueue("w", [request("http://s/1", OWN[1])], seeds=[line])
    assert reply is not None
    assert reply.forwarded == 1
    return ["http://s/1"]


Kind = Callable[[State], Any]
KINDS = pytest.mark.parametrize("kind", [found, links, redirected, seeds], ids=lambda kind: kind.__name__)


async def arrived(state: State) -> Counter[str]:
    lines = [one.decode() for one in await db(state).lrange(state.keys.seeds, 0, -1)]
    return Counter([*await waits(state), *lines])


@KINDS
async def test_all_comes_there_once(shards: tuple[State, ...], kind: Kind) -> None:
    expected = await kind(shards[0])
    assert not (await shards[0].scripts.idleness()).is_idle
    forwarder = Forwarder(shards[0])
    assert await shards[0].scripts.waiting("w") == [1]
    await db(shards[1]).delete(shards[1].keys.pulse)
    assert await forwarder.give(1) is False  # it waits for a leader there
    assert not await arrived(shards[1])
    await db(shards[1]).set(shards[1].keys.pulse, "leader")
    assert await forwarder.give(1) is True
    assert await forwarder.give(1) is None
    assert await arrived(shards[1]) == Counter(expected)
    assert (await shards[0].scripts.idleness()).is_idle
    assert not (await shards[1].scripts.idleness()).is_idle
    assert await shards[0].scripts.waiting("w") == []


class Killed(Exception):
    pass


@KINDS
@pytest.mark.parametrize("call", ["batch", "discover", "receive", "forget_batch"])
@pytest.mark.parametrize("carried_out", [False, True], ids=["before", "after"])
async def test_a_killed_forwarder_loses_and_doubles_nothing(
    shards: tuple[State, ...], kind: Kind, call: str, carried_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await kind(shards[0])
    with monkeypatch.context() as patched:
        for shard in shards[:2]:
            original = getattr(shard.scripts, call)

            async def killed(*args: Any, original: Any = original, **options: Any) -> None:
                if carried_out:
                    await original(*args, **options)
                    await original(*args, **options)
                raise Killed

            patched.setattr(shard.scripts, call, killed)
        is_called = call != "discover" or kind is links
        if is_called:
            with pytest.raises(Killed):
                await Forwarder(shards[0]).give(1)
    await shards[0].scripts.enqueue("w", [request("http://more/", OWN[1])])  # so that a batch is not all there is
    while await Forwarder(shards[0]).give(1) is not None:
        pass
    assert await arrived(shards[1]) == Counter([*expected, "http://more/"])
    assert (await shards[0].scripts.idleness()).is_idle


async def test_a_shard_that_is_away_holds_no_other_up(
    shards: tuple[State, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [request(f"http://{number}/", OWN[number]) for number in (1, 2)]
    await shards[0].scripts.enqueue("w", items)

    async def away(*_: Any, **__: Any) -> None:
        raise redis.ConnectionError("away")

    forwarder = Forwarder(shards[0])
    with monkeypatch.context() as patched:
        patched.setattr(shards[1].scripts, "enqueue", away)
        await forwarder.step()

        async def arrived() -> bool:
            return await waits(shards[2]) == ["http://2/"]

        await until_async(arrived)
        assert not await waits(shards[1])
    await forwarder.stop()
    await forwarder.step()
    await until_async(lambda: waits(shards[1]))
    assert await waits(shards[1]) == ["http://1/"]
    await forwarder.stop()


async def test_a_full_list_turns_links_away_and_keeps_all_else_where_it_is(redis_url: str) -> None:
    async with several_shards(redis_url, SHARDS, CRAWL_OVERFLOW_MAXLEN=2 * SHARDS) as shards:
        here, there = shards[:2]
        await here.scripts.enqueue("w", [request("http://r/0", OWN[0])])
        [grant] = await leased(here)
        four = group(OWN[1], *(f"http://l/{n}" for n in range(4)))
        assert await here.scripts.discover([Finds([four])], budget=None) == ["ooww"]
        reply = await here.scripts.enqueue("w", [request("http://own/", OWN[0]), request("http://f/", OWN[1])])
        assert reply is not None
        assert (reply.admitted, reply.forwarded, reply.unstored) == (1, 0, [1])
        await db(here).lpush(here.keys.seeds, "http://s/")
        [line] = await here.scripts.take_seeds("w", 9)
        reply = await here.scripts.enqueue("w", [request("http://s/", OWN[1])], seeds=[line])
        assert reply is not None
        assert reply.returned == 1
        assert await db(here).lrange(here.keys.seeds, 0, -1) == [b"http://s/"]
        await redirect(here, grant, "http://r/1", OWN[1])
        assert sorted(await waits(here)) == ["http://own/", "http://r/1"]
        assert await foreign(here, 1) == 2
        assert await Forwarder(here).give(1)
        # Where it waits it has no slots: it comes back as one that belongs elsewhere, and goes there.
        await pass_a_minute(here, OWN[1])
        [stray] = [one for one in await leased(here) if url_of(one.entry) == "http://r/1"]
        await redirect(here, stray, "http://r/1", OWN[1], stray=True)
        assert await Forwarder(here).give(1)
        assert sorted(await waits(there)) == ["http://l/0", "http://l/1", "http://r/1"]


@KINDS
async def test_with_catalogues_that_disagree_it_waits_and_comes_home(
    shards: tuple[State, ...], kind: Kind
) -> None:
    source = domain_in(2, SHARDS, "museum")

    async def know(shard: State) -> None:
        fence = await shard.scripts.lead("leader", ready=True)
        assert fence is not None
        await shard.scripts.set_rates(fence, [(source, 5.0, 5.0)], {OWN[1]: source}, {}, {source: f" {OWN[1]} "})

    expected = await kind(shards[0])
    for shard in shards[1:]:
        await know(shard)
    is_at_rest = await Forwarder(shards[0]).give(1)
    assert is_at_rest is (kind not in {links, found})  # these have gone on
    if kind is seeds:
        [line] = await shards[1].scripts.take_seeds("w", 9)
        await shards[1].scripts.enqueue("w", [request(expected[0], OWN[1])], seeds=[line])
        assert await foreign(shards[1], 2) == 1
    await pass_a_minute(shards[1], source)
    strays = await leased(shards[1])
    assert sorted(url_of(stray.entry) for stray in strays) == (expected if kind is redirected else [])
    for stray in strays:
        await redirect(shards[1], stray, url_of(stray.entry), OWN[1], stray=True)
    assert await Forwarder(shards[1]).give(2) is True
    assert await arrived(shards[2]) == Counter(expected)
    assert not await arrived(shards[1])


async def test_no_slot_is_given_to_a_source_of_another_shard_however_it_has_come_here(
    shards: tuple[State, ...],
) -> None:
    here, url = shards[0], f"http://{OWN[1]}/"
    await db(here).rpush(f"{here.keys.queue_of}0:{OWN[1]}", entry(url))
    await db(here).zadd(here.keys.due[-1], {OWN[1]: 0})
    reply = await lease(here)
    assert (reply.grants, [url_of(stray.entry) for stray in reply.strays]) == ([], [url])


@pytest.mark.parametrize("kind", [found, redirected], ids=lambda kind: kind.__name__)
async def test_what_is_excluded_there_ends_there(shards: tuple[State, ...], kind: Kind) -> None:
    expected = await kind(shards[0])
    await db(shards[1]).sadd(shards[1].keys.excluded, OWN[1])
    assert await Forwarder(shards[0]).give(1)
    assert (await shards[1].scripts.idleness()).is_idle
    counted = counts_in(await db(shards[1]).hget(shards[1].keys.counts, OWN[1]))
    assert counted["excluded"] == len(expected)


async def test_links_come_with_the_budget_of_their_page(shards: tuple[State, ...]) -> None:
    budget = Budget(base=8, per_page=0, most=8, hosts=9)  # a quarter of it for such links
    found = [[group(OWN[1], *(f"http://{page}/{n}" for n in range(2)))] for page in range(2)]
    pages = [Finds(groups, sitemaps=Sitemaps(OWN[0], 3)) for groups in found]
    assert await shards[0].scripts.discover(pages, budget=budget) == ["oo", "oo"]
    assert await Forwarder(shards[0]).give(1) is True
    assert len(await waits(shards[1])) == 2


async def test_links_of_several_pages_come_in_one_call_each_with_its_share(shards: tuple[State, ...]) -> None:
    budget = Budget(base=1, per_page=2, most=1000, hosts=9)
    await db(shards[1]).hset(shards[1].keys.counts, OWN[1], msgpack.packb({"good_pages": 9}))
    found = [group(OWN[1], *(f"http://{page}/{n}" for n in range(9)), priority=1) for page in range(2)]
    assert await shards[0].scripts.discover([Finds([one]) for one in found], budget=budget) == ["o" * 9] * 2
    assert await Forwarder(shards[0]).give(1) is True
    assert Counter(url[7] for url in await waits(shards[1])) == {"0": 3, "1": 2}


@pytest.mark.parametrize("call", ["batch", "receive"])
async def test_each_step_is_on_a_replica_before_the_next(cluster: Cluster, cluster_url: str, call: str) -> None:
    async with several_shards(cluster_url, 4) as shards:
        owners = [cluster.owner_of(shard.keys.seeds) for shard in shards]
        to = next(number for number in range(4) if owners[number] is not owners[0])
        domain = domain_in(to, 4)
        await shards[0].scripts.enqueue("w", [request("http://f/", domain)])
        replica = cluster.replica_of(owners[0 if call == "batch" else to]).process
        replica.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(redis.RedisError, match=f"no replica has confirmed {call} within"):
                await Forwarder(shards[0]).give(to)
        finally:
            replica.send_signal(signal.SIGCONT)
        await until_async(cluster.is_whole)
        assert await Forwarder(shards[0]).give(to)
        assert await waits(shards[to]) == ["http://f/"]


# The list that users push to


def users_seeds(state: State) -> UsersSeeds:
    return UsersSeeds(state, lambda line: Request(line.decode()))


async def test_seeds_of_users_go_to_the_shards_of_their_domains(
    shards: tuple[State, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawlproject.state.calls.seeds._TURN_MS", 600_000)  # however slow this test is
    users, urls = users_seeds(shards[0]), [f"http://{OWN[n % SHARDS]}/{n}" for n in range(9)]
    await db(shards[0]).lpush("images:start_urls", *urls, "no url")
    assert not await users.is_empty()
    await users.split()
    assert not await users.is_empty()
    await users.forward()
    await until_async(users.is_empty)
    for number, shard in enumerate(shards):
        lines = [one.decode() for one in await db(shard).lrange(shard.keys.seeds, 0, -1)]
        expected = [url for url in reversed(urls) if OWN[number] in url]
        assert [line for line in lines if line != "no url"] == expected
    lines = [await db(shard).llen(shard.keys.seeds) for shard in shards]
    assert sum(lines) == 10


async def test_one_worker_at_a_time_divides_seeds(
    shards: tuple[State, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawlproject.state.calls.seeds._TURN_MS", 600_000)  # however slow this test is
    scripts = users_seeds(shards[0]).scripts
    await db(shards[0]).lpush("images:start_urls", "a", "b")
    assert await scripts.peek_seeds("one", 1) == [b"a"]
    assert await scripts.peek_seeds("other", 1) == []
    assert await scripts.split_seeds([b"a"], [2])
    assert not await scripts.split_seeds([b"a"], [2])  # the call came again
    assert await db(shards[0]).lrange("images:start_urls", 0, -1) == [b"b"]
    assert await scripts.waiting("other") == []
    assert await scripts.waiting("one") == [2]
