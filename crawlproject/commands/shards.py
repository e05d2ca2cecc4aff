"""`scrapy shards`: where the shards of a crawl are, and how they are doing."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.frontier.homes import homes
from crawlproject.state.over_shards import ask_shards
from crawlproject.state.shard_status import ShardStatus, shard_status
from crawlproject.texts import counted, printable


class Command(cli.Command):
    """Show each shard of a crawl on a Redis Cluster (CRAWL_SHARDS): the node that has it and the memory in use
    there, its sources and outstanding requests, how much was found on its pages for shards that are away, how far
    its replica is behind, the worker that leads it, and the one that is its home, which keeps to its sources. A
    shard that does not answer has a line with the reason, and the exit code is 1.
    """

    summary = "Show the shards of a crawl: nodes, leaders, work, replicas"
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
            # The first shard knows who is alive; while it is away, workers keep to the homes that they have.
            members, _ = await ask_shards(
                state.shards[:1], lambda shard: shard.scripts.alive(timeout=state.config.heartbeat_timeout)
            )
            alive = sorted(worker for workers in members.values() for worker in workers)
            home = homes(alive, state.count) if alive else [None] * state.count
            return [
                found[shard]._asdict() | {"home": home[shard.number]}
                if shard in found
                else {"shard": shard.number, "tag": shard.keys.namespace, "fault": away[shard]}
                for shard in state.shards
            ]


def _print(rows: list[dict[str, Any]]) -> None:
    titles = ("shard", "node", "node memory", "sources", "requests", "on their way", "replica", "leader", "home")
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
    home = row["home"]
    one = ShardStatus(**{name: value for name, value in row.items() if name != "home"})
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
        printable(one.leader or "none"),
        printable(home or "none"),
    )
