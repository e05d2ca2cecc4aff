"""What all workers together have done."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from crawlproject.frontier.contents import alive_workers
from crawlproject.sources.rates import limit_of
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.state.health import plain
from crawlproject.state.numbers import whole_number
from crawlproject.state.over_shards import not_answering
from crawlproject.state.scripts import Histograms
from crawlproject.state.source_counts import counts_in

_COUNTS = (
    "fetched",
    "thumbnails",
    "probes",
    "pages",
    "link_rot",
    "failed",
    "retried",
    "bytes",
    "excluded",
    "purged",
)
_PAGE = 1000  # fields a call
_OF_SEEDS = (
    "admitted",
    "duplicates",
    "refused",
    "deliveries_lost",
    "mended",
    "events_trimmed",
    "refusals_not_kept",
)
_OF_LINKS = (
    "links_admitted",
    "links_known",
    "links_over_budget",
    "links_without_room",
    "links_refused",
    "links_excluded",
    "overflow_lost",
    "sitemaps",
    "sitemaps_left_out",
    "revisits",
    "revisits_unchanged",
)


async def histograms(state: State) -> Histograms:
    """Return how long all sources took since the crawl began."""
    fields: Counter[str] = Counter()
    for shard in state.shards:
        for name, written in (await _all(shard, shard.keys.latencies)).items():
            fields[name] += whole_number(written) or 0
    return Histograms.of(fields)


async def totals(state: State) -> dict[str, Any]:
    """Return the totals since the crawl began, of all shards: of the frontier, of the seeds, and per source.

    `workers` are those alive; `leased` counts what dead ones hold, too, until another worker takes it back.
    `seeds_waiting` are those in the list, and those beyond their sources' windows. What others have
    written, in place of a number or a key of ours, counts as none.

    Raises:
        REDIS_TROUBLE: a shard does not answer.

    """
    each = []
    for shard in state.shards:
        try:
            each.append(await _totals_of_shard(shard))
        except REDIS_TROUBLE as error:
            if state.count == 1:
                raise
            raise not_answering(shard, plain(error), ", and the totals are those of all shards") from None
    sources = {
        name: row
        for shard, one in zip(state.shards, each, strict=True)
        for name, row in one.pop("sources").items()
        if state.shard_for(name) is shard
    }
    return {name: sum(one[name] for one in each) for name in each[0]} | {"sources": dict(sorted(sources.items()))}


async def _totals_of_shard(state: State) -> dict[str, Any]:
    keys = state.keys
    async with state.redis.pipeline(transaction=False) as pipe:
        pipe.hmget(keys.counters, "outstanding", "overflow")
        pipe.llen(keys.seeds)
        pipe.xlen(keys.dead)
        pipe.zrange(keys.workers, 0, -1)
        pipe.hgetall(keys.totals)
        (outstanding, overflow), seeds, dead, workers, of_seeds = await pipe.execute()
    async with state.redis.pipeline(transaction=False) as pipe:
        for worker in workers:
            pipe.hlen(keys.leases_of.encode() + worker)
        leased = sum(await pipe.execute())
    sources: dict[str, dict[str, Any]] = {
        source: {"rate_limit": limit.rps if (limit := limit_of(written)) else None, **dict.fromkeys(_COUNTS, 0)}
        for source, written in (await _all(state, keys.rates)).items()
    }
    unknown = {"rate_limit": None, **dict.fromkeys(_COUNTS, 0)}
    async for source, packed in _scan(state, keys.counts):
        row = sources.setdefault(source, dict(unknown))
        row |= {count: number for count, number in counts_in(packed).items() if count in _COUNTS}
    return {
        "workers": len(await alive_workers(state)),
        "seeds_waiting": seeds + (whole_number(overflow) or 0),
        "waiting": whole_number(overflow) or 0,
        "outstanding": whole_number(outstanding) or 0,
        "leased": leased,
        "dead_letters": dead,
        **{name: whole_number(of_seeds.get(name.encode())) or 0 for name in (*_OF_SEEDS, *_OF_LINKS)},
        **{count: sum(row[count] for row in sources.values()) for count in _COUNTS},
        "sources": sources,
    }


async def _all(state: State, key: str) -> dict[str, bytes]:
    """Return the fields of a hash, each once: a scan may name one twice."""
    return {source: value async for source, value in _scan(state, key)}


async def _scan(state: State, key: str) -> AsyncIterator[tuple[str, bytes]]:
    """Yield the fields of a hash, a page at a time: all at once would hold Redis up for a second at a million."""
    redis: Any = state.redis
    async for source, value in redis.hscan_iter(key, count=_PAGE):
        yield source.decode(errors="replace"), value
