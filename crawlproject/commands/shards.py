"""`scrapy shards`: where the shards of a crawl are, and how they are doing."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.state.over_shards import ask_shards
from crawlproject.status.shard_status import ShardStatus, shard_status
from crawlproject.texts import counted, printable


class Command(cli.Command):
    """Show each shard of a crawl (CRAWL_SHARDS): the node that has it and the memory in use
    there, its sources and outstanding requests, how much waits there for other shards, how far its replica is
    behind, how many workers serve it, and the one that leads it. A shard that does not answer has a line with the
    reason, and the exit code is 1.
    """

    summary = "Show the shards of a crawl: nodes, workers, work, replicas"
    examples = ("scrapy shards",)
    spider_help = "the spider whose requests are counted"

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if args:
            raise UsageError("expected no arguments")
        rows = asyncio.run(self._rows(opts.spider))
        if opts.json:
            print(json.dumps(rows, indent=1))
        else:
            _print(rows)
        self.exitcode = int(any("fault" in row for row in rows))

    async def _rows(self, spider: str) -> list[dict[str, Any]]:
        async with cli.opened_state(self, spider) as state:
            found, away = await ask_shards(state.shards, shard_status)
            return [
                found[shard]._asdict()
                if shard in found
                else {"shard": shard.number, "tag": shard.keys.namespace, "fault": away[shard]}
                for shard in state.shards
            ]


def _print(rows: list[dict[str, Any]]) -> None:
    titles = (
        "shard",
        "node",
        "node memory",
        "sources",
        "requests",
        "on their way",
        "replica",
        "workers",
        "leader",
    )
    lines = [titles, *(_cells(row) for row in rows)]
    widths = [
        max(len(line[column]) for line in lines if len(line) == len(titles)) for column in range(len(titles))
    ]
    for line in lines:
        if len(line) < len(titles):
            cli.show(f"{line[0]:<{widths[0]}}  {'  '.join(line[1:])}")
            continue
        cli.show("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())
    print(counted(len(rows), "shard"))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    if "fault" in row:
        return str(row["shard"]), f"does not answer: {printable(row['fault'], 300)}"
    one = ShardStatus(**row)
    replica = (
        "none"
        if one.replica_lag_bytes is None
        else f"{one.replica_lag_bytes} bytes behind, last heard from {one.replica_lag_s} s ago"
    )
    return (
        str(one.shard),
        one.node,
        f"{one.node_bytes / 1e6:.1f} MB",
        str(one.sources),
        str(one.requests),
        str(one.sent),
        replica,
        str(one.workers),
        printable(one.leader or "none"),
    )
