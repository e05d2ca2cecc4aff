"""What all workers together have done."""

from __future__ import annotations

from typing import Any

from crawlproject.sources.rates import override_of
from crawlproject.state.client import BlockingState
from crawlproject.state.numbers import whole_number
from crawlproject.state.workers import alive_workers

_COUNTS = ("fetched", "thumbnails", "link_rot", "failed", "retried", "bytes")
_OF_SEEDS = ("admitted", "duplicates", "refused", "deliveries_lost", "events_trimmed")


def totals(state: BlockingState) -> dict[str, Any]:
    """Return the totals since the crawl began: of the frontier, of the seeds, and per source.

    `workers` are those alive; `leased` counts what dead ones hold, too, until another worker takes it back.
    `seeds_waiting` are those in the list, and those beyond their sources' shares of the frontier.
    """
    keys = state.keys
    with state.redis.pipeline(transaction=False) as pipe:
        pipe.mget(keys.outstanding, keys.overflow)
        pipe.llen(keys.seeds)
        pipe.xlen(keys.dead)
        pipe.zrange(keys.workers, 0, -1)
        pipe.hgetall(keys.totals)
        pipe.hgetall(keys.rates)
        for count in _COUNTS:
            pipe.hgetall(keys.counts_of + count)
        (outstanding, overflow), seeds, dead, workers, sums, rates, *counts = pipe.execute()
    with state.redis.pipeline(transaction=False) as pipe:
        for worker in workers:
            pipe.hlen(keys.leases_of.encode() + worker)
        leased = sum(pipe.execute())
    sources: dict[str, dict[str, Any]] = {
        source.decode(errors="replace"): {"rate_limit": override_of(rate), **dict.fromkeys(_COUNTS, 0)}
        for source, rate in rates.items()
    }
    for count, of_source in zip(_COUNTS, counts, strict=True):
        for source, number in of_source.items():
            row = sources.setdefault(
                source.decode(errors="replace"), {"rate_limit": None, **dict.fromkeys(_COUNTS, 0)}
            )
            row[count] = int(number)
    return {
        "workers": len(alive_workers(state)),
        "seeds_waiting": seeds + (whole_number(overflow) or 0),
        "outstanding": whole_number(outstanding) or 0,
        "leased": leased,
        "dead_letters": dead,
        **{name: int(sums.get(name.encode(), 0)) for name in _OF_SEEDS},
        **{count: sum(row[count] for row in sources.values()) for count in _COUNTS},
        "sources": dict(sorted(sources.items())),
    }
