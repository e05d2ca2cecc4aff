"""What all workers together have done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from crawlproject.sources.rates import limit_of
from crawlproject.state.client import REDIS_TROUBLE, BlockingState
from crawlproject.state.health import plain
from crawlproject.state.numbers import whole_number
from crawlproject.state.over_shards import not_answering
from crawlproject.state.scripts import Histograms
from crawlproject.state.source_counts import counts_in
from crawlproject.state.workers import alive_workers

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


def histograms(state: BlockingState) -> Histograms:
    """Return how long all sources took since the crawl began."""
    fields: Counter[str] = Counter()
    for shard in state.shards:
        for name, written in dict(_scan(shard, shard.keys.latencies)).items():
            fields[name] += whole_number(written) or 0
    return Histograms.of(fields)


def totals(state: BlockingState) -> dict[str, Any]:
    """Return the totals since the crawl began, of all shards: of the frontier, of the seeds, and per source.

    `workers` are those alive; `leased` counts what dead ones hold, too, until another worker takes it back.
    `seeds_waiting` are those in the list, and those beyond their sources' shares of the frontier. What others have
    written, in place of a number or a key of ours, counts as none.

    Raises:
        REDIS_TROUBLE: a shard does not answer.

    """
    each = []
    for shard in state.shards:
        try:
            each.append(_totals_of_shard(shard))
        except REDIS_TROUBLE as error:
            if state.count == 1:
                raise
            raise not_answering(shard, plain(error), ", and the totals are those of all shards") from None
    sources: dict[str, dict[str, Any]] = {}
    for shard, one in zip(state.shards, each, strict=True):
        for name, row in one.pop("sources").items():
            if (before := sources.get(name)) is None:
                sources[name] = row
                continue
            # Redirects have led from other shards to it.
            limits = row if state.shard_for(name) is shard else before
            sources[name] = {"rate_limit": limits["rate_limit"]} | {
                count: before[count] + row[count] for count in _COUNTS
            }
    workers = max(one.pop("workers") for one in each)
    summed: Counter[str] = Counter()
    for one in each:
        summed.update(one)
    return {
        "workers": workers,
        **{name: summed[name] for name in each[0]},
        "sources": dict(sorted(sources.items())),
    }


def _totals_of_shard(state: BlockingState) -> dict[str, Any]:
    keys = state.keys
    with state.redis.pipeline(transaction=False) as pipe:
        pipe.mget(keys.outstanding, keys.overflow)
        pipe.llen(keys.seeds)
        pipe.xlen(keys.dead)
        pipe.zrange(keys.workers, 0, -1)
        pipe.hgetall(keys.totals)
        (outstanding, overflow), seeds, dead, workers, of_seeds = pipe.execute()
    with state.redis.pipeline(transaction=False) as pipe:
        for worker in workers:
            pipe.hlen(keys.leases_of.encode() + worker)
        leased = sum(pipe.execute())
    sources: dict[str, dict[str, Any]] = {
        source: {"rate_limit": limit.rps if (limit := limit_of(written)) else None, **dict.fromkeys(_COUNTS, 0)}
        for source, written in _scan(state, keys.rates)
    }
    unknown = {"rate_limit": None, **dict.fromkeys(_COUNTS, 0)}
    # A source that is put to rest meanwhile may be counted without what it has at rest, never twice.
    for source, packed in _scan(state, keys.counts_at_rest):
        row = sources.setdefault(source, dict(unknown))
        row |= {count: number for count, number in counts_in(packed).items() if count in _COUNTS}
    for count in _COUNTS:
        of_source = dict(_scan(state, keys.counts_of + count))  # a scan may name a field twice
        for source, number in of_source.items():
            sources.setdefault(source, dict(unknown))[count] += whole_number(number) or 0
    return {
        "workers": len(alive_workers(state)),
        "seeds_waiting": seeds + (whole_number(overflow) or 0),
        "waiting": whole_number(overflow) or 0,
        "outstanding": whole_number(outstanding) or 0,
        "leased": leased,
        "dead_letters": dead,
        **{name: whole_number(of_seeds.get(name.encode())) or 0 for name in (*_OF_SEEDS, *_OF_LINKS)},
        **{count: sum(row[count] for row in sources.values()) for count in _COUNTS},
        "sources": sources,
    }


def _scan(state: BlockingState, key: str) -> Iterator[tuple[str, bytes]]:
    """Yield the fields of a hash, a page at a time: all at once would hold Redis up for a second at a million."""
    redis: Any = state.redis
    for source, value in redis.hscan_iter(key, count=_PAGE):
        yield source.decode(errors="replace"), value
