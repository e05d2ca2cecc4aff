"""The delay that a spider keeps between its own requests to one source (CRAWL_PAGES_DELAY)."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
import pytest_asyncio

from crawlproject import config
from crawlproject.models import Slot
from crawlproject.state.client import State
from crawlproject.status.source_status import sample_sources
from tests.state.calls.calls import begin, db, entry, join, lease, names, put, rule, settle, slot_of

DELAY_S = 70.0
US = 1_000_000


@pytest_asyncio.fixture
async def pages(state: State) -> State:
    """The crawl of `state`, seen by the spider `pages`."""
    other = state.beside("pages")
    await join(other)
    return other


async def put_page(pages: State, *found: str, source: str = "museum") -> None:
    await put(pages, [entry(name) for name in found], source)


async def score(pages: State, source: str = "museum") -> float | None:
    found: float | None = await db(pages).zscore(pages.keys.paced, source)
    return found


async def pass_time(state: State, seconds: float) -> None:
    """Bring all that is to come closer by so much."""
    sets = [name async for name in db(state).scan_iter(f"{state.keys.namespace}:*:due:*", _type="zset")]
    for key in (state.keys.paced, state.keys.slots, *sets):
        for member, at in await db(state).zrange(key, 0, -1, withscores=True):
            await db(state).zadd(key, {member: at - seconds * US})


@pytest.mark.usefixtures("clock")
async def test_leases_of_the_spider_are_that_far_apart_while_another_spider_has_the_sources_rate(
    state: State, pages: State
) -> None:
    await begin(state, 40, *map(str, range(50)))
    await put_page(pages, "a", "b", "c", "d")
    first = await lease(pages)
    assert names(first) == ["a"]
    assert (await lease(pages)).grants == []
    assert len((await lease(state)).grants) >= 9
    later = await lease(pages, horizon=2.5 * DELAY_S)
    slots = [grant.at for grant in (*first.grants, *later.grants)]
    assert [b - a for a, b in pairwise(slots)] == [DELAY_S * US, DELAY_S * US]
    # the source's own slots were not used up by the delay: that of the last lease is the last one
    assert await db(state).zscore(state.keys.slots, "museum") == slots[-1] + US / 40


async def test_a_source_that_waits_for_the_delay_stands_where_its_moment_is(state: State, pages: State) -> None:
    await rule(state, ("museum", 40), ("archive", 40))
    await put_page(pages, "a", "b")
    await put_page(pages, "c", source="archive")
    assert sorted(names(await lease(pages))) == ["a", "c"]
    reply = await lease(pages)
    assert reply.next_due is not None
    assert reply.next_due - asyncio.get_running_loop().time() > DELAY_S / 2
    await put_page(pages, "e")  # new work does not bring it forward
    assert (await lease(pages)).grants == []
    await pass_time(pages, DELAY_S)
    assert names(await lease(pages)) == ["b"]


async def test_the_delay_outlives_the_worker_and_is_forgotten_when_it_is_past(state: State, pages: State) -> None:
    await rule(state, ("museum", 40), ("archive", 40))
    await put_page(pages, "a", "b")
    await lease(pages)
    await pages.scripts.leave("w")  # nobody says that it was not sent
    await join(pages, "v")
    assert (await lease(pages, worker="v")).grants == []
    assert await score(pages) is not None
    await pass_time(pages, DELAY_S + 1)
    await put_page(pages, "c", source="archive")
    assert sorted(names(await lease(pages, worker="v"))) == ["a", "c"]
    await pass_time(pages, DELAY_S + 1)
    await put_page(pages, "d", source="archive")
    await put_page(pages, source="museum")
    await lease(pages, worker="v", rooms={"museum": 0})
    assert await score(pages) is None
    assert await score(pages, "archive") is not None
    ttl = await db(pages).pttl(pages.keys.paced)
    assert DELAY_S * 1000 < ttl <= (DELAY_S + 60) * 1000


async def test_what_was_not_sent_costs_no_delay(state: State, pages: State) -> None:
    await rule(state, ("museum", 40))
    await put_page(pages, "a", "b")
    [grant] = (await lease(pages)).grants
    await settle(pages, grant, entry=grant.entry, unsent=grant.at)
    [grant] = (await lease(pages, horizon=1)).grants
    assert grant.entry == entry("a")
    await settle(pages, grant, dead="refused by robots.txt", unsent=grant.at)
    assert names(await lease(pages, horizon=1)) == ["b"]


async def test_what_was_sent_costs_the_delay_whatever_became_of_it(state: State, pages: State) -> None:
    await rule(state, ("museum", 40))
    await put_page(pages, "a", "b")
    [grant] = (await lease(pages)).grants
    await settle(pages, grant, entry=grant.entry, answered=True)  # a redirect within the source
    assert (await lease(pages, horizon=1)).grants == []
    assert names(await lease(pages, horizon=DELAY_S + 1)) == ["a"]


async def test_an_older_lease_that_was_not_sent_takes_nothing_from_a_later_ones_delay(
    state: State, pages: State
) -> None:
    await rule(state, ("museum", 40))
    await put_page(pages, "a", "b", "c")
    [first] = (await lease(pages)).grants
    await pass_time(pages, DELAY_S + 1)
    [second] = (await lease(pages)).grants
    before = await score(pages)
    await settle(pages, first, entry=first.entry, unsent=first.at)
    assert await score(pages) == before
    await settle(pages, second, entry=second.entry, unsent=second.at)
    assert names(await lease(pages, horizon=1)) == ["b"]


async def test_a_robots_txt_does_not_count(state: State, pages: State) -> None:
    await rule(state, ("museum", 40))
    await put_page(pages, "a", "b")
    await lease(pages)
    before = await score(pages)
    await slot_of(pages, source="museum")
    assert await score(pages) == before
    await pass_time(pages, DELAY_S + 1)
    await slot_of(pages, source="museum")
    assert names(await lease(pages)) == ["b"]


async def test_a_slot_that_is_renewed_takes_its_delay_along(state: State, pages: State) -> None:
    await rule(state, ("museum", 10))
    await put_page(pages, "a", "b")
    [grant] = (await lease(pages)).grants
    missed = Slot("museum", grant.slot, grant.at, grant.rate, 0.05)
    renewed = await pages.scripts.renew(missed, within=9.0, worker="w", lease=grant.id)
    assert renewed is not None
    assert await score(pages) == pytest.approx(renewed.at + DELAY_S * US, abs=2)
    later = await lease(pages, horizon=DELAY_S + 9)
    assert names(later) == ["b"]
    late = await pages.scripts.renew(renewed, within=9.0, worker="w", lease=grant.id)
    assert late is None  # beside the other request it would be one too many


@pytest.mark.parametrize("junk", [float("inf"), 1e18])
async def test_a_delay_that_was_longer_holds_for_one_delay(state: State, pages: State, junk: float) -> None:
    await rule(state, ("museum", 40))
    await db(pages).zadd(pages.keys.paced, {"museum": junk})
    await put_page(pages, "a")
    assert (await lease(pages)).grants == []
    await pass_time(pages, DELAY_S + 1)
    assert names(await lease(pages)) == ["a"]


async def test_without_a_delay_nothing_is_noted(state: State) -> None:
    await begin(state, 40, "a")
    assert names(await lease(state)) == ["a"]
    assert not await db(state).exists(state.keys.paced)
    settings = config.load({"CRAWL_PAGES_DELAY": 0})
    delays = settings.delay_of("pages"), config.load({}).delay_of("pages"), settings.delay_of("images")
    assert delays == (0, 70, 0)


async def test_operators_see_when_the_next_page_comes(state: State, pages: State) -> None:
    await rule(state, ("museum", 40))
    await put_page(pages, "a", "b", "c")
    await lease(pages)
    [row] = [one async for one in sample_sources(pages, ["museum"])]
    assert "paced: next page in " in row.reason
    assert DELAY_S - 30 < row.next_slot_s <= DELAY_S
    assert row.eta_s is not None
    assert row.eta_s >= 2 * DELAY_S
    [row] = [one async for one in sample_sources(state, ["museum"])]
    assert "paced" not in row.reason
