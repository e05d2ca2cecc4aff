"""Seeds beyond the windows of their sources."""

from __future__ import annotations

import pytest

from crawlproject.state.client import State
from tests.state.calls.calls import (
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
    """Return what waits beyond the window of a source, and see that it is counted."""
    counted = int(await db(state).hget(state.keys.counters, "overflow") or 0)
    lists = [await db(state).llen(key) for key in await db(state).keys(state.keys.overflow_of + "*")]
    assert counted == sum(lists)
    return await lists_of(state, state.keys.overflow_of, source)


async def begin(state: State) -> None:
    """Have a worker, and a source with a window of 8."""
    await join(state)
    await rule(state, ("museum", 0.01), ("other", 0.01))


async def test_seeds_beyond_the_window_of_their_source_wait_apart_and_let_others_pass(state: State) -> None:
    await begin(state)
    assert await feed(state, *requests("abcdefghij"), *requests("x", source="other"), high_water=99) == (
        11,
        0,
        0,
        0,
        0,
        0,
        [],
    )
    assert (await queued(state), await overflowing(state)) == ({0: "abcdefgh"}, {0: "ij"})
    assert await queued(state, "other") == {0: "x"}
    assert await waiting(state) == []
    assert await feed(state, *requests("kj"), high_water=99) == (1, 1, 0, 0, 0, 0, [])  # what waits was seen
    assert await overflowing(state) == {0: "ijk"}


async def test_no_priority_waits_behind_a_lower_one_of_its_source(state: State) -> None:
    await begin(state)
    await feed(state, *requests("abcdefghi"), high_water=99)
    await feed(state, *requests("rstuvwxyz", priority=4), *requests("m", priority=2), high_water=99)
    assert (await queued(state), await overflowing(state)) == (
        {0: "abcdefgh", 4: "rstuvwxy"},
        {0: "i", 2: "m", 4: "z"},
    )
    given = ""
    for _ in range(19):
        given += "".join(names(await lease(state, want=1, horizon=1e6)))
    assert given == "rstuvwxyzmabcdefghi"


async def test_only_what_needs_an_overflow_goes_back_when_those_are_at_their_bound(state: State) -> None:
    await begin(state)
    batch = [*requests("abcdefghijkl"), *requests("p", priority=1), *requests("x", source="other"), *requests("m")]
    assert await feed(state, *batch, high_water=99, overflow_maxlen=2) == (12, 0, 0, 3, 0, 0, [])
    assert (await queued(state), await overflowing(state)) == ({0: "abcdefgh", 1: "p"}, {0: "ij"})
    assert await waiting(state) == [b"k", b"l", b"m"]  # in order, and not seen
    assert await feed(state, *requests("klm"), high_water=99) == (3, 0, 0, 0, 0, 0, [])
    assert await overflowing(state) == {0: "ijklm"}


async def test_a_large_source_takes_a_window_of_the_frontier_and_no_more(state: State) -> None:
    await join(state)
    await rule(state, ("photos", 1000.0), ("museum", 1.0))
    for first in range(0, 6000, 1000):
        batch = [request(str(n), n, source="photos") for n in range(first, first + 1000)]
        reply = await feed(state, *batch, high_water=40_000, overflow_maxlen=1000)
    assert await outstanding(state) == 4096
    assert await db(state).llen(f"{state.keys.overflow_of}0:photos") == 1000
    assert (reply.admitted, reply.returned) == (96, 904)
    await db(state).delete(state.keys.seeds)
    reply = await feed(state, request("x", 10_000), high_water=40_000, overflow_maxlen=1000)
    assert (reply.admitted, reply.returned, await outstanding(state)) == (1, 0, 4097)
