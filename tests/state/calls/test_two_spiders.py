"""Two spiders with work for one source: each gets a fifth of its slots at least, however often the other one asks.

The clock is the tests' own: what is judged does not depend on how fast the machine is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
import pytest_asyncio

from crawlproject.state.calls import Scripts
from crawlproject.state.client import State
from tests.standing_clock import US, StandingClock
from tests.state.calls.calls import db, entry, join, lease, put, rule, settle

OFTEN_S, SELDOM_S = 0.0075, 0.15  # between the lease calls of twenty workers, and of one


@pytest_asyncio.fixture
async def pages(state: State) -> State:
    """The crawl of `state`, seen by the spider `pages`, with no delay of its own."""
    await join(state)
    return await with_delay(state, 0)


async def with_delay(state: State, delay: int) -> State:
    other = state.beside("pages")
    other.scripts = Scripts(other.redis, other.keys, other.clock, pace=delay * US)
    await join(other)
    return other


async def fill(state: State, count: int) -> None:
    for first in range(0, count, 1000):
        await put(state, [entry(str(first + number)) for number in range(min(1000, count - first))])


async def crawl(
    clock: StandingClock,
    seconds: float,
    every: Mapping[State, float],
    room: Mapping[State, int] | None = None,
) -> Counter[str]:
    """Have each spider ask as often as that; return how many slots each got. `room`: how many it takes at most."""
    given: Counter[str] = Counter()
    next_call = dict.fromkeys(every, clock.now)
    end = clock.now + round(seconds * US)
    while clock.now < end:
        spider = min(next_call, key=lambda one: next_call[one])
        clock.now = max(next_call[spider], clock.now)
        reply = await lease(spider, room=(room or {}).get(spider, 100))
        assert reply.state == "ok"
        given[spider.keys.spider] += len(reply.grants)
        await settle(spider, *reply.grants, done=True)
        next_call[spider] += round(every[spider] * US)
    return given


@pytest.mark.parametrize(("rate", "seconds"), [(5, 12.0), (200, 2.0)])
@pytest.mark.parametrize("often", ["images", "pages"])
async def test_one_worker_beside_twenty_gets_a_fifth_and_no_slot_is_lost(
    state: State, pages: State, clock: StandingClock, rate: float, seconds: float, often: str
) -> None:
    await rule(state, ("museum", rate))
    for spider in (state, pages):
        await fill(spider, round(rate * seconds) + 100)
    periods = {spider: OFTEN_S if spider.keys.spider == often else SELDOM_S for spider in (state, pages)}
    given = await crawl(clock, seconds, periods)
    assert given.total() >= 0.97 * rate * seconds
    assert 0.2 <= given[often] / given.total() <= 0.8


async def test_a_spider_alone_at_a_source_has_all_of_it(state: State, pages: State, clock: StandingClock) -> None:
    await rule(state, ("museum", 20), ("other", 20))
    await fill(state, 400)
    await put(pages, [entry(str(number)) for number in range(400)], "other")
    given = await crawl(clock, 5, {state: SELDOM_S, pages: SELDOM_S})
    assert min(given.values()) >= 0.97 * 5 * 20
    assert await db(state).hgetall(state.keys.waiting_spiders) == {}


async def test_a_spider_that_takes_few_or_none_costs_the_other_nothing(
    state: State, pages: State, clock: StandingClock
) -> None:
    """As of a worker that is busy: its source is due, but there is no room for more."""
    rate, seconds = 20, 10
    await rule(state, ("museum", rate))
    await fill(state, round(rate * seconds) + 100)
    await fill(pages, 400)
    given = await crawl(clock, seconds, {state: SELDOM_S, pages: SELDOM_S}, {pages: 0})
    assert given["images"] >= 0.97 * rate * seconds - 0.3 * rate  # two horizons are left to it first
    await fill(state, 700)
    given = await crawl(clock, 3, {state: SELDOM_S, pages: SELDOM_S}, {pages: 1})
    assert given.total() >= 0.8 * rate * 3 - 1  # some of those that are left to it pass unused


async def test_when_the_other_asks_no_more_nothing_is_lost_until_it_comes_back(
    state: State, pages: State, clock: StandingClock
) -> None:
    await rule(state, ("museum", 20))
    await fill(state, 900)
    await fill(pages, 400)
    await crawl(clock, 3, {state: SELDOM_S, pages: SELDOM_S})
    given = await crawl(clock, 10, {state: SELDOM_S})
    assert given["images"] >= 0.97 * 10 * 20
    given = await crawl(clock, 10, {state: OFTEN_S, pages: SELDOM_S})
    assert 0.2 <= given["pages"] / given.total() <= 0.8


async def test_a_spider_that_waits_for_its_own_delay_costs_the_other_nothing(
    state: State, pages: State, clock: StandingClock
) -> None:
    paced = await with_delay(state, 2)
    await rule(state, ("museum", 20))
    await fill(state, 900)
    await fill(paced, 400)
    given = await crawl(clock, 8, {state: OFTEN_S, paced: SELDOM_S})
    assert given["pages"] == 4
    assert given.total() >= 0.97 * 8 * 20


async def test_a_source_that_another_spiders_leader_has_moved_to_another_tier_is_due_once(
    state: State, pages: State
) -> None:
    """Rates are of all spiders, due sets of each: what is added finds the source where its former rate put it."""
    fence = await rule(state, ("museum", 5.0))
    await put(pages, [entry("low", priority=1)])
    assert await state.scripts.set_rates(fence, [("museum", 0.5, 0.5)], {})
    await put(pages, [entry("high", priority=3)])
    standing = [key async for key in db(pages).scan_iter(f"{pages.keys.due_of}*")]
    assert len(standing) == 1
    [grant] = (await lease(pages, want=1)).grants
    assert grant.entry == entry("high", priority=3)
    assert sum([await db(pages).zcard(f"{pages.keys.due_of}0{rank}") for rank in range(5)]) == 1
