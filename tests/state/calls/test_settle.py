"""The end of a lease, what is noted of it, and dead letters that live again: the scripts settle and take_dead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import redis

from crawlproject.state.calls import LATENCY_BOUNDS, PARSE_BOUNDS, DeadLetter, Settlement, SourceStatus, histogram
from crawlproject.state.client import State
from crawlproject.state.source_counts import counts_in
from tests.standing_clock import StandingClock
from tests.state.calls.calls import (
    begin,
    change_packed,
    db,
    entry,
    join,
    lease,
    names,
    outstanding,
    overview_of,
    packed_at,
    put,
    rule,
    settle,
    source_of,
    waiting,
)

pytestmark = pytest.mark.usefixtures("clock")  # no turn, at whose end all numbers begin anew, ends meanwhile


async def test_a_settled_lease_emits_its_event_once(state: State) -> None:
    await begin(state, 100, "a")
    (grant,) = (await lease(state)).grants
    counts = {"fetched": 1, "bytes": 3_000_000_000}
    event = ("image_metadata_updates", '{"x":1}')
    done: dict[str, Any] = {"event": event, "counts": counts, "status": "200"}
    assert await settle(state, grant, grant, **done) == [True, False]
    assert await settle(state, grant, **done) == [False]
    ((_, fields),) = await db(state).xrange(state.keys.image_events)
    assert fields == {b"event": b'{"x":1}'}
    assert await outstanding(state) == 0
    assert counts_in(await db(state).hget(state.keys.counts, "museum")) == counts
    assert await db(state).lrange(state.keys.statuses_of + "museum", 0, -1) == [b"200"]


async def test_only_the_worker_that_holds_a_lease_can_settle_it(state: State) -> None:
    await join(state)
    await join(state, "thief")
    await rule(state, ("museum", 100))
    await put(state, [entry("a")])
    (grant,) = (await lease(state)).grants
    assert await settle(state, grant, worker="thief", dead="x") == [False]
    assert await outstanding(state) == 1


async def test_a_lease_that_redis_has_forgotten_cannot_settle_another(state: State, clock: StandingClock) -> None:
    await begin(state, 100, "a", "b")
    before = {key: await db(state).dump(key) for key in await db(state).keys()}
    (forgotten,) = (await lease(state, 1)).grants
    await db(state).flushdb()  # a Redis that lost its last second, or a replica that takes over without it
    for key, value in before.items():
        await db(state).restore(key, 0, value)
    clock.advance(0.001)
    (other,) = (await lease(state, 1)).grants
    assert await settle(state, forgotten, dead="x") == [False]
    assert await settle(state, other, dead="x") == [True]


async def test_a_retry_waits_out_its_delay_and_then_comes_first(state: State, clock: StandingClock) -> None:
    await begin(state, 200, "a", "b", "c")
    grants = (await lease(state, want=2)).grants
    again = await settle(state, *grants, entry=entry("again"), delay=0.3)  # alike, and yet two
    assert again == [True, True]
    assert await outstanding(state) == 3
    assert names(await lease(state)) == ["c"]
    assert names(await lease(state)) == []
    clock.advance(0.29)
    assert names(await lease(state)) == []
    clock.advance(0.01)
    assert names(await lease(state)) == ["again", "again"]


async def test_what_is_given_back_goes_to_the_head_of_its_queue(state: State) -> None:
    await begin(state, 200, "a", "b")
    (grant,) = (await lease(state, want=1)).grants
    await settle(state, grant, entry=grant.entry)
    assert names(await lease(state)) == ["a", "b"]


async def test_a_redirect_to_another_domain_goes_to_the_source_that_pays(state: State) -> None:
    await join(state)
    fence = await rule(state, ("museum", 100), ("cdn", 50))
    await state.scripts.set_rates(fence, [], {"cdn.example": "cdn"})
    await put(state, [entry("a"), entry("b")])
    one, two = (await lease(state)).grants
    await settle(state, one, entry=one.entry, domain="cdn.example")
    await settle(state, two, entry=two.entry, domain="elsewhere.example")
    paying = {grant.entry[3:]: source_of(grant) for grant in (await lease(state)).grants}
    assert paying == {b"a": "cdn", b"b": "elsewhere.example"}


def nonzero(histogram: Sequence[int]) -> dict[int, int]:
    return {index: count for index, count in enumerate(histogram) if count}


async def test_how_long_fetches_took_is_kept_in_all_and_of_each_source(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 100), ("flickr", 100))
    await put(state, [entry(name) for name in "abcd"])
    await put(state, [entry("e")], "flickr")
    grants = (await lease(state, room=4)).grants
    taken = {"museum": iter((0.005, 0.5, 0.5, 70.0)), "flickr": iter((0.5,))}
    for grant in grants:  # in calls of their own: each adds to what is there
        await settle(state, grant, event=("link_rot", "{}"), status="404", fetch_s=next(taken[source_of(grant)]))
    museum, flickr, other = [one.fetches for one in await state.scripts.inspect(["museum", "flickr", "other"])]
    assert nonzero(museum) == {0: 1, 7: 2, len(LATENCY_BOUNDS): 1}
    assert nonzero(flickr) == {7: 1}
    assert other == []
    overview = await overview_of(state)
    assert nonzero(histogram(overview.totals, "fetch")) == {0: 1, 7: 3, len(LATENCY_BOUNDS): 1}
    assert (overview.totals["fetch_us"], sum(histogram(overview.totals, "latency"))) == (71_505_000, 0)


async def test_what_a_page_took_and_its_links_are_counted_in_all_once(state: State) -> None:
    await begin(state, 100)
    await put(state, [entry(name) for name in "abc"])
    grants = (await lease(state, room=3)).grants
    taken = (0.0004, 0.0015, 9.0)
    ends = [
        Settlement(grant.id, "museum", done=True, status="200", counts={"links_known": 2}, parse_s=seconds)
        for grant, seconds in zip(grants, taken, strict=True)
    ]
    for _ in range(2):  # of leases that are gone nothing is counted
        await state.scripts.settle("w", ends[:2])
        await state.scripts.settle("w", ends[2:])
    overview = await overview_of(state)
    assert nonzero(histogram(overview.totals, "parse")) == {0: 1, 2: 1, len(PARSE_BOUNDS): 1}
    assert overview.totals["parse_us"] == 9_001_900
    assert overview.totals["links_known"] == 6
    assert counts_in(await db(state).hget(state.keys.counts, "museum"))["links_known"] == 6


async def test_hosts_and_fetches_of_a_source_are_counted_anew_every_five_minutes(state: State) -> None:
    await begin(state, 100)
    key = state.keys.window_of + "museum"

    async def fetch(seconds: float, host: str) -> None:
        await put(state, [entry("a")])
        (grant,) = (await lease(state)).grants
        await settle(state, grant, done=True, status="404", fine=True, fetch_s=seconds, host=host)

    await fetch(0.06, "a.museum.org")
    await change_packed(db(state), key, turn=(await packed_at(db(state), key))["turn"] - 1)
    await fetch(0.5, "b.museum.org")
    assert nonzero((await state.scripts.inspect(["museum"]))[0].fetches) == {7: 1}
    assert [one["host"] for one in (await state.scripts.inspect(["museum"]))[0].hosts] == ["b.museum.org"]


async def test_counts_are_of_the_source_that_is_named_though_the_one_that_paid_ends_like_it(state: State) -> None:
    await join(state)
    await rule(state, ("archive:museum", 100), ("museum", 100))
    await put(state, [entry("a")], "archive:museum")
    (grant,) = (await lease(state)).grants
    await state.scripts.settle("w", [Settlement(grant.id, "museum", done=True, counts={"fetched": 1})])
    assert counts_in(await db(state).hget(state.keys.counts, "museum")) == {"fetched": 1}


async def test_a_request_whose_end_fails_is_a_dead_letter_and_delays_no_other_for_good(state: State) -> None:
    await begin(state, 100, "a", "b", "c")
    await db(state).set(state.keys.link_rot_events, "no stream")
    streams = ("image_metadata_updates", "link_rot", "image_metadata_updates")
    ends = [
        Settlement(grant.id, "museum", event=(stream, "{}"), counts={"fetched": 1})
        for grant, stream in zip((await lease(state)).grants, streams, strict=True)
    ]
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        await state.scripts.settle("w", ends)
    assert await outstanding(state) == 1
    assert await db(state).hvals(state.keys.leases_of + "w") == [entry("c")]
    ((_, letter),) = await db(state).xrange(state.keys.dead)
    assert letter[b"entry"] == entry("b")
    assert letter[b"reason"].startswith(b"internal fault: WRONGTYPE")
    assert (await state.scripts.settle("w", ends)).settled == [False, False, True]
    assert await outstanding(state) == 0
    assert await db(state).xlen(state.keys.image_events) == 2
    assert counts_in(await db(state).hget(state.keys.counts, "museum")) == {"fetched": 2, "failed": 1}


@pytest.mark.parametrize("key", ["totals", "active"])
async def test_an_end_counts_once_though_what_is_noted_of_it_fails(state: State, key: str) -> None:
    await begin(state, 100, "a")
    (grant,) = (await lease(state)).grants
    at = getattr(state.keys, key)
    await db(state).delete(at)
    await db(state).lpush(at, "of another type")
    end: dict[str, Any] = {"event": ("image_metadata_updates", "{}"), "counts": {"fetched": 1}, "status": "200"}
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        await settle(state, grant, **end)
    assert await settle(state, grant, **end) == [False]
    assert await db(state).xlen(state.keys.image_events) == 1
    assert await outstanding(state) == 0
    assert counts_in(await db(state).hget(state.keys.counts, "museum"))["fetched"] == 1


async def test_a_dead_letter_keeps_request_and_reason(state: State) -> None:
    await begin(state, 100)
    await put(state, [entry("a", deliveries=2)])
    (grant,) = (await lease(state)).grants
    await settle(state, grant, entry=grant.entry, dead="status 403")
    ((_, letter),) = await db(state).xrange(state.keys.dead)
    assert letter == {
        b"entry": entry("a", deliveries=2),
        b"source": b"museum",
        b"reason": b"status 403",
        b"deliveries": b"2",
    }
    assert await outstanding(state) == 0


async def test_dead_letters_live_again_once(state: State) -> None:
    await begin(state, 100)
    one = await db(state).xadd(state.keys.dead, {"entry": entry("a"), "source": "museum", "reason": "x"})
    two = await db(state).xadd(state.keys.dead, {"seed": "bad", "source": "", "reason": "x"})
    letters = [DeadLetter(one.decode(), "museum", entry("a")), DeadLetter(two.decode(), "", seed=b"bad")]
    assert await state.scripts.take_dead(letters) == 2
    assert await state.scripts.take_dead(letters) == 0
    assert await outstanding(state) == 1
    assert await waiting(state) == [b"bad"]
    assert names(await lease(state)) == ["a"]


async def crawl(state: State, *results: tuple[str, bool]) -> SourceStatus:
    """Crawl a request for each host, well or not; return the status of the source then."""
    await put(state, [entry(str(number)) for number in range(len(results))])
    grants = (await lease(state, horizon=10.0)).grants
    for grant, (host, fine) in zip(grants, results, strict=True):
        status = "200" if fine else "500"
        await settle(state, grant, event=("link_rot", "{}"), status=status, fine=fine, host=host)
    return (await state.scripts.inspect(["museum"]))[0]


async def test_hosts_are_counted_with_their_successes_and_errors(state: State) -> None:
    await begin(state, 200)
    assert (await state.scripts.inspect(["museum"]))[0].hosts == []
    await crawl(state, ("a.museum.org", True), ("b.museum.org", True))
    status = await crawl(state, ("a.museum.org", True), ("a.museum.org", False))
    assert [tuple(one.values()) for one in status.hosts] == [("a.museum.org", 2, 1), ("b.museum.org", 1, 0)]
    assert status.failing_host == "a.museum.org"


async def test_of_many_hosts_eight_are_named_and_the_rest_counted_together(state: State) -> None:
    await begin(state, 200)
    many = [(f"h{number}.museum.org", True) for number in range(20)]
    status = await crawl(state, *many, ("x" * 1000, False), ("h3.museum.org", True))
    seen = [tuple(one.values()) for one in status.hosts]
    assert seen == [*((host, 2 if host.startswith("h3.") else 1, 0) for host, _ in many[:8]), (None, 12, 1)]
    assert status.failing_host == ""  # it is not known which


@pytest.mark.parametrize(
    ("fine", "failing", "said"), [("a", ["b", "b"], "b.museum.org"), ("a", ["a", "b"], ""), ("a", ["a"], "")]
)
async def test_a_circuit_that_one_of_several_hosts_has_opened_says_so(
    state: State, fine: str, failing: list[str], said: str
) -> None:
    await begin(state, 200)
    await crawl(state, *[(f"{fine}.museum.org", True)] * 5, *((f"{name}.museum.org", False) for name in failing))
    [(_, fields)] = await db(state).xrange(state.keys.audit)
    assert json.loads(fields[b"event"])["reason"].partition(", all at ")[2] == said
