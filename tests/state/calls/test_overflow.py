"""Seeds beyond the windows of their sources."""

from __future__ import annotations

from crawlproject.state.client import State
from tests.state.calls.calls import db, feed, join, lease, lists_of, names, requests, rule, waiting


async def queued(state: State, source: str = "museum") -> dict[int, str]:
    return {
        priority: "".join(one) for priority, one in (await lists_of(state, state.keys.queue_of, source)).items()
    }


async def overflowing(state: State) -> dict[int, str]:
    """Return what waits beyond the window of a source, and see that it is counted."""
    found = await lists_of(state, state.keys.overflow_of)
    counted = int(await db(state).hget(state.keys.counters, "overflow") or 0)
    assert counted == sum(map(len, found.values()))
    return {priority: "".join(one) for priority, one in found.items()}


async def begin(state: State) -> None:
    """Have a worker, and a source with a window of 8."""
    await join(state)
    await rule(state, ("museum", 0.01), ("other", 0.01))


async def test_seeds_beyond_the_window_of_their_source_wait_apart_and_let_others_pass(state: State) -> None:
    await begin(state)
    reply = await feed(state, *requests("abcdefghij"), *requests("x", source="other"), high_water=99)
    assert reply == (11, 0, 0, 0, 0, 0, [])
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
    given = [names(await lease(state, want=1, horizon=1e6)) for _ in range(19)]
    assert given == [[name] for name in "rstuvwxyzmabcdefghi"]


async def test_only_what_needs_an_overflow_goes_back_when_those_are_at_their_bound(state: State) -> None:
    await begin(state)
    batch = [*requests("abcdefghijkl"), *requests("p", priority=1), *requests("x", source="other"), *requests("m")]
    assert await feed(state, *batch, high_water=99, overflow_maxlen=2) == (12, 0, 0, 3, 0, 0, [])
    assert (await queued(state), await overflowing(state)) == ({0: "abcdefgh", 1: "p"}, {0: "ij"})
    assert await waiting(state) == [b"k", b"l", b"m"]  # in order, and not seen
    assert await feed(state, *requests("klm"), high_water=99) == (3, 0, 0, 0, 0, 0, [])
    assert await overflowing(state) == {0: "ijklm"}
