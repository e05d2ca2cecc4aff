"""`scrapy stats`: the totals of the whole crawl."""

from __future__ import annotations

import argparse
import json
from typing import Any, cast

from redis import Redis
from scrapy.commands import ScrapyCommand

from crawlproject.commands import QUIET, connected, reports_errors
from crawlproject.state.keys import Keys

COUNTS = ("fetched", "thumbnails", "link_rot", "failed", "retried", "bytes")


class Command(ScrapyCommand):
    """Prints what all workers together have done."""

    requires_project = True
    requires_crawler_process = False
    default_settings = QUIET

    def short_desc(self) -> str:
        """Return what it does, in a line."""
        return "Print the totals of all workers as JSON"

    def long_desc(self) -> str:
        """Return what it does."""
        return (
            "Print what all workers together have done since the crawl began: in all, and for each source. "
            "Example: scrapy stats"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add our options."""
        super().add_options(parser)
        parser.add_argument("--spider", default="images", help="the spider (default: images)")
        parser.add_argument("--json", action="store_true", help="accepted for likeness: it always is JSON")

    @reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Print one JSON document."""
        settings, client, keys = connected(self, opts.spider)
        print(json.dumps(totals(client, keys, settings.heartbeat_timeout), indent=2))


def totals(client: Redis, keys: Keys, heartbeat_timeout: float) -> dict[str, Any]:
    """Return the totals since the crawl began: of the frontier, of the seeds, and per source.

    `workers` are those that have beaten within `heartbeat_timeout` seconds; `leased` counts what dead ones hold,
    too, until another worker takes it back.
    """
    seconds, micros = client.time()
    ahead = cast("bytes | None", client.hget(keys.clock, "ahead")) or b"0"
    oldest = seconds * 1_000_000 + micros + int(ahead) - int(heartbeat_timeout * 1_000_000)
    with client.pipeline(transaction=False) as pipe:
        pipe.get(keys.outstanding)
        pipe.llen(keys.seeds)
        pipe.xlen(keys.dead)
        pipe.zrange(keys.workers, 0, -1)
        pipe.zcount(keys.workers, oldest, "+inf")
        pipe.hgetall(keys.totals)
        pipe.hgetall(keys.rates)
        for count in COUNTS:
            pipe.hgetall(keys.counts_of + count)
        outstanding, seeds, dead, workers, alive, sums, rates, *counts = pipe.execute()
    with client.pipeline(transaction=False) as pipe:
        for worker in workers:
            pipe.hlen(keys.leases_of + worker.decode())
        leased = sum(cast("list[int]", pipe.execute()))
    sources: dict[str, dict[str, Any]] = {
        source.decode(): {"rate_limit": float(rate), **dict.fromkeys(COUNTS, 0)} for source, rate in rates.items()
    }
    for count, of_source in zip(COUNTS, counts, strict=True):
        for source, number in of_source.items():
            row = sources.setdefault(source.decode(), {"rate_limit": None, **dict.fromkeys(COUNTS, 0)})
            row[count] = int(number)
    names = ("admitted", "duplicates", "refused", "deliveries_lost", "events_trimmed")
    return {
        "workers": alive,
        "seeds_waiting": seeds,
        "outstanding": int(outstanding or 0),
        "leased": leased,
        "dead_letters": dead,
        **{name: int(sums.get(name.encode(), 0)) for name in names},
        **{count: sum(row[count] for row in sources.values()) for count in COUNTS},
        "sources": dict(sorted(sources.items())),
    }
