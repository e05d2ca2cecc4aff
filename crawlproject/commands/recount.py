"""`scrapy recount`: puts the counts of a frontier right."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict
from functools import reduce
from operator import add
from typing import Any

from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.state.client import REDIS_TROUBLE
from crawlproject.state.health import plain
from crawlproject.state.over_shards import not_answering
from crawlproject.state.recount import Recount, recount
from crawlproject.texts import counted


class Command(cli.Command):
    """Count what the lists of a frontier hold, and set its counts to that: requests outstanding, waiting and
    spilled, extents of packs, requests in the seen filter, budgets that are no numbers; and have sources that have
    work be due again. For a crawl that does not end, or ends too soon, because somebody has changed its keys. Its
    workers must be stopped.
    """

    summary = "Put the counts of a frontier right"
    examples = ("scrapy recount --spider pages",)
    spider_help = "the spider whose frontier is counted"

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if args:
            raise UsageError("expected no argument")
        found = asyncio.run(self._recount(opts.spider))
        cli.show(json.dumps(_as_json(found), indent=2) if opts.json else _for_people(found))

    async def _recount(self, spider: str) -> Recount:
        """Recount each shard.

        Raises:
            FrontierInUse: a worker is at work.
            redis.ConnectionError: a shard does not answer; those before it are put right.
            REDIS_TROUBLE: of the only shard.

        """
        async with cli.opened_state(self, spider) as state:
            found: list[Recount] = []
            for shard in state.shards:
                try:
                    found.append(await recount(shard))
                except REDIS_TROUBLE as error:
                    if state.count == 1:
                        raise
                    what = f": the {counted(len(found), 'shard')} before it have been recounted; run this again"
                    raise not_answering(shard, plain(error), what) from None
            return reduce(add, found)


def _as_json(found: Recount) -> dict[str, Any]:
    counts = {name: {"was": was, "is": now} for name, (was, now) in found.counts.items()}
    return {"counts": counts} | {name: value for name, value in asdict(found).items() if name != "counts"}


def _for_people(found: Recount) -> str:
    lines = [
        f"{name}: {now}" + ("" if was == now else f" (was {'not a number' if was is None else was})")
        for name, (was, now) in found.counts.items()
    ]
    lines += [
        f"{number} {what}"
        for number, what in (
            (found.packs, "packs had a wrong number of extents"),
            (found.ledger, "budgets were no numbers"),
            (found.orphans, "workers had leases and were not known"),
            (found.scheduled, "sources with work were not due anywhere, or not where they should be"),
        )
        if number
    ]
    return "\n".join(lines)
