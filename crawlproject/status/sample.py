"""Reads from Redis what the monitor tells, in calls that keep it for a few milliseconds each."""

from __future__ import annotations

from collections import Counter
from typing import Any

from crawlproject.models import utc_now
from crawlproject.politeness.kinds import ERROR_KINDS
from crawlproject.state.client import State
from crawlproject.state.scripts import Survey
from crawlproject.status.snapshot import Sample, SourceSample
from crawlproject.status.source_status import TOO_MANY_DEAD, leases, numbers, standings

MOST_SOURCES = 1000  # looked at one by one
COUNTS = (
    *("fetched", "thumbnails", "link_rot", "failed", "retried", "bytes", "answers", "latency_us"),
    *(f"error_{kind}" for kind in ERROR_KINDS),
)
_BATCH = 200  # sources a call


async def survey(state: State, *, must_lead: bool, every: float = 0.0) -> Survey | float | None:
    """Ask what all sources share, and which sources to look at; see `Scripts.collect`."""
    surveyed = await state.scripts.collect(
        state.worker,
        must_lead=must_lead,
        every=every,
        timeout=state.config.heartbeat_timeout,
        most=MOST_SOURCES,
    )
    if isinstance(surveyed, Survey) and not surveyed.paused and surveyed.dead >= state.config.dead_maxlen:
        return surveyed._replace(paused=TOO_MANY_DEAD)
    return surveyed


async def read(state: State, surveyed: Survey) -> Sample:
    """Look at the sources that a survey has chosen."""
    leased = await leases(state)
    names = list(surveyed.sources)
    rows = {row.source: row async for _, row in standings(state, names, leased)}
    asked = [count for count in COUNTS if surveyed.totals.get(count)]  # most kinds of errors never come
    sources: dict[str, SourceSample] = {}
    for first in range(0, len(names), _BATCH):
        some = names[first : first + _BATCH]
        async with state.redis.pipeline(transaction=False) as pipe:
            for count in asked:
                pipe.hmget(state.keys.counts_of + count, some)
            pipe.hmget(state.keys.dead_sources, some)
            for name in some:
                pipe.lrange(state.keys.statuses_of + name, 0, 49)
            replies: list[Any] = await pipe.execute(raise_on_error=False)
        columns = [numbers(reply, len(some)) for reply in replies[: len(asked) + 1]]
        for index, (name, statuses) in enumerate(zip(some, replies[len(asked) + 1 :], strict=True)):
            counts = {count: column[index] for count, column in zip(asked, columns, strict=False) if column[index]}
            sources[name] = SourceSample(rows[name], columns[-1][index], counts, _statuses(statuses))
    return Sample(utc_now(), state.keys.spider, surveyed, leased.total(), sources)


def _statuses(reply: Any) -> dict[str, int]:
    found = Counter(reply if isinstance(reply, list) else [])
    return {status.decode(errors="replace")[:20]: count for status, count in found.most_common()}
