"""What was requested of a source, by hours, as the Lua module `report` keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgpack

from crawlproject.state.client import State

KEPT_DAYS = 90

_BLOCK_HOURS = 96  # as in the Lua module `report`
_HOUR_S = 3600
_MOST_INCIDENTS = 24


class Hour(NamedTuple):
    """What was requested of a source in one hour of the server's clock; times are Unix time in seconds.

    `first` and `last` are when the first and the last request were sent, `peak` is the most in one second of the
    clock, `peak_at` that second; `rate` the highest that was in force (requests a second), `received` the bytes of
    bodies. `kinds` counts what the requests ended in, and what else happened: see the Lua module `report`.
    """

    begin: int
    requests: int
    received: int
    first: float
    last: float
    peak: int
    peak_at: int
    rate: float
    kinds: Mapping[str, int]


class FetchedRobots(NamedTuple):
    """A robots.txt, or where one leads to: when it was last fetched for a source (Unix time), and its status."""

    url: str
    time: int
    result: str


class Incident(NamedTuple):
    """What trouble has led to: "opened", "halted", "held", "slowed" or "resumed"; when (Unix time, s), why."""

    time: int
    what: str
    why: str


class RequestsOf(NamedTuple):
    """What is kept of the requests to a source: in the order of time; `robots` and `incidents`, the last first."""

    now: float
    hours: list[Hour]
    robots: list[FetchedRobots]
    incidents: list[Incident]


async def read_requests(state: State, source: str) -> RequestsOf:
    """Return what was requested of a source in the last `KEPT_DAYS` days, whichever spider has done so."""
    redis: Any = state.redis
    seconds, micros = await redis.time()
    now = seconds + micros / 1e6
    since = (seconds // _HOUR_S - 24 * KEPT_DAYS) * _HOUR_S
    blocks = range(since // (_BLOCK_HOURS * _HOUR_S), seconds // (_BLOCK_HOURS * _HOUR_S) + 1)
    async with redis.pipeline(transaction=False) as pipe:
        for block in blocks:
            pipe.hgetall(f"{state.keys.requests_of}{block}:{source}")
        pipe.lrange(state.keys.incidents_of + source, 0, _MOST_INCIDENTS - 1)
        *found, entries = await pipe.execute()
    hours: list[Hour] = []
    robots: dict[str, FetchedRobots] = {}
    for block, fields in zip(blocks, found, strict=True):
        for name, packed in fields.items():
            if name.isdigit():
                hour = _hour((block * _BLOCK_HOURS + int(name)) * _HOUR_S, packed)
                hours += [hour] if hour.begin >= since else []
            elif name[:2] in {b"r:", b"R:"}:
                url = name[2:].decode(errors="replace")
                url = f"https://{url}/robots.txt" if name.startswith(b"r") else url
                fetched = FetchedRobots(url, *_unpacked(packed))
                robots[url] = max(robots.get(url, fetched), fetched, key=lambda one: one.time)
    return RequestsOf(
        now,
        sorted(hours),
        sorted(robots.values(), key=lambda one: -one.time),
        [Incident(*_unpacked(entry)) for entry in entries],
    )


def _unpacked(packed: bytes) -> list[Any]:
    values: list[Any] = msgpack.unpackb(packed, unicode_errors="replace")
    return values


def _hour(begin: int, packed: bytes) -> Hour:
    requests, received, first, last, peak, peak_at, rate, *kinds = _unpacked(packed)
    counts = dict(zip(kinds[::2], kinds[1::2], strict=True))
    sent = begin + first / 1000, begin + last / 1000
    return Hour(begin, requests, received, *sent, peak, begin + peak_at, rate / 1000, counts)
