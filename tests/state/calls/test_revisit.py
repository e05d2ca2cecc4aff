"""Pages that are looked at again: when, how many of a source, and how much of its pace they take."""

from __future__ import annotations

from functools import partial

from crawlproject.models import Lease
from crawlproject.state.calls import Revisit
from crawlproject.state.client import State
from tests.state.calls.calls import db, entry, join, lead, lease, names, outstanding, put, rule, settle, within
from tests.waiting import until_async

DAY_S = 86_400.0
LISTED = 2


def look(name: str, interval: float) -> Revisit:
    return Revisit(name.encode().ljust(32, b"."), entry(name, priority=LISTED), interval)


async def visit(state: State, *looks: Revisit) -> None:
    """Crawl a page for each look, and plan that."""
    await put(state, [entry(f"first {number}") for number in range(len(looks))])
    for one in looks:
        await end(state, one)


async def end(state: State, plan: Revisit) -> None:
    """Have the next request be done with, and another look planned."""
    [grant] = await until_async(partial(grants, state))
    assert await settle(state, grant, done=True, status="200", fine=True, revisit=plan) == [True]


async def grants(state: State) -> list[Lease]:
    return (await lease(state, 1)).grants


async def revisit(state: State, *, high_water: int = 1_000_000) -> int:
    reply = await within(state.scripts, high_water=high_water).revisit(count=100)
    return 0 if reply is None else reply[0]


async def begin(state: State, rps: float = 100) -> None:
    await join(state)
    await rule(state, ("museum", rps))


async def planned(state: State) -> dict[str, tuple[float, float]]:
    """Return how many seconds from now the looks at pages are due, and their intervals."""
    seconds, micros = await db(state).time()
    now = seconds + micros / 1e6
    found = {}
    for page, line in (await db(state).hgetall(state.keys.revisits_of + "museum")).items():
        at, interval = line.split(b"\n")[0].split()
        found[page.decode().rstrip(".")] = (int(at) / 1e6 - now, int(interval) / 1e6)
    return found


async def make_due(state: State) -> None:
    """Have all looks be due, as after a long time."""
    key = state.keys.revisits_of + "museum"
    for page, line in (await db(state).hgetall(key)).items():
        await db(state).hset(key, page, b"1 " + line.partition(b" ")[2])
    await db(state).zadd(state.keys.revisits, {"museum": 1})


async def test_a_page_comes_back_when_its_interval_is_over_and_not_before(state: State) -> None:
    await begin(state)
    await visit(state, look("a", 3600))
    assert await revisit(state) == 0
    [(seconds, interval)] = (await planned(state)).values()
    assert 3500 < seconds <= interval == 3600
    await make_due(state)
    assert await outstanding(state) == 0
    assert (await revisit(state), await revisit(state)) == (1, 0)
    assert await outstanding(state) == 1
    assert names(await lease(state)) == ["a"]


async def test_a_look_that_nothing_is_heard_of_comes_again_after_twice_the_interval(state: State) -> None:
    await begin(state)
    await visit(state, look("a", 3600))
    for times in (2, 4, 8):
        await make_due(state)
        assert await revisit(state) == 1
        [(seconds, interval)] = (await planned(state)).values()
        assert times * 3600 - 100 < seconds <= interval == times * 3600
    await visit(state, look("a", 20 * DAY_S))
    await make_due(state)
    await revisit(state)
    assert [interval for _, interval in (await planned(state)).values()] == [30 * DAY_S]


async def test_whoever_settles_a_look_says_when_the_next_one_is(state: State) -> None:
    await begin(state)
    await visit(state, look("a", 3600))
    await make_due(state)
    await revisit(state)
    await end(state, look("a", 1800))
    [(seconds, interval)] = (await planned(state)).values()
    assert 1700 < seconds <= interval == 1800


async def test_of_a_source_eight_pages_are_looked_at_again_the_first_ones(state: State) -> None:
    await begin(state)
    await visit(state, *(look(str(number), 3600) for number in range(12)))
    assert (await planned(state)).keys() == set("01234567")
    await visit(state, look("7", 60), look("8", 60))
    assert (await planned(state)).keys() == set("01234567")
    assert (await planned(state))["7"][1] == 60


async def test_looks_take_a_quarter_of_a_sources_pace_at_most(state: State) -> None:
    await begin(state, rps=0.01)
    await visit(state, look("a", 1))
    assert 390 < (await planned(state))["a"][0] <= 400
    await make_due(state)
    await revisit(state)
    assert 390 < (await planned(state))["a"][0] <= 400


async def test_a_look_goes_before_what_waits_in_its_class_and_behind_higher_ones(state: State) -> None:
    await begin(state)
    await visit(state, look("a", 3600))
    await put(state, [entry("listed", priority=LISTED), entry("link", priority=1), entry("seed", priority=3)])
    await make_due(state)
    await revisit(state)
    assert names(await lease(state)) == ["seed", "a", "listed", "link"]


async def test_looks_wait_for_a_halted_or_excluded_source_and_a_full_or_leaderless_frontier(
    state: State,
) -> None:
    await begin(state)
    await visit(state, look("a", 3600))
    for key in (state.keys.halted, state.keys.excluded):
        await db(state).sadd(key, "museum")
        await make_due(state)
        assert await revisit(state) == 0
        [(seconds, interval)] = (await planned(state)).values()
        assert 3500 < seconds <= interval == 3600
        await db(state).srem(key, "museum")
    await make_due(state)
    await put(state, [entry("b")])
    assert await revisit(state, high_water=1) == 0
    await db(state).delete(state.keys.pulse)
    assert await revisit(state) == 0
    await lead(state)
    assert await revisit(state) == 1
