"""What all workers together have done."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from crawlproject.frontier.contents import count_leases
from crawlproject.sources.rates import limit_of
from crawlproject.state.calls import HISTOGRAMS, Overview, histogram
from crawlproject.state.client import State
from crawlproject.state.over_shards import ask_shards, not_answering
from crawlproject.state.source_counts import counts_in, read_all_fetches
from crawlproject.status.sample import summed
from crawlproject.status.snapshot import LINKS, not_html, quantile

_OF_SOURCES = (
    *("fetched", "thumbnails", "probes", "pages", "responses", "items", "link_rot", "failed", "retried", "bytes"),
    *("excluded", "purged"),
)
_OF_ALL = (
    *("admitted", "duplicates", "refused", "deliveries_lost", "mended", "events_trimmed", "refusals_not_kept"),
    *LINKS,
    *("overflow_lost", "sitemaps", "sitemaps_left_out", "revisits", "revisits_unchanged"),
)
_READ = ("alive", "seeds", "overflow", "outstanding", "dead", "totals")
_PAGE = 1000  # fields a call
_WITHIN_S = 600.0  # that a shard has to answer


async def totals(state: State) -> dict[str, Any]:
    """Return the totals since the crawl began, of all shards: of the frontier, of the seeds, and per source.

    `workers` are those alive; `leased` counts what dead ones hold, too, until another worker takes it back.
    `seeds_waiting` are those in the list, and those beyond their sources' windows. Times of fetches are in all
    since the crawl began, of each source lately.

    Raises:
        REDIS_TROUBLE: a shard does not answer.

    """
    found, away = await ask_shards(state.shards, _of_shard, within_s=_WITHIN_S)
    for shard, fault in away.items():
        raise not_answering(shard, fault, ", and the totals are those of all shards")
    overviews, leased, rows = zip(*found.values(), strict=True)
    of = {name: summed([getattr(one, name) for one in overviews]) for name in _READ}
    times = {
        f"{name}_p{percent}_s": quantile(percent / 100, histogram(of["totals"], name), bounds)
        for name, bounds in HISTOGRAMS.items()
        for percent in (50, 95, 99)
    }
    return {
        "workers": of["alive"],
        "seeds_waiting": of["seeds"] + of["overflow"],
        "waiting": of["overflow"],
        "outstanding": of["outstanding"],
        "leased": sum(leased),
        "dead_letters": of["dead"],
        **{name: of["totals"].get(name, 0) for name in (*_OF_ALL, *_OF_SOURCES)},
        "not_html": not_html(of["totals"]),
        **times,
        "sources": dict(sorted(row for there in rows for row in there.items())),
    }


async def _of_shard(state: State) -> tuple[Overview, int, dict[str, dict[str, Any]]]:
    overview = await state.scripts.collect(timeout=state.config.heartbeat_timeout, most=1)
    rows = {name: row for name, row in (await _sources(state)).items() if state.shard_for(name) is state}
    return overview, (await count_leases(state)).total(), rows


async def _sources(state: State) -> dict[str, dict[str, Any]]:
    """Return the limit and the counts of each source of a shard, and how long its last fetches took."""
    keys = state.keys
    limits = {source: limit_of(written) async for source, written in _fields(state, keys.rates)}
    done: dict[str, Counter[str]] = {source: Counter() for source in limits}
    done |= {source: Counter(counts_in(packed)) async for source, packed in _fields(state, keys.counts)}
    lately = await read_all_fetches(state)
    return {
        source: {
            "rate_limit": limit.rps if (limit := limits.get(source)) else None,
            **{count: counts[count] for count in _OF_SOURCES},
            **{f"fetch_p{percent}_s": quantile(percent / 100, lately.get(source, ())) for percent in (50, 99)},
        }
        for source, counts in done.items()
    }


async def _fields(state: State, key: str) -> AsyncIterator[tuple[str, bytes]]:
    """Yield the fields of a hash, a page at a time: all at once would hold Redis up for a second at a million."""
    redis: Any = state.redis
    async for source, value in redis.hscan_iter(key, count=_PAGE):
        yield source.decode(errors="replace"), value
