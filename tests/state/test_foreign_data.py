"""Data in Redis that we did not write: no script believes it, none stops others for it, none fails for ever."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from benchmarks.hostile.foreign_data import (
    KEYS,
    ME,
    SPOILT,
    TYPES,
    WRONG,
    db,
    goes_on,
    lease,
    opened,
    put,
    try_junk,
    try_type_of_all,
    try_type_of_one,
)
from crawlproject.state.client import State
from crawlproject.state.scripts import Settlement
from tests.leading import lead
from tests.pasting import HOSTILE


@pytest_asyncio.fixture
async def crawl(redis_url: str) -> AsyncIterator[State]:
    """A crawl in which all kinds of keys are in use."""
    async with opened(redis_url) as state:
        yield state


def test_every_key_is_tried() -> None:
    assert {name for name, _ in KEYS.items()} == TYPES.keys()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("name", "spelling"), list(KEYS.items()), ids=[name for name, _ in KEYS.items()])
async def test_junk_of_the_right_type_stops_nobody(crawl: State, name: str, spelling: str, seed: int) -> None:
    await try_junk(crawl, name, spelling, seed)


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize(
    ("name", "spelling"),
    [(name, spelling) for name, spelling in KEYS.items() if name.endswith("_of")],
    ids=[name for name, _ in KEYS.items() if name.endswith("_of")],
)
async def test_a_key_of_one_source_or_worker_that_has_another_type_stops_no_other(
    crawl: State, name: str, spelling: str, kind: str
) -> None:
    if kind != TYPES[name]:
        await try_type_of_one(crawl, name, spelling, kind)


@pytest.mark.parametrize(
    ("name", "spelling"),
    [(name, spelling) for name, spelling in KEYS.items() if not name.endswith("_of")],
    ids=[name for name, _ in KEYS.items() if not name.endswith("_of")],
)
async def test_a_key_of_all_that_has_another_type_is_named_before_anything_happens(
    crawl: State, name: str, spelling: str
) -> None:
    """By each script that touches it: those that are refused have done nothing, the others go on."""
    await try_type_of_all(crawl, name, spelling)


async def test_foreign_leases_are_dead_letters_and_return_by_no_lapse(crawl: State) -> None:
    grants = await lease(crawl)
    assert len(grants) == 3
    await db(crawl).hset(crawl.keys.leases_of + ME, mapping={"nonsense": b"x", b"1.0:\xff": b"y", "": b"z"})
    await db(crawl).zadd(crawl.keys.workers, {ME: 5})
    beat = await crawl.scripts.heartbeat("other", join=True, timeout=30, max_deliveries=3)
    beat = await crawl.scripts.heartbeat("other", join=False, timeout=30, max_deliveries=3)
    assert beat.lost == [(ME, 3, 0)]
    letters = await db(crawl).xrange(crawl.keys.dead)
    assert sorted(fields[b"entry"] for _, fields in letters) == [b"x", b"y", b"z"]
    assert {fields[b"reason"] for _, fields in letters} == {b"lease not written by crawlproject"}
    assert await db(crawl).get(crawl.keys.outstanding) == b"3"


async def test_requests_whose_queue_is_something_else_are_dead_letters(crawl: State) -> None:
    grants = await lease(crawl)
    await db(crawl).delete(crawl.keys.queue_of + "0:" + SPOILT)
    await db(crawl).set(crawl.keys.queue_of + "0:" + SPOILT, "x")
    await put(crawl, SPOILT, 1)
    await crawl.scripts.settle(ME, [Settlement(grants[0].id, SPOILT, grants[0].entry)])
    await crawl.scripts.leave(ME)
    letters = await db(crawl).xrange(crawl.keys.dead)
    assert len(letters) == 4
    assert {fields[b"reason"] for _, fields in letters} == {
        b"WRONGTYPE crawl:images:queue:0:museum is a string, "
        b"or holds data not written by crawlproject: remove or rename it"
    }
    assert await db(crawl).get(crawl.keys.outstanding) == b"0"


async def test_what_keeps_a_source_from_its_due_is_logged_once(
    crawl: State, caplog: pytest.LogCaptureFixture
) -> None:
    await db(crawl).delete(crawl.keys.circuit_of + SPOILT)
    await db(crawl).set(crawl.keys.circuit_of + SPOILT, "x")
    fence = await lead(crawl)
    for _ in range(5):
        assert await lease(crawl) == []  # no telling how it stands: nothing goes out
        await crawl.scripts.trim(fence, maxlen=100)
    (record,) = [record for record in caplog.records if "WRONGTYPE" in record.message]
    assert "crawl:circuit:museum is a string" in record.message
    await db(crawl).delete(crawl.keys.circuit_of + SPOILT)
    assert await goes_on(crawl)


async def test_the_foreign_name_of_a_source_reaches_no_worker(crawl: State) -> None:
    client = db(crawl)
    names = [b"\xff", b"mu seum", b"", b"\xed\xa0\x80", b"x" * 600, *(name.encode() for name in HOSTILE)]
    for name in names:
        await client.zadd(crawl.keys.due[-1], {name: 0})
        await client.rpush(crawl.keys.queue_of.encode() + b"0:" + name, json.dumps({"a": 1}))
    for _ in range(2):
        assert all(grant.id.endswith(SPOILT) for grant in await lease(crawl))
    letters = [letter for _, letter in await client.xrange(crawl.keys.dead)]
    assert sorted(letter[b"source"] for letter in letters) == sorted(names)
    assert {letter[b"reason"] for letter in letters} == {b"invalid source name: feed it again under another"}
    assert all(json.loads(letter[b"entry"]) == {"a": 1} for letter in letters)  # nothing of it is lost
    assert await client.zcard(crawl.keys.due[-1]) == 0
    await client.zadd(crawl.keys.due[-1], {"bücher": 0})
    await client.rpush(crawl.keys.queue_of + "0:bücher", b"\x01\x00\x00x")
    assert [grant.id.partition(":")[2] for grant in await lease(crawl)] == ["bücher"]
