"""What the lease script grants: slots, shares of a call, and suspects."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

import pytest
import redis

from crawlproject.sources.rates import Limit
from crawlproject.state.client import State
from tests.robots_copies import keep_copy
from tests.standing_clock import StandingClock
from tests.state.calls.calls import begin, db, entry, join, lease, names, outstanding, put, rule, settle, source_of

pytestmark = pytest.mark.usefixtures("clock")


async def test_without_a_pulse_nothing_is_leased(state: State) -> None:
    await join(state)
    await rule(state)
    await put(state, [entry("a")])
    await db(state).delete(state.keys.pulse, state.keys.leader)
    assert (await lease(state)).state == "no pulse"
    await state.scripts.lead("leader", ready=False)  # leads, but has no rates to rule by
    assert (await lease(state)).grants == []
    await state.scripts.lead("leader", ready=True)
    assert names(await lease(state)) == ["a"]


async def test_a_worker_that_is_not_registered_gets_nothing(state: State) -> None:
    await rule(state, ("museum", 100))
    await put(state, [entry("a")])
    assert (await lease(state, worker="stranger")).state == "lapsed"


async def test_slots_are_spaced_by_the_rate_and_lie_within_the_horizon(state: State, clock: StandingClock) -> None:
    await begin(state, 40, *map(str, range(50)))
    slots = [grant.at for grant in (await lease(state)).grants]
    assert slots == [clock.now + ms * 1000 for ms in range(0, 501, 25)]
    clock.advance(0.05)
    assert [grant.at - slots[-1] for grant in (await lease(state)).grants] == [25_000, 50_000]


async def test_a_pause_saves_up_no_slots(state: State, clock: StandingClock) -> None:
    await begin(state, 40, *map(str, range(50)))
    await lease(state)
    clock.advance(0.9)
    assert len((await lease(state)).grants) == 21


async def test_sources_that_have_waited_begin_one_after_the_other(state: State) -> None:
    await join(state)
    names = [f"museum{number}" for number in range(5)]
    await rule(state, *((name, 5.0) for name in names))
    for name in names:
        await put(state, [entry(name)], name)
    slots = sorted(grant.at for grant in (await lease(state)).grants)
    assert len(slots) == 5
    assert min(b - a for a, b in pairwise(slots)) >= 1_000


async def test_a_rate_below_one_gives_one_slot_in_its_interval(state: State, clock: StandingClock) -> None:
    await begin(state, 0.2, "a", "b")
    (first,) = (await lease(state)).grants
    reply = await lease(state)
    assert reply.grants == []
    assert await db(state).zscore(state.keys.slots, "museum") == first.at + 5_000_000
    clock.advance(4.4)
    assert (await lease(state)).grants == []
    clock.advance(0.1)
    assert [grant.at - first.at for grant in (await lease(state)).grants] == [5_000_000]


async def test_higher_priorities_go_first_and_equal_ones_in_their_order(state: State) -> None:
    await begin(state, 200)
    await put(state, [entry(f"{p}{n}", priority=p) for n in "abc" for p in (0, 4, 2)])
    assert names(await lease(state)) == ["4a", "4b", "4c", "2a", "2b", "2c", "0a", "0b", "0c"]


async def test_no_source_gets_more_than_there_is_room_for(state: State, clock: StandingClock) -> None:
    await join(state)
    await rule(state, ("large", 200), ("small", 1))
    await put(state, [entry(str(n)) for n in range(60)], "large")
    assert len((await lease(state, want=40, room=24)).grants) == 24
    await put(state, [entry("s")], "small")
    clock.advance(0.2)
    reply = await lease(state, want=40, rooms={"large": 3}, room=8)
    assert Counter(map(source_of, reply.grants)) == {"large": 3, "small": 1}


@pytest.mark.parametrize(("count", "is_halted"), [(100, False), (20, True)])
async def test_sources_without_room_and_those_that_are_halted_hide_no_others(
    state: State, clock: StandingClock, count: int, is_halted: bool
) -> None:
    await join(state)
    hanging = [f"hanging{n}" for n in range(count)]
    await rule(state, ("fast", 100), *((name, 20) for name in hanging))
    for name in hanging:
        await put(state, [entry("x")], name)
    if is_halted:
        await db(state).sadd(state.keys.halted, *hanging)
    clock.advance(0.01)
    await put(state, [entry("a"), entry("b")], "fast")
    reply = await lease(state, want=2, rooms={} if is_halted else dict.fromkeys(hanging, 0))
    assert names(reply) == ["a", "b"]
    assert len((await lease(state, want=100)).grants) == (0 if is_halted else 100)  # they have kept their places
    assert sum([await db(state).zcard(key) for key in state.keys.due]) == (count if is_halted else 0)


async def test_many_overdue_slow_sources_leave_a_fast_one_half_of_each_call(state: State) -> None:
    await join(state)
    slow = [f"slow{n}" for n in range(300)]
    await rule(state, ("fast", 200), *((name, 0.2) for name in slow))
    for name in slow:
        await put(state, [entry("x"), entry("y")], name)
    await put(state, [entry(str(n)) for n in range(100)], "fast")
    reply = await lease(state, want=40, room=30)
    given = Counter(map(source_of, reply.grants))
    assert given["fast"] == 20
    assert sum(given.values()) == 40


async def test_a_source_that_gets_new_work_keeps_its_place(state: State, clock: StandingClock) -> None:
    await join(state)
    sources = [f"s{n}" for n in range(200)]
    await rule(state, *((name, 0.5) for name in sources))
    for name in sources:
        await put(state, [entry("x")], name)
        clock.advance(0.001)
    await put(state, [entry("more")], "s0")
    reply = await lease(state, want=4)
    assert "s0" in map(source_of, reply.grants)


async def test_many_workers_at_once_share_the_slots_of_one_source(state: State) -> None:
    """The race, with an exact count: however they interleave, 21 slots lie within half a second."""
    for n in range(40):
        await join(state, f"w{n}")
    await rule(state, ("museum", 40))
    await put(state, [entry(str(n)) for n in range(400)])
    started = asyncio.get_running_loop().time()
    replies = await asyncio.gather(*(lease(state, want=5, worker=f"w{n}") for n in range(40)))
    slots = sorted(grant.at for reply in replies for grant in reply.grants)
    took = asyncio.get_running_loop().time() - started  # time runs while several ask
    assert 21 <= len(slots) <= 21 + took * 40 + 1
    assert min(b - a for a, b in itertools.pairwise(slots)) >= 25_000
    grants = [grant.entry for reply in replies for grant in reply.grants]
    assert len(set(grants)) == len(grants)


async def test_a_suspect_is_leased_beside_others_and_only_one_to_a_worker(
    state: State, clock: StandingClock
) -> None:
    await join(state)
    await join(state, "other")
    await rule(state, ("museum", 200), ("gallery", 200))
    suspects = [entry(name, deliveries=1) for name in ("s", "t", "u")]
    await put(state, [entry("a"), *suspects, entry("b")])
    await put(state, [entry("v", deliveries=2), entry("c")], "gallery")
    first = names(await lease(state))
    [held] = {"s", "v"} & set(first)
    assert set(first) == {"a", "b", "c", held}
    clock.advance(0.5)
    assert names(await lease(state, suspect=True)) == []
    clock.advance(0.5)
    [taken] = names(await lease(state, worker="other"))
    assert taken in {"s", "t", "u", "v"} - {held}
    assert await outstanding(state) == 7


async def test_many_suspects_let_others_pass_and_a_call_puts_off_a_part(
    state: State, clock: StandingClock
) -> None:
    """A worker may have held thousands when it was lost."""
    await begin(state, 200)
    for first in (0, 700):
        await put(state, [entry(f"{n:04}", deliveries=1) for n in range(first, first + 700)])
    await put(state, [entry("a")])
    waiting = state.keys.delayed_of + "museum"
    await lease(state, suspect=True)
    assert 250 <= await db(state).zcard(waiting) <= 350
    while names(await lease(state, suspect=True)) != ["a"]:
        clock.advance(0.05)
    assert await outstanding(state) == 1401
    while not (grants := (await lease(state)).grants):
        clock.advance(0.05)
    assert len(grants) == 1


async def test_a_picture_that_kills_all_workers_dies_after_five_and_takes_none_along(
    state: State, clock: StandingClock
) -> None:
    """Nine pictures, and one that kills whoever has it, for workers that hold what they get until they die."""
    await rule(state, ("museum", 1000))
    await put(state, [entry(name) for name in ("a", "b", "c", "d", "killer", "e", "f", "g", "h", "i")])
    deaths, done = 0, set()
    while await outstanding(state):
        await join(state, f"w{deaths}")
        reply = await lease(state, worker=f"w{deaths}")
        if "killer" not in names(reply):
            done.update(names(reply))
            await settle(state, *reply.grants, worker=f"w{deaths}", done=True)
            clock.advance(0.02)
            continue
        await db(state).zadd(state.keys.workers, {f"w{deaths}": 1})
        deaths += 1
        await join(state, "other", max_deliveries=5)
        await state.scripts.heartbeat("other", join=True, timeout=30, max_deliveries=5)
    assert deaths == 5
    assert done == set("abcdefghi")
    [(_, letter)] = await db(state).xrange(state.keys.dead)
    assert letter[b"entry"] == entry("killer", deliveries=5)
    assert (letter[b"deliveries"], letter[b"reason"]) == (b"5", b"lost with its worker, delivery 5")


OVERRIDES = {"50": 50.0, "50 over-robots": 50.0, "1e2": 100.0, "0": 0.0, "fast": 10.0, "-1": 10.0, "1e9": 10.0}


@pytest.mark.parametrize(("override", "rate"), OVERRIDES.items())
async def test_a_lease_follows_an_override_that_the_leader_has_not_seen(
    state: State, override: str, rate: float
) -> None:
    await begin(state, 10, "a", "b")
    await db(state).set(state.keys.override_rate_of + "museum", override)
    grants = (await lease(state)).grants
    assert [grant.rate for grant in grants] == ([rate, rate] if rate else [])
    assert not rate or grants[1].at - grants[0].at == 1e6 / rate
    [status] = await state.scripts.inspect(["museum"])
    assert status.limit == rate


async def test_a_limit_over_robots_txt_lifts_its_delay_until_it_is_gone(
    state: State, clock: StandingClock
) -> None:
    fence = await begin(state, 10, *map(str, range(40)))
    await keep_copy(state, "http://museum/robots.txt", "museum", delay=5.0)
    (first,) = (await lease(state)).grants
    assert first.rate == 0.2
    assert (await lease(state)).grants == []
    await db(state).set(state.keys.override_rate_of + "museum", "20 over-robots")
    await state.scripts.set_rates(fence, [("museum", Limit(20.0, over_robots=True), 10.0)], {})
    assert await db(state).zscore(state.keys.slots, "museum") == first.at + 50_000  # after the last one used
    clock.advance(0.1)
    assert {grant.rate for grant in (await lease(state)).grants} == {20.0}
    [status] = await state.scripts.inspect(["museum"])
    assert (status.limit, status.over_robots, status.robots_delay, status.effective) == (20.0, True, 5.0, 20.0)
    assert not await keep_copy(state, "http://other.museum/robots.txt", "museum", delay=9.0)  # slows nothing down
    [status] = await state.scripts.inspect(["museum"])
    assert (status.robots_delay, status.effective) == (9.0, 20.0)

    await db(state).delete(state.keys.override_rate_of + "museum")
    await state.scripts.set_rates(fence, [("museum", 10.0, 10.0)], {})
    [status] = await state.scripts.inspect(["museum"])
    assert (status.limit, status.over_robots, status.effective) == (10.0, False, 1 / 9)
    assert status.next_slot - status.now > 8.0  # after the last one used
    assert (await lease(state)).grants == []


async def test_what_one_source_meets_loses_no_request_of_another(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 100), ("broken", 0.5))
    await put(state, [entry("a")])
    await put(state, [entry("b")], "broken")
    await db(state).set(state.keys.delayed_of + "broken", "no sorted set")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        await lease(state)
    assert await db(state).hvals(state.keys.leases_of + "w") == [entry("a")]


CLASSES = range(5)


async def stands(state: State) -> Mapping[bytes, str]:
    """Return the tier and the class that each source stands in; each does in one set."""
    found = [
        (source, key.rpartition(":")[2]) for key in state.keys.due for source in await db(state).zrange(key, 0, -1)
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


async def test_a_source_stands_where_its_rate_and_its_best_request_put_it(state: State) -> None:
    await join(state)
    fence = await rule(state, ("museum", 20), ("archive", 0.2))
    assert await stands(state) == {}
    await put(state, [entry("a"), entry("b")])
    await put(state, [entry("c", priority=3)], "archive")
    assert await stands(state) == {b"museum": "20", b"archive": "03"}
    await put(state, [entry("urgent", priority=4)])
    assert await stands(state) == {b"museum": "24", b"archive": "03"}
    reply = await lease(state, want=2)
    assert sorted(names(reply)) == ["c", "urgent"]
    assert await stands(state) == {b"museum": "20"}
    await state.scripts.set_rates(fence, [("museum", 5, 5)], {})
    assert await stands(state) == {b"museum": "10"}
    [urgent] = [grant for grant in reply.grants if grant.entry.endswith(b"urgent")]
    await settle(state, urgent, entry=urgent.entry)  # comes back
    assert await stands(state) == {b"museum": "14"}
    await state.scripts.leave("w")
    await join(state)
    assert await stands(state) == {b"museum": "14", b"archive": "03"}


async def test_a_delayed_request_waits_in_its_class(state: State) -> None:
    await begin(state, 20)
    await put(state, [entry("a", priority=2)])
    [grant] = (await lease(state)).grants
    await settle(state, grant, entry=grant.entry, delay=60.0)
    assert await stands(state) == {b"museum": "22"}


async def crawl(
    state: State, clock: StandingClock, seconds: float, want: int
) -> tuple[Counter[int], dict[str, float]]:
    """Lease `want` requests each 150 ms; return how many of each class, and the longest wait of each source."""
    given: Counter[int] = Counter()
    last: dict[str, float] = {}
    longest: dict[str, float] = {}
    began = clock.now
    while clock.now < began + seconds * 1e6:
        clock.advance(0.15)
        reply = await lease(state, want=want, room=1)
        for grant in reply.grants:
            source = source_of(grant)
            given[grant.entry[2]] += 1
            waited = (clock.now - last.get(source, began)) / 1e6
            longest[source] = max(longest.get(source, 0.0), waited)
            last[source] = clock.now
        await settle(state, *reply.grants, done=True)
    for source, at in last.items():
        longest[source] = max(longest[source], (clock.now - at) / 1e6)
    return given, longest


async def test_under_overload_shares_fall_by_class_and_nobody_starves(state: State, clock: StandingClock) -> None:
    await join(state)
    sources = {f"s{number}": number % 5 for number in range(100)}
    await rule(state, *((name, 5) for name in sources))
    for name, number in sources.items():
        await put(state, [entry(f"{n}", priority=number) for n in range(250)], name)
    given, longest = await crawl(state, clock, 30, want=10)  # 67 requests a second of 500
    shares = [given[number] / given.total() for number in CLASSES]
    assert given.total() == 2000
    assert all(lower < 0.8 * higher for lower, higher in pairwise(shares)), shares
    assert shares[0] >= 0.02
    assert set(longest) == set(sources)
    worst = [max(longest[name] for name in sources if sources[name] == number) for number in CLASSES]
    assert worst == sorted(worst, reverse=True)
    assert worst[0] < 15


async def test_a_source_in_wrong_sets_is_leased_once_and_leaves_those_that_are_read(state: State) -> None:
    await begin(state, 20, "a", "b")
    for key in state.keys.due:
        await db(state).zadd(key, {"museum": 1})
    assert names(await lease(state, want=1)) == ["a"]
    assert names(await lease(state)) == ["b"]
    assert await stands(state) == {}
