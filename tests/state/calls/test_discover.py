"""Links found on pages: budgets, windows, and that none is admitted twice."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest

from crawlproject.frontier.codec import digest_of
from crawlproject.state.calls import Budget, Finds, LinkGroup, Scripts, Sitemaps, Text
from crawlproject.state.client import State
from tests.state.calls.calls import (
    db,
    entry,
    feed,
    join,
    lead,
    lease,
    lists_of,
    names,
    outstanding,
    requests,
    rule,
    settle,
    within,
)

WIDE = Budget(1000, 4, 1_000_000, 100)


def group(
    *links: str, priority: int = 1, domain: str = "museum.org", source: str | None = None, host: int | None = None
) -> LinkGroup:
    """Return a group of links; each is spelled as its request, and equal ones are equal links."""
    return LinkGroup(
        domain,
        source,
        [entry(link, priority=priority) for link in links],
        [digest_of("", str(int.from_bytes(link.encode()))) for link in links],
        [host or ""] * len(links),
    )


async def discover(
    state: State,
    *groups: LinkGroup,
    budget: Budget | None = WIDE,
    most_outstanding: int | None = None,
    sitemaps: tuple[str, int] | None = None,
    **bounds: Any,
) -> str:
    """Have what one page leads to admitted; return its letters."""
    page = Finds(groups, sitemaps=sitemaps and Sitemaps(*sitemaps))
    scripts = within(state.scripts, **bounds)
    reply = await scripts.discover([page], budget=budget, most_outstanding=most_outstanding)
    assert reply is not None
    assert isinstance(reply[0], str)
    return reply[0]


async def discover_pages(state: State, *pages: Finds, budget: Budget | None = WIDE) -> list[str | None]:
    reply = await state.scripts.discover(pages, budget=budget)
    assert reply is not None
    return reply


async def queued(state: State, source: str = "museum.org") -> dict[int, list[str]]:
    return await lists_of(state, state.keys.queue_of, source)


async def overflowing(state: State) -> dict[int, list[str]]:
    return await lists_of(state, state.keys.overflow_of, "museum.org")


async def counters(state: State) -> tuple[int, int]:
    values = await db(state).hmget(state.keys.counters, "outstanding", "overflow")
    return int(values[0] or 0), int(values[1] or 0)


async def test_a_link_is_admitted_once_however_often_it_is_found(state: State) -> None:
    await lead(state)
    links = group("a", "b", "a")
    assert await discover(state, links) == "aak"
    assert await discover(state, links) == "kkk"
    assert await queued(state) == {1: ["a", "b"]}
    assert await counters(state) == (2, 0)
    assert await db(state).hgetall(state.keys.totals) == {b"links_admitted": b"2", b"links_known": b"4"}


async def test_without_a_pulse_nothing_is_admitted(state: State) -> None:
    page = Finds([group("a")], Text.of(b"a" * 9, b"here.", 1000))
    assert await state.scripts.discover([page], budget=WIDE) is None
    assert await db(state).keys("*") == []


async def test_beyond_the_window_links_wait_apart_in_order(state: State) -> None:
    await join(state)
    await rule(state, ("museum.org", 100))
    await db(state).hset(state.keys.rates, "museum.org", "0.02")  # 12 in ten minutes
    links = [f"{n:02}" for n in range(40)]
    assert (await discover(state, group(*links[:30]))) == "a" * 30
    assert await queued(state) == {1: links[:12]}
    assert await overflowing(state) == {1: links[12:30]}
    assert await counters(state) == (12, 18)
    await discover(state, group(*links[30:]), group("00", "poor", priority=0), group("top", priority=2))
    assert await queued(state) == {1: links[:12], 2: ["top"]}
    assert await overflowing(state) == {0: ["poor"], 1: links[12:]}
    await db(state).hset(state.keys.rates, "museum.org", "100")
    given: list[str] = []
    while len(given) < 42:
        reply = await lease(state, want=2)
        given += names(reply)
        await settle(state, *reply.grants, dead="x")
    assert given == ["top", *links, "poor"]
    assert await counters(state) == (0, 0)


async def test_sitemaps_beyond_the_window_wait_before_what_they_name(state: State) -> None:
    await lead(state)
    await db(state).hset(state.keys.rates, "museum.org", "0.01")  # a window of 8
    sitemaps = [f"{n}.xml" for n in range(9)]
    assert (await discover(state, group(*sitemaps, priority=2), sitemaps=("museum.org", 9))) == "a" * 9
    await discover(state, group("page", priority=2))
    assert await queued(state) == {2: sitemaps[:8]}
    assert await overflowing(state) == {2: sitemaps[8:], 1: ["page"]}


async def test_the_window_is_filled_up_when_half_of_it_is_used(state: State) -> None:
    state.scripts = Scripts(state.redis, state.keys, state.clock, pace=50_000_000)  # 12 in ten minutes
    await join(state)
    await rule(state, ("museum.org", 200))
    await discover(state, group(*(f"{n:02}" for n in range(30))))
    for taken, left in enumerate([11, 10, 9, 8, 7, 12, 11]):
        assert names(await lease(state, want=1, horizon=1e6)) == [f"{taken:02}"]
        assert len((await queued(state))[1]) == left


@pytest.mark.parametrize(("rate", "window"), [("0.001", 8), ("0.2", 120), ("100", 4096)])
async def test_a_window_is_what_ten_minutes_take_within_bounds(state: State, rate: str, window: int) -> None:
    await lead(state)
    await db(state).hset(state.keys.rates, "museum.org", rate)
    for first in range(0, 4200, 500):
        await discover(state, group(*(str(n) for n in range(first, first + 500))), budget=None)
    assert await counters(state) == (window, 4500 - window)


async def test_the_budget_grows_with_good_pages_and_leaves_no_trace_of_what_it_keeps_out(state: State) -> None:
    await join(state)
    await lead(state)
    small = Budget(2, 3, 6, 100)
    links = group("a", "b", "c", "d", "e", "f", "g")
    assert await discover(state, links, budget=small) == "aabbbbb"
    assert await discover(state, group("x", domain="other.org"), budget=small) == "a"
    [grant] = [one for one in (await lease(state, room=1)).grants if one.id.endswith("museum.org")]
    for _ in range(3):  # again, as after a lost reply
        await settle(state, grant, done=True, counts={"good_pages": 1})
    assert await discover(state, links, budget=small) == "kkaaabb"
    await db(state).hset(state.keys.counts, "museum.org", msgpack.packb({"good_pages": 100}))
    assert await discover(state, links, budget=small) == "kkkkkab"  # at most that many
    assert await discover(state, links, budget=None) == "kkkkkka"


async def test_what_good_pages_have_earned_is_not_all_taken_by_one_call(state: State) -> None:
    await lead(state)
    small, links = Budget(2, 3, 1000, 100), [group(*(f"{page}-{n}" for n in range(50))) for page in range(4)]
    await db(state).hset(state.keys.counts, "museum.org", msgpack.packb({"good_pages": 4}))
    assert await discover(state, links[0], budget=small) == "a" * 5 + "b" * 45  # 2, and what one page earns
    for page in links[1:]:
        assert await discover(state, page, budget=small) == "a" * 3 + "b" * 47
    await db(state).hset(state.keys.counts, "museum.org", msgpack.packb({"good_pages": 4 + 160}))
    assert (await discover(state, links[0], budget=small)) == "k" * 5 + "a" * 30 + "b" * 15  # of 480 left


async def test_each_page_of_a_call_has_its_own_share_sitemaps_and_text(state: State) -> None:
    await lead(state)
    pages = [Finds([group(*(f"{page}-{n}" for n in range(9)))]) for page in range(2)]
    await db(state).hset(state.keys.counts, "museum.org", msgpack.packb({"good_pages": 9}))
    assert await discover_pages(state, *pages, budget=Budget(2, 3, 1000, 100)) == ["aaaaabbbb", "aaabbbbbb"]
    named = Finds([group("x", "y")], sitemaps=Sitemaps("museum.org", 1))
    text = Finds([group("p", "q")], Text.of(b"a" * 9, b"here.", 1000))
    other = Finds([group("r")], Text.of(b"a" * 9, b"there", 1000))
    assert await discover_pages(state, named, text, other, Finds([group("p", "s")])) == ["as", "aa", None, "ka"]
    assert await discover_pages(state, named, text, other, Finds([group("p", "s")])) == ["ss", "kk", None, "kk"]


async def test_a_text_is_new_until_it_is_seen_under_another_address(state: State) -> None:
    await lead(state)

    async def note(digest: bytes, address: bytes) -> bool:
        [letters] = await discover_pages(state, Finds([], Text.of(digest, address, 1000)))
        return letters is not None

    assert await note(b"a" * 9, b"here.")
    assert await note(b"a" * 9, b"here.")  # fetched again, after its worker was killed
    assert not await note(b"a" * 9, b"there")
    assert await note(b"a" * 9, b"here.")
    assert await note(b"b" * 9, b"there")


async def test_the_table_of_texts_has_its_size_and_forgets_the_text_of_a_place_for_another(state: State) -> None:
    await lead(state)
    chance = random.Random(1)
    texts = [chance.randbytes(9) for _ in range(400)]
    here, there = ([Finds([], Text.of(text, address, 100)) for text in texts] for address in (b"here.", b"there"))
    assert await discover_pages(state, *here) == [""] * 400
    assert await discover_pages(state, there[-1]) == [None]
    kept = [letters for letters in await discover_pages(state, *there) if letters is None]
    assert len(kept) <= 100
    assert await db(state).strlen(state.keys.texts_of + "0") == 900
    assert [key async for key in db(state).scan_iter(state.keys.texts_of + "*")] == [b"crawl:images:texts:0"]


async def test_poor_links_have_a_quarter_of_the_budget(state: State) -> None:
    await lead(state)
    small = Budget(8, 0, 100, 100)
    assert await discover(state, group("p", "q", "r", priority=0), budget=small) == "aab"
    assert await discover(state, group("a", "b"), group("s", priority=0), budget=small) == "aab"
    assert await discover(state, group("c", "d", "e", "f", "g"), budget=small) == "aaaab"


async def test_a_source_leads_to_a_bounded_number_of_sitemaps_wherever_they_are(state: State) -> None:
    await lead(state)
    most = ("museum.org", 3)
    assert await discover(state, group("a", "b"), sitemaps=most) == "aa"
    assert await discover(state, group("a", "b"), sitemaps=("other.org", 3)) == "kk"
    assert await discover(state, group("c", "d", domain="other.org"), sitemaps=most) == "as"
    assert await discover(state, group("e"), sitemaps=most, budget=None) == "s"
    assert await discover(state, group("e"), sitemaps=("other.org", 3)) == "a"
    assert await discover(state, group("f")) == "a"  # no sitemap
    assert await db(state).hgetall(state.keys.ledger) == {b"museum.org": b"4 0 3", b"other.org": b"1 0 1"}
    assert await db(state).hget(state.keys.totals, "links_admitted") == b"5"
    await db(state).hset(state.keys.ledger, "museum.org", "4 0 three")
    assert await discover(state, group("g"), sitemaps=most) == "a"  # junk counts as nothing


async def test_links_to_many_hosts_of_a_domain_are_over_the_budget(state: State) -> None:
    await lead(state)
    small = Budget(100, 0, 100, 2)
    groups = [group(f"h{n}", host=n) for n in (1, 2, 3, 1)]
    assert (await discover(state, *groups, group("top"), budget=small)) == "aabka"
    assert (await discover(state, group("new", host=2), group("other", host=3), budget=small)) == "ab"


async def test_excluded_links_are_dropped_and_not_seen(state: State) -> None:
    await lead(state)
    await db(state).sadd(state.keys.excluded, "museum.org", "img.other.org")
    named = group("c", domain="cdn.example", source="museum.org")
    urls = ["http://other.org/a", "http://img.other.org/b"]
    entries = [bytes((1, 0, 1)) + msgpack.packb({"url": url}) for url in urls]
    hosts = LinkGroup("other.org", None, entries, [digest_of("", url) for url in urls], ["", ""])
    assert await discover(state, group("a"), group("b", domain="third.org"), named, hosts) == "xaxax"
    await db(state).delete(state.keys.excluded)
    assert await discover(state, group("a"), named, hosts) == "aaka"


async def test_unknown_sources_are_refused_where_the_catalogue_names_all(state: State) -> None:
    fence = await lead(state)
    assert await state.scripts.set_rates(fence, [("museum", 1, 1)], {"museum.org": "museum"})
    reply = await discover(state, group("a"), group("b", domain="other.org"), refuse_unknown=True)
    assert reply == "ar"
    assert await queued(state, "museum") == {1: ["a"]}  # by its domain
    assert (await discover(state, group("b", domain="other.org"))) == "a"


async def test_a_domain_that_is_no_name_of_a_source_is_refused(state: State) -> None:
    await lead(state)
    assert await discover(state, group("a", domain="-a"), group("b", domain="")) == "rr"
    assert await db(state).keys(state.keys.seen_of + "*") == []


async def test_links_that_find_the_overflows_full_are_not_seen(state: State) -> None:
    await lead(state)
    await db(state).hset(state.keys.rates, "museum.org", "0.01")  # a window of 8
    await db(state).hset(state.keys.counters, "overflow", 99)  # of others
    links = group(*(str(n) for n in range(12)))
    assert await discover(state, links, overflow_maxlen=101) == "a" * 10 + "ww"
    assert await discover(state, links, overflow_maxlen=102) == "k" * 10 + "aw"
    assert await counters(state) == (8, 102)


async def test_a_source_has_a_quarter_of_what_the_others_leave_of_the_overflows(state: State) -> None:
    await lead(state)
    sites = ("a.org", "b.org", "c.org")
    for site in sites:
        await db(state).hset(state.keys.rates, site, "0.01")  # a window of 8
    links = {site: group(*(f"{site[0]}{n}" for n in range(40)), domain=site) for site in sites}
    assert await discover(state, links["a.org"], overflow_maxlen=64) == "a" * 24 + "w" * 16
    assert await discover(state, links["b.org"], overflow_maxlen=64) == "a" * 20 + "w" * 20
    assert await discover(state, links["b.org"], links["a.org"], overflow_maxlen=64) == "w" * 80
    await db(state).hset(state.keys.counters, "overflow", 62)  # of many sources
    assert await discover(state, links["c.org"], overflow_maxlen=64) == "a" * 10 + "w" * 30
    totals = await db(state).hgetall(state.keys.totals)
    assert (totals[b"links_admitted"], totals[b"links_without_room"]) == (b"54", b"146")


async def test_a_full_frontier_leaves_each_source_a_few_and_sources_without_end_no_more_than_links_may_fill(
    state: State,
) -> None:
    await lead(state)
    groups = [group(f"{n}a", f"{n}b", domain=f"{n}.org") for n in range(4)]
    assert await discover(state, *groups, high_water=10, most_outstanding=5) == "aaaaawww"
    assert await discover(state, *groups, high_water=10, most_outstanding=5) == "w" * 8
    assert await discover(state, *groups, high_water=10) == "kkkkkaaa"
    await db(state).hset(state.keys.counters, "outstanding", 1_000_000)
    await db(state).hset(state.keys.rates, "museum.org", "100")
    await discover(state, group(*(str(n) for n in range(150))))
    assert await counters(state) == (1_000_008, 142)


async def test_links_and_seeds_share_the_seen_filter(state: State) -> None:
    await join(state)
    await rule(state)
    await feed(state, *requests("a"))
    assert (await discover(state, group("a", "b"))) == "ka"
    assert (await feed(state, *requests("b"))).duplicates == 1
    assert await outstanding(state) == 2


async def test_what_an_operator_drops_of_a_source_is_given_back_to_its_budget(state: State) -> None:
    await lead(state)
    budget, links = Budget(2, 0, 1000, 1), [group("a", host=1), group("b", host=1), group("c", host=2)]
    assert (await discover(state, *links, budget=budget)) == "aab"
    await state.scripts.drop_queued("museum.org", "purged", count=0)
    assert (await discover(state, links[2], budget=budget)) == "b"
    await state.scripts.drop_queued("museum.org", "purged", count=9)
    assert (await discover(state, links[2], group("d", host=2), group("e"), budget=budget)) == "aab"
    assert await counters(state) == (2, 0)
