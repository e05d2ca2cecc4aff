"""Reads from Redis what the monitor tells, in calls that keep it for a few milliseconds each."""

from __future__ import annotations

from collections import Counter
from typing import Any

from crawlproject.monitoring.snapshot import Reading, SourceReading
from crawlproject.monitoring.standing import TOO_MANY_DEAD, leases, numbers, standings
from crawlproject.politeness.kinds import ERROR_KINDS
from crawlproject.records import utc_now
from crawlproject.store.client import Store
from crawlproject.store.scripts import Survey

MOST_SOURCES = 1000  # looked at one by one
COUNTS = (
    *("fetched", "thumbnails", "link_rot", "failed", "retried", "bytes", "answers", "latency_us"),
    *(f"error_{kind}" for kind in ERROR_KINDS),
)
_BATCH = 200  # sources a call


async def survey(store: Store, *, must_lead: bool, every: float = 0.0) -> Survey | float | None:
    """Ask what all sources share, and which sources to look at; see `Scripts.survey`."""
    surveyed = await store.scripts.survey(
        store.worker,
        must_lead=must_lead,
        every=every,
        timeout=store.config.heartbeat_timeout,
        most=MOST_SOURCES,
    )
    if isinstance(surveyed, Survey) and not surveyed.paused and surveyed.dead >= store.config.dead_maxlen:
        return surveyed._replace(paused=TOO_MANY_DEAD)
    return surveyed


async def read(store: Store, surveyed: Survey) -> Reading:
    """Look at the sources that a survey has chosen."""
    leased = await leases(store)
    names = list(surveyed.sources)
    rows = {row.source: row async for _, row in standings(store, names, leased)}
    asked = [count for count in COUNTS if surveyed.totals.get(count)]  # most kinds of errors never come
    sources: dict[str, SourceReading] = {}
    for first in range(0, len(names), _BATCH):
        some = names[first : first + _BATCH]
        async with store.redis.pipeline(transaction=False) as pipe:
            for count in asked:
                pipe.hmget(store.keys.counts_of + count, some)
            pipe.hmget(store.keys.dead_sources, some)
            for name in some:
                pipe.lrange(store.keys.statuses_of + name, 0, 49)
            replies: list[Any] = await pipe.execute(raise_on_error=False)
        columns = [numbers(reply, len(some)) for reply in replies[: len(asked) + 1]]
        for index, (name, statuses) in enumerate(zip(some, replies[len(asked) + 1 :], strict=True)):
            counts = {count: column[index] for count, column in zip(asked, columns, strict=False) if column[index]}
            sources[name] = SourceReading(rows[name], columns[-1][index], counts, _statuses(statuses))
    return Reading(utc_now(), store.keys.spider, surveyed, leased.total(), sources)


def _statuses(reply: Any) -> dict[str, int]:
    found = Counter(reply if isinstance(reply, list) else [])
    return {status.decode(errors="replace")[:20]: count for status, count in found.most_common()}
