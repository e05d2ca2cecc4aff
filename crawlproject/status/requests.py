"""What was requested of a source, by hours, as the Lua module `report` keeps it; others' data count as nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgpack

from crawlproject.state.client import State

KEPT_DAYS = 90

_BLOCK_HOURS = 96  # as in the Lua module `report`
_HOUR_S = 3600
_COUNTS = 7  # at the head of an hour; kinds follow
_MOST_KINDS = 40
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
            if name[:2] in {b"r:", b"R:"}:
                fetched = _robots(name, packed)
                if fetched is not None and since <= fetched.time <= now:
                    before = robots.setdefault(fetched.url, fetched)
                    robots[fetched.url] = max(before, fetched, key=lambda one: one.time)
            elif name.isdigit() and len(name) <= 2 and int(name) < _BLOCK_HOURS:
                hour = _hour((block * _BLOCK_HOURS + int(name)) * _HOUR_S, packed)
                if hour is not None and since <= hour.begin <= now:
                    hours.append(hour)
    incidents = [one for entry in entries if (one := _incident(entry))]
    return RequestsOf(
        now,
        sorted(hours),
        sorted(robots.values(), key=lambda one: -one.time),
        [one for one in incidents if since <= one.time <= now],
    )


def _unpacked(packed: Any) -> list[Any]:
    """Return a list that a function has packed; [] where it has not."""
    try:
        values = msgpack.unpackb(packed, raw=True, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError):
        return []
    return values if isinstance(values, list) else []


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _hour(begin: int, packed: Any) -> Hour | None:
    values = _unpacked(packed)
    counts, rest = values[:_COUNTS], values[_COUNTS:]
    if len(counts) < _COUNTS or not all(map(_is_count, counts)) or len(rest) % 2:
        return None
    kinds = {
        name.decode(errors="replace")[:20]: count
        for name, count in list(zip(rest[::2], rest[1::2], strict=True))[:_MOST_KINDS]
        if isinstance(name, bytes) and _is_count(count)
    }
    requests, received, first, last, peak, peak_at, rate = counts
    first, last, peak_at = (min(first, 3_599_999), min(last, 3_599_999), min(peak_at, 3_599))
    return Hour(
        begin,
        requests,
        received,
        begin + first / 1000,
        begin + last / 1000,
        peak,
        begin + peak_at,
        rate / 1000,
        kinds,
    )


def _robots(name: bytes, packed: Any) -> FetchedRobots | None:
    url = name[2:].decode(errors="replace")
    url = f"https://{url}/robots.txt" if name.startswith(b"r") else url
    match _unpacked(packed):
        case [int(time), bytes(result)]:
            return FetchedRobots(url, time, result.decode(errors="replace")[:20])
    return None


def _incident(packed: Any) -> Incident | None:
    match _unpacked(packed):
        case [int(time), bytes(what), bytes(why)]:
            return Incident(time, what.decode(errors="replace")[:20], why.decode(errors="replace")[:200])
    return None
