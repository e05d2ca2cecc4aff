"""Where each shard of a crawl is, and how it is doing."""

from __future__ import annotations

from typing import Any

from crawlproject.state.client import State
from crawlproject.state.master import master_of


async def shard_status(state: State) -> dict[str, Any]:
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
        pipe.scard(keys.sources)
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
        "workers": len(await state.scripts.alive(timeout=state.config.heartbeat_timeout)),
        "sources": sources,
        "requests": int(requests or 0),
        "sent": sum(waiting),
        "node_bytes": memory["used_memory"],
        "replicas": len(replicas),
        "replica_lag_bytes": ahead and max(int(replication["master_repl_offset"]) - int(ahead["offset"]), 0),
        "replica_lag_s": ahead and int(ahead["lag"]),
    }


def node_of(state: State) -> str:
    """Return where the node of a shard is, after it has answered."""
    client = state.redis
    if (master := master_of(client)) is not None:
        host, port = master.address or ("?", "?")
        return f"{host}:{port}"
    where = client.connection_pool.connection_kwargs
    return str(where.get("path") or f"{where.get('host')}:{where.get('port', '')}".rstrip(":"))
