"""What waits beyond the sources' windows: spilled to a store, and back in order, whatever happens in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import redis

from crawlproject import config
from crawlproject.contrib.overflow.spilling import TRIES, Overflow, StoreTrouble
from crawlproject.frontier.codec import url_of
from crawlproject.state.calls import Settlement
from crawlproject.state.client import State
from crawlproject.state.source_counts import counts_in
from crawlproject.storage.blobs import FolderStorage, Storage
from tests.frontier.tails import SITE, counters, discover, spilled, url
from tests.sinks.running import ends_before, has_died, run
from tests.state.calls.calls import db, join, lead, lease, within
from tests.waiting import until_async


@pytest.fixture
def packs(tmp_path: Path) -> FolderStorage:
    """A store in a folder."""
    return FolderStorage(tmp_path / "packs", is_synced=True)


@pytest_asyncio.fixture
async def crawl(request: pytest.FixtureRequest, redis_url: str, packs: FolderStorage) -> AsyncIterator[State]:
    """A crawl with that store, a worker, and windows of 12 requests. The parameter: other settings."""
    settings = {"REDIS_URL": redis_url, "CRAWL_PAGES_BUDGET_MAX": 0}
    state = State(config.load(settings | getattr(request, "param", {})), "images")
    await state.open()
    await lead(state)
    await join(state)
    yield state
    await state.close()


async def look_at(state: State, overflow: Overflow, *sites: str) -> int:
    """Have `overflow` look at sources now, whoever else has been told of them."""
    await db(state).zadd(state.keys.overflow_due, dict.fromkeys(sites or (SITE,), 0))
    return await overflow.step()


async def use_window(state: State, *sites: str) -> None:
    """Widen the window of sources, so that less than half of it is queued."""
    await db(state).hset(state.keys.rates, mapping=dict.fromkeys(sites or (SITE,), "1"))


async def crawled(state: State, overflow: Overflow) -> list[str]:
    """Crawl the source to its end; return the URLs in the order in which they came."""
    await db(state).hset(state.keys.rates, SITE, "100000")
    urls: list[str] = []

    async def is_done() -> bool:
        await overflow.step()
        reply = await lease(state, horizon=1.0)
        urls.extend(url_of(grant.entry) for grant in reply.grants)
        await state.scripts.settle("w", [Settlement(grant.id, SITE, done=True) for grant in reply.grants])
        return (await state.scripts.idleness()).is_idle

    await until_async(is_done)
    return urls


async def read_often(state: State, overflow: Overflow) -> None:
    """Try to read the first extent of the source as often as it takes to be given up."""
    await use_window(state)
    for _ in range(TRIES):
        await look_at(state, overflow)


async def test_tails_go_to_the_store_and_come_back_in_order(crawl: State, packs: FolderStorage) -> None:
    overflow = Overflow(crawl, packs)
    await discover(crawl, 700)
    assert await counters(crawl) == (12, 688, 0)
    assert await spilled(crawl, overflow) == 640
    assert await counters(crawl) == (12, 688, 640)
    assert await db(crawl).llen(f"{crawl.keys.overflow_of}1:{SITE}") == 48
    await discover(crawl, 60, first=700)  # behind those
    assert await spilled(crawl, overflow) == 64
    assert await crawled(crawl, overflow) == [url(n) for n in range(760)]
    assert await counters(crawl) == (0, 0, 0)
    assert await db(crawl).zcount(crawl.keys.packs, 0, "inf") == 0
    assert await db(crawl).zcard(crawl.keys.packs) == len(packs.sizes(f"{overflow._folder}/")) - 1


async def test_two_workers_spill_and_refill_what_each_other_leaves(crawl: State, packs: FolderStorage) -> None:
    one, other = Overflow(crawl, packs), Overflow(crawl, packs)
    await discover(crawl, 900)
    for _ in range(20):
        await asyncio.gather(look_at(crawl, one), look_at(crawl, other))
    assert (await counters(crawl))[2] == 832
    await use_window(crawl)
    await asyncio.gather(look_at(crawl, one), look_at(crawl, other))
    assert await counters(crawl) == (12 + 64, 888 - 64, 832 - 64)
    assert await crawled(crawl, other) == [url(n) for n in range(900)]


async def test_a_lost_pack_is_counted_and_the_crawl_ends(
    crawl: State, packs: FolderStorage, caplog: pytest.LogCaptureFixture
) -> None:
    overflow = Overflow(crawl, packs)
    await discover(crawl, 300)
    await overflow.step()
    lost = (await db(crawl).zrange(crawl.keys.packs, 0, 0))[0].decode()
    await spilled(crawl, overflow)
    packs.remove(lost)
    await read_often(crawl, overflow)
    urls = await crawled(crawl, overflow)
    assert urls == [url(n) for n in range(300) if not 12 <= n < 12 + 64]
    assert await db(crawl).hget(crawl.keys.totals, "overflow_lost") == b"64"
    assert await counters(crawl) == (0, 0, 0)
    assert f"The requests in an extent of source {SITE} are lost" in caplog.text


@pytest.mark.parametrize("crawl", [{"CRAWL_OVERFLOW_MAXLEN": 2500}], indirect=True)
async def test_while_the_store_is_down_leasing_pauses_when_tails_grow_too_long(
    crawl: State, packs: FolderStorage
) -> None:
    overflow, other = Overflow(crawl, packs), State(crawl.config, "other")
    await other.open()
    await join(other)
    await discover(crawl, 400)
    await overflow.step()
    packs.parts.rename(packs.folder / "unmounted")
    await overflow.keep()  # notes why
    await db(crawl).hset(crawl.keys.rates, SITE, "1")  # so that its next slot is not 50 s away
    [grant] = (await lease(crawl)).grants
    await crawl.scripts.settle("w", [Settlement(grant.id, SITE, done=True)])
    await discover(crawl, 300, first=400)
    await discover(other, 5, site="other.example")
    paused = await lease(crawl)
    assert paused.state == "paused"
    assert "a fifth of CRAWL_OVERFLOW_MAXLEN" in paused.reason
    assert str(packs.folder) in paused.reason
    assert (await within(crawl.scripts, dead_maxlen=9).pause_reason(timeout=30)) == ("paused", paused.reason)
    assert len((await lease(other, horizon=3.0)).grants) == 1  # of another spider
    (packs.folder / "unmounted").rename(packs.parts)
    await overflow.keep()
    assert (await within(crawl.scripts, dead_maxlen=9).pause_reason(timeout=30)).kind == ""
    await spilled(crawl, overflow)
    assert await crawled(crawl, overflow) == [url(n) for n in range(1, 700)]
    await other.close()


async def test_another_store_is_not_taken_for_the_one_that_has_the_packs(
    crawl: State, packs: FolderStorage, tmp_path: Path
) -> None:
    await discover(crawl, 300)
    await Overflow(crawl, packs).step()
    elsewhere = Overflow(crawl, FolderStorage(tmp_path / "elsewhere", is_synced=True))
    with pytest.raises(StoreTrouble, match="is not the store that holds what was spilled before"):
        await elsewhere.step()
    assert len(await crawled(crawl, Overflow(crawl, packs))) == 300


async def test_packs_are_removed_an_hour_after_their_last_extent(crawl: State, packs: FolderStorage) -> None:
    overflow = Overflow(crawl, packs)
    await discover(crawl, 300)
    await spilled(crawl, overflow)
    [folder] = {name.decode().partition("/")[0] for name in await db(crawl).zrange(crawl.keys.packs, 0, -1)}
    in_use = set(packs.sizes(f"{folder}/"))
    orphan = f"{folder}/{int(time.time()) - 9999}-abc"
    for name in (orphan, f"{folder}/nonsense"):
        packs.write(name, b"x")
    await overflow.sweep()
    assert set(packs.sizes(f"{folder}/")) == {*in_use, orphan, f"{folder}/nonsense"}
    await db(crawl).zincrby(crawl.keys.packs, 3_601_000_000, orphan)
    await overflow.sweep()
    assert set(packs.sizes(f"{folder}/")) == {*in_use, f"{folder}/nonsense"}
    await crawled(crawl, overflow)
    await overflow.sweep()
    assert set(packs.sizes(f"{folder}/")) >= in_use
    for hours in (1, 47):
        for name in await db(crawl).zrange(crawl.keys.packs, 0, -1):
            await db(crawl).zincrby(crawl.keys.packs, hours * 3_601_000_000, name)
        await overflow.sweep()
        assert set(packs.sizes(f"{folder}/")) == {f"{folder}/.store", f"{folder}/nonsense"}
    assert await db(crawl).zcard(crawl.keys.packs) == 0


async def test_a_pack_that_took_too_long_is_not_used(crawl: State, packs: FolderStorage) -> None:
    overflow = Overflow(crawl, packs)
    await discover(crawl, 100)
    taken = await crawl.scripts.overflow_take(most=9, folder="f")
    extents = overflow._write("f/1-a", taken.tails)
    assert await crawl.scripts.spill_commit("f/1-a", taken.now - 601, extents) == [False]
    assert await crawl.scripts.spill_commit("f/1-a", taken.now, extents) == [True]
    assert await crawl.scripts.spill_commit("f/1-a", taken.now, extents) == [False]  # as after a lost reply
    assert await counters(crawl) == (12, 88, 64)


async def test_exclusion_drops_extents_and_their_links_can_be_found_again(
    crawl: State, packs: FolderStorage
) -> None:
    overflow = Overflow(crawl, packs)
    await discover(crawl, 900)
    await discover(crawl, 100, site="other.example")
    await spilled(crawl, overflow)
    await crawl.scripts.exclude({SITE: ""}, by="me")
    assert await crawl.scripts.drop_all(SITE, "excluded") == 900
    assert await counters(crawl) == (12, 88, 64)
    assert await db(crawl).exists(f"{crawl.keys.extents_of}1:{SITE}") == 0
    assert counts_in(await db(crawl).hget(crawl.keys.counts, SITE))["excluded"] == 900
    while await overflow.step():
        pass
    assert await db(crawl).zcount(crawl.keys.packs, 1, "inf") == 1  # of the other source
    await crawl.scripts.include([SITE], by="me")
    await discover(crawl, 900)


# Killed

TRACED = ("crawlproject/contrib/overflow/spilling.py", "crawlproject/contrib/overflow/packs.py")


async def spill_and_refill(state: State, packs: FolderStorage) -> None:
    """Spill what is beyond a window that is full, and refill it when it is wide."""
    overflow = Overflow(state, packs)
    for number in range(6):
        if number == 3:
            await use_window(state)
        await look_at(state, overflow)


async def assert_packs_go(state: State, overflow: Overflow, packs: Storage) -> None:
    """Assert that no pack of a crawl that is done stays for more than an hour, whoever left it."""
    folder = await overflow._open()
    assert await db(state).zcount(state.keys.packs, 0, "inf") == 0
    await overflow.sweep()  # finds the orphans of processes that were killed before their commits
    for name in await db(state).zrange(state.keys.packs, 0, -1):
        await db(state).zincrby(state.keys.packs, 3_601_000_000, name)
    await overflow.sweep()
    assert list(packs.sizes(f"{folder}/")) == [f"{folder}/.store"]


@pytest.mark.slow
async def test_a_worker_killed_at_any_line_neither_loses_nor_doubles_a_request(
    crawl: State, packs: FolderStorage, redis_url: str
) -> None:
    def killed_before(line: int) -> bool:
        def act(own: redis.Redis) -> None:
            run(own, lambda state: spill_and_refill(state, packs))

        return has_died(redis_url, ends_before(TRACED, line, act))

    await discover(crawl, 200, priority=0)
    line, count, died = 0, 200, True
    while died:
        await discover(crawl, 40, first=count)  # the tail grows, for which the source is looked at again
        count += 40
        died = await asyncio.to_thread(killed_before, line)  # where no loop runs: the child has its own
        line += 1 + line // 4
    assert line > 100
    overflow = Overflow(crawl, packs)
    await spilled(crawl, overflow)
    urls = await crawled(crawl, overflow)
    poor, good = [url(n) for n in range(200)], [url(n) for n in range(200, count)]
    assert [
        one for one in urls if one in good
    ] == good  # each once; poor ones may come while good ones are fetched
    assert [one for one in urls if one in poor] == poor
    assert await counters(crawl) == (0, 0, 0)
    assert await db(crawl).hget(crawl.keys.totals, "overflow_lost") is None
    await assert_packs_go(crawl, overflow, packs)


async def test_a_store_that_answers_with_other_bytes_loses_nothing(
    crawl: State, packs: FolderStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    overflow = Overflow(crawl, packs)
    await discover(crawl, 12 + 64)
    await overflow.step()
    await use_window(crawl)
    with monkeypatch.context() as patched:
        patched.setattr(packs, "read", lambda *_: b"other bytes")
        for _ in range(2 * TRIES):
            with pytest.raises(StoreTrouble):
                await look_at(crawl, overflow)
    await look_at(crawl, overflow)
    assert await crawled(crawl, overflow) == [url(n) for n in range(12 + 64)]
    assert await db(crawl).hget(crawl.keys.totals, "overflow_lost") is None
