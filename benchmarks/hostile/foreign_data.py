"""Data in Redis that nobody of ours wrote: junk of the right type and keys of another type, under every script.

The tests (tests/state/test_foreign_data.py) try the same, a key at a time.
"""

from __future__ import annotations

import asyncio
import random
import re
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgpack
import redis

from benchmarks.hostile.room import Room
from benchmarks.hostile.tally import Tally
from crawlproject import config
from crawlproject.frontier.dropped import forget_dropped
from crawlproject.models import Requested, Slot
from crawlproject.politeness.slots import HORIZON_S
from crawlproject.state.client import State
from crawlproject.state.ended_sessions import end_session, has_ended
from crawlproject.state.keys import DUE_SETS, Keys
from crawlproject.state.overflow import dropped_extent, note_fault, pack_folder
from crawlproject.state.requests import read_requests
from crawlproject.state.scripts import (
    Budget,
    DeadRetry,
    Extent,
    Grant,
    LinkGroup,
    NewRequest,
    OutboxScripts,
    Rejected,
    Revisit,
    Scripts,
    Settlement,
)
from crawlproject.state.shards import shard_of
from crawlproject.state.source_table import readings
from crawlproject.state.users_keys import SETS
from crawlproject.status.sample import collect, take_sample
from crawlproject.status.site_report import site_report

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
    "extents_of": [f"{priority}:{SPOILT}" for priority in range(2)],
    "found_hosts_of": [SPOILT, "museum.org"],
    "seen_of": ["e0:0", "00000"],
    "seen_bloom_of": ["0:0"],
    "texts_of": ["0"],
    "outbox_of": ["0", "1"],
    "robots_of": [ORIGIN],
    "robots_fetch_of": [ORIGIN],
    "counts_of": ["fetched", "failed"],
    "told_of": ["halted", "temp_halted", "excluded", "override_rate"],
    "requests_of": [f"{int(time.time()) // 345_600 + later}:{SPOILT}" for later in (0, 1)],  # blocks of four days
}
OF_ONE_WORKER = {KEYS.processing_of + ME, KEYS.leases_of + ME}
COUNTERS = {"outstanding", "overflow", "spilled", "lease_sequence", "fence", "robots_size", "outbox_sequence"}

TYPES = {
    **dict.fromkeys(
        [
            "seeds",
            "users_seeds",
            "seeds_out",
            "outbox_of",
            "processing_of",
            "queue_of",
            "overflow_of",
            "quarantine",
            "statuses_of",
            "dropped",
        ],
        "list",
    ),
    "incidents_of": "list",
    "requests_of": "hash",
    "seconds_of": "string",
    **dict.fromkeys(["extents_of", "dropped_extents"], "list"),
    **dict.fromkeys(["spill_ready", "refill_ready"], "set"),
    **dict.fromkeys(["spilled", "spill_fault", "pack_folder"], "string"),
    **dict.fromkeys(["packs_dead"], "zset"),
    **dict.fromkeys(["packs", "seeds_received", "crossings", "layout", "told_of", "worker_settings"], "hash"),
    **dict.fromkeys(
        ["seeds_sequence", "outbox_sequence", "carrier", "catalogue_readings", "users_override_rate_of"], "string"
    ),
    **dict.fromkeys(
        [
            "delayed_of",
            *DUE_SETS,
            "paced",
            "spiders",
            "workers",
            "resting",
            "slots",
            "robots_delays_of",
            "robots_stored",
            "active",
            "ended_sessions",
            "revisits",
        ],
        "zset",
    ),
    **dict.fromkeys(
        [
            "seen_of",
            "found_hosts_of",
            "sources",
            "halted",
            "temp_halted",
            "watchlist",
            "excluded",
            "users_halted",
            "users_temp_halted",
            "users_excluded",
        ],
        "set",
    ),
    "seen_bloom_of": "string",
    "seen_meta": "hash",
    **dict.fromkeys(
        [
            "rates",
            "turns",
            "places",
            "limits",
            "hosts",
            "claims",
            "options",
            "circuit_of",
            "window_of",
            "robots_of",
            "clock",
        ],
        "hash",
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
            "sample",
            "feeders",
            "feed_of",
            "ordered_by_of",
            "excluded_by",
            "excluded_by_file",
            "ledger",
            "revisits_of",
        ],
        "hash",
    ),
    **dict.fromkeys(
        [
            "image_events",
            "probe_events",
            "link_rot_events",
            "failed_events",
            "page_events",
            "halted_events",
            "resumed_events",
            "dead",
            "audit",
        ],
        "stream",
    ),
    **dict.fromkeys(
        ["outstanding", "overflow", "quarantine_turn", "lease_sequence", "override_rate_of", "robots_size"],
        "string",
    ),
    **dict.fromkeys(
        [
            *("robots_fetch_of", "robots_turn_of", "dead_refusals", "pulse", "leader", "fence", "paused"),
            *("data_fault", "audit_told", "texts_of"),
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
    b"1:\x00\x01",
    b"99999999999:" + b"\xff" * 128,
    msgpack.packb([1, 1, 0, 1, 1, 1, 1000, "200", 1]),
    msgpack.packb([1.5, -1, None, [], {}, "x", 2**63, 7, "200"]),
    msgpack.packb([2**53, 1, 2**53, 1, 1, 1, 1, "x" * 100_000, 1]),
]
FIELDS = [
    SPOILT.encode(),
    b"museum.org",
    *(name.encode() for name in ("state", "ends", "generation", "opens", "run", "probing", "passed", "hold")),
    *(name.encode() for name in ("factor", "slowed", "quiet", "noted", "why", "latency", "sum", "fetches", "0")),
    *(name.encode() for name in ("kind", "body", "until", "delay", "retry", "since", "reason", "rests")),
    *(name.encode() for name in ("seen", "ahead", "resume", "admitted", "refused", "deliveries_lost")),
    *(name.encode() for name in ("at", "counters", "thumbnails", "59")),
    *(b"exact", b"exact_count", b"bloom", b"bloom_count"),
    *(str(hour).encode() for hour in range(0, 96, 7)),
    f"R:{ORIGIN}".encode(),
    b"r:museum.org:443",
    *(f"reader\n{stream}".encode() for stream in KEYS.streams),
    *(b"sent", b"received", b"from:shard:0", b"from:shard:1", b"from:users"),
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


def digest(source: str, number: int) -> bytes:
    """Return a digest of a request that the seen filter has among those of its source."""
    place = 0 if source == SPOILT else 1
    return struct.pack(">IHH", place, place, number % (1 << 16)) + random.randbytes(24)


async def put(state: State, source: str, count: int) -> None:
    number = random.randrange(1 << 40)
    requests = [
        NewRequest(
            bytes((1, 0, 0)) + str(n).encode(), digest(source, n), again=True, source=source, found=n % 2 == 0
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
        NewRequest(bytes((1, 0, n % 5)) + b"x", digest(source, n), again=True, source=source)
        for n in range(len(seeds))
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


async def discover(state: State, source: str) -> None:
    """Admit links, more than the window of the source."""
    number = random.randrange(1 << 40)
    links = range(number, number + 48)
    group = LinkGroup(
        "museum.org" if source == SPOILT else source,
        None,
        [bytes((1, 0, n % 3)) + str(n).encode() for n in links],
        [digest(source, n) for n in links],
        [n % 1000 for n in links],
    )
    await state.scripts.discover(
        [group], high_water=40, overflow_maxlen=1000, refuse_unknown=False, budget=Budget(1000, 1, 1000, 100)
    )


async def spill(state: State, source: str, attempt: Callable[[Awaitable[Any]], Awaitable[Any]]) -> None:
    """Move what waits beyond the source's window to a pack and back, as a worker with a store does."""
    scripts = state.scripts
    taken = await attempt(scripts.spill_take(most=9, folder="f", again=[source]))
    if taken:
        pack = f"{taken.folder}/{taken.now}-abc"
        extents = [Extent.of(tail, 0, 9) for tail in taken.tails]
        await attempt(scripts.spill_commit(pack, taken.now, extents))
    for wanted in await attempt(scripts.refill_take(most=9)) or ():
        await attempt(scripts.refill_commit(wanted, [bytes((1, 0, 1)) + b"x"] * 64, high_water=40))
    if reference := await attempt(dropped_extent(state, state.keys, 10**6)):
        await attempt(scripts.drop_extent(reference, [b"\x01\x00\x00x"]))
    await attempt(scripts.sweep_packs(["f/2-b", "nonsense"], ["f/1-a"]))


async def mirror(state: State, fence: int, attempt: Callable[[Awaitable[Any]], Awaitable[Any]]) -> None:
    """Bring the operators' keys and the shard's into line, as on a Redis Cluster."""
    for which in SETS:
        for is_there in (True, False):
            await attempt(state.scripts.mirror_set(fence, which, {"nobody": is_there}, ["nobody"]))
    for rate in (b"5", b""):
        await attempt(state.scripts.mirror_rates(fence, {"nobody": rate}))


async def bring(state: State, attempt: Callable[[Awaitable[Any]], Awaitable[Any]]) -> None:
    """Bring what users have pushed to the shard, as on a Redis Cluster."""
    outbox = OutboxScripts(state.redis, state.keys, state.clock)
    if chunk := await attempt(outbox.send_seeds(9)):
        await attempt(state.scripts.receive_seeds(state.keys.seeds_out, chunk))
        await attempt(outbox.ack_seeds(chunk.number))


async def cross(state: State, source: str, attempt: Callable[[Awaitable[Any]], Awaitable[Any]]) -> None:
    """Send seeds and requests of a source to its shard: from another one, and from where users push seeds."""
    number = shard_of(source, 2)
    users = OutboxScripts(state.redis, state.keys, state.clock, shard=(0, 2))
    here = Scripts(state.redis, state.keys, state.clock, shard=(1 - number, 2))
    there = Scripts(state.redis, state.keys, state.clock, shard=(number, 2))
    await attempt(db(state).lpush(state.keys.users_seeds, "noise"))
    if seeds := await attempt(users.peek_seeds(ME, 9)):
        await attempt(users.split_seeds(seeds, [number] * len(seeds)))
    await attempt(db(state).lpush(state.keys.seeds, "noise"))
    if seeds := await attempt(here.take_seeds(ME, 20)):
        new = [NewRequest(bytes((1, 0, 0)), digest(source, 1), again=False, source=source) for _ in seeds]
        bounds: Any = {"high_water": 10**6, "dead_maxlen": 10**6, "refuse_unknown": False}
        await attempt(here.enqueue_some(ME, new, seeds=seeds, **bounds))
    await attempt(put(state, source, 1))
    grants = [grant for grant in await attempt(lease(state)) or () if grant.id.endswith(":" + source)]
    await attempt(here.settle(ME, [Settlement(grant.id, source, grant.entry) for grant in grants]))
    await attempt(here.send_found(1 - number, "links", b"of a page", count=1, most=9))
    for to in await attempt(here.waiting(ME)) or ():
        if items := await attempt(here.offer(to, count=99)):
            room: Any = {"high_water": 10**6, "refuse_unknown": False}
            if taken := await attempt(there.receive(f"shard:{1 - number}", items, **room)):
                await attempt(here.forget_sent(to, taken))
    await attempt(here.idle())


async def reject(state: State, seeds: list[bytes]) -> None:
    """Make dead letters of the seeds on the processing list."""
    rejected = [Rejected("no url") for _ in seeds]
    await state.scripts.enqueue(
        ME, rejected, seeds=seeds, high_water=10**6, dead_maxlen=10**6, refuse_unknown=False
    )


async def settle(state: State, grants: list[Grant]) -> None:
    """End leases in every way there is."""
    sent = Requested("", int(time.time() * 1e6), 5.0, "500", 10)
    ways: list[dict[str, Any]] = [
        {"event": ("link_rot", "{}"), "status": "200", "fine": True, "latency": 0.1, "requested": sent},
        {"event": ("pages", "{}"), "status": "200", "revisit": Revisit(bytes(32), b"\x01\0\x02x", 3600)},
        {"dead": "x", "status": "500", "fine": False, "requested": sent, "forbidden": "robots"},
        {"delay": 0.01, "status": "429", "fine": False, "slows": True, "hold": 0.01},
        {"unsent": 1},
    ]
    counts = {"fetched": 1, "failed": 1}
    settlements = [
        Settlement(grant.id, grant.id.partition(":")[2], grant.entry, counts=counts, **ways[n % len(ways)])
        for n, grant in enumerate(grants)
    ]
    await state.scripts.settle(ME, settlements)


async def recount_with(state: State) -> None:
    """Set the counts to what they are, as if it had been counted."""
    keys = state.keys
    before = await db(state).mget(keys.outstanding, keys.overflow, keys.spilled)
    after = [(value or b"0").decode(errors="replace") for value in before]
    lines = {SPOILT: "1 0"}
    await state.scripts.recount(
        timeout=0, before=before, after=after, packs={}, seen=None, lines=lines, orphans=[]
    )


async def everything(state: State, *, unchanged: bool = False) -> set[str]:  # noqa: PLR0915 - one line a script
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
        await attempt(db(state).lpush(state.keys.users_seeds, "noise"))
        await bring(state, attempt)
        await cross(state, source, attempt)
        await attempt(state.check_layout())
        await attempt(state.scripts.alive(timeout=60, worker=ME, rests=True))
        await attempt(readings(state))
        await attempt(db(state).lpush(state.keys.seeds, *range(20)))
        if seeds := await attempt(scripts.take_seeds(ME, 20)):
            await attempt(overflow(state, source, seeds))
        for _ in range(6):
            await attempt(discover(state, source))
        await spill(state, source, attempt)
        await attempt(pack_folder(state, state.keys))
        await attempt(lease(state))
        await attempt(scripts.note_text(b"\0" * 9, b"here.", places=1000))
        await attempt(db(state).zadd(state.keys.revisits, {source: 1}))
        await attempt(scripts.reschedule([source]))
        await attempt(recount_with(state))
        await attempt(scripts.revisit(count=9, high_water=1_000_000, refuse_unknown=False))
        await attempt(scripts.acquire(source=source))
        await attempt(scripts.acquire(domain="museum.org", sent_by=SOUND))
        await attempt(scripts.renew(Slot(source, 0.0, 1, 1.0, 0.05), within=1.0))
        await attempt(scripts.renew(Slot(source, 0.0, 1, 1.0, 0.05), within=1.0, worker=ME, lease=f"1.0:{source}"))
        await attempt(scripts.confirm(Slot(source, 0.0, 1, 1.0, 0.05)))
        await attempt(scripts.look_robots(ME, ORIGIN, source))
        await attempt(scripts.hold_robots(ME, ORIGIN))
        sent = Requested(source, int(time.time() * 1e6), 5.0, "200", 10)
        await attempt(scripts.note_request(sent))
        pauses: Any = {"retry": 60.0, "retry_max": 3600.0, "maxsize": 10**9}
        of: Any = {"source": source, "requested": sent}
        await attempt(scripts.keep_robots(ME, ORIGIN, kind="unreachable", reason="x", **of, **pauses))
        await attempt(scripts.look_robots(ME, ORIGIN, source))
        await attempt(scripts.keep_robots(ME, ORIGIN, kind="rules", body=b"x", ttl=60, delay=0.01, **pauses))
        await attempt(scripts.look_robots(ME, ORIGIN, source))
        await attempt(scripts.set_rates(fence, [(source, 90, 90)], {"museum.org": SPOILT}, {}))
        await mirror(state, fence, attempt)
        await attempt(scripts.watch(fence))
        await attempt(scripts.tell("leader", "", count=9))
        await attempt(scripts.trim(fence, maxlen=2, drop=True))
        await attempt(scripts.rest(fence, quiet=0.0, count=9))
        await attempt(scripts.inspect([source]))
        await attempt(read_requests(state, source))
        await attempt(site_report(state, source))
        await attempt(scripts.pause_reason(dead_maxlen=9, timeout=30))
        if await attempt(scripts.collect("leader", must_lead=True, every=0, timeout=30, most=9, dead_maxlen=9)):
            overview: Any = await collect(state, must_lead=False)
            await attempt(take_sample(state, overview))
            await attempt(scripts.keep_sample("leader", time.time(), b"x"))
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
        await spill(state, source, attempt)
        await attempt(scripts.drop_queued(source, "purged", count=1, by="me"))
        await spill(state, source, attempt)
        await attempt(note_fault(state, state.keys, "x"))
        await attempt(scripts.drop_queued(source, "excluded", count=9))
        await attempt(scripts.include(["nobody", "nobody.org"], by="me"))
        await attempt(scripts.include(["nobody"], fence=fence))
        await attempt(forget_dropped(state, calls=2))
        await attempt(scripts.was_seen(digest(source, 1)))
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


async def contents(state: State) -> dict[bytes, bytes]:
    """Return all that is in Redis, but for what ends by itself."""
    client = db(state)
    keys = await client.keys("*")
    async with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.pttl(key)
            pipe.dump(key)
        found = await pipe.execute()
    return {key: dump for key, ttl, dump in zip(keys, found[::2], found[1::2], strict=True) if ttl == -1}


WRONG = ["string", "list", "set", "zset", "hash", "stream"]


@asynccontextmanager
async def opened(redis_url: str) -> AsyncIterator[State]:
    """Open a crawl in which all kinds of keys are in use, and close it."""
    seen = {"CRAWL_SEEN_CAPACITY": 1000, "CRAWL_SEEN_LINKS": "bloom:0.01"}
    state = State(config.load({"REDIS_URL": redis_url, **seen}), "images")
    state.delay = 0.001
    await state.open()
    scripts = state.scripts
    fence = await scripts.lead("leader", ready=True)
    assert fence is not None
    await db(state).persist(state.keys.pulse)  # as long as it takes on a busy machine
    await scripts.set_rates(fence, [(SPOILT, 100, 100), (SOUND, 100, 100)], {"museum.org": SPOILT}, {})
    await scripts.heartbeat(SILENT, join=True, timeout=30, max_deliveries=3)
    await scripts.heartbeat(ME, join=True, timeout=30, max_deliveries=3)
    # Another spider is due at both.
    await db(state).zadd(state.keys.spiders, {"pages": float("inf")})
    rival = Keys("crawl", "pages")
    await db(state).zadd(rival.due[0], {SPOILT: 0, SOUND: 0})
    await db(state).hset(rival.places, mapping={SPOILT: "24", SOUND: "24"})
    await put(state, SPOILT, 3)
    try:
        yield state
    finally:
        await state.close()


async def try_junk(crawl: State, name: str, spelling: str, seed: int) -> None:
    """Put junk of the right type into a key: it stops nobody.

    Raises:
        AssertionError: it does.

    """
    chance = random.Random(f"{name} {seed}")
    for key in spoilt_keys(name, spelling):
        await spoil(crawl, key, TYPES[name], chance)
    refused = await everything(crawl)
    if name in COUNTERS:
        sentence = f"WRONGTYPE {spelling} does not hold a whole number: remove it"
        assert all(sentence in words for words in refused), refused
        await db(crawl).delete(spelling)
    elif name == "seeds_out":
        sentence = f"WRONGTYPE {spelling} does not hold chunks of seeds: remove it"
        assert all(sentence in words for words in refused), refused
        await db(crawl).delete(spelling)
    elif name == "outbox_of":
        named = re.compile(f"WRONGTYPE {spelling}[01] holds what was not written by crawlproject: remove it")
        assert all(named.search(words) for words in refused), refused
        await db(crawl).delete(*spoilt_keys(name, spelling))
    elif name == "seen_meta":
        sentence = f"WRONGTYPE {spelling} does not say how what was seen is kept: restore it from a backup"
        assert all(sentence in words for words in refused), refused
        await db(crawl).delete(spelling)
    else:
        assert refused == set(), refused
    if name == "readers":  # whoever reads no events stops the crawl, and is named
        fence = await crawl.scripts.lead("leader", ready=True)
        reason, _ = await crawl.scripts.trim(fence or 1, maxlen=2)
        assert "that reader " in reason, reason
    if name in {"paused", "readers"}:  # so does whoever sets it
        assert await db(crawl).exists(crawl.keys.paused)
        await db(crawl).delete(crawl.keys.paused)
        await db(crawl).delete(spelling)
    assert await goes_on(crawl), "the sound source does not go on"
    await crawl.scripts.leave(ME)


async def try_type_of_one(crawl: State, name: str, spelling: str, kind: str) -> None:
    """Give a key of one source or worker another type: that stops no other.

    Raises:
        AssertionError: it does.

    """
    chance = random.Random(f"{name} {kind}")
    keys = [key for key in spoilt_keys(name, spelling) if key not in OF_ONE_WORKER]
    for key in keys:
        await spoil(crawl, key, kind, chance)
    refused = await everything(crawl)
    # Calls that are about the spoilt key alone.
    allowed = {
        "outbox_of",
        "robots_of",
        "robots_delays_of",
        "robots_fetch_of",
        "seen_of",
        "seen_bloom_of",
        "told_of",
    }
    assert all(name in allowed and "WRONGTYPE" in words for words in refused), refused
    assert await goes_on(crawl), "the sound source does not go on"
    for key in keys:
        await db(crawl).delete(key)
    refused = await everything(crawl)
    assert refused == set(), refused


async def try_type_of_all(crawl: State, name: str, spelling: str) -> None:
    """Give a key of all another type: scripts that touch it are refused and have done nothing, others go on.

    Raises:
        AssertionError: they did something, or do not say what is wrong.

    """
    kind = "list" if TYPES[name] != "list" else "set"
    await spoil(crawl, spelling, kind, random.Random(name))
    if name == "quarantine_turn":  # of no account while nothing is quarantined
        await db(crawl).rpush(crawl.keys.quarantine, SOUND + "\n\x01\x02\x00x")
    refused = await everything(crawl, unchanged=True)
    if name in {"data_fault", "dead_refusals", "spill_fault", "worker_settings"}:  # only tried
        assert refused == set(), refused
        return
    assert refused, "nothing was refused"
    named = f"WRONGTYPE {spelling} is a {kind}, not a"
    # Not a script's words, but a command's, alone or of a pipeline
    assert all(named in words or re.match("WRONGTYPE|Command # .*WRONGTYPE", words) for words in refused), refused
    await db(crawl).delete(spelling)
    await crawl.scripts.heartbeat(ME, join=True, timeout=30, max_deliveries=3)
    assert await goes_on(crawl), "the sound source does not go on"


def cases() -> list[tuple[str, Any]]:
    """Return what is tried: its name, and the function to try it with an open crawl."""
    found: list[tuple[str, Any]] = []
    for name, spelling in KEYS.items():
        found.append((f"junk in {name}", partial(try_junk, name=name, spelling=spelling, seed=14)))
        if not name.endswith("_of"):
            found.append((f"another type of {name}", partial(try_type_of_all, name=name, spelling=spelling)))
            continue
        for kind in WRONG:
            if kind != TYPES[name]:
                one = partial(try_type_of_one, name=name, spelling=spelling, kind=kind)
                found.append((f"{name} is a {kind}", one))
    return found


def foreign_data(room: Room) -> Tally:
    """Try all of it, each on an empty Redis."""
    tally = Tally("foreign Redis data")
    with room.redis() as url:
        for what, attempt in room.some(cases()):
            with redis.Redis.from_url(url) as client:
                client.flushall()
            tally.judge(what, asyncio.run(_fault(url, attempt)))
    return tally


async def _fault(url: str, attempt: Callable[[State], Awaitable[None]]) -> str:
    async with opened(url) as crawl:
        try:
            await attempt(crawl)
        except AssertionError as error:
            return str(error) or "see the function that tries it"
    return ""
