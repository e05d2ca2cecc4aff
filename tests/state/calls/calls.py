"""What the tests of the scripts share: calls of scripts with the arguments that these tests do not vary."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from copy import copy
from functools import partial
from typing import Any, TypeVar

import msgpack

from crawlproject.frontier.codec import digest_of
from crawlproject.models import Lease, Slot
from crawlproject.politeness.slots import HORIZON_S
from crawlproject.state.calls import EnqueueReply, LeaseReply, NewRequest, Overview, Settlement
from crawlproject.state.client import State
from crawlproject.state.functions import Caller

Row = tuple[str, float]
Functions = TypeVar("Functions", bound=Caller)


def db(state: State) -> Any:
    """Return the plain client, whose annotations leave open what it answers."""
    return state.redis


async def packed_at(client: Any, key: str) -> dict[str, Any]:
    """Return the map at a key, as of a circuit or a window; empty where there is none."""
    stored = await client.get(key)
    if stored is None:
        return {}
    found: dict[str, Any] = msgpack.unpackb(stored, strict_map_key=False, unicode_errors="surrogateescape")
    return found


async def change_packed(client: Any, key: str, **fields: Any) -> None:
    """Change some fields of such a map, or make it."""
    changed = await packed_at(client, key) | fields
    packed = msgpack.packb(changed, use_bin_type=False, unicode_errors="surrogateescape")
    await client.set(key, packed, keepttl=True)


def entry(name: str, *, priority: int = 0, deliveries: int = 0) -> bytes:
    return bytes((1, deliveries, priority)) + name.encode()


def names(reply: LeaseReply) -> list[str]:
    return [grant.entry[3:].decode() for grant in reply.grants]


def within(scripts: Functions, **settings: int | bool) -> Functions:
    """Return `scripts`, with these settings in place of those of its worker."""
    other = copy(scripts)
    other._settings = msgpack.packb(msgpack.unpackb(scripts._settings) | settings)
    return other


async def lead(state: State) -> int:
    """Lead, with a pulse that does not lapse, however long the test takes on a busy machine; return the fence."""
    fence = await state.scripts.lead("leader", ready=True)
    assert fence is not None
    await state.redis.persist(state.keys.pulse)
    return fence


async def rule(state: State, *rates: Row) -> int:
    """Lead, with a pulse, and set rates; return the fence."""
    fence = await lead(state)
    assert await state.scripts.set_rates(fence, [(name, rate, rate) for name, rate in rates], {})
    return fence


async def join(state: State, worker: str = "w", timeout: float = 30.0, max_deliveries: int = 3) -> None:
    await state.scripts.heartbeat(worker, join=True, timeout=timeout, max_deliveries=max_deliveries)


async def begin(state: State, rate: float, *waiting: str) -> int:
    """Have a worker, and a source of that rate with these requests; return the fence."""
    await join(state)
    fence = await rule(state, ("museum", rate))
    await put(state, [entry(name) for name in waiting])
    return fence


async def put(state: State, entries: Iterable[bytes], source: str = "museum") -> None:
    requests = [NewRequest(body, digest_of(source, body.hex()), again=True, source=source) for body in entries]
    reply = await state.scripts.enqueue("w", requests)
    assert reply is not None
    assert reply.admitted == len(requests)


async def lease(
    state: State,
    want: int = 100,
    worker: str = "w",
    *,
    rooms: dict[str, int] | None = None,
    room: int = 100,
    horizon: float = HORIZON_S,
    suspect: bool = False,
    **settings: int,
) -> LeaseReply:
    """Lease; once more if this test stood still for so long that it looked like a time without a leader."""
    scripts = within(state.scripts, **settings)
    call = partial(scripts.lease, worker, want, rooms=rooms or {}, room=room, horizon=horizon, suspect=suspect)
    reply = await call()
    seen, resume = await db(state).hmget(state.keys.clock, "seen", "resume")
    if want and not reply.grants and int(resume or 0) > int(seen or 0):
        await asyncio.sleep((int(resume) - int(seen)) / 1e6)
        reply = await call()
    return reply


def source_of(grant: Lease) -> str:
    return grant.id.partition(":")[2]


async def settle(state: State, *grants: Lease, worker: str = "w", **end: Any) -> list[bool]:
    """End leases of a worker, all in this way; return which of them were there."""
    ends = [Settlement(grant.id, source_of(grant), **end) for grant in grants]
    return (await state.scripts.settle(worker, ends)).settled


async def slot_of(state: State, **request: Any) -> Slot:
    """Take a slot without a lease."""
    slot, _ = await state.scripts.acquire(**request)
    assert slot is not None
    return slot


async def outstanding(state: State) -> int:
    return int(await db(state).hget(state.keys.counters, "outstanding") or 0)


async def lists_of(state: State, prefix: str, source: str = "museum") -> dict[int, list[str]]:
    """Return the names of the requests in the lists of a source, by priority."""
    found = {}
    for priority in range(5):
        if entries := await db(state).lrange(f"{prefix}{priority}:{source}", 0, -1):
            found[priority] = [one[3:].decode() for one in entries]
    return found


async def overview_of(state: State) -> Overview:
    return await state.scripts.collect(timeout=30, most=9)


async def take(state: State, *seeds: str) -> list[bytes]:
    """Have worker w take these seeds, pushed in this order."""
    await db(state).lpush(state.keys.seeds, *seeds)
    return await state.scripts.take_seeds("w", 1000)


async def processing_list(state: State) -> list[bytes]:
    """Return the seeds on the processing list of worker w, the one taken first at the head."""
    found: list[bytes] = await db(state).lrange(state.keys.processing_of + "w", 0, -1)
    return found[::-1]


async def waiting(state: State) -> list[bytes]:
    """Return the seeds in the list, the next one first."""
    found: list[bytes] = await db(state).lrange(state.keys.seeds, 0, -1)
    return found[::-1]


def request(name: str, member: int, *, priority: int = 0, **more: object) -> NewRequest:
    values = {"again": False, "source": "museum", "domain": None, **more}
    return NewRequest(entry(name, priority=priority), digest_of("", str(member)), **values)  # type: ignore[arg-type]


async def feed(state: State, *items: NewRequest, high_water: int = 8, overflow_maxlen: int = 100) -> EnqueueReply:
    """Have worker w enqueue these requests as seeds; each seed is spelled as its request."""
    await take(state, *(item.entry[3:].decode() for item in items))
    seeds = await processing_list(state)
    reply = await within(state.scripts, high_water=high_water, overflow_maxlen=overflow_maxlen).enqueue(
        "w", items, seeds=seeds
    )
    assert reply is not None
    return reply


def requests(names: str, priority: int = 0, source: str = "museum") -> list[NewRequest]:
    """Return a request for each letter; equal letters are equal requests."""
    return [request(name, ord(name), priority=priority, source=source) for name in names]
