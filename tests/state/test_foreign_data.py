"""Data in Redis that we did not write: no script believes it, none stops others for it, none fails for ever."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
import pytest_asyncio
import redis

from crawlproject import config
from crawlproject.frontier.dropped import forget_dropped
from crawlproject.models import Slot
from crawlproject.politeness.slots import HORIZON_S
from crawlproject.state.client import State
from crawlproject.state.ended_sessions import end_session, has_ended
from crawlproject.state.keys import Keys
from crawlproject.state.scripts import DeadRetry, Grant, NewRequest, Rejected, Settlement
from crawlproject.status.sample import collect, take_sample
from tests.leading import lead
from tests.pasting import HOSTILE

KEYS = Keys("crawl", "images")
SPOILT, SOUND = "museum", "archive"  # the source whose keys are spoilt, and another
ORIGIN = "https://museum.org:443/robots.txt"
ME, SILENT = "w", "silent"

# What follows the names of keys that are prefixes.
SUFFIXES = {
    "processing_of": [ME, SILENT],
    "leases_of": [ME, SILENT],
    "queue_of": [f"{priority}:{SPOILT}" for priority in range(5)],
    "overflow_of": [f"{priority}:{SPOILT}" for priority in range(5)],
    "seen_of": ["00000"],
    "robots_of": [ORIGIN],
    "robots_fetch_of": [ORIGIN],
    "counts_of": ["fetched", "failed"],
}
OF_ONE_WORKER = {KEYS.processing_of + ME, KEYS.leases_of + ME}
COUNTERS = {"outstanding", "overflow", "lease_sequence", "fence", "robots_size"}

TYPES = {
    **dict.fromkeys(
        ["seeds", "processing_of", "queue_of", "overflow_of", "quarantine", "statuses_of", "dropped"], "list"
    ),
    **dict.fromkeys(
        [
            "delayed_of",
            "due_fast",
            "due_mid",
            "due_slow",
            "workers",
            "slots",
            "robots_delays_of",
            "robots_stored",
            "active",
            "ended_sessions",
        ],
        "zset",
    ),
    **dict.fromkeys(["seen_of", "sources", "halted", "temp_halted", "watchlist", "excluded"], "set"),
    **dict.fromkeys(
        ["rates", "limits", "hosts", "claims", "options", "circuit_of", "window_of", "robots_of", "clock"], "hash"
    ),
    **dict.fromkeys(
        [
            "leases_of",
            "readers",
            "reader_of",
            "counts_of",
            "counts_at_rest",
            "totals",
            "dead_sources",
            "latencies",
            "reading",
            "feeders",
            "ordered_by_of",
            "excluded_by",
            "excluded_by_file",
        ],
        "hash",
    ),
    **dict.fromkeys(
        ["image_events", "link_rot_events", "halted_events", "resumed_events", "dead", "audit"], "stream"
    ),
    **dict.fromkeys(
        ["outstanding", "overflow", "quarantine_turn", "lease_sequence", "override_rate_of", "robots_size"],
        "string",
    ),
    **dict.fromkeys(
        [
            *("robots_fetch_of", "robots_turn_of", "dead_refusals", "pulse", "leader", "fence", "paused"),
            *("data_fault", "audit_told"),
        ],
        "string",
    ),
}

VALUES = [
    b"",
    b"\xff\xfe",
    b"\x00",
    b"\n",
    b"a\nb",
    SPOILT.encode() + b"\n",
    b"nan",
    b"-nan",
    b"inf",
    b"-inf",
    b"1e400",
    b"1e15",
    b"-1",
    b"0",
    b"0x10",
    b"9" * 15,
    b"9" * 400,
    b"1.5",
    b"1-1",
    b"18446744073709551616-1",
    b"\x01\xff\x00",
    b"\x01\x00\x09" + b"\x91" * 10_000,
    b"x" * 100_000,
    b"null",
    b"[]",
    b"[" * 10_000,
    b'{"circuit": 5, "robots": []}',
    b'{"circuit": {"window": 0, "probes": -1, "errors": "x", "open": 1e308, "halt_after": {}}}',
    b"rules",
    b"unreachable",
    b"half_open",
    b"halted",
    b"open",
    b"9:9:9",
]
FIELDS = [
    SPOILT.encode(),
    b"museum.org",
    *(name.encode() for name in ("state", "ends", "generation", "opens", "run", "probing", "passed", "hold")),
    *(name.encode() for name in ("factor", "slowed", "quiet", "noted", "why", "latency", "sum", "fetches", "0")),
    *(name.encode() for name in ("kind", "body", "until", "delay", "retry", "since", "reason", "rests")),
    *(name.encode() for name in ("seen", "ahead", "resume", "admitted", "refused", "deliveries_lost")),
    *(name.encode() for name in ("at", "counters", "thumbnails", "59")),
    *(f"reader\n{stream}".encode() for stream in KEYS.streams),
    b"1.0:museum",
    b"1.0:mu seum",
    b"1.0:\xff",
    b"-1.0:museum",
    b"nonsense",
    b"",
    b"\xff",
]
SCORES = [float("-inf"), -1.0, 0.0, 1.5, 1e15, 1e18, 1e300, float("inf")]


def db(state: State) -> Any:
    return state.redis


@pytest_asyncio.fixture
async def crawl(redis_url: str) -> AsyncIterator[State]:
    """A store, small bounds, and a crawl in which all kinds of keys are in use."""
    state = State(config.load({"REDIS_URL": redis_url}), "images")
    await state.open()
    scripts = state.scripts
    fence = await lead(state)
    await scripts.set_rates(fence, [(SPOILT, 100, 100), (SOUND, 100, 100)], {"museum.org": SPOILT}, {})
    await scripts.heartbeat(SILENT, join=True, timeout=30, max_deliveries=3)
    await scripts.heartbeat(ME, join=True, timeout=30, max_deliveries=3)
    await put(state, SPOILT, 3)
    yield state
    await state.close()


async def put(state: State, source: str, count: int) -> None:
    number = random.randrange(1 << 40)
    requests = [
        NewRequest(
            bytes((1, 0, 0)) + str(n).encode(),
            "00000" if source == SPOILT else "00001",
            n,
            again=True,
            source=source,
        )
        for n in range(number, number + count)
    ]
    await state.scripts.enqueue(ME, requests, high_water=10**6, dead_maxlen=10**6, refuse_unknown=False)


async def lease(state: State) -> list[Grant]:
    reply = await state.scripts.lease(
        ME,
        50,
        rooms={},
        room=50,
        idle=True,
        horizon=HORIZON_S,
        dead_maxlen=10**6,
        max_deliveries=3,
        high_water=40,
    )
    return reply.grants


async def overflow(state: State, source: str, seeds: list[bytes]) -> None:
    """Make requests of the seeds on the processing list, more than the source's share of a frontier of 40."""
    requests = [
        NewRequest(bytes((1, 0, n % 5)) + b"x", "00000", n, again=True, source=source) for n in range(len(seeds))
    ]
    await state.scripts.enqueue(
        ME,
        requests,
        seeds=seeds,
        high_water=40,
        overflow_maxlen=100,
        dead_maxlen=10**6,
        refuse_unknown=False,
    )


async def reject(state: State, seeds: list[bytes]) -> None:
    """Make dead letters of the seeds on the processing list."""
    rejected = [Rejected("no url") for _ in seeds]
    await state.scripts.enqueue(
        ME, rejected, seeds=seeds, high_water=10**6, dead_maxlen=10**6, refuse_unknown=False
    )


async def settle(state: State, grants: list[Grant]) -> None:
    """End leases in every way there is."""
    ways: list[dict[str, Any]] = [
        {"event": ("link_rot", "{}"), "status": "200", "fine": True, "latency": 0.1},
        {"dead": "x", "status": "500", "fine": False},
        {"delay": 0.01, "status": "429", "fine": False, "slows": True, "hold": 0.01},
        {},
    ]
    counts = {"fetched": 1, "failed": 1}
    settlements = [
        Settlement(grant.id, grant.id.partition(":")[2], grant.entry, counts=counts, **ways[n % len(ways)])
        for n, grant in enumerate(grants)
    ]
    await state.scripts.settle(ME, settlements)


async def everything(state: State, *, unchanged: bool = False) -> set[str]:
    """Call every script, each for both sources; return the words of those that Redis refused.

    `unchanged`: see that those have changed nothing.
    """
    scripts, refused = state.scripts, set()

    async def attempt(call: Awaitable[Any]) -> Any:
        before = await contents(state) if unchanged else None
        try:
            return await call
        except redis.ResponseError as error:
            refused.add(str(error))
            assert before is None or await contents(state) == before

    for source in (SPOILT, SOUND):
        await attempt(end_session(state, source, time.time() + 60))
        await attempt(has_ended(state, source))
        fence = await attempt(scripts.lead("leader", ready=True)) or 1
        await attempt(put(state, source, 2))
        for _ in range(2):
            grants = await attempt(lease(state))
            if grants:
                await attempt(settle(state, grants))
        await attempt(db(state).lpush(state.keys.seeds, "noise"))
        if seeds := await attempt(scripts.take_seeds(ME, 10)):
            await attempt(reject(state, seeds))
        await attempt(db(state).lpush(state.keys.seeds, *range(20)))
        if seeds := await attempt(scripts.take_seeds(ME, 20)):
            await attempt(overflow(state, source, seeds))
        await attempt(lease(state))
        await attempt(scripts.acquire(source=source))
        await attempt(scripts.acquire(domain="museum.org", sent_by=SOUND))
        await attempt(scripts.renew(Slot(source, 0.0, 1, 1.0, 0.05), within=1.0))
        await attempt(scripts.renew(Slot(source, 0.0, 1, 1.0, 0.05), within=1.0, worker=ME, lease=f"1.0:{source}"))
        await attempt(scripts.confirm(Slot(source, 0.0, 1, 1.0, 0.05)))
        await attempt(scripts.look_robots(ME, ORIGIN, source))
        await attempt(scripts.hold_robots(ME, ORIGIN))
        pauses: Any = {"retry": 60.0, "retry_max": 3600.0, "maxsize": 10**9}
        await attempt(scripts.keep_robots(ME, ORIGIN, kind="unreachable", reason="x", **pauses))
        await attempt(scripts.look_robots(ME, ORIGIN, source))
        await attempt(scripts.keep_robots(ME, ORIGIN, kind="rules", body=b"x", ttl=60, delay=0.01, **pauses))
        await attempt(scripts.look_robots(ME, ORIGIN, source))
        await attempt(scripts.set_rates(fence, [(source, 90, 90)], {"museum.org": SPOILT}, {}))
        await attempt(scripts.watch(fence))
        await attempt(scripts.tell("leader", "", count=9))
        await attempt(scripts.trim(fence, maxlen=2))
        await attempt(scripts.rest(fence, quiet=0.0, count=9))
        await attempt(scripts.inspect([source]))
        await attempt(scripts.pause_reason(dead_maxlen=9, timeout=30))
        if await attempt(scripts.collect("leader", must_lead=True, every=0, timeout=30, most=9, dead_maxlen=9)):
            overview: Any = await collect(state, must_lead=False)
            await attempt(take_sample(state, overview))
            await attempt(scripts.keep_reading("leader", time.time(), b"x"))
        await attempt(scripts.idle())
        await attempt(scripts.idle(halted_too=True))
        await attempt(scripts.retry_dead([DeadRetry("1-1", source, b"\x01\x00\x00", None)]))
        await attempt(scripts.drop_dead([("1-1", source)]))
        for _ in range(2):
            await attempt(scripts.heartbeat(ME, join=False, timeout=30, max_deliveries=3))
        await attempt(scripts.forget(fence, ["nobody"], ["nobody.org"]))
        await attempt(scripts.exclude({"nobody": "", "nobody.org": "x"}, by="me"))
        await attempt(scripts.exclude({"nobody": ""}, fence=fence))
        await attempt(put(state, source, 2))
        await attempt(lease(state))
        await attempt(scripts.review_exclusions(fence, ("0", "0"), count=9))
        await attempt(scripts.drop_queued(source, "purged", count=1, by="me"))
        await attempt(scripts.drop_queued(source, "excluded", count=9))
        await attempt(scripts.include(["nobody", "nobody.org"], by="me"))
        await attempt(scripts.include(["nobody"], fence=fence))
        await attempt(forget_dropped(state, calls=2))
    return refused


async def goes_on(state: State) -> bool:
    """Tell whether a sound source gets its requests leased and settled."""
    keys = state.keys
    await db(state).hset(keys.rates, SOUND, "1000")
    await state.scripts.lead("leader", ready=True)
    await put(state, SOUND, 1)
    for _ in range(40):
        grants = await lease(state)
        mine = [grant for grant in grants if grant.id.endswith(":" + SOUND)]
        done = [
            Settlement(grant.id, SOUND, event=("link_rot", "{}"))
            if grant in mine
            else Settlement(grant.id, SPOILT, grant.entry, dead="x")
            for grant in grants
        ]
        reply = await state.scripts.settle(ME, done)
        assert all(reply.settled)
        if mine:
            return True
        await asyncio.sleep(0.02)  # after a long pause, as of a busy machine, nothing goes out for half a second
    return False


async def spoil(state: State, key: str, kind: str, chance: random.Random) -> None:
    """Put junk of a kind into a key, beside what is there if that is of the kind."""
    client = db(state)
    if (await client.type(key)).decode() != kind or kind == "string":
        await client.delete(key)
    values = chance.sample(VALUES, 12)
    match kind:
        case "string":
            await client.set(key, chance.choice(VALUES))
        case "list":
            await client.lpush(key, *values)
        case "set":
            await client.sadd(key, *values)
        case "zset":
            members = [*values, SPOILT.encode(), b"x\n\x01\x00\x00noise"]
            await client.zadd(key, {member: chance.choice(SCORES) for member in members})
        case "hash":
            await client.hset(key, mapping={field: chance.choice(VALUES) for field in FIELDS})
        case "stream":
            for value in values[:4]:
                await client.xadd(key, {value: chance.choice(VALUES), b"seed": value})


def spoilt_keys(name: str, spelling: str) -> list[str]:
    return [spelling + suffix for suffix in SUFFIXES.get(name, [SPOILT] if name.endswith("_of") else [""])]


def test_every_key_is_tried() -> None:
    assert {name for name, _ in KEYS.items()} == TYPES.keys()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("name", "spelling"), list(KEYS.items()), ids=[name for name, _ in KEYS.items()])
async def test_junk_of_the_right_type_stops_nobody(crawl: State, name: str, spelling: str, seed: int) -> None:
    chance = random.Random(f"{name} {seed}")
    for key in spoilt_keys(name, spelling):
        await spoil(crawl, key, TYPES[name], chance)
    refused = await everything(crawl)
    if name in COUNTERS:
        sentence = f"WRONGTYPE {spelling} does not hold a whole number: remove it"
        assert all(sentence in words for words in refused)
        await db(crawl).delete(spelling)
    else:
        assert refused == set()
    if name in {"paused", "readers"}:  # whoever sets it, or reads no events, stops the crawl, and is named
        assert await db(crawl).exists(crawl.keys.paused)
        await db(crawl).delete(crawl.keys.paused)
        await db(crawl).delete(spelling)
    assert await goes_on(crawl)
    await crawl.scripts.leave(ME)


WRONG = ["string", "list", "set", "zset", "hash", "stream"]


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize(
    ("name", "spelling"),
    [(name, spelling) for name, spelling in KEYS.items() if name.endswith("_of")],
    ids=[name for name, _ in KEYS.items() if name.endswith("_of")],
)
async def test_a_key_of_one_source_or_worker_that_has_another_type_stops_no_other(
    crawl: State, name: str, spelling: str, kind: str
) -> None:
    if kind == TYPES[name]:
        return
    chance = random.Random(f"{name} {kind}")
    keys = [key for key in spoilt_keys(name, spelling) if key not in OF_ONE_WORKER]
    for key in keys:
        await spoil(crawl, key, kind, chance)
    refused = await everything(crawl)
    # Calls that are about the spoilt key alone.
    allowed = {"robots_of", "robots_delays_of", "robots_fetch_of"}
    assert all(name in allowed and "WRONGTYPE" in words for words in refused), refused
    assert await goes_on(crawl)
    for key in keys:
        await db(crawl).delete(key)
    assert await everything(crawl) == set()


@pytest.mark.parametrize(
    ("name", "spelling"),
    [(name, spelling) for name, spelling in KEYS.items() if not name.endswith("_of")],
    ids=[name for name, _ in KEYS.items() if not name.endswith("_of")],
)
async def test_a_key_of_all_that_has_another_type_is_named_before_anything_happens(
    crawl: State, name: str, spelling: str
) -> None:
    """By each script that touches it: those that are refused have done nothing, the others go on."""
    kind = "list" if TYPES[name] != "list" else "set"
    await spoil(crawl, spelling, kind, random.Random(name))
    if name == "quarantine_turn":  # of no account while nothing is quarantined
        await db(crawl).rpush(crawl.keys.quarantine, SOUND + "\n\x01\x02\x00x")
    refused = await everything(crawl, unchanged=True)
    if name in {"data_fault", "dead_refusals"}:  # only tried
        assert refused == set()
        return
    assert refused
    named = f"WRONGTYPE {spelling} is a {kind}, not a"
    assert all(
        named in words or words.startswith("WRONGTYPE") for words in refused
    )  # not a script's, but a command's
    await db(crawl).delete(spelling)
    await crawl.scripts.heartbeat(ME, join=True, timeout=30, max_deliveries=3)
    assert await goes_on(crawl)


async def contents(state: State) -> dict[bytes, bytes]:
    """Return all that is in Redis, but for what ends by itself."""
    client = db(state)
    return {key: await client.dump(key) for key in await client.keys("*") if await client.pttl(key) == -1}


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
        await client.zadd(crawl.keys.due_slow, {name: 0})
        await client.rpush(crawl.keys.queue_of.encode() + b"0:" + name, json.dumps({"a": 1}))
    for _ in range(2):
        assert all(grant.id.endswith(SPOILT) for grant in await lease(crawl))
    letters = [letter for _, letter in await client.xrange(crawl.keys.dead)]
    assert sorted(letter[b"source"] for letter in letters) == sorted(names)
    assert {letter[b"reason"] for letter in letters} == {b"invalid source name: feed it again under another"}
    assert all(json.loads(letter[b"entry"]) == {"a": 1} for letter in letters)  # nothing of it is lost
    assert await client.zcard(crawl.keys.due_slow) == 0
    await client.zadd(crawl.keys.due_slow, {"bücher": 0})
    await client.rpush(crawl.keys.queue_of + "0:bücher", b"\x01\x00\x00x")
    assert [grant.id.partition(":")[2] for grant in await lease(crawl)] == ["bücher"]
