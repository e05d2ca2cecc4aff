"""exclude.lua, drop_queued.lua, and what heeds them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from scrapy import Request

from crawlproject.errors import Excluded
from crawlproject.frontier import codec
from crawlproject.frontier.codec import digest_of, name_in
from crawlproject.frontier.seeds import new_request
from crawlproject.models import IDENTIFIER, MODE, SITEMAP, SOURCE
from crawlproject.politeness.slots import tolerance
from crawlproject.spiders.images import ImagesSpider
from crawlproject.state.calls import EnqueueReply, NewRequest
from crawlproject.state.client import State
from crawlproject.state.source_counts import counts_in
from tests.state.calls.calls import db, join, lease, outstanding, rule, settle, slot_of
from tests.waiting import until_async

SPIDER = ImagesSpider()


def image(url: str, source: str | None = "museum", **more: Any) -> NewRequest:
    """Return a request as a seed with this URL makes it, identified by its end."""
    meta: dict[str, Any] = {IDENTIFIER: url[-100:]} | ({} if source is None else {SOURCE: source})
    return new_request(Request(url, meta=meta, **more), SPIDER)


async def enqueue(state: State, images: Iterable[NewRequest]) -> EnqueueReply:
    reply = await state.scripts.enqueue("w", list(images))
    assert reply is not None
    return reply


async def urls(state: State, **more: Any) -> list[str]:
    """Lease, and return what for."""
    reply = await lease(state, **more)
    return [codec.decode(grant.entry, SPIDER).url for grant in reply.grants]


async def dropped(state: State, source: str, what: str = "excluded") -> int:
    """Return how many were counted of a source; the total is no less."""
    total = int(await db(state).hget(state.keys.totals, what) or 0)
    of_source = counts_in(await db(state).hget(state.keys.counts, source)).get(what, 0)
    assert total >= of_source
    return of_source


async def audit(state: State) -> list[dict[str, Any]]:
    return [json.loads(fields[b"event"]) for _, fields in await db(state).xrange(state.keys.audit)]


async def test_what_waits_under_an_excluded_name_is_dropped_whatever_paces_it(state: State) -> None:
    await start(state)
    named = [image(f"http://a.example/{n}", source="made-up") for n in range(3)]
    others = [image("http://a.example/8", source="other-name"), image("http://a.example/9", source=None)]
    meta = {IDENTIFIER: "m", SOURCE: "made-up", "redirect_urls": ["http://b.example/"]}
    moved = Request("http://a.example/moved", meta=meta)
    await enqueue(state, [*named, *others, new_request(moved, SPIDER)])
    (grant,) = (await lease(state)).grants
    await db(state).set(state.keys.override_rate_of + "a.example", "200")
    await db(state).sadd(state.keys.excluded, "made-up")
    assert grant.entry == named[0].entry
    await settle(state, grant, entry=grant.entry, delay=60)  # a retry
    assert await dropped(state, "a.example") == 1
    left: list[str] = []

    async def all_leased() -> bool:
        await db(state).delete(state.keys.slots)
        left.extend(await urls(state))
        return await dropped(state, "a.example") == 3 and len(left) == 3

    await until_async(all_leased)
    assert left == ["http://a.example/8", "http://a.example/9", "http://a.example/moved"]
    assert await outstanding(state) == 3


async def start(state: State, rate: float = 200.0) -> int:
    await join(state)
    return await rule(state, ("museum", rate), ("other", 200.0))


async def test_nothing_of_an_excluded_source_is_admitted_and_the_rest_is(state: State) -> None:
    await start(state)
    await state.scripts.exclude({"museum": ""}, by="me")
    reply = await enqueue(
        state, [image("http://a.example/1"), image("http://a.example/2", "other"), image("http://a.example/3")]
    )
    assert (reply.admitted, reply.excluded, reply.dead, await outstanding(state)) == (1, 2, 0, 1)
    assert await dropped(state, "museum") == 2
    assert await db(state).xlen(state.keys.dead) == 0
    await state.scripts.include(["museum"], by="me")
    assert (await enqueue(state, [image("http://a.example/1")])).admitted == 1  # it was not noted as seen


@pytest.mark.parametrize(
    ("url", "is_excluded"),
    [
        ("http://museum.example/a.jpg", True),
        ("https://MUSEUM.example:8443/a.jpg", True),
        ("http://museum.example./a.jpg", True),
        ("http://img.cdn.museum.example?x=y", True),
        ("http://museum.example/" + "a" * 2000, True),
        ("http://bücher.example/", True),
        ("http://192.0.2.7/a.jpg", True),
        ("http://[2001:db8::7]:8080/a.jpg", True),
        ("http://notmuseum.example/a.jpg", False),
        ("http://museum.example.org/a.jpg", False),
        ("http://other.example/museum.example/?u=http://museum.example/", False),
        ("http://a.single/", False),
    ],
)
async def test_a_domain_stands_for_its_host_and_those_below_it(state: State, url: str, is_excluded: bool) -> None:
    await start(state)
    names = ("museum.example", "xn--bcher-kva.example", "192.0.2.7", "2001:db8::7", "single")
    await state.scripts.exclude(dict.fromkeys(names, ""), by="me")
    reply = await enqueue(state, [image(url)])
    assert (reply.excluded, reply.admitted) == ((1, 0) if is_excluded else (0, 1))


@pytest.mark.parametrize("of_gone", [3, 300])
async def test_leases_pass_over_an_excluded_host_and_its_requests_use_no_slots(state: State, of_gone: int) -> None:
    await join(state)
    await rule(state, ("museum", 0.1))  # a slot in ten seconds
    kept = range(of_gone, 600, of_gone + 1)  # between them, `of_gone` in a row
    urls_of = (f"http://{'kept' if n in kept else 'gone'}.example/{n}" for n in range(600))
    images = (image(url, priority=number // 200) for number, url in enumerate(urls_of))
    await enqueue(state, [*images, image("http://kept.example/last")])
    await state.scripts.exclude({"gone.example": ""}, by="me")
    found: list[str] = []
    for _ in range(9):
        before = await outstanding(state)
        found += await urls(state)
        assert before - await outstanding(state) <= 350  # a bounded part at a call
    assert len(found) == 1
    assert "kept" in found[0]
    waiting = int(await db(state).hget(state.keys.counters, "overflow") or 0)
    assert await outstanding(state) + waiting == 601 - await dropped(state, "museum")
    await rule(state, ("museum", 200.0))
    for _ in range(9):
        found += await urls(state, horizon=100.0)
    assert await dropped(state, "museum") == 600 - len(kept)
    assert len(found) == len(kept) + 1
    assert not [url for url in found if "gone" in url]


async def test_an_excluded_source_that_drains_keeps_none_from_its_slots(state: State) -> None:
    await start(state)
    await enqueue(state, (image(f"http://a.example/{number}") for number in range(400)))
    await state.scripts.exclude({"museum": ""}, by="me")
    await enqueue(state, (image(f"http://b.example/{number}", "other") for number in range(5)))
    assert len(await urls(state)) == 5
    assert await dropped(state, "museum") == 250


async def test_what_waits_of_a_source_is_dropped_wherever_it_waits(state: State) -> None:
    await start(state, 0.02)
    # Queued, of two priorities, and in the overflow:
    batch = [image(f"http://a.example/{number}", priority=number % 2) for number in range(30)]
    assert (await enqueue(state, batch)).admitted == 30
    assert int(await db(state).hget(state.keys.counters, "overflow")) > 0
    await db(state).hset(state.keys.rates, "museum", 200)
    # Delayed, by its settlement and as a suspect:
    one, two = (await lease(state, 2)).grants
    await settle(state, one, entry=one.entry, delay=3600.0)
    await settle(state, two, entry=codec.with_deliveries(two.entry, 2))
    await lease(state, 1, suspect=True)
    [status] = await state.scripts.inspect(["museum"])
    assert status.delayed == 2
    leased = await db(state).hlen(state.keys.leases_of + "w")

    assert await state.scripts.drop_all("museum", "excluded") == 0  # it is not excluded
    await state.scripts.exclude({"museum": ""}, by="me")
    assert await state.scripts.drop_all("museum", "excluded") == 30 - leased
    assert (await state.scripts.drop_queued("museum", "purged", count=0)).left == 0
    assert await dropped(state, "museum") == 30 - leased
    assert await outstanding(state) == leased
    assert int(await db(state).hget(state.keys.counters, "overflow")) == 0
    for key in state.keys.due:
        assert await db(state).exists(key) == 0


async def test_what_waits_in_an_overflow_follows_dropped_requests_while_the_frontier_is_full(state: State) -> None:
    await start(state, 0.01)  # a window of 8
    gone = [image(f"http://gone.example/{number}") for number in range(8)]
    await enqueue(state, [*gone, *(image(f"http://a.example/{number}") for number in range(4))])
    assert int(await db(state).hget(state.keys.counters, "overflow")) == 4
    await db(state).hincrby(state.keys.counters, "outstanding", 100)  # other sources'
    await state.scripts.exclude({"gone.example": ""}, by="me")
    await lease(state, high_water=8)
    assert [status.queued for status in await state.scripts.inspect(["museum"])] == [4]


@pytest.mark.parametrize("name", ["museum", "gone.example"])
async def test_what_comes_back_to_the_frontier_is_dropped_and_a_result_counts(state: State, name: str) -> None:
    await start(state)
    await enqueue(state, (image(f"http://gone.example/{number}") for number in range(3)))
    retried, returned, done = (await lease(state)).grants
    await state.scripts.exclude({name: ""}, by="me")
    await settle(state, retried, entry=retried.entry, delay=60.0, status="500", fine=False)
    await settle(state, returned, entry=returned.entry)
    await settle(state, done, event=("link_rot", "{}"), status="404", fine=True)
    assert (await outstanding(state), await dropped(state, "museum")) == (0, 2)
    assert await db(state).xlen(state.keys.link_rot_events) == 1


async def test_a_redirect_to_an_excluded_host_is_dropped(state: State) -> None:
    await start(state)
    await enqueue(state, [image("http://kept.example/1")])
    [one] = (await lease(state)).grants
    await state.scripts.exclude({"gone.example": ""}, by="me")
    request = codec.decode(one.entry, SPIDER)
    meta = request.meta | {"redirect_urls": [request.url]}
    target = request.replace(url="http://img.gone.example/1", meta=meta, headers={"Referer": "x"})
    await settle(state, one, entry=codec.encode(target, SPIDER), domain="gone.example", answered=True)
    assert (await outstanding(state), await dropped(state, "museum")) == (0, 1)
    await state.scripts.include(["gone.example"], by="me")
    assert (await enqueue(state, [image("http://kept.example/1")])).admitted == 1


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {IDENTIFIER: "ü"},
        {SITEMAP: [0, 9]},
        {IDENTIFIER: "1", MODE: ["half", {}]},
        {"redirect_urls": ["http://b.example/"]},
    ],
)
async def test_a_function_knows_the_digest_of_what_it_drops(
    state: State, meta: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "modes", lambda: {"half": SimpleNamespace(stored=dict)})  # of a plug-in
    await start(state)
    pages: Any = SimpleNamespace(stored_meta={SITEMAP})
    headers = {"Referer": "http://c.example/é"}
    request = Request("http://a.example/ü", meta=meta | {SOURCE: "museum"}, headers=headers)
    digest = digest_of(name_in(meta), (meta.get("redirect_urls") or [request.url])[0])
    entry = codec.encode(request, pages)
    assert (await enqueue(state, [NewRequest(entry, digest, again=False, source="museum")])).admitted
    assert await state.scripts.was_seen(digest)
    await state.scripts.drop_all("museum", "purged")
    assert not await state.scripts.was_seen(digest)


@pytest.mark.parametrize(
    "meta",
    [
        *({"crawl_mode": 5}, {"crawl_mode": [{}]}, {"crawl_mode": "x"}),
        *({"redirect_urls": 5}, {"redirect_urls": [{}]}),
        *({"identifier": {}}, {"source": {}}, 5),
    ],
)
async def test_what_has_no_digest_is_leased_or_dropped_like_any_other(state: State, meta: object) -> None:
    await start(state)
    await state.scripts.exclude({"gone.example": ""}, by="me")
    entry = bytes((1, 0, 0)) + msgpack.packb({"url": "http://a.example/", "meta": meta})
    await enqueue(state, [NewRequest(entry, digit * 8, again=False, source="museum") for digit in (b"1", b"2")])
    (grant,) = (await lease(state, want=1)).grants
    assert grant.entry == entry
    await state.scripts.drop_all("museum", "purged")
    assert await outstanding(state) == 1


@pytest.mark.parametrize(("name", "host"), [("museum.example", "img.museum.example"), ("museum", "elsewhere")])
async def test_no_slot_is_given_to_an_excluded_source_or_host(state: State, name: str, host: str) -> None:
    await start(state)
    slot = replace(await slot_of(state, source="museum", host=host), late=60.0)
    await state.scripts.exclude({name: ""}, by="me")
    with pytest.raises(Excluded, match=f"{host} or its source is excluded"):
        await state.scripts.acquire(source="museum", host=host)
    assert not await state.scripts.confirm(slot, host=host)
    assert await state.scripts.renew(slot, within=0.5, host=host) is None
    assert await state.scripts.confirm(slot, host="other.example") == (name != "museum")


async def test_what_was_leased_before_an_exclusion_may_be_sent_for_750_ms(state: State) -> None:
    await join(state)
    rates = [0.2, 1.0, 5.0, 20.0, 200.0]
    await rule(state, *((f"site{number}", rate) for number, rate in enumerate(rates)))
    await enqueue(
        state, (image(f"http://a.example/{of}/{n}", f"site{of}") for of in range(len(rates)) for n in range(100))
    )
    grants = (await lease(state, want=500)).grants
    assert {grant.rate for grant in grants} == {*rates}
    seconds, micros = await db(state).time()
    last = max(grant.at + tolerance(grant.rate) * 1e6 for grant in grants)
    assert last <= seconds * 1e6 + micros + 0.75e6
    await state.scripts.exclude({f"site{number}": "" for number in range(len(rates))}, by="me")
    assert (await lease(state, want=500)).grants == []


async def test_an_exclusion_ends_when_neither_operator_nor_file_holds_it(state: State) -> None:
    fence = await start(state)
    scripts = state.scripts
    assert await scripts.exclude({"museum": "asked by mail"}, by="me")
    assert await scripts.exclude({"museum": "in the list"}, fence=fence)
    assert await scripts.include(["museum"], by="me") == {"museum": "file"}
    assert await db(state).sismember(state.keys.excluded, "museum")
    assert await scripts.include(["museum"], fence=fence) == {"museum": "included"}
    assert await scripts.include(["museum"], by="me") == {"museum": "not excluded"}
    assert await db(state).keys("crawl:excluded*") == []
    told = [(one["event"], one["type"], one["source"], one["by"]) for one in await audit(state)]
    assert told == [
        ("crawl_excluded", "operator", "museum", "operator, me"),
        ("crawl_included", "file", "museum", "worker leader"),
    ]


async def test_a_purge_is_noted_once_and_takes_no_more_than_waited(state: State) -> None:
    await start(state)
    await enqueue(state, (image(f"http://a.example/{number}") for number in range(700)))
    assert await state.scripts.drop_all("museum", "purged", by="me") == 700
    assert (await state.scripts.drop_queued("museum", "purged", count=0)).left == 0
    [told] = await audit(state)
    assert (told["event"], told["by"]) == ("queue_purged", "operator, me")
    assert told["msg"] == "museum: its queue is emptied of 700 requests"
