"""Readers of the event streams: one process at a time under each name, and what is kept for whom."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from crawlproject.errors import ReaderTaken
from crawlproject.state.calls.readers import LEASE_S, Held
from crawlproject.state.client import State
from crawlproject.state.keys import Keys
from crawlproject.streams.readers import (
    MOST_READERS,
    EventsLost,
    Overtaken,
    StreamReader,
    forget,
    furthest_behind,
    readers,
)
from crawlproject.streams.streams import START
from crawlproject.texts import counted
from tests.streams.records import packed, record, write
from tests.waiting import until_async

KEYS = Keys("crawl", "images")
STREAM = KEYS.image_events


def reader(state: State) -> StreamReader:
    return StreamReader(state, "archive", "/data/x.jsonl")


def until_of(client: Any) -> float:
    """Return for how many seconds more the lease lasts."""
    seconds, micros = client.time()
    left: float = (record(client, "archive", KEYS).until or 0) / 1e6 - seconds - micros / 1e6
    return left


async def test_a_lease_lasts_some_seconds_and_each_note_renews_it(state: State, client: redis.Redis) -> None:
    first = reader(state)
    assert await first.take() == ({}, None)
    assert 0 < until_of(client) <= LEASE_S
    for renew in (first.renew, first.note):

        async def is_renewed(renew: Callable[[], Awaitable[None]] = renew) -> bool:
            write(client, "archive", KEYS, until=1)
            await renew()
            return LEASE_S - 2 < until_of(client) <= LEASE_S

        await until_async(is_renewed)


async def test_the_lease_of_a_process_that_died_is_waited_for(state: State, client: redis.Redis) -> None:
    first, second = reader(state), reader(state)
    await first.take()
    first.last[STREAM] = "5-1"
    begin = time.monotonic()
    await first.note(length=70)
    assert (await second.take())[0][STREAM] == "5-1"
    assert time.monotonic() - begin > LEASE_S - 0.1
    with pytest.raises(Overtaken):
        await first.note()
    with pytest.raises(Overtaken):
        await first.renew()
    assert until_of(client) > 0
    assert record(client, "archive", KEYS).last[STREAM] == "5-1"


async def test_a_lease_that_nobody_has_taken_meanwhile_goes_on(state: State, client: redis.Redis) -> None:
    first = reader(state)
    await first.take()
    write(client, "archive", KEYS, until=1)
    await first.note()
    client.flushall()  # a Redis that came back without its data
    await first.note()
    assert until_of(client) > 0
    assert record(client, "archive", KEYS).host


async def test_a_clock_that_was_set_back_keeps_no_dead_process_in_its_place(
    state: State, client: redis.Redis
) -> None:
    await reader(state).take()
    seconds, _ = client.time()
    write(client, "archive", KEYS, until=(seconds + 3600) * 1_000_000)
    held = await state.scripts.take_reader("archive", {"holder": "other"})
    assert isinstance(held, Held)
    assert held.left_s == LEASE_S
    assert until_of(client) <= LEASE_S
    write(client, "archive", KEYS, until=(seconds + 3600) * 1_000_000)
    with pytest.raises(ReaderTaken, match="wait 5 s"):
        await forget(state, "archive")
    assert until_of(client) <= LEASE_S


async def test_a_lease_is_kept_while_something_else_takes_long_and_given_back(
    state: State, client: redis.Redis
) -> None:
    one = reader(state)
    async with one.held():
        write(client, "archive", KEYS, until=1)
        await until_async(lambda: until_of(client) > 0)
    assert record(client, "archive", KEYS).until is None
    await one.take()
    write(client, "archive", KEYS, holder="another")
    with pytest.raises(Overtaken):
        await one.read()


async def test_it_is_known_how_many_events_a_reader_has_not_read(state: State, client: redis.Redis) -> None:
    one = reader(state)
    await one.take()
    add(client, 1, 1600)
    for at in ("0-0", "1000-0", "1400-0", "1600-0"):
        one.last[STREAM] = at
        await one.note()
        write(client, "other", KEYS, last={STREAM: at})  # of which nothing else is known
        assert {one.name: one.behind for one in await readers(state)} == {
            "archive": 1600 - int(at.removesuffix("-0")),
            "other": 0 if at == "1600-0" else 1600,
        }
        assert len(await one.read()) == min(1000, 1600 - int(at.removesuffix("-0")))
    for number in range(30):
        write(client, f"r{number:02}", KEYS, last={STREAM: "5-0"}, numbers={STREAM: number})
    found = await furthest_behind(state)
    assert len(found) == MOST_READERS
    assert (found["r00"], found["r01"]) == (1600, 1599)


def add(client: Any, first: int, last: int) -> None:
    for number in range(first, last + 1):
        client.xadd(STREAM, {"event": "{}"}, id=f"{number}-0")


# What was read, what came then and was taken out, and how many events are lost: None where Redis does not know.
GAPS: dict[str, tuple[int, tuple[tuple[Any, ...], ...], int | None]] = {
    "nothing": (10, (), 0),
    "what was read": (10, (("XTRIM", STREAM, "MINID", "10-0"),), 0),
    "the head": (9, (("XTRIM", STREAM, "MAXLEN", 3),), 18),  # ids are numbers: 9 comes before 28
    "all": (10, (("XTRIM", STREAM, "MAXLEN", 0),), 20),
    "one of the middle": (10, (("XDEL", STREAM, "15-0"),), None),
    "the head, of a reader that has read nothing": (0, (("XTRIM", STREAM, "MAXLEN", 3),), 27),
    "the stream": (10, (("DEL", STREAM),), None),
    "everything": (10, (("FLUSHALL",), ("XADD", STREAM, "40-0", "event", "{}")), None),
    "what a fail-over forgets": (10, (("DEL", STREAM), ("XADD", STREAM, "9-0", "event", "{}")), 0),
}


@pytest.mark.parametrize("name", GAPS)
async def test_what_is_gone_before_it_was_read_is_told_of_once(state: State, client: Any, name: str) -> None:
    read, done, lost = GAPS[name]
    one = reader(state)
    await one.take()
    await one.note()
    add(client, 1, 10)
    await one.read()
    one.last[STREAM] = f"{read}-0"
    if read:
        await one.note()
    write(client, "archive", KEYS, until=None)
    add(client, 11, 30)
    for command in done:
        client.execute_command(*command)

    again = reader(state)
    await again.take()
    again.last[STREAM] = f"{read}-0"
    await again.note()
    if lost != 0:
        with pytest.raises(EventsLost) as caught:
            await again.read()
        what = counted(lost, "event") if lost is not None else "an unknown number of events"
        assert caught.value.lost == f"{what} of {STREAM}"
    left = [entry.id for entry in await again.read()]
    assert again.last[STREAM] == (f"{read}-0" if client.exists(STREAM) else START)
    assert left == [at.decode() for at, _ in client.xrange(STREAM, f"({read}-0")]
    for at in left:
        again.last[STREAM] = at
    add(client, 50, 60)
    assert len(await again.read()) == 11


async def test_a_follower_that_is_overtaken_by_trimming_says_how_much_it_lacks(
    state: State, client: redis.Redis
) -> None:
    one = reader(state)
    await one.take()
    await one.note()
    for first in (1, 21):
        add(client, first, first + 9)
        one.last[STREAM] = (await one.read())[-1].id
        await one.note()
        add(client, first + 10, first + 19)
        client.xtrim(STREAM, maxlen=4, approximate=False)
        with pytest.raises(EventsLost, match=r": 6 events of "):
            await one.read()
        one.last[STREAM] = (await one.read())[-1].id


async def test_what_a_master_says_that_was_replaced_while_it_hung_is_not_read(
    state: State, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, xread = reader(state), state.redis.xread
    await one.take()
    add(client, 1, 2)

    async def of_the_former(*args: Any, **options: Any) -> Any:
        answer = await xread(*args, **options)
        client.xdel(STREAM, "2-0")  # as if the next call were answered by another node
        return answer

    monkeypatch.setattr(state.redis, "xread", of_the_former)
    with pytest.raises(redis.ConnectionError, match="another node has taken over"):
        await one.read()
    monkeypatch.undo()
    with pytest.raises(EventsLost, match=": 1 event of"):  # as here nobody has it
        await one.read()
    assert [entry.id for entry in await one.read()] == ["1-0"]


async def test_what_all_have_read_is_dropped_a_part_at_a_time(state: State) -> None:
    client: Any = state.redis
    fence = await state.scripts.lead("leader", ready=True)
    assert fence is not None
    stream = state.keys.image_events
    await client.eval("for n = 1, 50010 do redis.call('XADD', KEYS[1], n, 'event', '{}') end", 1, stream)
    await client.hset(state.keys.readers, "file", packed(last={stream: "50005-0"}))
    lengths = []
    for _ in range(4):
        await state.scripts.trim(fence, maxlen=5)
        lengths.append(await client.xlen(stream))
    assert lengths[0] >= 30_010
    assert lengths[1] >= 10_010
    assert lengths[-1] == 6  # the last one read stays


async def test_what_the_slowest_reader_has_yet_to_read_stays(state: State, client: redis.Redis) -> None:
    fence = await state.scripts.lead("leader", ready=True)
    assert fence is not None
    add(client, 1, 20)
    for name, at in {"fast": "18-0", "middle": "12-1", "slow": "12-0", "other": "12-2"}.items():
        write(client, name, KEYS, last={STREAM: at})
    assert await state.scripts.trim(fence - 1, maxlen=5) == ("", 0)  # of a leader that was replaced
    reason, _ = await state.scripts.trim(fence, maxlen=5)
    assert "reader slow has not read" in reason
    assert client.xlen(STREAM) == 9
