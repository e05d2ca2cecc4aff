"""Reads from Redis what the monitor reports, in calls of a few milliseconds each."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from crawlproject.frontier import codec
from crawlproject.frontier.leases import read_leases
from crawlproject.models import utc_now
from crawlproject.politeness.outcomes import ERROR_KINDS
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.client import State
from crawlproject.state.scripts import Overview
from crawlproject.state.source_counts import read_counts, read_dead_letter_counts, read_fetches, read_statuses
from crawlproject.state.source_table import RateSum, count_due
from crawlproject.status.snapshot import CrawlSample, InFlight, Others, SourceSample
from crawlproject.status.source_status import statuses_of_shard
from crawlproject.streams.readers import furthest_behind

MOST_SOURCES = 1000  # read one by one; where all shards together have more, each has an equal part of that,
_LEAST_SOURCES = 20  # but so many at least
COUNTS = (
    *(
        "fetched",
        "thumbnails",
        "probes",
        "pages",
        "link_rot",
        "failed",
        "retried",
        "bytes",
        "answers",
        "latency_us",
    ),
    *(f"error_{kind}" for kind in ERROR_KINDS),
)
_BATCH = 200  # sources a call


def most_of_shard(known: int, count: int) -> int:
    """Return how many sources of each of `count` shards are read one by one, where all have `known` together."""
    return MOST_SOURCES if count == 1 or known <= MOST_SOURCES else max(MOST_SOURCES // count, _LEAST_SOURCES)


async def collect(
    state: State, *, must_lead: bool, every: float = 0.0, most: int | None = None
) -> Overview | float | None:
    """Return the figures of a shard's crawl, and which sources to read, `most` at most; see `Scripts.collect`.

    `most` is 1,000 where it is None.
    """
    return await state.scripts.collect(
        state.worker_id,
        must_lead=must_lead,
        every=every,
        timeout=state.config.heartbeat_timeout,
        most=MOST_SOURCES if most is None else most,
        dead_maxlen=state.config.of_shard.dead_maxlen,
    )


async def take_sample(
    state: State, overview: Overview, rate_sum: RateSum | None = None, *, unread: bool = False
) -> CrawlSample:
    """Read the sources that an overview has chosen; `rate_sum` tells the limits where there are more.

    `unread`: it tells how far readers are behind.
    """
    leases: Counter[str] = Counter()
    domains: set[str] = set()
    async for source, entry in read_leases(state):
        leases[source] += 1
        with suppress(ValueError):  # a lease that was not written by crawlproject
            domains.add(domain_of_url(codec.url_of(entry)))
    names = list(overview.sources)
    rows = {row.source: row async for _, row in statuses_of_shard(state, names, leases)}
    wanted = [count for count in COUNTS if overview.totals.get(count)]  # most kinds of errors never occur
    sources: dict[str, SourceSample] = {}
    for first in range(0, len(names), _BATCH):
        some = names[first : first + _BATCH]
        columns = await read_counts(state, some, wanted)
        dead, statuses = await read_dead_letter_counts(state, some), await read_statuses(state, some)
        fetches = await read_fetches(state, some)
        for index, name in enumerate(some):
            counts = {count: column[index] for count, column in columns.items() if column[index]}
            counts |= {f"links_{result}": number for result, number in rows[name].links.items()}
            sources[name] = SourceSample(rows[name], dead[index], counts, statuses[index], fetches[index])
    others = None
    if overview.known > len(names) and rate_sum is not None:
        leased = [source for source in leases if source not in sources]
        others = Others(await rate_sum.look(), len(leased) - await count_due(state, leased))
    in_flight = InFlight(leases.total(), len(leases), len(domains - {""}))
    behind = await furthest_behind(state) if unread else {}
    return CrawlSample(utc_now(), state.keys.spider, overview, in_flight, sources, others, behind)
