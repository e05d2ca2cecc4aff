"""`scrapy shards`: where the shards of a crawl are, and how they are doing."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from crawlproject import cli
from crawlproject.state.client import State
from crawlproject.state.over_shards import ask_shards
from crawlproject.status.shard_status import shard_status
from crawlproject.texts import counted, printable

_COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "shard": lambda row: str(row["shard"]),
    "node": lambda row: row["node"],
    "node memory": lambda row: f"{row['node_bytes'] / 1e6:.1f} MB",
    "sources": lambda row: str(row["sources"]),
    "requests": lambda row: str(row["requests"]),
    "on their way": lambda row: str(row["sent"]),
    "replica": lambda row: (
        f"{row['replica_lag_bytes']} bytes behind, last heard from {row['replica_lag_s']} s ago"
        if row["replicas"]
        else "none"
    ),
    "workers": lambda row: str(row["workers"]),
    "leader": lambda row: printable(row["leader"] or "none"),
}


class Command(cli.Question):
    """Show each shard of a crawl (CRAWL_SHARDS): the node that has it and the memory in use
    there, its sources and outstanding requests, how much waits there for other shards, how far its replica is
    behind, how many workers serve it, and the one that leads it. A shard that does not answer has a line with the
    reason, and the exit code is 1.
    """

    summary = "Show the shards of a crawl: nodes, workers, work, replicas"
    examples = ("scrapy shards",)
    spider_help = "the spider whose requests are counted"

    indent = 1

    async def ask(self, state: State, args: list[str], opts: argparse.Namespace) -> list[dict[str, Any]]:
        found, away = await ask_shards(state.shards, shard_status)
        self.exitcode = int(bool(away))
        return [
            found[shard]
            if shard in found
            else {"shard": shard.number, "tag": shard.keys.namespace, "fault": away[shard]}
            for shard in state.shards
        ]

    def words(self, said: Any, opts: argparse.Namespace) -> str:
        cells = [list(_COLUMNS)]
        cells += [[cell(row) for cell in _COLUMNS.values()] for row in said if "fault" not in row]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        head, *lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
        rest = iter(lines)
        rows = [
            f"{row['shard']:<{widths[0]}}  does not answer: {printable(row['fault'], 300)}"
            if "fault" in row
            else next(rest)
            for row in said
        ]
        return "\n".join([head, *rows, counted(len(said), "shard")])
