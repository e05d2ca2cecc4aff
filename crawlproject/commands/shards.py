"""`scrapy shards`: where the shards of a crawl are, and how they are doing."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from crawlproject import cli
from crawlproject.state.client import State
from crawlproject.state.over_shards import ask_shards
from crawlproject.status.sample import node_of
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
    """Show each shard of a crawl (CRAWL_SHARDS): its node and the memory in use there, its sources and
    outstanding requests, the work there for other shards, the lag of its replica, its workers and its leader. A
    shard that does not answer has a line with the reason, and the exit code is 1.
    """

    examples = ("scrapy shards",)
    spider_help = "the spider whose requests are counted"
    is_of_one_spider = False

    indent = 1

    async def ask(self, state: State, args: list[str], opts: argparse.Namespace) -> list[dict[str, Any]]:
        found, away = await ask_shards(state.shards, _status_of)
        self.exitcode = int(bool(away))
        return [
            found[shard]
            if shard in found
            else {"shard": shard.number, "tag": shard.keys.namespace, "fault": away[shard]}
            for shard in state.shards
        ]

    def words(self, said: Any, opts: argparse.Namespace) -> str:
        answers = [[cell(row) for cell in _COLUMNS.values()] for row in said if "fault" not in row]
        faults = {row["shard"]: printable(row["fault"], 300) for row in said if "fault" in row}
        lines = [
            *cli.in_columns([list(_COLUMNS), *answers]),
            *(f"shard {number} does not answer: {fault}" for number, fault in faults.items()),
        ]
        return "\n".join([*lines, counted(len(said), "shard")])


async def _status_of(state: State) -> dict[str, Any]:
    """Return the status of a shard, by the keys of docs/operators.md.

    `workers` and `requests` are the living and the outstanding ones of one spider; `sent` is what waits there for
    other shards. Of several replicas the one that is furthest ahead tells the lag.

    Raises:
        REDIS_TROUBLE: it does not answer.

    """
    client: Any = state.redis
    keys = state.keys
    async with client.pipeline(transaction=False) as pipe:
        pipe.get(keys.leader)
        pipe.hlen(keys.rates)
        pipe.hget(keys.counters, "outstanding")
        pipe.info("memory")
        pipe.info("replication")
        for number in range(state.count):
            pipe.llen(f"{keys.foreign_of}{number}")
        leader, sources, requests, memory, replication, *waiting = await pipe.execute()
    replicas = [one for one in replication.values() if isinstance(one, dict) and one.get("state") == "online"]
    ahead = max(replicas, key=lambda one: int(one["offset"]), default=None)
    return {
        "shard": state.number,
        "tag": keys.namespace,
        "node": node_of(state),
        "leader": leader and leader.decode(errors="replace"),
        "workers": len(await state.workers()),
        "sources": sources,
        "requests": int(requests or 0),
        "sent": sum(waiting),
        "node_bytes": memory["used_memory"],
        "replicas": len(replicas),
        "replica_lag_bytes": ahead and max(int(replication["master_repl_offset"]) - int(ahead["offset"]), 0),
        "replica_lag_s": ahead and int(ahead["lag"]),
    }
