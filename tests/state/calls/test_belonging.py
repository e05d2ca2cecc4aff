"""Which source a request belongs to: a name in its seed counts only where the catalogue or an operator says so."""

from __future__ import annotations

import random
from typing import Any

import pytest
from scrapy import Request

from crawlproject.frontier import codec
from crawlproject.frontier.seeds import new_request
from crawlproject.models import IDENTIFIER, SOURCE
from crawlproject.spiders.images import ImagesSpider
from crawlproject.state.calls import Attribution, DeadLetter
from crawlproject.state.client import State
from tests.robots_copies import keep_copy
from tests.state.calls.calls import change_packed, db, join, lease, outstanding, packed_at, rule, settle, source_of

SPIDER = ImagesSpider()


def request_to(url: str, source: str | None = None, **meta: Any) -> Request:
    meta |= {IDENTIFIER: url} | ({} if source is None else {SOURCE: source})
    return Request(url, meta=meta)


async def feed(state: State, *seeds: tuple[str, str | None]) -> None:
    """Enqueue a request for each URL and the source that its seed names."""
    items = [new_request(request_to(url, source), SPIDER) for url, source in seeds]
    assert await state.scripts.enqueue("w", items)


async def catalogue(state: State, claims: dict[str, str] | None = None, **rates: float) -> int:
    """Lead, with a catalogue of these rates; `claims` are the domains that a row is bound to, and has."""
    fence = await rule(state)
    claims = claims or {}
    rows = [(name, rate, rate) for name, rate in rates.items()]
    padded = {name: f" {domains} " for name, domains in claims.items()}
    hosts = {domain: name for name, domains in claims.items() for domain in domains.split()}
    assert await state.scripts.set_rates(fence, rows, hosts, {}, padded)
    return fence


async def queued(state: State) -> dict[str, int]:
    """Return how many requests wait in the queue of each source."""
    prefix = f"{state.keys.queue_of}0:"
    return {
        key.decode().removeprefix(prefix): await db(state).llen(key)
        for key in sorted(await db(state).keys(prefix + "*"))
    }


async def test_made_up_names_for_one_host_are_one_source(state: State) -> None:
    await catalogue(state)
    await feed(state, *((f"http://img{n}.victim.org/{n}.jpg", f"made-up-{n}") for n in range(60)))
    assert await queued(state) == {"victim.org": 60}
    due = [source for key in state.keys.due for source in await db(state).zrange(key, 0, -1)]
    assert due == [b"victim.org"]  # one entry for what is paced
    assert await db(state).hkeys(state.keys.rates) == [b"victim.org"]
    await join(state)
    assert len((await lease(state)).grants) == 1  # 0.2 requests a second, for all names together


async def test_a_row_with_hosts_holds_for_these_and_for_no_others(state: State) -> None:
    claims = {"museum": "museum.org museum.net", "archive": "archive.org museum.org"}
    await catalogue(state, claims, museum=50, archive=5, photos=50)
    await feed(
        state,
        ("http://img.museum.org/1.jpg", "museum"),
        ("http://museum.net/2.jpg", "museum"),
        ("http://museum.net/3.jpg", None),
        ("http://museum.net/4.jpg", "made-up"),  # belongs to whom the domain is of
        ("http://archive.org/5.jpg", "museum"),
        ("http://museum.org/6.jpg", "archive"),  # rows that share a domain are each believed there
        ("http://victim.org/7.jpg", "museum"),
        ("http://notmuseum.org/8.jpg", "museum"),
        ("http://cdn.example/9.jpg", "photos"),  # a row without hosts is believed on any
    )
    expected = {"museum": 4, "archive": 2, "victim.org": 1, "notmuseum.org": 1, "photos": 1}
    assert await queued(state) == expected


async def test_an_operators_rate_makes_a_name_believed_until_it_is_taken_back(state: State) -> None:
    await catalogue(state)
    await join(state)
    await db(state).set(state.keys.override_rate_of + "gallery", "100")
    await db(state).set(state.keys.override_rate_of + "nonsense", "fast")  # no rate
    await feed(state, *((f"http://cdn.example/{n}.jpg", "gallery") for n in range(5)))
    await feed(state, ("http://cdn.example/5.jpg", "nonsense"))
    assert await queued(state) == {"gallery": 5, "cdn.example": 1}
    assert len((await lease(state)).strays) == 0
    await db(state).delete(state.keys.override_rate_of + "gallery")
    await feed(state, ("http://cdn.example/6.jpg", "gallery"))
    assert (await queued(state))["cdn.example"] == 1  # the first one is leased


async def put_with(state: State, source: str, *requests: Request) -> None:
    """Store requests in the queue of `source`, as an earlier version or catalogue had them."""
    items = [new_request(request, SPIDER) for request in requests]
    entries = [item.entry for item in items]
    await db(state).rpush(f"{state.keys.queue_of}0:{source}", *entries)
    await db(state).hincrby(state.keys.counters, "outstanding", len(entries))
    await db(state).zadd(state.keys.due[-1], {source: 0})


async def test_what_waits_follows_the_catalogue(state: State) -> None:
    fence = await catalogue(state, photos=50)
    await join(state)
    await feed(state, ("http://cdn.example/1.jpg", "photos"), ("http://museum.org/2.jpg", "later"))
    assert await queued(state) == {"photos": 1, "museum.org": 1}
    # One row leaves, another comes.
    assert await state.scripts.forget(fence, ["photos"], [])
    await state.scripts.set_rates(fence, [("later", 20, 20)], {}, {}, {})
    reply = await lease(state)
    assert reply.grants == []
    assert await db(state).hlen(state.keys.leases_of + "w") == 2  # none is lost with its worker
    homes = {"photos": ("cdn.example", "photos"), "museum.org": ("museum.org", "later")}
    for stray in reply.strays:
        domain, name = homes[source_of(stray)]
        await settle(state, stray, entry=stray.entry, domain=domain, name=name)
    assert await queued(state) == {"cdn.example": 1, "later": 1}
    # A row comes that has the domain.
    rows = [("cdn", 20.0, 20.0)]
    await state.scripts.set_rates(fence, rows, {"cdn.example": "cdn"}, {}, {"cdn": " cdn.example "})
    reply = await lease(state)
    (stray,) = reply.strays
    assert [source_of(grant) for grant in reply.grants] == ["later"]
    await settle(state, stray, entry=stray.entry, domain="cdn.example")
    assert await queued(state) == {"cdn": 1}
    assert [source_of(grant) for grant in (await lease(state)).grants] == ["cdn"]


async def test_a_row_that_gets_hosts_lets_go_of_what_leads_elsewhere(state: State) -> None:
    fence = await catalogue(state, museum=50)
    await join(state)
    await feed(state, ("http://museum.org/1.jpg", "museum"), ("http://victim.org/2.jpg", "museum"))
    rows = [("museum", 50.0, 50.0)]
    await state.scripts.set_rates(fence, rows, {"museum.org": "museum"}, {}, {"museum": " museum.org "})
    reply = await lease(state)
    assert [b"museum.org" in grant.entry for grant in reply.grants] == [True]
    assert [b"victim.org" in stray.entry for stray in reply.strays] == [True]


@pytest.mark.parametrize("case", range(8))
async def test_a_request_belongs_to_the_source_that_it_is_said_to_be_of(state: State, case: int) -> None:
    chance = random.Random(case)
    hosts = {"a.org": "a.org", "i.a.org": "a.org", "b.net": "b.net", "1.2.3.4": "1.2.3.4", "[::5]": "::5"}
    domains = sorted(set(hosts.values()))
    sources = ["x", "y", *domains]
    await join(state)
    fence = await rule(state)
    bound = {name: chance.sample(domains, chance.randint(0, 2)) for name in sources if chance.random() < 0.5}
    rows = [(name, 50.0, 50.0) for name in sources if name in bound or chance.random() < 0.2]
    claims = {name: f" {' '.join(found)} " if found else " " for name, found in bound.items()}
    owners = {domain: name for name, found in bound.items() for domain in found}
    assert await state.scripts.set_rates(fence, rows, owners, {}, claims)
    for name in sources:
        if chance.random() < 0.15:
            await db(state).set(state.keys.override_rate_of + name, "100")
    for host, domain in hosts.items():
        named = chance.choice([None, "made-up", *sources])
        redirected = {"redirect_urls": ["http://c.org/"]} if chance.random() < 0.2 else {}
        request = request_to(f"http://{host}/1", named, **redirected)
        source = (await state.scripts.attribute(codec.named_source(request), domain)).source
        await put_with(state, source, request)
        reply = await lease(state)
        assert (len(reply.grants), reply.strays) == (1, []), (host, named, redirected, source, bound)
        await db(state).delete(state.keys.slots)


async def test_what_moves_keeps_to_the_window_of_the_source_that_it_comes_to(state: State) -> None:
    await catalogue(state, {"cdn": "cdn.example"}, photos=500, cdn=0.01)  # a window of 8
    await join(state)
    await feed(state, *((f"http://cdn.example/{n}", None) for n in range(9)))
    await db(state).sadd(state.keys.halted, "cdn")
    await feed(state, *((f"http://photos.example/{n}", "photos") for n in range(2)))
    redirected, stray = (await lease(state)).grants
    for one, url in ((redirected, "http://cdn.example/first"), (stray, "http://cdn.example/last")):
        entry = codec.encode(request_to(url), SPIDER)
        await settle(state, one, entry=entry, domain="cdn.example", stray=one is stray)
    apart = await db(state).lrange(f"{state.keys.overflow_of}0:cdn", 0, -1)
    assert [codec.url_of(entry).rpartition("/")[2] for entry in apart] == ["8", "first", "last"]
    assert (await outstanding(state), await db(state).hget(state.keys.counters, "overflow")) == (8, b"3")


async def test_while_the_frontier_is_full_what_waits_in_its_overflow_follows_what_moves(state: State) -> None:
    fence = await catalogue(state, photos=0.01)  # a window of 8
    await join(state)
    await feed(state, *((f"http://cdn.example/{n}", "photos") for n in range(9)))
    assert await state.scripts.forget(fence, ["photos"], [])
    assert len((await lease(state, high_water=8)).strays) == 8
    assert await queued(state) == {"photos": 1}


async def test_strays_of_a_half_open_circuit_take_no_place_of_its_probes(state: State) -> None:
    await catalogue(state)
    await join(state)
    circuit = state.keys.circuit_of + "made-up"
    await put_with(state, "made-up", request_to("http://victim.org/1", "made-up"))
    await change_packed(db(state), circuit, state="half_open", generation=4, probing=1)
    (stray,) = (await lease(state)).strays
    await settle(state, stray, entry=stray.entry, domain="victim.org")
    assert await packed_at(db(state), circuit) == {"state": "half_open", "generation": 4, "probing": 1}


async def test_a_redirect_elsewhere_is_of_whom_it_leads_to_and_stays_there(state: State) -> None:
    await catalogue(state, photos=50)
    await join(state)
    await feed(state, ("http://museum.org/1.jpg", "photos"))
    (grant,) = (await lease(state)).grants
    moved = request_to("http://cdn.example/1.jpg", "photos", redirect_urls=["http://museum.org/1.jpg"])
    entry = codec.encode(moved, SPIDER)
    await settle(state, grant, entry=entry, domain="cdn.example")
    reply = await lease(state)
    assert [source_of(grant) for grant in reply.grants] == ["cdn.example"]
    assert reply.strays == []


async def test_a_dead_letter_that_is_retried_goes_where_it_belongs_by_now(state: State) -> None:
    await catalogue(state, photos=50)
    entry = codec.encode(request_to("http://victim.org/1.jpg", "made-up"), SPIDER)
    await db(state).xadd(state.keys.dead, {"entry": entry, "source": "made-up", "reason": "status 500"}, "1-1")
    letter = DeadLetter("1-1", "made-up", entry, domain="victim.org", name="made-up")
    assert await state.scripts.take_dead([letter]) == 1
    assert await queued(state) == {"victim.org": 1}


ORIGIN = "http://museum.org:80/robots.txt"


async def test_permission_to_ignore_robots_txt_is_for_the_hosts_of_its_row(state: State) -> None:
    fence = await catalogue(state, {"museum": "museum.org"}, museum=50)
    options = {
        "museum": '{"robots": "ignore", "hosts": ["img.museum.org", "museum.github.io", "localhost", "net"]}',
        "photos": '{"robots": "ignore"}',  # without hosts
    }
    rows = [("museum", 50.0, 50.0), ("photos", 50.0, 50.0)]
    await state.scripts.set_rates(fence, rows, {}, options, dict.fromkeys(options, " github.io museum.org "))
    for origin, source, what in (
        ("https://img.museum.org:443/robots.txt", "museum", "ignore"),
        ("https://a.IMG.museum.org:443/robots.txt", "museum", "ignore"),
        ("http://museum.github.io:80/robots.txt", "museum", "ignore"),
        ("http://localhost:80/robots.txt", "museum", "ignore"),
        (ORIGIN, "museum", "rules"),
        ("http://www.museum.org:80/robots.txt", "museum", "rules"),
        ("http://notimg.museum.org:80/robots.txt", "museum", "rules"),
        ("http://victim.github.io:80/robots.txt", "museum", "rules"),
        ("http://victim.net:80/robots.txt", "museum", "rules"),
        ("http://victim.org:80/robots.txt", "museum", "rules"),
        (ORIGIN, "photos", "rules"),
    ):
        await keep_copy(state, origin, source, body=b"User-agent: *\nDisallow: /")
        assert (await state.scripts.look_robots(None, origin, source)).what == what, (origin, source)


DOMAINS = ["museum.com", "collection.v2", "127.0.0.1", "2001:db8::1", "::1", "a-1.xn--p1ai", "b\u00fccher.de"]


async def test_it_is_said_which_source_a_request_belongs_to_and_why_and_its_slot_is_of_that(state: State) -> None:
    await catalogue(state, {"museum": "museum.net museum.org"}, museum=50, photos=20)
    for name in ("gallery", *DOMAINS):
        await db(state).set(state.keys.override_rate_of + name, "3")
    told: dict[tuple[str | None, str | None], Attribution] = {
        ("museum", "museum.org"): Attribution("museum", "bound", ["museum.net", "museum.org"]),
        ("museum", "victim.org"): Attribution("victim.org", "bound", ["museum.net", "museum.org"]),
        ("photos", "victim.org"): Attribution("photos", "row", []),
        ("gallery", "victim.org"): Attribution("gallery", "rate", []),
        ("made-up", "victim.org"): Attribution("victim.org", "unknown", []),
        (None, "museum.net"): Attribution("museum", "", []),
        ("made-up", None): Attribution("made-up", "unknown", []),
        ("made-up", "museum.org"): Attribution("museum", "unknown", []),
        ("museum", None): Attribution("museum", "bound", ["museum.net", "museum.org"]),
        # the rate of a domain is lent to no other
        **{(name, "victim.org"): Attribution("victim.org", "domain", []) for name in DOMAINS},
    }
    for (named, domain), attribution in told.items():
        assert await state.scripts.attribute(named, domain) == attribution, (named, domain)
        slot, wait = await state.scripts.acquire(source=named, domain=domain)
        assert wait > 0 if slot is None else slot.source == attribution.source
