"""The classes of sources: what goes out first when there is more to be sent than workers take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

from crawlproject.state.client import State
from tests.standing_clock import StandingClock
from tests.state.calls.calls import begin, db, entry, join, lease, names, put, rule, settle, source_of

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
