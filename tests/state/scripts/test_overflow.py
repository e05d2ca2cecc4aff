"""Seeds of sources at their share of the frontier."""

from __future__ import annotations

import asyncio

import pytest

from crawlproject.state.client import State
from crawlproject.state.scripts import Settlement
from tests.state.scripts.calls import (
    db,
    feed,
    join,
    lease,
    names,
    outstanding,
    request,
    requests,
    rule,
    waiting,
)

pytestmark = pytest.mark.judges  # in milliseconds


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
    assert await feed(state, *requests("abcd"), *requests("x", source="other")) == (5, 0, 0, 0, 0, 0, 3, [])
    assert (await queued(state), await overflowing(state)) == ({0: "ab"}, {0: "cd"})
    assert await queued(state, "other") == {0: "x"}
    assert await waiting(state) == []
    assert await feed(state, *requests("ed")) == (1, 1, 0, 0, 0, 0, 3, [])  # what waits was seen
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
    assert await feed(state, *batch, overflow_maxlen=1) == (5, 0, 0, 3, 0, 0, 3, [])
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
    assert reply == (3, 0, 0, 0, 0, 0, 3, [])
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
