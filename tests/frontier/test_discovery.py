"""Links found on pages, from the worker's side: their stored form, and what it does not ask Redis for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import redis

from crawlproject import config
from crawlproject.frontier import codec
from crawlproject.frontier.discovery import LINKS_A_CALL, POOR, Discovered, Discovery, Link, NoCatalogue
from crawlproject.models import IDENTIFIER, SOURCE, Seed
from crawlproject.spiders.images import ImagesSpider
from crawlproject.spiders.pages import PagesSpider
from crawlproject.state.calls import Finds, Text
from crawlproject.state.client import State
from crawlproject.state.source_counts import counts_in
from tests.state.calls.calls import db, lead

PAGE = [Link(f"https://museum.example/{n}") for n in range(20)]


class Counted:
    """The scripts of a frontier, and how many links of each page a call had; fails once for each of `faults`."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.calls: list[list[int]] = []
        self.faults: list[Exception] = []

    async def discover(self, pages: Sequence[Finds], **more: Any) -> list[str | None] | None:
        self.calls.append([sum(len(group.entries) for group in page.groups) for page in pages])
        reply = await self.state.scripts.discover(pages, **more)
        if self.faults:
            raise self.faults.pop()
        return reply


def discovery_of(scripts: object, **settings: object) -> Discovery:
    return Discovery(scripts, config.load(settings))  # type: ignore[arg-type]


async def test_a_stored_link_is_the_request_of_the_same_seed(state: State) -> None:
    spider = ImagesSpider()
    link = Link("https://museum.example/ü?a=1#x", identifier="id 1", source="museum", priority=3)
    request = spider.request_for(Seed(link.url, "id 1", "museum", 3))
    found = codec.decode(discovery_of(state.scripts).stored(link), spider)
    expected = codec.decode(codec.encode(request, spider), spider)
    assert found.to_dict(spider=spider) == expected.to_dict(spider=spider)
    assert (found.meta, found.priority) == ({IDENTIFIER: "id 1", SOURCE: "museum"}, 3)
    deep = Link("http://a.example/", identifier="x", depth=7)
    assert codec.decode(discovery_of(state.scripts).stored(deep), spider).meta["depth"] == 7


async def test_links_are_admitted_once_and_then_known_without_asking(state: State) -> None:
    await lead(state)
    scripts = Counted(state)
    one, other = discovery_of(scripts), discovery_of(scripts)
    assert await one.admit([*PAGE, *PAGE[:5]]) == Discovered(admitted=20, known=5)
    again = await one.admit(PAGE)
    assert again == Discovered(known=20)
    assert again.uncounted == {"known": 20}  # Redis has not counted them
    assert scripts.calls == [[25]]
    assert await other.admit(PAGE) == Discovered(known=20)  # another worker
    assert scripts.calls == [[25], [20]]
    entries = await db(state).lrange(f"{state.keys.queue_of}1:museum.example", 0, -1)
    assert [codec.url_of(entry) for entry in entries] == [link.url for link in PAGE]


async def test_after_a_fault_of_redis_nothing_is_taken_as_known(state: State) -> None:
    await lead(state)
    scripts = Counted(state)
    one = discovery_of(scripts)
    await one.admit(PAGE)
    scripts.faults.append(redis.ConnectionError("gone"))
    lost = (one.admit([Link(f"https://museum.example/lost-reply-{n}")]) for n in range(2))  # of one call
    found = await asyncio.gather(*lost, return_exceptions=True)
    assert [type(each) for each in found] == [redis.ConnectionError] * 2
    await db(state).flushall()  # it was started again, without its last writes
    await lead(state)
    assert await one.admit(PAGE) == Discovered(admitted=20)


async def test_what_waits_behind_a_call_that_fails_is_told_with_it(state: State) -> None:
    await lead(state)
    scripts = Counted(state)
    one = discovery_of(scripts)
    scripts.faults.append(redis.TimeoutError("a master that hangs"))  # each call would take as long
    pages = ([Link(f"https://{page}.example/{n}") for n in range(LINKS_A_CALL)] for page in range(3))
    found = await asyncio.gather(*map(one.admit, pages), return_exceptions=True)
    assert [type(each) for each in found] == [redis.TimeoutError] * 3
    assert scripts.calls == [[LINKS_A_CALL]]
    assert await one.admit(PAGE) == Discovered(admitted=20)


async def test_finds_of_several_pages_go_in_one_call_and_a_page_of_many_links_lets_others_have_theirs(
    state: State,
) -> None:
    await lead(state)
    scripts = Counted(state)
    one = discovery_of(scripts)
    many = (Link(f"https://{n % 2}.example/{n}") for n in range(2 * LINKS_A_CALL + 9))
    pages = [one.admit([Link(f"https://museum.example/{page}/{n}") for n in range(page)]) for page in range(1, 5)]
    found = await asyncio.gather(one.admit(many), *pages)
    assert [each["admitted"] for each in found] == [2 * LINKS_A_CALL + 9, 1, 2, 3, 4]
    assert scripts.calls == [[LINKS_A_CALL], [1, 2, 3, 4], [LINKS_A_CALL], [9]]


async def test_without_a_leader_all_pages_of_a_call_wait(state: State) -> None:
    one = discovery_of(state.scripts)
    found = await asyncio.gather(*(one.admit([link]) for link in PAGE), return_exceptions=True)
    assert [type(each) for each in found] == [NoCatalogue] * len(PAGE)
    await lead(state)
    assert await one.admit(PAGE) == Discovered(admitted=20)


async def test_nothing_is_admitted_of_a_page_whose_text_was_seen_elsewhere(state: State) -> None:
    await lead(state)
    one = discovery_of(state.scripts)
    here, there = (Text.of(b"a" * 9, address, 1000) for address in (b"here.", b"there"))
    assert (await one.admit([], text=here)).is_new
    found = await one.admit(PAGE, text=there)
    assert (found, found.is_new, found.uncounted) == (Discovered(), False, Counter())
    assert await one.admit(PAGE, text=here) == Discovered(admitted=20)
    assert (await one.admit(PAGE, text=here)).uncounted == {"known": 20}


async def test_a_page_that_gives_up_waiting_keeps_no_other_from_its_answer(state: State) -> None:
    await lead(state)
    one = discovery_of(state.scripts)
    gone, stays = (asyncio.create_task(one.admit([link])) for link in PAGE[:2])
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == Discovered(admitted=1)
    assert await one.admit(PAGE[:2]) == Discovered(known=2)


async def test_links_beyond_the_budget_or_without_room_are_counted_apart_and_it_is_said_once_what_to_set(
    state: State, caplog: pytest.LogCaptureFixture
) -> None:
    await lead(state)
    one = discovery_of(state.scripts, CRAWL_PAGES_BUDGET_MAX=8)
    poor = [Link(f"https://poor.example/?{n}", priority=POOR) for n in range(3)]
    assert await one.admit(poor) == Discovered(admitted=2, over_budget=1)
    await db(state).hset(state.keys.rates, "museum.example", "0.01")  # a window of 8
    await db(state).hset(state.keys.counters, "overflow", 3)  # of others
    state.bounds = config.load({"CRAWL_OVERFLOW_MAXLEN": 4})
    one = Discovery(state.scripts_of("images"), state.bounds)
    assert await one.admit(PAGE) == Discovered(admitted=9, without_room=11)
    assert await one.admit(PAGE[15:]) == Discovered(without_room=5)
    assert await db(state).hget(state.keys.totals, "links_without_room") == b"16"
    assert counts_in(await db(state).hget(state.keys.counts, "museum.example"))["links_without_room"] == 16
    [said] = caplog.messages
    assert "Set CRAWL_OVERFLOW_STORE" in said


async def test_what_cannot_be_stored_is_refused(state: State) -> None:
    await lead(state)
    bad = ["mailto:x@example.org", "http://", "http://[::1", "http://a:0/", "http://a:b/", "http://a/\udcff"]
    assert await discovery_of(state.scripts).admit(map(Link, bad)) == Discovered(refused=len(bad))


async def test_where_a_link_was_found_costs_it_a_few_bytes(state: State) -> None:
    one = discovery_of(state.scripts)
    link = Link("https://museum.example/halls/one", depth=1)
    entry = one.stored(replace(link, found_on="https://museum.example/halls/?page=2"))
    assert codec.found_by(codec.decode(entry, PagesSpider()))["found_on"] == "https://museum.example/halls/?page=2"
    assert len(entry) - len(one.stored(link)) == 12 + len("?page=2")
