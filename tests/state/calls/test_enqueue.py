"""The way of seeds into the frontier: the scripts take_seeds and enqueue."""

from __future__ import annotations

import pytest
import redis

from crawlproject.state.calls import NewRequest, Rejected
from crawlproject.state.client import State
from tests.state.calls.calls import (
    begin,
    db,
    feed,
    join,
    lease,
    lists_of,
    names,
    outstanding,
    processing_list,
    request,
    requests,
    rule,
    take,
    waiting,
    within,
)


async def test_seeds_are_taken_in_order_and_leave_the_processing_list_with_the_batch(state: State) -> None:
    await join(state)
    await rule(state)
    assert await take(state, "a", "b", "c") == [b"a", b"b", b"c"]
    items: list[NewRequest | Rejected] = [request("a", 1), request("b", 2), Rejected("no url")]
    reply = await state.scripts.enqueue("w", items, seeds=await processing_list(state))
    assert reply == (2, 0, 1, 0, 0, 0, [])
    assert await db(state).exists(state.keys.processing_of + "w") == 0
    ((_, letter),) = await db(state).xrange(state.keys.dead)
    assert (letter[b"seed"], letter[b"reason"]) == (b"c", b"no url")


async def test_seeds_whose_count_fails_are_in_the_frontier(state: State) -> None:
    await join(state)
    await rule(state)
    await take(state, "a")
    await db(state).delete(state.keys.totals)
    await db(state).set(state.keys.totals, "no hash")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        await state.scripts.enqueue("w", [request("a", 1)], seeds=await processing_list(state))
    assert await outstanding(state) == 1
    assert names(await lease(state)) == ["a"]


async def test_a_call_for_seeds_that_this_worker_has_no_more_does_nothing(state: State) -> None:
    await join(state)
    await rule(state)
    item = request("a", 1, again=True)
    await take(state, "a")
    assert await state.scripts.enqueue("w", [item], seeds=[b"a"]) == (1, 0, 0, 0, 0, 0, [])
    assert await state.scripts.enqueue("w", [item], seeds=[b"a"]) is None  # the same call
    await take(state, "b")
    assert await state.scripts.enqueue("w", [item], seeds=[b"a"]) is None  # late, for other seeds
    await db(state).zrem(state.keys.workers, "w")
    assert await state.scripts.enqueue("w", [item], seeds=[b"b"]) is None  # from a worker that has lapsed
    assert await processing_list(state) == [b"b"]
    assert await outstanding(state) == 1


async def test_what_is_enqueued_again_without_seeds_is_stored_once_though_the_reply_is_lost(state: State) -> None:
    await rule(state)
    item = request("a", 1, again=True, once=b"12345678")
    replies = [await state.scripts.enqueue("w", [item, request("b", 2, again=True)]) for _ in range(2)]
    assert replies == [(2, 0, 0, 0, 0, 0, []), (1, 1, 0, 0, 0, 0, [])]
    other = request("a", 1, again=True, once=b"87654321")
    assert await state.scripts.enqueue("w", [other]) == (1, 0, 0, 0, 0, 0, [])


async def test_what_was_seen_is_a_duplicate_unless_it_says_again(state: State) -> None:
    await rule(state)
    first = [request("a", 7), request("b", 7), request("c", 7, again=True), request("d", 2**44 - 1)]
    assert await state.scripts.enqueue("w", first) == (3, 1, 0, 0, 0, 0, [])
    buckets = await db(state).keys(state.keys.seen_of + "*")
    assert {await db(state).object("encoding", bucket) for bucket in buckets} == {b"intset"}


async def test_before_a_catalogue_says_which_source_is_which_nothing_is_stored(state: State) -> None:
    assert await state.scripts.enqueue("w", [request("a", 7)]) is None
    assert await db(state).keys() == []
    await rule(state)
    assert await state.scripts.enqueue("w", [request("a", 7)]) == (1, 0, 0, 0, 0, 0, [])


async def test_seeds_over_the_high_water_mark_go_back_in_order(state: State) -> None:
    await join(state)
    await rule(state)
    await take(state, *"abcdef")
    items = [request(name, n, source=f"s{n}") for n, name in enumerate("abcdef")]
    reply = await within(state.scripts, high_water=4).enqueue("w", items, seeds=await processing_list(state))
    assert reply == (4, 0, 0, 2, 0, 0, [])
    assert await waiting(state) == [b"e", b"f"]
    # they were not noted as seen
    assert await state.scripts.take_seeds("w", 10) == [b"e", b"f"]
    reply = await state.scripts.enqueue("w", items[4:], seeds=await processing_list(state))
    assert reply == (2, 0, 0, 0, 0, 0, [])


async def test_a_processing_list_holds_few_bytes_but_any_one_seed(state: State) -> None:
    await join(state)
    await db(state).lpush(state.keys.seeds, "a" * 40, "b" * 70, "c" * 200, "d", "e" * 99, "f")

    async def take() -> list[str]:
        seeds = await state.scripts.take_seeds("w", 100, size=100)
        assert seeds == await state.scripts.take_seeds("w", 100, size=100)  # no more at a second call
        await db(state).delete(state.keys.processing_of + "w")
        return [f"{len(seed)}{seed[:1].decode()}" for seed in seeds]

    assert [await take() for _ in range(5)] == [["40a", "70b"], ["200c"], ["1d", "99e"], ["1f"], []]


async def test_an_unknown_source_gets_the_minimum_or_is_refused(state: State) -> None:
    await begin(state, 5)
    await take(state, "a", "b")
    items = [request("a", 1), request("b", 2, source=None, domain="nowhere.example")]
    scripts = within(state.scripts, refuse_unknown=True)
    assert await scripts.enqueue("w", items, seeds=await processing_list(state)) == (1, 0, 1, 0, 0, 0, [])
    ((_, letter),) = await db(state).xrange(state.keys.dead)
    assert letter[b"reason"] == b"unknown source: nowhere.example"
    assert await state.scripts.enqueue("w", items[1:]) == (1, 0, 0, 0, 0, 0, [])
    assert await db(state).hget(state.keys.rates, "nowhere.example") == b"0.20000000000000001"


async def test_seeds_wait_on_the_processing_list_for_a_pulse_and_while_dead_letters_are_at_their_bound(
    state: State,
) -> None:
    await join(state)
    await take(state, "a")

    async def enqueue(dead_maxlen: int) -> object:
        return await within(state.scripts, dead_maxlen=dead_maxlen).enqueue("w", [request("a", 1)], seeds=[b"a"])

    assert await enqueue(9) is None
    await rule(state)
    await db(state).xadd(state.keys.dead, {"reason": "x"})
    assert await enqueue(1) is None
    assert await processing_list(state) == [b"a"]
    assert await enqueue(9) == (1, 0, 0, 0, 0, 0, [])


async def test_a_worker_that_is_not_registered_takes_no_seeds(state: State) -> None:
    await db(state).lpush(state.keys.seeds, "a", "b")
    await db(state).rpoplpush(state.keys.seeds, state.keys.processing_of + "w")
    assert await state.scripts.take_seeds("w", 100) == []
    assert await waiting(state) == [b"a", b"b"]
    assert await processing_list(state) == []


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


async def narrow(state: State) -> None:
    """Have a worker, and a source with a window of 8."""
    await join(state)
    await rule(state, ("museum", 0.01), ("other", 0.01))


async def test_seeds_beyond_the_window_of_their_source_wait_apart_and_let_others_pass(state: State) -> None:
    await narrow(state)
    reply = await feed(state, *requests("abcdefghij"), *requests("x", source="other"), high_water=99)
    assert reply == (11, 0, 0, 0, 0, 0, [])
    assert (await queued(state), await overflowing(state)) == ({0: "abcdefgh"}, {0: "ij"})
    assert await queued(state, "other") == {0: "x"}
    assert await waiting(state) == []
    assert await feed(state, *requests("kj"), high_water=99) == (1, 1, 0, 0, 0, 0, [])  # what waits was seen
    assert await overflowing(state) == {0: "ijk"}


async def test_no_priority_waits_behind_a_lower_one_of_its_source(state: State) -> None:
    await narrow(state)
    await feed(state, *requests("abcdefghi"), high_water=99)
    await feed(state, *requests("rstuvwxyz", priority=4), *requests("m", priority=2), high_water=99)
    assert (await queued(state), await overflowing(state)) == (
        {0: "abcdefgh", 4: "rstuvwxy"},
        {0: "i", 2: "m", 4: "z"},
    )
    given = [names(await lease(state, want=1, horizon=1e6)) for _ in range(19)]
    assert given == [[name] for name in "rstuvwxyzmabcdefghi"]


async def test_only_what_needs_an_overflow_goes_back_when_those_are_at_their_bound(state: State) -> None:
    await narrow(state)
    batch = [*requests("abcdefghijkl"), *requests("p", priority=1), *requests("x", source="other"), *requests("m")]
    assert await feed(state, *batch, high_water=99, overflow_maxlen=2) == (12, 0, 0, 3, 0, 0, [])
    assert (await queued(state), await overflowing(state)) == ({0: "abcdefgh", 1: "p"}, {0: "ij"})
    assert await waiting(state) == [b"k", b"l", b"m"]  # in order, and not seen
    assert await feed(state, *requests("klm"), high_water=99) == (3, 0, 0, 0, 0, 0, [])
    assert await overflowing(state) == {0: "ijklm"}
