"""How sources stand: what every table, line and chart says of one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, NamedTuple

from crawlproject.sources.rates import MINIMUM_RATE, override_of
from crawlproject.state.client import State
from crawlproject.state.scripts import SourceStatus

TOO_MANY_DEAD = "dead letters are at CRAWL_DEAD_MAXLEN"
_BATCH = 200  # sources a call, which takes Redis some 5 ms


class Row(NamedTuple):
    """How a source stands, in the words of the contract; rates in requests a second, times in seconds.

    `successful` counts thumbnails and link rot. `eta_s` is 0 without work, None when nothing goes out.
    """

    source: str
    rate_limit: float
    effective_rate: float
    reason: str
    queued: int
    delayed: int
    in_flight: int
    successful: int
    failed: int
    state: str
    eta_s: float | None
    next_slot_s: float


async def standings(
    state: State, sources: list[str], leased: Counter[str] | None = None
) -> AsyncIterator[tuple[SourceStatus, Row]]:
    """Yield how each of `sources` stands, in order; asks for a batch at a time. `leased` is what `leases` says."""
    leased, suspects = await leases(state) if leased is None else leased, await _suspects(state)
    counts = ("thumbnails", "link_rot", "failed")
    for first in range(0, len(sources), _BATCH):
        names = sources[first : first + _BATCH]
        standing = await state.scripts.inspect(names)
        async with state.redis.pipeline(transaction=False) as pipe:
            for count in counts:
                pipe.hmget(state.keys.counts_of + count, names)
            columns = [numbers(reply, len(names)) for reply in await pipe.execute(raise_on_error=False)]
        for one, *done in zip(standing, *columns, strict=True):
            waiting = one._replace(queued=one.queued + suspects[one.source])
            yield waiting, _row(waiting, leased[one.source], *done)


def _row(standing: SourceStatus, leased: int, thumbnails: int, link_rot: int, failed: int) -> Row:
    work, wait = standing.queued + standing.delayed + leased, wait_of(standing)
    eta = 0.0 if not work else None if wait is None else wait + work / standing.effective
    return Row(
        source=standing.source,
        rate_limit=standing.limit,
        effective_rate=standing.effective,
        reason="; ".join(part for part in (_rate_reason(standing), hold_reason(standing)) if part),
        queued=standing.queued,
        delayed=standing.delayed,
        in_flight=leased,
        successful=thumbnails + link_rot,
        failed=failed,
        state=standing.state,
        eta_s=eta,
        next_slot_s=round(max(standing.next_slot - standing.now, 0.0), 6),
    )


def wait_of(standing: SourceStatus) -> float | None:
    """Return the seconds that a source is held for, None when nothing goes out until somebody acts."""
    if standing.state == "halted" or standing.effective <= 0:
        return None
    return max(standing.held_until - standing.now, 0.0)


def hold_reason(standing: SourceStatus) -> str:
    """Return what holds a source back whatever its rate is, "" when nothing does."""
    seconds = math.ceil(wait_of(standing) or 0)
    if standing.state == "halted":
        return f"halted until scrapy resume {standing.source}"
    if standing.state == "open":
        return f"circuit open for {seconds} s more" if seconds else "circuit open, due for probes"
    held = f"held for {seconds} s (Retry-After)" if seconds else ""
    probes = "circuit half open: a few probes decide" if standing.state == "half_open" else ""
    return "; ".join(part for part in (held, probes) if part)


def _rate_reason(standing: SourceStatus) -> str:
    """Return why the effective rate is what it is."""
    override = None if standing.override is None else override_of(standing.override)
    if override is not None:
        wanted, reason = override, "by override"
    elif standing.by_size is not None:
        wanted, reason = standing.by_size, "by size"
    else:
        wanted, reason = MINIMUM_RATE, "minimum, its size is unknown"
    if override is None and standing.override is not None:
        reason += f" (override {standing.override[:40].decode(errors='replace')!r} is no rate)"
    if wanted != standing.limit:
        reason += f", soon {wanted:g}: the leader has not set it yet"
    if standing.effective < standing.limit * standing.factor and standing.robots_delay:
        return f"robots.txt asks for {standing.robots_delay:g} s between requests"
    if standing.factor < 1:
        reason += f", slowed to {standing.factor * 100:.3g} % by {standing.why}"
    return reason


async def pause(state: State) -> str | None:
    """Return why nothing goes out of any source at present, None when it does."""
    keys = state.keys
    async with state.redis.pipeline(transaction=False) as pipe:
        pipe.exists(keys.pulse)
        pipe.get(keys.paused)
        pipe.xlen(keys.dead)
        pulse, paused, dead = await pipe.execute()
    if not pulse:
        return "no worker leads"
    if paused:
        return str(paused.decode(errors="replace"))
    return TOO_MANY_DEAD if dead >= state.config.dead_maxlen else None


def numbers(reply: Any, count: int) -> list[int]:
    """Return the counters of a reply; 0 where there is none, or what we did not write."""
    values = reply if isinstance(reply, list) else [None] * count
    return [int(value) if value is not None and value.isdigit() and len(value) < 20 else 0 for value in values]


async def leases(state: State) -> Counter[str]:
    """Count the leases of all workers by the source that pays."""
    redis: Any = state.redis
    async with redis.pipeline(transaction=False) as pipe:
        for worker in await redis.zrange(state.keys.workers, 0, -1):
            pipe.hkeys(state.keys.leases_of.encode() + worker)
        held = await pipe.execute(raise_on_error=False)
    leased: Counter[str] = Counter()
    for ids in held:
        if isinstance(ids, list):  # else a key that holds what is none of ours
            leased.update(lease.decode(errors="replace").partition(":")[2] for lease in ids)
    return leased


async def _suspects(state: State) -> Counter[str]:
    """Count the queued requests that are leased alone, and wait in a list of their own."""
    redis: Any = state.redis
    waiting = await redis.lrange(state.keys.quarantine, 0, -1)
    return Counter(entry.partition(b"\n")[0].decode(errors="replace") for entry in waiting)


def duration(seconds: float | None) -> str:
    """Return a span of time for people."""
    if seconds is None:
        return "never"
    return f"{seconds / 86400:.3g} days" if seconds >= 172_800 else str(timedelta(seconds=math.ceil(seconds)))
