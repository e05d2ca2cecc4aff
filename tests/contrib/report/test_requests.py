"""What was requested of a source: as the scripts count it, and as it is read for its report."""

from __future__ import annotations

import asyncio
from typing import Any

import msgpack
import pytest

from crawlproject.config import CircuitRules
from crawlproject.contrib.report.requests import Hour, read_requests
from crawlproject.models import Lease, Requested
from crawlproject.state.calls import Settlement
from crawlproject.state.client import State
from tests.state.calls.calls import change_packed, db, entry, join, lead, lease, put, rule
from tests.state.test_circuit_script import MUSEUM, Crawl

SECOND = 1_000_000


async def moment(state: State) -> int:
    """Return a moment some seconds ago (µs), early in its second, in an hour that has lasted for a while."""
    seconds, _ = await db(state).time()
    return int((seconds - 20) * SECOND + 1000)


async def leased(state: State, count: int) -> list[Lease]:
    """Lease so many requests; after a long pause, as of a busy machine, nothing goes out for half a second."""
    grants: list[Lease] = []
    while len(grants) < count:
        await lead(state)
        await join(state)
        grants += (await lease(state, count - len(grants), horizon=60.0, room=1000)).grants
        await asyncio.sleep(0.01)
    return grants


async def send(state: State, moments: list[int], **more: Any) -> None:
    """Lease a request for each moment, and settle it as sent then."""
    result: dict[str, Any] = {"result": "200", "rate": 50.0, "received": 1000} | more
    await put(state, [entry(str(n)) for n in range(len(moments))])
    grants = await leased(state, len(moments))
    ends = [
        Settlement(
            grant.id,
            "museum",
            event=("link_rot", "{}"),
            status="200",
            requested=Requested("museum", at, result["rate"], result["result"], result["received"]),
        )
        for grant, at in zip(grants, moments, strict=True)
    ]
    reply = await state.scripts.settle("w", ends)
    assert all(reply.settled)
    again = await state.scripts.settle("w", ends)  # as after a reply that was lost
    assert not any(again.settled)


def joined(hours: list[Hour]) -> Hour:
    """Return two hours as one, where the turn of the hour came between."""
    first, *rest = hours
    for hour in rest:
        peak = max(first, hour, key=lambda one: one.peak)
        first = first._replace(
            requests=first.requests + hour.requests,
            received=first.received + hour.received,
            last=hour.last,
            peak=peak.peak,
            peak_at=peak.peak_at,
            kinds={
                name: first.kinds.get(name, 0) + hour.kinds.get(name, 0) for name in {*first.kinds, *hour.kinds}
            },
        )
    return first


@pytest.fixture
async def crawl(state: State) -> State:
    await join(state)
    await rule(state, ("museum", 200), ("other", 200))
    return state


async def test_requests_count_once_where_they_were_sent(crawl: State) -> None:
    at = await moment(crawl)
    # Settled in any order: 3 in one second, 2 in the next, 1 in the one after that.
    await send(crawl, [at + SECOND, at + 300_000, at + 2 * SECOND, at])
    await send(crawl, [at + 990_000, at + SECOND + 900_000], result="timeout", received=7, rate=60.0)
    found = await read_requests(crawl, "museum")
    hour = joined(found.hours)
    assert (hour.requests, hour.received, hour.peak) == (6, 4014, 3)
    assert hour.peak_at == at // SECOND
    assert hour.first == pytest.approx(at / SECOND, abs=0.0011)
    assert hour.last == pytest.approx(at / SECOND + 2, abs=0.0011)
    assert hour.kinds == {"200": 4, "timeout": 2}
    assert found.hours[-1].rate == 60.0
    assert (await read_requests(crawl, "other")).hours == []


async def test_an_hour_in_which_another_version_has_counted_goes_on(crawl: State) -> None:
    at = await moment(crawl)
    hour = at // SECOND // 3600
    # As each version writes it: two may run side by side.
    before = msgpack.packb([3, 10, 0, 1, 1, 0, 1000, "200", 1, "timeout", 2])
    key = f"{crawl.keys.requests_of}{hour // 96}:museum"
    await db(crawl).hset(key, str(hour % 96), before)
    await send(crawl, [at])
    assert msgpack.unpackb(await db(crawl).hget(key, str(hour % 96)))[7:] == ["200", 2, "timeout", 2]
    [found] = (await read_requests(crawl, "museum")).hours
    assert (found.requests, found.kinds) == (4, {"200": 2, "timeout": 2})


async def test_what_was_not_sent_is_no_request(crawl: State) -> None:
    await put(crawl, [entry("a"), entry("b"), entry("c")])
    dns, robots, image = await leased(crawl, 3)
    await crawl.scripts.settle(
        "w",
        [
            Settlement(dns.id, "museum", dns.entry, delay=1.0, status="dns", fine=False),
            Settlement(robots.id, "museum", robots.entry, dead="x", refusal=True, forbidden="robots"),
            Settlement(image.id, "museum", image.entry, dead="x", refusal=True, forbidden="opt_out"),
        ],
    )
    hour = joined((await read_requests(crawl, "museum")).hours)
    assert (hour.requests, hour.peak) == (0, 0)
    assert hour.kinds == {"-dns": 1, "robots": 1, "opt_out": 1}


async def test_a_slow_answer_counts_in_its_second_and_a_very_late_one_alone(crawl: State) -> None:
    at = await moment(crawl)
    await send(crawl, [at, at + 1])
    await send(crawl, [at + 19 * SECOND])
    await send(crawl, [at + 2])  # 19 s later: is known still
    assert joined((await read_requests(crawl, "museum")).hours).peak == 3
    await send(crawl, [at - 70 * SECOND] * 3)
    hour = joined((await read_requests(crawl, "museum")).hours)
    assert (hour.requests, hour.peak) == (7, 3)


async def test_a_robots_txt_counts_for_who_pays_and_is_noted_for_who_asks(crawl: State) -> None:
    at = await moment(crawl)
    url = "https://other.example/robots.txt"
    sent = Requested("other", at, 5.0, "200", 99)
    pauses: Any = {"retry": 60.0, "retry_max": 3600.0}
    await crawl.scripts.look_robots("t", url, "museum")
    for _ in range(2):  # the lock is lost before the second: it was requested all the same
        await crawl.scripts.keep_robots("t", url, kind="none", ttl=60, source="museum", requested=sent, **pauses)
    payer = joined((await read_requests(crawl, "other")).hours)
    assert (payer.requests, payer.received, payer.kinds) == (2, 198, {"200": 2, "txt": 2})
    asker = await read_requests(crawl, "museum")
    assert (asker.hours, [(one.url, one.result) for one in asker.robots]) == ([], [(url, "200")])
    for number in range(30):
        other = f"https://{number}.museum.example/robots.txt"
        await crawl.scripts.look_robots("t", other, "museum")
        await crawl.scripts.keep_robots("t", other, kind="none", source="museum", requested=sent, **pauses)
    assert len((await read_requests(crawl, "museum")).robots) == 16


async def test_a_request_without_a_lease_counts(crawl: State) -> None:
    await crawl.scripts.note_request(Requested("museum", await moment(crawl), 1.0, "404", 3))
    hour = joined((await read_requests(crawl, "museum")).hours)
    assert (hour.requests, hour.received, hour.kinds) == (1, 3, {"404": 1})


async def test_leases_of_a_dead_worker_may_have_been_sent(crawl: State) -> None:
    await put(crawl, [entry("a"), entry("b")])
    assert len(await leased(crawl, 2)) == 2
    await db(crawl).zadd(crawl.keys.workers, {"w": 5})
    await join(crawl, "other")
    await crawl.scripts.heartbeat("other", join=False, timeout=3600, max_deliveries=3)
    assert joined((await read_requests(crawl, "museum")).hours).kinds == {"lost": 2}


async def test_trouble_is_noted_with_its_time_and_reason(state: State) -> None:
    one = Crawl(state, CircuitRules(open=0.05, open_max=0.1))
    await one.start()
    await one.feed(1)
    [grant] = await leased(state, 1)
    held = Settlement(grant.id, MUSEUM, grant.entry, delay=9, status="429", fine=False, slows=True, hold=0.01)
    await state.scripts.settle("w", [held])
    await change_packed(db(state), state.keys.circuit_of + MUSEUM, hold=0)
    await one.feed(6)
    await one.settle(await leased(state, 6), "xxxxxx")
    found = await read_requests(state, MUSEUM)
    assert [one.what for one in found.incidents] == ["opened", "held", "slowed"]
    assert found.incidents[1].why == "status 429, Retry-After: 0 s"
    assert found.incidents[2].why == "status 429: to 50 % of its rate"
    assert joined(found.hours).kinds["opened"] == 1
    for _ in range(30):
        await db(state).sadd(state.keys.halted, MUSEUM)
        await one.watch()
        await db(state).srem(state.keys.halted, MUSEUM)
        await one.watch()
    found = await read_requests(state, MUSEUM)
    assert len(found.incidents) == 24
    assert {one.what for one in found.incidents} == {"halted", "resumed"}
    assert joined(found.hours).kinds["halted"] == 30
    assert 0 < await db(state).ttl(state.keys.incidents_of + MUSEUM) <= 90 * 86400
