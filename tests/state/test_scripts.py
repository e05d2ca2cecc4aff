"""The scripts against a real Redis: each is tried by what it promises in its header."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
import redis

from crawlproject.models import Slot
from crawlproject.politeness.slots import HORIZON_S
from crawlproject.state.client import State
from crawlproject.state.scripts import DeadRetry, EnqueueReply, LeaseReply, NewRequest, Rejected, Settlement

pytestmark = pytest.mark.judges  # in milliseconds

Row = tuple[str, float]


def db(state: State) -> Any:
    """Return the plain client, whose annotations leave open what it answers."""
    return state.redis


def entry(name: str, *, priority: int = 0, deliveries: int = 0) -> bytes:
    return bytes((1, deliveries, priority)) + name.encode()


def names(reply: LeaseReply) -> list[str]:
    return [grant.entry[3:].decode() for grant in reply.grants]


async def rule(state: State, *rates: Row) -> int:
    """Lead, with a pulse, and set rates; return the fence."""
    fence = await state.scripts.lead("leader", ready=True)
    assert fence is not None
    assert await state.scripts.set_rates(fence, [(name, rate, rate) for name, rate in rates], {})
    return fence


async def join(state: State, worker: str = "w", timeout: float = 30.0, max_deliveries: int = 3) -> None:
    await state.scripts.heartbeat(worker, join=True, timeout=timeout, max_deliveries=max_deliveries)


async def put(state: State, entries: Iterable[bytes], source: str = "museum") -> None:
    requests = [
        NewRequest(body, "00000", hash((source, body)) & 0xFFFFFFFF, again=True, source=source) for body in entries
    ]
    reply = await state.scripts.enqueue(
        "w", requests, high_water=1_000_000, dead_maxlen=1000, refuse_unknown=False
    )
    assert reply is not None
    assert reply.admitted == len(requests)


async def lease(
    state: State,
    want: int = 100,
    worker: str = "w",
    *,
    rooms: dict[str, int] | None = None,
    room: int = 100,
    horizon: float = HORIZON_S,
    dead_maxlen: int = 1000,
    high_water: int = 1_000_000,
) -> LeaseReply:
    return await state.scripts.lease(
        worker,
        want,
        rooms=rooms or {},
        room=room,
        idle=not rooms,
        horizon=horizon,
        dead_maxlen=dead_maxlen,
        max_deliveries=3,
        high_water=high_water,
    )


async def outstanding(state: State) -> int:
    return int(await db(state).get(state.keys.outstanding) or 0)


# lease


async def test_without_a_pulse_nothing_is_leased(state: State) -> None:
    await join(state)
    await put(state, [entry("a")])
    assert (await lease(state)).state == "no pulse"
    await state.scripts.lead("leader", ready=False)  # leads, but has no rates to rule by
    assert (await lease(state)).grants == []
    await state.scripts.lead("leader", ready=True)
    assert names(await lease(state)) == ["a"]


async def test_a_worker_that_is_not_registered_gets_nothing(state: State) -> None:
    await rule(state, ("museum", 100))
    await put(state, [entry("a")])
    assert (await lease(state, worker="stranger")).state == "lapsed"


async def test_slots_are_spaced_by_the_rate_and_lie_within_the_horizon(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 40))
    await put(state, [entry(str(n)) for n in range(50)])
    before = asyncio.get_running_loop().time()
    reply = await lease(state)
    slots = [grant.slot for grant in reply.grants]
    assert len(slots) == 11  # at 0, 25, ... 250 ms
    assert [round(b - a, 4) for a, b in itertools.pairwise(slots)] == [0.025] * 10
    assert slots[0] >= before
    again = await lease(state)
    assert all(grant.slot >= slots[-1] + 0.0249 for grant in again.grants)


async def test_a_pause_saves_up_no_slots(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 40))
    await put(state, [entry(str(n)) for n in range(50)])
    await lease(state)
    await asyncio.sleep(0.6)
    assert len((await lease(state)).grants) == 11


async def test_a_rate_below_one_gives_one_slot_in_its_interval(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 0.2))
    await put(state, [entry("a"), entry("b")])
    (first,) = (await lease(state)).grants
    reply = await lease(state)
    assert reply.grants == []
    assert reply.next_due == pytest.approx(first.slot + 5.0, abs=0.2)


async def test_a_rate_of_zero_gives_no_slot(state: State) -> None:
    await join(state)
    fence = await rule(state, ("museum", 0))
    await put(state, [entry("a")])
    assert (await lease(state)).grants == []
    await state.scripts.set_rates(fence, [("museum", 10, 10)], {})
    assert names(await lease(state)) == ["a"]


async def test_higher_priorities_go_first_and_equal_ones_in_their_order(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 200))
    await put(state, [entry(f"{p}{n}", priority=p) for n in "abc" for p in (0, 4, 2)])
    assert names(await lease(state)) == ["4a", "4b", "4c", "2a", "2b", "2c", "0a", "0b", "0c"]


async def test_no_source_gets_more_than_there_is_room_for(state: State) -> None:
    await join(state)
    await rule(state, ("large", 200), ("small", 1))
    await put(state, [entry(str(n)) for n in range(60)], "large")
    assert len((await lease(state, want=40, room=24)).grants) == 24
    await put(state, [entry("s")], "small")
    await asyncio.sleep(0.2)
    reply = await lease(state, want=40, rooms={"large": 3}, room=8)
    assert Counter(grant.id.partition(":")[2] for grant in reply.grants) == {"large": 3, "small": 1}


async def test_sources_without_room_hide_no_others(state: State) -> None:
    await join(state)
    hanging = [f"hanging{n}" for n in range(100)]
    await rule(state, ("fast", 100), *((name, 20) for name in hanging))
    for name in hanging:
        await put(state, [entry("x")], name)
    await asyncio.sleep(0.01)
    await put(state, [entry("a"), entry("b")], "fast")
    reply = await lease(state, want=2, rooms=dict.fromkeys(hanging, 0))
    assert names(reply) == ["a", "b"]
    assert len((await lease(state, want=100)).grants) == 100  # they have kept their places


async def test_many_overdue_slow_sources_leave_a_fast_one_half_of_each_call(state: State) -> None:
    await join(state)
    slow = [f"slow{n}" for n in range(300)]
    await rule(state, ("fast", 200), *((name, 0.2) for name in slow))
    for name in slow:
        await put(state, [entry("x"), entry("y")], name)
    await put(state, [entry(str(n)) for n in range(100)], "fast")
    reply = await lease(state, want=40, room=30)
    given = Counter(grant.id.partition(":")[2] for grant in reply.grants)
    assert given["fast"] == 20
    assert sum(given.values()) == 40


async def test_each_due_source_gets_its_turn_within_one_round(state: State) -> None:
    await join(state)
    sources = [f"s{n}" for n in range(120)]
    await rule(state, *((name, 0.5) for name in sources))
    for name in sources:
        await put(state, [entry("x"), entry("y")], name)
    served: list[str] = []
    while len(served) < 120:
        reply = await lease(state, want=25)
        assert reply.grants
        served += [grant.id.partition(":")[2] for grant in reply.grants]
    assert set(served) == set(sources)


async def test_a_source_that_gets_new_work_keeps_its_place(state: State) -> None:
    await join(state)
    sources = [f"s{n}" for n in range(200)]
    await rule(state, *((name, 0.5) for name in sources))
    for name in sources:
        await put(state, [entry("x")], name)
        await asyncio.sleep(0.001)
    await put(state, [entry("more")], "s0")
    reply = await lease(state, want=4)
    assert "s0" in [grant.id.partition(":")[2] for grant in reply.grants]


async def test_many_workers_at_once_share_the_slots_of_one_source(state: State) -> None:
    """The race, with an exact count: however they interleave, 11 slots lie within a quarter second."""
    for n in range(40):
        await join(state, f"w{n}")
    await rule(state, ("museum", 40))
    await put(state, [entry(str(n)) for n in range(400)])
    started = asyncio.get_running_loop().time()
    replies = await asyncio.gather(*(lease(state, want=5, worker=f"w{n}") for n in range(40)))
    slots = sorted(grant.slot for reply in replies for grant in reply.grants)
    took = asyncio.get_running_loop().time() - started
    assert 11 <= len(slots) <= 11 + took * 40 + 1
    # the clocks' difference may be estimated better from call to call, by parts of a millisecond
    assert min(b - a for a, b in itertools.pairwise(slots)) > 0.015
    grants = [grant.entry for reply in replies for grant in reply.grants]
    assert len(set(grants)) == len(grants)


async def test_leasing_pauses_at_the_bound_of_dead_letters(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 100))
    await put(state, [entry("a")])
    await db(state).xadd(state.keys.dead, {"reason": "x"})
    assert "CRAWL_DEAD_MAXLEN" in (await lease(state, dead_maxlen=1)).reason
    assert (await lease(state, dead_maxlen=2)).state == "ok"


async def test_a_request_before_its_last_delivery_is_leased_alone(state: State) -> None:
    await join(state)
    await join(state, "other")
    await rule(state, ("museum", 200), ("gallery", 200))
    await put(state, [entry("a"), entry("quarantined", deliveries=2), entry("b", deliveries=1)])
    assert names(await lease(state)) == ["a", "b"]
    await put(state, [entry("c"), entry("d")], "gallery")
    busy = await lease(state, rooms={"museum": 2})  # its turn, but it holds something
    assert busy.grants == []
    assert names(await lease(state, worker="other", want=1)) == ["c"]  # another goes on
    alone = await lease(state)
    assert names(alone) == ["quarantined"]
    assert alone.grants[0].entry[1] == 2
    assert names(await lease(state, worker="other")) == ["d"]
    assert await outstanding(state) == 5


@pytest.mark.parametrize("rate", [0.0, 0.2])
async def test_a_quarantined_request_that_has_no_slot_soon_holds_nobody_up(state: State, rate: float) -> None:
    await join(state)
    fence = await rule(state, ("museum", 100), ("gallery", 200))
    await put(state, [entry("quarantined", deliveries=2)])
    assert names(await lease(state)) == []
    assert names(await lease(state, want=0, rooms={"gallery": 1})) == []  # its turn, and it holds another
    await state.scripts.set_rates(fence, [("museum", rate, rate)], {})
    if rate:
        await state.scripts.acquire(source="museum")
    await put(state, [entry("a"), entry("b")], "gallery")
    assert names(await lease(state)) == ["a", "b"]
    await state.scripts.set_rates(fence, [("museum", 100, 100)], {})
    assert names(await lease(state)) == ["quarantined"]


async def test_a_quarantined_request_waits_for_a_slot_of_its_source(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 2))
    await put(state, [entry("quarantined", deliveries=2)])
    slot, _ = await state.scripts.acquire(source="museum")
    assert slot is not None
    assert names(await lease(state)) == []
    await asyncio.sleep(0.3)
    assert names(await lease(state)) == []  # due, and quarantined now
    (grant,) = (await lease(state)).grants
    assert grant.slot == pytest.approx(slot.moment + 0.5, abs=0.1)


@pytest.mark.parametrize(
    ("override", "rate"),
    [("50", 50.0), ("1e2", 100.0), ("fast", 10.0), ("0x20", 10.0), ("-1", 10.0), ("1e9", 10.0), ("", 10.0)],
)
async def test_a_lease_follows_an_override_that_the_leader_has_not_seen(
    state: State, override: str, rate: float
) -> None:
    await join(state)
    await rule(state, ("museum", 10))
    await put(state, [entry("a"), entry("b")])
    await db(state).set(state.keys.override_rate_of + "museum", override)
    first, second = (await lease(state)).grants
    assert first.rate == rate
    assert second.at - first.at == 1e6 / rate
    [status] = await state.scripts.inspect(["museum"])
    assert status.limit == rate


async def test_an_override_of_0_stops_a_source_before_the_leader_sees_it(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 10))
    await put(state, [entry("a")])
    await db(state).set(state.keys.override_rate_of + "museum", "0")
    assert (await lease(state)).grants == []


# acquire


async def test_a_request_without_a_lease_takes_a_slot_of_the_same_row(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 0.5))
    await put(state, [entry("a")])
    slot, _ = await state.scripts.acquire(source="museum")
    assert slot is not None
    reply = await lease(state)
    assert reply.grants == []
    assert reply.next_due == pytest.approx(slot.moment + 2.0, abs=0.1)


async def test_acquire_finds_the_source_of_a_domain_and_gives_none_without_a_pulse(state: State) -> None:
    assert (await state.scripts.acquire(domain="museum.example")).slot is None
    fence = await rule(state, ("museum", 2))
    await state.scripts.set_rates(fence, [], {"museum.example": "museum"})
    first, _ = await state.scripts.acquire(domain="museum.example")
    second, _ = await state.scripts.acquire(source="museum")
    assert first is not None
    assert second is not None
    assert (first.source, first.rate, second.at - first.at) == ("museum", 2.0, 500_000)
    assert second.moment == pytest.approx(first.moment + 0.5, abs=0.1)


# renew


async def test_a_slot_that_was_missed_is_exchanged_for_the_present_if_none_was_given_out_after_it(
    state: State,
) -> None:
    await rule(state, ("museum", 2))
    missed, _ = await state.scripts.acquire(source="museum")
    assert missed is not None
    await asyncio.sleep(0.3)
    renewed = await state.scripts.renew(missed, within=0.0)
    assert renewed is not None
    assert renewed.moment - missed.moment > 0.28
    after, _ = await state.scripts.acquire(source="museum")
    assert after is not None
    assert after.at - renewed.at == 500_000


async def test_a_slot_that_was_missed_is_exchanged_for_the_next_one_if_that_is_soon(state: State) -> None:
    await rule(state, ("museum", 2))
    missed, last = [(await state.scripts.acquire(source="museum")).slot for _ in range(2)]
    assert missed is not None
    assert last is not None
    assert await state.scripts.renew(missed, within=0.5) is None  # a second ahead
    renewed = await state.scripts.renew(missed, within=1.1)
    assert renewed is not None
    assert renewed.at - last.at == 500_000


@pytest.mark.parametrize(("before", "after"), [(0.2, 1.0), (1.0, 2.0), (2.0, 2.5)])
async def test_a_rate_raised_meanwhile_does_not_hide_that_another_slot_was_given_out(
    state: State, before: float, after: float
) -> None:
    fence = await rule(state, ("museum", before))
    missed, _ = await state.scripts.acquire(source="museum")
    await state.scripts.set_rates(fence, [("museum", after, after)], {})
    last, _ = await state.scripts.acquire(source="museum")
    assert missed is not None
    assert last is not None
    renewed = await state.scripts.renew(missed, within=9.0)
    assert renewed is not None
    assert renewed.at - last.at == 1e6 / after


async def test_nothing_is_renewed_for_whom_nothing_may_go_out(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 100))
    await put(state, [entry("a"), entry("b")])
    first, last = (await lease(state)).grants

    async def renewed(name: str = last.id, worker: str = "w") -> bool:
        slot = Slot("museum", last.slot, last.at, last.rate)
        return await state.scripts.renew(slot, within=1.0, worker=worker, lease=name) is not None

    assert await renewed()
    assert not await renewed(worker="v")  # it is another's
    assert not await renewed(name=last.id.replace(".0:", ".1:"))
    await db(state).sadd(state.keys.halted, "museum")
    assert not await renewed()
    await db(state).srem(state.keys.halted, "museum")
    await db(state).hset(state.keys.circuit_of + "museum", "generation", 1)
    assert not await renewed()  # its circuit has opened and closed since
    await db(state).delete(state.keys.circuit_of + "museum")
    assert await renewed()
    await db(state).delete(state.keys.pulse)
    assert not await renewed(name=first.id)


async def test_acquire_reserves_nothing_far_ahead_and_says_when_to_ask_again(state: State) -> None:
    await rule(state, ("museum", 0.5), ("gallery", 100))
    first, wait = await state.scripts.acquire(source="museum")
    assert first is not None
    assert wait == 0
    for _ in range(50):
        slot, wait = await state.scripts.acquire(source="museum")
        assert slot is None
        assert 0 < wait < 1.0  # a second before the next slot, which is two seconds after the first
    [standing] = await state.scripts.inspect(["museum"])
    assert standing.next_slot - standing.now < 2
    given = [(await state.scripts.acquire(source="gallery")).slot for _ in range(300)]
    assert 100 <= len([slot for slot in given if slot is not None]) < 290
    [standing] = await state.scripts.inspect(["gallery"])
    assert standing.next_slot - standing.now <= 1.01


async def acquired(state: State, **more: str | None) -> list[float]:
    """Return the slots that are to be had of `museum` at once."""
    slots = []
    while (slot := (await state.scripts.acquire(source="museum", **more)).slot) is not None:
        slots.append(slot.moment)
    return slots


async def test_requests_for_others_robots_txt_take_one_slot_in_twenty_while_there_is_work(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 100))
    assert len(await acquired(state, sent_by="stranger")) >= 100  # without work, all within a second
    await put(state, [entry("a")])
    await asyncio.sleep(0.8)
    began, visits, own = asyncio.get_running_loop().time(), [], []
    for _ in range(70):
        slot, wait = await state.scripts.acquire(source="museum", sent_by="stranger")
        if slot is None:
            assert wait > 0
        else:
            visits.append(slot.at / 1e6)
        slot, _ = await state.scripts.acquire(source="museum", sent_by="museum")  # a redirect within the source
        assert slot is not None
        own.append(slot.moment)
    assert 3 <= len(visits) <= 5 + (asyncio.get_running_loop().time() - began) / 0.2
    assert min(b - a for a, b in pairwise(visits)) > 0.195
    await lease(state, horizon=9.0)  # no work any more
    await asyncio.sleep(0.1)
    assert await acquired(state, sent_by="stranger")


# enqueue


async def take(state: State, *seeds: str) -> list[bytes]:
    """Have worker w take these seeds, pushed in this order."""
    await db(state).lpush(state.keys.seeds, *seeds)
    return await state.scripts.take_seeds("w", 1000)


async def processing_list(state: State) -> list[bytes]:
    """Return the seeds on the processing list of worker w, the one taken first at the head."""
    found: list[bytes] = await db(state).lrange(state.keys.processing_of + "w", 0, -1)
    return found[::-1]


async def waiting(state: State) -> list[bytes]:
    """Return the seeds in the list, the next one first."""
    found: list[bytes] = await db(state).lrange(state.keys.seeds, 0, -1)
    return found[::-1]


def request(name: str, member: int, *, priority: int = 0, **more: object) -> NewRequest:
    values = {"again": False, "source": "museum", "domain": None, **more}
    return NewRequest(entry(name, priority=priority), "00000", member, **values)  # type: ignore[arg-type]


async def test_seeds_are_taken_in_order_and_leave_the_processing_list_with_the_batch(state: State) -> None:
    await join(state)
    await rule(state)
    assert await take(state, "a", "b", "c") == [b"a", b"b", b"c"]
    items: list[NewRequest | Rejected] = [request("a", 1), request("b", 2), Rejected("no url")]
    reply = await state.scripts.enqueue(
        "w", items, seeds=await processing_list(state), high_water=100, dead_maxlen=1000, refuse_unknown=False
    )
    assert reply == (2, 0, 1, 0, 2)
    assert await db(state).exists(state.keys.processing_of + "w") == 0
    ((_, letter),) = await db(state).xrange(state.keys.dead)
    assert (letter[b"seed"], letter[b"reason"]) == (b"c", b"no url")


async def test_a_repeated_enqueue_of_seeds_does_nothing(state: State) -> None:
    await join(state)
    await rule(state)
    await take(state, "a")
    for expected in ((1, 0, 0, 0, 1), None):
        reply = await state.scripts.enqueue(
            "w",
            [request("a", 1, again=True)],
            seeds=[b"a"],
            high_water=100,
            dead_maxlen=1000,
            refuse_unknown=False,
        )
        assert reply == expected
    assert await outstanding(state) == 1


async def test_a_lapsed_worker_enqueues_no_seeds(state: State) -> None:
    await join(state)
    await rule(state)
    await take(state, "a")
    await db(state).zrem(state.keys.workers, "w")
    reply = await state.scripts.enqueue(
        "w", [request("a", 1)], seeds=[b"a"], high_water=9, dead_maxlen=1000, refuse_unknown=False
    )
    assert reply is None
    assert await outstanding(state) == 0


async def test_what_was_seen_is_a_duplicate_unless_asked_for_again(state: State) -> None:
    first = [request("a", 7), request("b", 7), request("c", 7, again=True), request("d", 2**44 - 1)]
    reply = await state.scripts.enqueue("w", first, high_water=100, dead_maxlen=1000, refuse_unknown=False)
    assert reply == (3, 1, 0, 0, 3)
    assert await db(state).object("encoding", state.keys.seen_of + "00000") == b"intset"


async def test_seeds_over_the_high_water_mark_go_back_in_order(state: State) -> None:
    await join(state)
    await rule(state)
    await take(state, *"abcdef")
    items = [request(name, n, source=f"s{n}") for n, name in enumerate("abcdef")]
    reply = await state.scripts.enqueue(
        "w", items, seeds=await processing_list(state), high_water=4, dead_maxlen=1000, refuse_unknown=False
    )
    assert reply == (4, 0, 0, 2, 4)
    assert await waiting(state) == [b"e", b"f"]
    # they were not noted as seen
    assert await state.scripts.take_seeds("w", 10) == [b"e", b"f"]
    reply = await state.scripts.enqueue(
        "w", items[4:], seeds=await processing_list(state), high_water=100, dead_maxlen=1000, refuse_unknown=False
    )
    assert reply is not None
    assert reply.admitted == 2


async def test_a_processing_list_holds_few_bytes_but_any_one_seed(state: State) -> None:
    await join(state)
    await db(state).lpush(state.keys.seeds, "a" * 40, "b" * 70, "c" * 200, "d", "e" * 99, "f")

    async def take() -> list[str]:
        seeds = await state.scripts.take_seeds("w", 100, size=100)
        assert seeds == await state.scripts.take_seeds("w", 100, size=100)  # no more, though asked again
        await db(state).delete(state.keys.processing_of + "w")
        return [f"{len(seed)}{seed[:1].decode()}" for seed in seeds]

    assert [await take() for _ in range(5)] == [["40a", "70b"], ["200c"], ["1d", "99e"], ["1f"], []]


async def feed(state: State, *items: NewRequest, high_water: int = 8, overflow_maxlen: int = 100) -> EnqueueReply:
    """Have worker w enqueue these requests as seeds; each seed is spelled as its request."""
    await take(state, *(item.entry[3:].decode() for item in items))
    seeds = await processing_list(state)
    reply = await state.scripts.enqueue(
        "w",
        items,
        seeds=seeds,
        high_water=high_water,
        overflow_maxlen=overflow_maxlen,
        dead_maxlen=1000,
        refuse_unknown=False,
    )
    assert reply is not None
    return reply


def requests(names: str, priority: int = 0, source: str = "museum") -> list[NewRequest]:
    """Return a request for each letter; equal letters are equal requests."""
    return [request(name, ord(name), priority=priority, source=source) for name in names]


async def lists_of(state: State, prefix: str, source: str = "museum") -> dict[int, str]:
    """Return the names of the requests in the lists of a source, by priority."""
    found = {}
    for priority in range(5):
        entries = await db(state).lrange(f"{prefix}{priority}:{source}", 0, -1)
        if entries:
            found[priority] = "".join(entry[3:].decode() for entry in entries)
    return found


async def queued(state: State, source: str = "museum") -> dict[int, str]:
    return await lists_of(state, state.keys.queue_of, source)


async def overflowing(state: State, source: str = "museum") -> dict[int, str]:
    """Return what waits beyond the share of a source, and see that it is counted."""
    counted = int(await db(state).get(state.keys.overflow) or 0)
    lists = [await db(state).llen(key) for key in await db(state).keys(state.keys.overflow_of + "*")]
    assert counted == sum(lists)
    return await lists_of(state, state.keys.overflow_of, source)


async def test_seeds_of_a_source_at_its_share_wait_apart_and_let_others_pass(state: State) -> None:
    await join(state)
    await rule(state)
    assert await feed(state, *requests("abcd"), *requests("x", source="other")) == (5, 0, 0, 0, 3)
    assert (await queued(state), await overflowing(state)) == ({0: "ab"}, {0: "cd"})
    assert await queued(state, "other") == {0: "x"}
    assert await waiting(state) == []
    assert await feed(state, *requests("ed")) == (1, 1, 0, 0, 3)  # what waits was seen
    assert await overflowing(state) == {0: "cde"}


async def test_what_is_taken_from_a_queue_is_filled_up_in_order(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 200))
    await feed(state, *requests("abcdefgh"))
    given = ""
    for _ in range(100):
        reply = await lease(state, want=1, high_water=8)
        given += "".join(names(reply))
        assert await outstanding(state) <= 3
        await state.scripts.settle("w", [Settlement(grant.id, "museum", dead="x") for grant in reply.grants])
        if len(given) == 8:
            break
        await asyncio.sleep(0.005)
    assert given == "abcdefgh"
    assert (await overflowing(state), await outstanding(state)) == ({}, 0)


async def test_no_priority_waits_behind_a_lower_one_of_its_source(state: State) -> None:
    await join(state)
    await rule(state)
    await feed(state, *requests("abc"))
    assert (await feed(state, *requests("x", priority=4))).outstanding == 2
    assert (await queued(state), await overflowing(state)) == ({0: "a", 4: "x"}, {0: "bc"})
    await feed(state, *requests("d"), *requests("yz", priority=4), *requests("m", priority=2))
    assert (await queued(state), await overflowing(state)) == ({4: "xy"}, {0: "abcd", 2: "m", 4: "z"})


async def test_only_what_needs_an_overflow_goes_back_when_those_are_at_their_bound(state: State) -> None:
    await join(state)
    await rule(state)
    batch = [*requests("abcde"), *requests("p", priority=1), *requests("x", source="other"), *requests("f")]
    assert await feed(state, *batch, overflow_maxlen=1) == (5, 0, 0, 3, 3)
    assert (await queued(state), await overflowing(state)) == ({0: "a", 1: "p"}, {0: "bc"})
    assert await waiting(state) == [b"d", b"e", b"f"]  # in order, and not seen
    seeds = await state.scripts.take_seeds("w", 9)
    reply = await state.scripts.enqueue(
        "w",
        requests("def"),
        seeds=seeds,
        high_water=8,
        overflow_maxlen=9,
        dead_maxlen=9,
        refuse_unknown=False,
    )
    assert reply == (3, 0, 0, 0, 3)
    assert await overflowing(state) == {0: "bcdef"}


async def test_each_source_at_its_share_leaves_room_for_the_next(state: State) -> None:
    await join(state)
    await rule(state)
    for source in range(8):
        batch = [request(f"{source}-{n}", source * 1000 + n, source=f"s{source}") for n in range(450)]
        reply = await feed(state, *batch, high_water=1600, overflow_maxlen=10_000)
        assert (reply.admitted, reply.returned) == (450, 0)
        assert (
            await db(state).llen(f"{state.keys.queue_of}0:s{source}")
            == [400, 300, 225, 168, 126, 95, 71, 53][source]
        )


async def test_a_source_with_seeds_apart_is_crawled_whatever_has_become_of_its_queue(state: State) -> None:
    """Its queue was emptied by an operator, or was raised with the high-water mark."""
    await join(state)
    await rule(state, ("museum", 200))
    await feed(state, *requests("abcdef"))
    await db(state).delete(state.keys.queue_of + "0:museum")
    assert (await lease(state, high_water=80)).grants == []
    await asyncio.sleep(0.01)
    assert names(await lease(state, high_water=80)) == ["c", "d", "e", "f"]


async def test_seeds_apart_keep_the_crawl_open_unless_their_source_is_halted(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 100))
    await feed(state, *requests("abcd"))
    await db(state).delete(state.keys.outstanding)
    assert not await state.scripts.idle(halted_too=True)
    await db(state).set(state.keys.outstanding, 2)
    await db(state).sadd(state.keys.halted, "museum")
    assert not await state.scripts.idle()
    assert await state.scripts.idle(halted_too=True)


async def test_work_of_many_halted_sources_is_counted_page_by_page(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 100))
    halted = [f"s{number}" for number in range(700)]
    for source in halted:
        await put(state, [entry(source)], source)
    await db(state).sadd(state.keys.halted, *halted)
    assert await state.scripts.idle(halted_too=True)
    assert not await state.scripts.idle()
    await put(state, [entry("a")])
    assert not await state.scripts.idle(halted_too=True)
    assert names(await lease(state)) == ["a"]
    assert not await state.scripts.idle(halted_too=True)  # in flight


async def test_an_unknown_source_gets_the_minimum_or_is_refused(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 5))
    await take(state, "a", "b")
    items = [request("a", 1), request("b", 2, source=None, domain="nowhere.example")]
    reply = await state.scripts.enqueue(
        "w", items, seeds=await processing_list(state), high_water=100, dead_maxlen=1000, refuse_unknown=True
    )
    assert reply == (1, 0, 1, 0, 1)
    ((_, letter),) = await db(state).xrange(state.keys.dead)
    assert letter[b"reason"] == b"unknown source: nowhere.example"
    reply = await state.scripts.enqueue("w", items[1:], high_water=100, dead_maxlen=1000, refuse_unknown=False)
    assert reply is not None
    assert reply.admitted == 1
    assert await db(state).hget(state.keys.rates, "nowhere.example") == b"0.20000000000000001"
    assert await db(state).sismember(state.keys.sources, "nowhere.example")


async def test_seeds_wait_on_the_processing_list_for_a_pulse_and_while_dead_letters_are_at_their_bound(
    state: State,
) -> None:
    await join(state)
    await take(state, "a")

    async def enqueue(dead_maxlen: int) -> object:
        return await state.scripts.enqueue(
            "w", [request("a", 1)], seeds=[b"a"], high_water=9, dead_maxlen=dead_maxlen, refuse_unknown=False
        )

    assert await enqueue(9) is None
    await rule(state)
    await db(state).xadd(state.keys.dead, {"reason": "x"})
    assert await enqueue(1) is None
    assert await processing_list(state) == [b"a"]
    assert await enqueue(9) == (1, 0, 0, 0, 1)


async def test_a_late_call_for_other_seeds_does_nothing(state: State) -> None:
    await join(state)
    await rule(state)
    await take(state, "b")
    late = await state.scripts.enqueue(
        "w", [request("a", 1)], seeds=[b"a"], high_water=9, dead_maxlen=9, refuse_unknown=False
    )
    assert late is None
    assert await processing_list(state) == [b"b"]


async def test_a_worker_that_is_not_registered_takes_no_seeds(state: State) -> None:
    await db(state).lpush(state.keys.seeds, "a", "b")
    await db(state).rpoplpush(state.keys.seeds, state.keys.processing_of + "w")
    assert await state.scripts.take_seeds("w", 100) == []
    assert await waiting(state) == [b"a", b"b"]
    assert await processing_list(state) == []


# settle


async def test_a_settled_lease_emits_its_event_once(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 100))
    await put(state, [entry("a")])
    (grant,) = (await lease(state)).grants
    done = Settlement(
        grant.id,
        "museum",
        event=("image_metadata_updates", '{"x":1}'),
        counts={"fetched": 1, "bytes": 3_000_000_000},
        status="200",
    )
    assert (await state.scripts.settle("w", [done])).settled == [True]
    assert (await state.scripts.settle("w", [done, done])).settled == [False, False]
    ((_, fields),) = await db(state).xrange(state.keys.image_events)
    assert fields == {b"event": b'{"x":1}'}
    assert await outstanding(state) == 0
    assert await db(state).hget(state.keys.counts_of + "bytes", "museum") == b"3000000000"
    assert await db(state).lrange(state.keys.statuses_of + "museum", 0, -1) == [b"200"]


async def test_only_the_worker_that_holds_a_lease_can_settle_it(state: State) -> None:
    await join(state)
    await join(state, "thief")
    await rule(state, ("museum", 100))
    await put(state, [entry("a")])
    (grant,) = (await lease(state)).grants
    assert (await state.scripts.settle("thief", [Settlement(grant.id, "museum", dead="x")])).settled == [False]
    assert await outstanding(state) == 1


async def test_a_lease_that_redis_has_forgotten_cannot_settle_another(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 100))
    await put(state, [entry("a"), entry("b")])
    keys = await db(state).keys()
    before = {key: await db(state).dump(key) for key in keys}
    (forgotten,) = (await lease(state, 1)).grants
    await db(state).flushdb()  # a Redis that lost its last second, or a replica that takes over without it
    for key, value in before.items():
        await db(state).restore(key, 0, value)
    (other,) = (await lease(state, 1)).grants
    settled = await state.scripts.settle("w", [Settlement(forgotten.id, "museum", dead="x")])
    assert settled.settled == [False]
    assert (await state.scripts.settle("w", [Settlement(other.id, "museum", dead="x")])).settled == [True]


async def test_a_retry_waits_out_its_delay_and_then_comes_first(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 200))
    await put(state, [entry("a"), entry("b"), entry("c")])
    grants = (await lease(state, want=2)).grants
    again = [Settlement(g.id, "museum", entry("again"), delay=0.3) for g in grants]  # alike, and yet two
    assert (await state.scripts.settle("w", again)).settled == [True, True]
    assert await outstanding(state) == 3
    assert names(await lease(state)) == ["c"]
    assert names(await lease(state)) == []
    await asyncio.sleep(0.35)
    assert names(await lease(state)) == ["again", "again"]


async def test_what_is_given_back_goes_to_the_head_of_its_queue(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 200))
    await put(state, [entry("a"), entry("b")])
    (grant,) = (await lease(state, want=1)).grants
    await state.scripts.settle("w", [Settlement(grant.id, "museum", grant.entry)])
    assert names(await lease(state)) == ["a", "b"]


async def test_a_redirect_to_another_domain_goes_to_the_source_that_pays(state: State) -> None:
    await join(state)
    fence = await rule(state, ("museum", 100), ("cdn", 50))
    await state.scripts.set_rates(fence, [], {"cdn.example": "cdn"})
    await put(state, [entry("a"), entry("b")])
    one, two = (await lease(state)).grants
    await state.scripts.settle(
        "w",
        [
            Settlement(one.id, "museum", entry("a"), domain="cdn.example"),
            Settlement(two.id, "museum", entry("b"), domain="elsewhere.example"),
        ],
    )
    paying = {g.entry[3:]: g.id.partition(":")[2] for g in (await lease(state)).grants}
    assert paying == {b"a": "cdn", b"b": "elsewhere.example"}


async def test_a_dead_letter_keeps_request_and_reason(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 100))
    await put(state, [entry("a", deliveries=2)])
    await lease(state)
    (grant,) = (await lease(state)).grants
    await state.scripts.settle("w", [Settlement(grant.id, "museum", grant.entry, dead="status 403")])
    ((_, letter),) = await db(state).xrange(state.keys.dead)
    assert letter == {
        b"entry": entry("a", deliveries=2),
        b"source": b"museum",
        b"reason": b"status 403",
        b"deliveries": b"2",
    }
    assert await outstanding(state) == 0


async def test_a_key_of_the_wrong_type_fails_before_anything_is_written(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 100))
    await put(state, [entry("a")])
    (grant,) = (await lease(state)).grants
    await db(state).set(state.keys.link_rot_events, "not a stream")
    done = Settlement(grant.id, "museum", event=("image_metadata_updates", "{}"))
    with pytest.raises(redis.ResponseError, match="link_rot is a string, not a stream"):
        await state.scripts.settle("w", [done])
    assert await outstanding(state) == 1
    await db(state).delete(state.keys.link_rot_events)
    assert (await state.scripts.settle("w", [done])).settled == [True]


async def test_a_key_of_a_source_that_an_operator_has_spoilt_holds_no_settlement_up(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 100))
    await put(state, [entry("a")])
    (grant,) = (await lease(state)).grants
    await db(state).set(state.keys.statuses_of + "museum", "200")
    done = Settlement(grant.id, "museum", event=("image_metadata_updates", "{}"), status="200")
    assert (await state.scripts.settle("w", [done])).settled == [True]
    assert await db(state).xlen(state.keys.image_events) == 1
    assert b"statuslast50req:museum is a string" in await db(state).get(state.keys.data_fault)


async def test_only_the_last_fifty_statuses_are_kept(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 1000))
    await put(state, [entry(str(n)) for n in range(60)])
    grants = (await lease(state, want=60)).grants
    await state.scripts.settle(
        "w", [Settlement(g.id, "museum", dead="x", status=str(n)) for n, g in enumerate(grants)]
    )
    statuses = await db(state).lrange(state.keys.statuses_of + "museum", 0, -1)
    assert [int(status) for status in statuses] == list(range(59, 9, -1))


# heartbeat and leave


async def test_leases_of_a_silent_worker_return_in_order_with_a_delivery_counted(state: State) -> None:
    await join(state)
    await join(state, "other")
    await rule(state, ("museum", 1000))
    await put(state, [entry(str(n)) for n in range(200)])
    assert len((await lease(state, want=150, room=150)).grants) == 150
    await db(state).lpush(state.keys.processing_of + "w", "s1", "s2")
    await asyncio.sleep(0.5)
    for _ in range(4):  # silent itself until now: perhaps Redis was away, and all have their time anew
        late = await state.scripts.heartbeat("other", join=False, timeout=0.4, max_deliveries=3)
        assert late.lost == []
        await asyncio.sleep(0.11)
    beat = await state.scripts.heartbeat("other", join=False, timeout=0.4, max_deliveries=3)
    assert beat.alive
    assert beat.lost == [("w", 150, 0)]
    assert await waiting(state) == [b"s1", b"s2"]
    reply = await lease(state, want=200, worker="other", room=200)
    assert names(reply)[:150] == [str(n) for n in range(150)]
    assert [g.entry[1] for g in reply.grants][149:151] == [1, 0]
    assert await outstanding(state) == 200


async def test_the_last_delivery_lost_makes_a_dead_letter(state: State) -> None:
    await join(state, "other")
    await rule(state, ("museum", 100))
    await put(state, [entry("killer")])
    for lost in (1, 2, 3):
        await join(state)
        if lost == 3:
            assert (await lease(state)).grants == []  # quarantined by now
        assert len((await lease(state)).grants) == 1
        await asyncio.sleep(0.06)
        await join(state, "other")
        beat = await state.scripts.heartbeat("other", join=True, timeout=0.05, max_deliveries=3)
        assert beat.lost == [("w", 0 if lost == 3 else 1, 1 if lost == 3 else 0)]
    ((_, letter),) = await db(state).xrange(state.keys.dead)
    assert letter[b"deliveries"] == b"3"
    assert letter[b"reason"].startswith(b"lost with its worker")
    assert await outstanding(state) == 0


async def test_a_worker_that_lapsed_learns_of_it_and_cannot_settle(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 100))
    await put(state, [entry("a")])
    (grant,) = (await lease(state)).grants
    await asyncio.sleep(0.06)
    await join(state, "other")
    await state.scripts.heartbeat("other", join=True, timeout=0.05, max_deliveries=3)
    beat = await state.scripts.heartbeat("w", join=False, timeout=30, max_deliveries=3)
    assert not beat.alive
    done = Settlement(grant.id, "museum", event=("image_metadata_updates", "{}"))
    assert (await state.scripts.settle("w", [done])).settled == [False]
    assert await db(state).xlen(state.keys.image_events) == 0


async def test_a_worker_that_leaves_gives_all_back_with_nothing_counted(state: State) -> None:
    await join(state)
    await join(state, "other")
    await rule(state, ("museum", 1000))
    await put(state, [entry(str(n)) for n in range(150)])
    assert len((await lease(state, want=150, room=150)).grants) == 150
    await db(state).lpush(state.keys.processing_of + "w", "s1", "s2")
    assert await state.scripts.leave("w") == 150
    assert await waiting(state) == [b"s1", b"s2"]
    await asyncio.sleep(0.2)
    reply = await lease(state, want=200, worker="other", room=200)
    assert names(reply) == [str(n) for n in range(150)]
    assert {g.entry[1] for g in reply.grants} == {0}


async def test_idle_looks_at_frontier_seed_list_and_processing_lists(state: State) -> None:
    await join(state)
    assert await state.scripts.idle()
    await db(state).lpush(state.keys.seeds, "a")
    assert not await state.scripts.idle()
    await state.scripts.take_seeds("w", 1)
    assert not await state.scripts.idle()
    await rule(state, ("museum", 100))
    await state.scripts.enqueue(
        "w",
        [request("a", 1)],
        seeds=await processing_list(state),
        high_water=9,
        dead_maxlen=1000,
        refuse_unknown=False,
    )
    assert not await state.scripts.idle()
    (grant,) = (await lease(state)).grants
    assert not await state.scripts.idle()
    await state.scripts.settle("w", [Settlement(grant.id, "museum", dead="x")])
    assert await state.scripts.idle()


# lead, set_rates, forget, trim


async def test_one_leads_and_a_replaced_leader_writes_nothing(state: State) -> None:
    old = await state.scripts.lead("a", ready=True)
    assert old is not None
    assert await state.scripts.lead("b", ready=True) is None
    assert await state.scripts.lead("a", ready=True) == old
    await state.scripts.resign("b")
    assert await state.scripts.lead("b", ready=True) is None
    await state.scripts.resign("a")
    new = await state.scripts.lead("b", ready=True)
    assert new == old + 1
    assert not await state.scripts.set_rates(old, [("museum", 99, 99)], {"x": "y"})
    assert not await state.scripts.forget(old, ["museum"], ["x"])
    assert await db(state).exists(state.keys.rates, state.keys.hosts) == 0


async def test_the_pulse_dies_with_the_leader(state: State) -> None:
    await state.scripts.lead("a", ready=True)
    assert 4000 < await db(state).pttl(state.keys.pulse) <= 5000
    assert 4000 < await db(state).pttl(state.keys.leader) <= 5000


@pytest.mark.parametrize(("before", "after"), [(0.2, 50.0), (50.0, 0.2), (0.0, 4.0), (4.0, 4.0)])
async def test_a_new_rate_counts_from_the_last_slot_used(state: State, before: float, after: float) -> None:
    await join(state)
    fence = await rule(state, ("museum", before or 10.0))
    await put(state, [entry("a"), entry("b")])
    (first,) = (await lease(state, want=1)).grants
    if not before:
        await state.scripts.set_rates(fence, [("museum", 0.0, 1)], {})
    await state.scripts.set_rates(fence, [("museum", after, 1)], {})
    reply = await lease(state, want=1)
    second = reply.grants[0].slot if reply.grants else reply.next_due
    assert second == pytest.approx(first.slot + 1 / (after if before else 10.0), abs=0.03)


async def test_a_source_dropped_from_the_catalogue_is_forgotten(state: State) -> None:
    fence = await rule(state, ("museum", 5))
    await state.scripts.set_rates(fence, [], {"museum.example": "museum"})
    await state.scripts.forget(fence, ["museum"], ["museum.example"])
    assert await db(state).exists(state.keys.limits, state.keys.hosts) == 0


async def test_without_a_reader_old_events_are_dropped_and_counted(state: State) -> None:
    fence = await rule(state)
    for n in range(1000):
        await db(state).xadd(state.keys.image_events, {"event": str(n)})
    reason, dropped = await state.scripts.trim(fence, maxlen=300)
    left = await db(state).xlen(state.keys.image_events)
    assert reason == ""
    assert dropped == 1000 - left
    assert 300 <= left <= 400
    assert int(await db(state).hget(state.keys.totals, "events_trimmed") or 0) == dropped


async def test_what_a_reader_has_not_read_is_kept_and_leasing_pauses(state: State) -> None:
    await join(state)
    fence = await rule(state, ("museum", 100))
    ids = [await db(state).xadd(state.keys.image_events, {"event": str(n)}) for n in range(1000)]
    field = f"host:/tmp/out.jsonl\n{state.keys.image_events}"
    await db(state).hset(state.keys.readers, field, ids[99])
    reason, dropped = await state.scripts.trim(fence, maxlen=300)
    assert "host:/tmp/out.jsonl" in reason
    assert dropped == 0
    entries = await db(state).xrange(state.keys.image_events)
    assert entries[-900:][0][1] == {b"event": b"100"}
    assert (await lease(state)).reason == reason
    await db(state).hset(state.keys.readers, field, ids[-1])
    assert await state.scripts.trim(fence, maxlen=300) == ("", 0)
    assert await db(state).xlen(state.keys.image_events) <= 300


async def test_past_slots_are_not_kept(state: State) -> None:
    fence = await rule(state, ("museum", 1000), ("slow", 0.2))
    await state.scripts.acquire(source="museum")
    await state.scripts.acquire(source="slow")
    await asyncio.sleep(0.02)
    await state.scripts.trim(fence, maxlen=10)
    assert await db(state).zrange(state.keys.slots, 0, -1) == [b"slow"]


# retry_dead


async def test_dead_letters_live_again_once(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 100))
    one = await db(state).xadd(state.keys.dead, {"entry": entry("a"), "source": "museum", "reason": "x"})
    two = await db(state).xadd(state.keys.dead, {"seed": "bad", "source": "", "reason": "x"})
    letters = [
        DeadRetry(one.decode(), "museum", entry("a"), None),
        DeadRetry(two.decode(), "", None, b"bad"),
    ]
    assert await state.scripts.retry_dead(letters) == 2
    assert await state.scripts.retry_dead(letters) == 0
    assert await outstanding(state) == 1
    assert await waiting(state) == [b"bad"]
    assert names(await lease(state)) == ["a"]


async def test_work_of_halted_sources_can_count_as_none(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 100), ("photos", 100))
    await put(state, [entry("a"), entry("b")])
    await put(state, [entry("c")], "photos")
    await db(state).sadd(state.keys.halted, "museum")
    assert not await state.scripts.idle(halted_too=True)
    (grant,) = (await lease(state)).grants
    assert not await state.scripts.idle(halted_too=True)
    await state.scripts.settle("w", [Settlement(grant.id, "photos", dead="x")])
    assert await state.scripts.idle(halted_too=True)
    assert not await state.scripts.idle()


@pytest.mark.parametrize("foreign", ["1.0:a\x01b", "1.0:" + "x" * 600, "9999999999999999.0:a"])
async def test_a_foreign_lease_takes_no_other_settlement_along(state: State, foreign: str) -> None:
    """One that looks like a lease, and is not: it is settled with others in one call."""
    scripts, redis = state.scripts, db(state)
    await rule(state, ("museum", 100))
    await join(state)
    await put(state, [entry("a")])
    [grant] = (await lease(state)).grants
    await redis.hset(state.keys.leases_of + "w", foreign, b"\x01\x00\x00x")
    source = foreign.partition(":")[2]
    ends = [
        Settlement(foreign, source, b"\x01\x00\x00x"),
        Settlement(grant.id, "museum", event=("link_rot", "{}"), status="404", fine=True),
    ]
    reply = await scripts.settle("w", ends)
    assert reply.settled == [True, True]
    assert await redis.xlen(state.keys.link_rot_events) == 1
    assert await redis.hlen(state.keys.leases_of + "w") == 0
